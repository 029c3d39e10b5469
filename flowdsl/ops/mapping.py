"""map, filter, flat_map, select, enumerate and the like: each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import FunctionType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import attrs
import numpy as np
from typing_extensions import TypeVarTuple

from flowdsl.arguments import (
    PARALLEL,
    at_least,
    elsewhere,
    is_callable,
    name_of,
    plain_int,
    the_element,
    titled,
    unless,
)
from flowdsl.effects import Unsized
from flowdsl.elements import Component, assemble, components, form_of
from flowdsl.errors import ElementError, InvalidFlow, SpecMismatch
from flowdsl.kinds import Counting, Elementwise, Spelled
from flowdsl.node import A, AnyNode, E, FlowBase, Node, Passes, Row, T, U, flow, remembered
from flowdsl.numbers.randomness import generator
from flowdsl.probing import probed, refuse_mismatch, spec_of_result
from flowdsl.specs import UNKNOWN, Spec, StructSpec, ValueSpec, class_of, spec_of_type

if TYPE_CHECKING:
    from flowdsl.batches import TypedDictLike, Unknown
    from flowdsl.flow import Flow

A0 = TypeVar("A0")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
A5 = TypeVar("A5")
A6 = TypeVar("A6")
A7 = TypeVar("A7")
B = TypeVar("B")
V = TypeVar("V")
W = TypeVar("W")
Ts = TypeVarTuple("Ts")

Truth: TypeAlias = bool | np.bool_ | Literal["", b"", 0]
"""What a condition returns: a bool, or an empty value, as ``line and line[0] != "#"`` may."""


def _settled(node: AnyNode, known: Spec, probe: bool) -> Spec:
    return probed(node, known) if probe else known


@attrs.frozen
class Map(Spelled[A, U, E], Generic[A, U, E]):
    """``func`` applied to every element."""

    func: Callable[[A], U] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"map({name_of(self.func)})"

    @property
    def line(self) -> str:
        return "x = {func}(x)"

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _settled(self, spec_of_result(self.func), probe)


@attrs.frozen
class StarMap(Spelled[tuple[Any, ...], U, E], Generic[U, E]):
    """``func`` applied to the unpacked components of every element."""

    func: Callable[..., U] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"starmap({name_of(self.func)})"

    @property
    def line(self) -> str:
        """A call with one argument for each of the function's is faster than ``(*x)``."""
        func = self.func
        n = func.__code__.co_argcount if type(func) is FunctionType else 2  # not a mock
        each = ", ".join(f"x[{i}]" for i in range(n))
        return f"x = {{func}}({each}) if type(x) is tuple and len(x) == {n} else {{func}}(*x)"

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _settled(self, spec_of_result(self.func), probe)


@attrs.frozen
class RandomMap(Elementwise[A, U, E], Generic[A, U, E]):
    """``func`` applied to every element and a random generator of the element's own."""

    func: Callable[[A, np.random.Generator], U] = attrs.field(validator=is_callable)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """Makes this operator's draws differ from those of other operators with the same seed."""

    @property
    def title(self) -> str:
        return titled("random_map", name_of(self.func), unless("seed", self.seed, 0))

    def apply(self, x: A, epoch: int, position: int) -> U:
        return self.func(x, generator(self.seed, self.salt, epoch, position))

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _settled(self, spec_of_result(self.func), probe)


@attrs.frozen
class Filter(Spelled[A, A, E | Unsized], Generic[A, E]):
    """The elements for which ``keep`` is true."""

    drops: ClassVar[bool] = True
    keep: Callable[[A], Truth] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"filter({name_of(self.keep)})"

    @property
    def line(self) -> str:
        return "x = x if {keep}(x) else DROPPED"

    @remembered
    def spec(self, probe: bool) -> Spec:
        # The source's spec may come from an element that is left out here.
        return self.source.spec(True) if probe else UNKNOWN


@attrs.frozen
class FilterMap(Spelled[A, U, E | Unsized], Generic[A, U, E]):
    """The results of ``func`` on every element, without those that are None."""

    drops: ClassVar[bool] = True
    func: Callable[[A], U | None] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"filter_map({name_of(self.func)})"

    @property
    def line(self) -> str:
        return "x = DROPPED if (x := {func}(x)) is None else x"

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _settled(self, _spec_but_none(_annotation(self.func)), probe)


@attrs.frozen
class FlatMap(Node[U, E | Unsized], Generic[A, U, E]):
    """The elements of ``func(element)`` for every element, one after another."""

    source: Node[A, E]
    func: Callable[[A], Iterable[U]] = attrs.field(validator=is_callable)

    @property
    def title(self) -> str:
        return f"flat_map({name_of(self.func)})"

    @property
    def length(self) -> int | None:
        return None

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _settled(self, _spec_of_items(_annotation(self.func)), probe)

    def rows(self, epoch: int, sources: Sequence[Passes]) -> Iterator[Row[U]]:
        with closing(self._elements(epoch, sources)) as elements:
            yield from enumerate(elements)

    def _elements(self, epoch: int, sources: Sequence[Passes]) -> Generator[U]:
        for position, x in sources[0](epoch):
            try:
                yield from _iterator(self.func(x))
            except Exception as error:  # no ``failure``: the source's element failed
                origin = self.source.origin(epoch, position)
                raise ElementError(self.title, position, epoch, origin, the_element(x)) from error


def _iterator(made: Iterable[A]) -> Iterator[A]:
    try:
        return iter(made)
    except TypeError as error:
        raise SpecMismatch(
            f"the function of a flat_map must return an iterable of elements, such as a list or a "
            f"generator, got {type(made).__name__}; use map where it returns one element, and "
            f"filter_map where it returns one or None"
        ) from error


def _annotation(function: object) -> Any:
    """The annotated return type of a function; object without a useful annotation."""
    try:
        return get_type_hints(function, include_extras=True).get("return", object)
    except Exception:  # the annotation cannot be evaluated
        return object


def _spec_but_none(hint: Any) -> Spec:
    """The spec of ``B``, from ``B | None``."""
    if get_origin(hint) not in (Union, UnionType):
        return UNKNOWN if hint is NoneType else spec_of_type(hint)
    others = [arg for arg in get_args(hint) if arg is not NoneType]
    return spec_of_type(others[0]) if len(others) == 1 else UNKNOWN


_ITERABLES = (Iterable, Iterator, Generator, Collection, Sequence, list)


def _spec_of_items(hint: Any) -> Spec:
    """The spec of ``B``, from ``Iterable[B]`` and the like."""
    origin, args = get_origin(hint), get_args(hint)
    items = origin in _ITERABLES or (origin is tuple and args[1:] == (...,))
    return spec_of_type(args[0]) if items else UNKNOWN


# -- components ------------------------------------------------------------------------------------


def _is_key_or_number(node: AnyNode, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise InvalidFlow(
            f"map_component: {field.name} must be the number of a component, or its key in a dict, "
            f"got {value!r}"
        )


def _are_selectors(node: AnyNode, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    keys = [x for x in value if isinstance(x, str)]
    wrong = [x for x in value if not callable(x) and not isinstance(x, str)]
    if wrong or not value or (keys and len(keys) < len(value)):
        raise InvalidFlow(
            f"select: give selectors, such as c0, or keys of a dict, one or more and all of one "
            f"kind; got ({', '.join(map(_spelled, value))})"
        )
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InvalidFlow(f"select: a dict has each key only once, got {twice!r} twice")


def _spelled(selector: object) -> str:
    return name_of(selector) if callable(selector) else repr(selector)


@attrs.frozen
class MapComponent(Spelled[Any, Any, E], Generic[E]):
    """Every element with ``func`` applied to one component."""

    func: Callable[[Any], Any] = attrs.field(validator=is_callable)
    index: int | str = attrs.field(converter=plain_int, validator=_is_key_or_number)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        index = "" if self.index == 0 else repr(self.index)
        return titled("map_component", name_of(self.func), index)

    @property
    def line(self) -> str:
        """Source code that changes pairs inline, without a call: most rows are pairs."""
        pairs = {0: "({func}(x[0]), x[1])", 1: "(x[0], {func}(x[1]))"}
        if self.index not in pairs:
            return "x = {change}(x)"
        made = pairs[self.index]
        return f"x = {made} if type(x) is tuple and len(x) == 2 else {{change}}(x)"

    @property
    def change(self) -> Callable[[Any], Any]:
        """The function that changes the component of an element; fast for tuples."""
        func, index, other = self.func, self.index, self._change
        if isinstance(index, str):
            return other

        def change(x: Any) -> Any:
            if isinstance(x, tuple) and -len(x) <= index < len(x):
                values = list(x)
                values[index] = func(values[index])
                return tuple(values)
            return other(x)

        return change

    def _change(self, x: Any) -> Any:
        parts = dict(components(x) or ())
        name = _name(self.index, form_of(x), list(parts))
        parts[name] = self.func(parts[name])
        return assemble(dict if isinstance(x, dict) else tuple, parts)

    @remembered
    def spec(self, probe: bool) -> Spec:
        source = self.source.spec(probe)
        if _may_have_any(source):
            return _settled(self, UNKNOWN, probe)
        form, parts = _parts(source)
        parts[_name(self.index, form, list(parts))] = spec_of_result(self.func)
        if form is dict:
            return _settled(self, StructSpec(dict, tuple(parts.items())), probe)
        return _settled(self, _tuple_of(parts.values()), probe)


@attrs.frozen
class Select(Spelled[Any, Any, E], Generic[E]):
    """The components that selectors or keys pick from every element, in their order."""

    picks: tuple[Any, ...] = attrs.field(validator=_are_selectors)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        return f"select({', '.join(map(_spelled, self.picks))})"

    @property
    def line(self) -> str:
        numbers = [pick.index for pick in self.picks if isinstance(pick, Component)]
        if len(numbers) < len(self.picks) or not all(type(i) is int for i in numbers):
            return "x = {pick}(x)"
        return f"x = ({''.join(f'x[{i}], ' for i in numbers)})"

    def pick(self, x: Any) -> Any:
        """The components that the selectors pick from one element."""
        if callable(self.picks[0]):
            return tuple([pick(x) for pick in self.picks])
        parts = dict(components(x) or ())
        return {key: parts[_name(key, form_of(x), list(parts))] for key in self.picks}

    @remembered
    def spec(self, probe: bool) -> Spec:
        source = self.source.spec(probe)
        specs = [_spec_of_pick(pick, source) for pick in self.picks]
        if callable(self.picks[0]):
            return _settled(self, _tuple_of(specs), probe)
        return _settled(self, StructSpec(dict, tuple(zip(self.picks, specs, strict=True))), probe)


def _name(component: int | str, form: type, names: Sequence[str]) -> str:
    """The name of the component that a number in a tuple, or a key in a dict, stands for.

    Raises:
        SpecMismatch: There is none; the message says what there is.
    """
    if isinstance(component, str):
        found = form is dict and component in names
    else:
        found = issubclass(form, tuple) and -len(names) <= component < len(names)
    if found:
        return component if isinstance(component, str) else names[component]
    has = ", ".join(map(repr, names)) if form is dict else str(len(names))
    of = f" of {has}" if issubclass(form, (tuple, dict)) else ""
    raise SpecMismatch(
        f"there is no component {component!r} in this {form.__name__}{of}; those of a tuple are "
        f"numbered from 0, those of a dict are its keys; for any other element use map"
    )


def _may_have_any(spec: Spec) -> bool:
    """Whether a spec leaves open which components there are."""
    vague = (tuple, dict)
    return isinstance(spec, ValueSpec) and (spec.type is object or issubclass(spec.type, vague))


def _parts(spec: Spec) -> tuple[type, dict[str, Spec]]:
    if isinstance(spec, StructSpec):
        return spec.form, dict(spec.fields)
    return class_of(spec), {}


def _tuple_of(specs: Iterable[Spec]) -> StructSpec:
    return StructSpec(tuple, tuple((str(i), spec) for i, spec in enumerate(specs)))


def _spec_of_pick(pick: Any, source: Spec) -> Spec:
    component = pick.index if isinstance(pick, Component) else pick
    if callable(component):
        return spec_of_result(component)
    if _may_have_any(source):
        return UNKNOWN
    form, parts = _parts(source)
    return parts[_name(component, form, list(parts))]


# -- numbers ---------------------------------------------------------------------------------------


@attrs.frozen
class Enumerate(Counting[A, tuple[int, A], E], Generic[A, E]):
    """Pairs of a number and an element, counted from ``start``."""

    start: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return titled("enumerate", unless("start", self.start, 0))

    def apply(self, x: A, epoch: int, position: int) -> tuple[int, A]:
        return self.start + position, x

    @remembered
    def spec(self, probe: bool) -> Spec:
        return _tuple_of([ValueSpec(int), self.source.spec(probe)])


# -- methods ---------------------------------------------------------------------------------------


class Mapping(FlowBase[T, E]):
    """Operators on each element by itself."""

    @elsewhere(map_func="write {name}(f)", **PARALLEL)
    def map(self, func: Callable[[T], B]) -> Flow[B, E]:
        """Apply ``func`` to every element.

        ``func`` must depend on its argument only: it may run in any process, at any time, and in
        no particular order; results come back in the order of their elements.

        Length: as many elements as before.

        Effects: none.

        Errors: what ``func`` raises arrives at its place in the sequence, as the cause of an
        ``ElementError``; ``InvalidFlow`` for what cannot be called.

        >>> import flowdsl as fl
        >>> fl.from_range(3).map(lambda i: i * i).collect()
        [0, 1, 4]

        Source: ``map`` of functional programming.

        Elsewhere: tensorpack ``MapData``; tf.data ``map``; Grain ``map``; torchdata ``Mapper``.
        """
        return flow(Map(self.node, func))

    @overload
    def starmap(self: FlowBase[tuple[*Ts], E], func: Callable[[*Ts], B]) -> Flow[B, E]: ...
    @overload  # rows of unknown types, such as those of a database
    def starmap(self: FlowBase[tuple[Unknown, ...], E], func: Callable[..., B]) -> Flow[B, E]: ...
    @elsewhere(map_func="write {name}(f)", **PARALLEL)
    def starmap(self: FlowBase[Any, Any], func: Callable[..., Any]) -> Flow[Any, Any]:
        """Apply ``func`` to the components of every tuple; ``starmap(Sample)`` names them.

        Length: as many elements as before.

        Effects: none.

        Errors: as for ``map``.

        >>> import flowdsl as fl
        >>> fl.from_items([(1, 2), (3, 4)]).starmap(lambda a, b: a + b).collect()
        [3, 7]

        Source: ``itertools.starmap``.

        Elsewhere: tensorpack none; tf.data ``map``, of tuples; Grain none; torchdata none.
        """
        return flow(StarMap(self.node, func))

    @elsewhere(transform="write {name}(f)", **PARALLEL)
    def random_map(self, func: Callable[[T, np.random.Generator], B], seed: int = 0) -> Flow[B, E]:
        """Apply ``func`` to every element and a random generator of the element's own.

        The generator is a function of the seed, this operator's place in the chain, the epoch and
        the element's position: never of the worker. So the draws are the same on any number of
        processes, and fresh in each epoch. The place is the number of operators below: in two
        flows that are combined, equal seeds at equal places draw alike, so give each its own.

        Length: as many elements as before.

        Effects: none.

        Errors: as for ``map``; ``InvalidFlow`` if ``seed`` is negative.

        >>> import flowdsl as fl
        >>> noisy = fl.from_range(3).random_map(lambda i, rng: i + rng.random())
        >>> noisy.collect() == noisy.prefetch(procs=2).collect()
        True

        Source: ``random_map`` in Grain; the generator is Philox, see ``generator``.

        Elsewhere: tensorpack none; tf.data none; Grain ``random_map``; torchdata none.
        """
        return flow(RandomMap(self.node, func, seed, self.node.depth))

    # Overloads that narrow by a TypeIs would hide errors inside a lambda from mypy's users.
    @elsewhere(predicate="write {name}(f)", **PARALLEL)
    def filter(self, keep: Callable[[T], Truth]) -> Flow[T, E | Unsized]:
        """Keep the elements for which ``keep`` is true.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``.

        Errors: as for ``map``, with ``keep``.

        >>> import flowdsl as fl
        >>> fl.from_range(6).filter(lambda i: i % 3 == 0).collect()
        [0, 3]

        Source: ``filter`` of functional programming.

        Elsewhere: tensorpack ``MapData``, returning None; tf.data ``filter``; Grain ``filter``;
        torchdata ``Filter``.
        """
        return flow(Filter(self.node, keep))

    @elsewhere(map_func="write {name}(f)", **PARALLEL)
    def filter_map(self, func: Callable[[T], B | None]) -> Flow[B, E | Unsized]:
        """Apply ``func`` to every element, and leave out those for which it returns None.

        To check and convert at once, and for a type that ``filter`` cannot narrow. Nowhere else
        does None leave an element out.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``.

        Errors: as for ``map``.

        >>> import flowdsl as fl
        >>> fl.from_items(["a=1", "#", "b="]).filter_map(
        ...     lambda line: line.split("=") if "=" in line else None
        ... ).collect()
        [['a', '1'], ['b', '']]

        Source: ``filter_map`` of Rust's iterators.

        Elsewhere: tensorpack ``MapData``, returning None; tf.data none; Grain none; torchdata none.
        """
        return flow(FilterMap[T, B, E](self.node, func))

    @elsewhere(map_func="write {name}(f)", **PARALLEL)
    def flat_map(self, func: Callable[[T], Iterable[B]]) -> Flow[B, E | Unsized]:
        """Replace every element by the elements of ``func(element)``, a list, a generator, a flow.

        They are taken one at a time, as they are asked for, in the consumer's process. An empty
        iterable leaves its element out; an endless one keeps the next from ever coming. A generator
        is closed with the pass, however that ends.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``.

        Errors: what ``func`` or its iterable raises arrives at its place in the sequence, as the
        cause of an ``ElementError`` that names the element which ``func`` was given; likewise a
        ``SpecMismatch`` for a result that is no iterable.

        >>> import flowdsl as fl
        >>> fl.from_items(["a b", "", "c"]).flat_map(str.split).collect()
        ['a', 'b', 'c']

        Source: ``flatMap`` of functional programming, the bind of the list monad.

        Elsewhere: tensorpack none; tf.data ``flat_map``; Grain ``FlatMapIterDataset``; torchdata
        ``FlatMapper``.
        """
        return flow(FlatMap[T, B, E](self.node, func))

    @overload
    def map_component(
        self: FlowBase[tuple[A0, *Ts], E], func: Callable[[A0], W], index: Literal[0] = 0
    ) -> Flow[tuple[W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, *Ts], E], func: Callable[[A1], W], index: Literal[1]
    ) -> Flow[tuple[A0, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, *Ts], E], func: Callable[[A2], W], index: Literal[2]
    ) -> Flow[tuple[A0, A1, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, A3, *Ts], E], func: Callable[[A3], W], index: Literal[3]
    ) -> Flow[tuple[A0, A1, A2, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, A3, A4, *Ts], E],
        func: Callable[[A4], W],
        index: Literal[4],
    ) -> Flow[tuple[A0, A1, A2, A3, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, A3, A4, A5, *Ts], E],
        func: Callable[[A5], W],
        index: Literal[5],
    ) -> Flow[tuple[A0, A1, A2, A3, A4, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, A3, A4, A5, A6, *Ts], E],
        func: Callable[[A6], W],
        index: Literal[6],
    ) -> Flow[tuple[A0, A1, A2, A3, A4, A5, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[A0, A1, A2, A3, A4, A5, A6, A7, *Ts], E],
        func: Callable[[A7], W],
        index: Literal[7],
    ) -> Flow[tuple[A0, A1, A2, A3, A4, A5, A6, W, *Ts], E]: ...
    @overload
    def map_component(
        self: FlowBase[tuple[*Ts, A0], E], func: Callable[[A0], W], index: Literal[-1]
    ) -> Flow[tuple[*Ts, W], E]: ...
    @overload
    def map_component(
        self: FlowBase[dict[str, V], E], func: Callable[[V], W], index: str
    ) -> Flow[dict[str, V | W], E]: ...
    @overload
    def map_component(
        self: FlowBase[TypedDictLike, E], func: Callable[[Any], object], index: str
    ) -> Flow[dict[str, Any], E]: ...
    @elsewhere(map_func="write {name}(f)", **PARALLEL)
    def map_component(
        self: FlowBase[Any, Any], func: Callable[[Any], Any], index: int | str = 0
    ) -> Flow[Any, Any]:
        """Apply ``func`` to one component, and leave the others as they are.

        ``index`` is the number of a tuple's component, -1 being the last, or a key of a dict. A
        NamedTuple gives a plain tuple, since the component's type may change: ``starmap(Sample)``
        names it again. Checkers follow the numbers 0 to 7 and -1; of a dict whose values are of
        several types they lose which is which. For a field of a record there is ``map``.

        Length: as many elements as before.

        Effects: none.

        Errors: as for ``map``. A component that is not there is ``InvalidFlow`` where the elements
        are known beforehand, else a ``SpecMismatch`` in an ``ElementError``.

        >>> import flowdsl as fl
        >>> fl.from_items([("a", 1), ("b", 2)]).map_component(lambda i: i / 2, 1).collect()
        [('a', 0.5), ('b', 1.0)]

        Source: ``MapDataComponent`` in tensorpack.

        Elsewhere: tensorpack ``MapDataComponent``; tf.data none; Grain none; torchdata ``Mapper``,
        with ``input_col``.
        """
        return flow(MapComponent[Any](self.node, func, index))

    @overload
    def select(
        self: FlowBase[dict[str, V], E], key: str, /, *keys: str
    ) -> Flow[dict[str, V], E]: ...
    @overload
    def select(
        self: FlowBase[TypedDictLike, E], key: str, /, *keys: str
    ) -> Flow[dict[str, Any], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        /,
    ) -> Flow[tuple[A0], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        /,
    ) -> Flow[tuple[A0, A1], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        /,
    ) -> Flow[tuple[A0, A1, A2], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        d: Callable[[T], A3],
        /,
    ) -> Flow[tuple[A0, A1, A2, A3], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        d: Callable[[T], A3],
        e: Callable[[T], A4],
        /,
    ) -> Flow[tuple[A0, A1, A2, A3, A4], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        d: Callable[[T], A3],
        e: Callable[[T], A4],
        f: Callable[[T], A5],
        /,
    ) -> Flow[tuple[A0, A1, A2, A3, A4, A5], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        d: Callable[[T], A3],
        e: Callable[[T], A4],
        f: Callable[[T], A5],
        g: Callable[[T], A6],
        /,
    ) -> Flow[tuple[A0, A1, A2, A3, A4, A5, A6], E]: ...
    @overload
    def select(
        self,
        a: Callable[[T], A0],
        b: Callable[[T], A1],
        c: Callable[[T], A2],
        d: Callable[[T], A3],
        e: Callable[[T], A4],
        f: Callable[[T], A5],
        g: Callable[[T], A6],
        h: Callable[[T], A7],
        /,
    ) -> Flow[tuple[A0, A1, A2, A3, A4, A5, A6, A7], E]: ...
    def select(self: FlowBase[Any, Any], *picks: Any) -> Flow[Any, Any]:
        """Keep some components, in the order in which they are named here.

        Selectors, ``c0`` to ``c7`` or any functions of the element, give a tuple of what they
        pick; keys give a dict with these keys. Checkers follow up to eight selectors.

        Length: as many elements as before.

        Effects: none.

        Errors: ``InvalidFlow`` for nothing to select, for keys and selectors together, and for a
        component that is known not to be there; else a ``SpecMismatch`` in an ``ElementError``, or
        what the selector raises.

        >>> import flowdsl as fl
        >>> fl.from_items([("a", 1, 0.5)]).select(fl.c2, fl.c0).collect()
        [(0.5, 'a')]
        >>> fl.from_items([{"left": 1, "right": 2, "up": 3}]).select("up", "left").collect()
        [{'up': 3, 'left': 1}]

        Source: ``SelectComponent`` in tensorpack.

        Elsewhere: tensorpack ``SelectComponent``; tf.data none; Grain none; torchdata ``Slicer``.
        """
        return flow(Select[Any](self.node, picks))

    def enumerate(self, start: int = 0) -> Flow[tuple[int, T], E]:
        """Put its number before every element: ``start``, ``start + 1``, and so on.

        The numbers are those of the elements as they come here, without gaps: after a filter too,
        and from ``start`` anew in each epoch.

        Length: as many elements as before.

        Effects: none.

        Errors: ``InvalidFlow`` for ``start < 0``.

        >>> import flowdsl as fl
        >>> fl.from_items("abc").filter(lambda s: s != "b").enumerate(start=1).collect()
        [(1, 'a'), (2, 'c')]

        Source: the built-in ``enumerate``.

        Elsewhere: tensorpack none; tf.data ``enumerate``; Grain ``map_with_index``; torchdata
        ``Enumerator``.
        """
        return flow(Enumerate(self.node, start))
