"""map, filter, flat_map, enumerate and similar: operators on single elements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import FunctionType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
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

from flowdsl.effects import Unsized
from flowdsl.elements.declared_specs import spec_of_type
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, ValueSpec
from flowdsl.errors import ElementError, SpecMismatch, raise_with_cause
from flowdsl.nodes import (
    PARALLEL_KEYWORD_ADVICE,
    A,
    CodeTemplate,
    E,
    Elementwise,
    FlowBase,
    IndexedMap,
    MadeFromLatest,
    Node,
    PassFactory,
    Restartable,
    Restarts,
    Row,
    T,
    U,
    at_least,
    cached_per_node,
    called_with,
    describe_element,
    flow,
    format_call,
    frozen_node,
    generator,
    keyword_unless_default,
    name_of,
    plain_int,
    rejects_keywords,
    spec_of_result,
    validate_callable,
    validate_condition,
    with_inferred,
)
from flowdsl.ops.refused_items import refuse_tables

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Unknown
    from flowdsl.flow import Flow
    from flowdsl.ops.conditions import Truth

B = TypeVar("B")
Ts = TypeVarTuple("Ts")


@frozen_node
class Map(CodeTemplate[A, U, E], Generic[A, U, E]):
    """``func`` applied to every element."""

    func: Callable[[A], U] = attrs.field(validator=called_with("element"))

    @property
    def title(self) -> str:
        return f"map({name_of(self.func)})"

    @property
    def loop_line(self) -> str:
        return "x = {func}(x)"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, spec_of_result(self.func), probe)


@frozen_node
class StarMap(CodeTemplate[tuple[Any, ...], U, E], Generic[U, E]):
    """``func`` applied to the unpacked components of every element."""

    func: Callable[..., U] = attrs.field(validator=validate_callable)

    @property
    def title(self) -> str:
        return f"starmap({name_of(self.func)})"

    @property
    def loop_line(self) -> str:
        """A call with explicit arguments, which is faster than ``(*x)``."""
        func = self.func
        # A mock has no usable ``__code__``.
        n = func.__code__.co_argcount if type(func) is FunctionType else 2
        arguments = ", ".join(f"x[{i}]" for i in range(n))
        return f"x = {{func}}({arguments}) if type(x) is tuple and len(x) == {n} else {{func}}(*x)"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, spec_of_result(self.func), probe)


@frozen_node
class RandomMap(Elementwise[A, U, E], Generic[A, U, E]):
    """``func`` applied to every element and the element's own random generator."""

    draws: ClassVar[bool] = True
    func: Callable[[A, np.random.Generator], U] = attrs.field(
        validator=called_with("element", "generator")
    )
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""

    @property
    def title(self) -> str:
        return format_call(
            "random_map", name_of(self.func), keyword_unless_default("seed", self.seed, 0)
        )

    def apply(self, x: A, epoch: int, position: int) -> U:
        return self.func(x, generator(self.seed, self.salt, epoch, position))

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, spec_of_result(self.func), probe)


@frozen_node
class Filter(CodeTemplate[A, A, E | Unsized], Generic[A, E]):
    """The elements for which ``keep`` is true."""

    drops: ClassVar[bool] = True
    keep: Callable[[A], Truth] = attrs.field(validator=validate_condition)

    @property
    def title(self) -> str:
        return f"filter({name_of(self.keep)})"

    @property
    def loop_line(self) -> str:
        return "x = x if {keep}(x) else DROPPED"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        # Without a probe, a spec states what was declared. The source's may come from its first
        # element instead, as in from_items, and this element may be left out here.
        return self.source.spec(True) if probe else UNKNOWN


@frozen_node
class FilterMap(CodeTemplate[A, U, E | Unsized], Generic[A, U, E]):
    """The results of ``func`` on every element, without those that are None."""

    drops: ClassVar[bool] = True
    func: Callable[[A], U | None] = attrs.field(validator=called_with("element"))

    @property
    def title(self) -> str:
        return f"filter_map({name_of(self.func)})"

    @property
    def loop_line(self) -> str:
        return "x = DROPPED if (x := {func}(x)) is None else x"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, _spec_without_none(_annotation(self.func)), probe)


@frozen_node
class FlatMap(MadeFromLatest[U, E | Unsized], Restartable[U, E | Unsized], Generic[A, U, E]):
    """The concatenated elements of ``func(element)`` for every element."""

    source: Node[A, E]
    func: Callable[[A], Iterable[U]] = attrs.field(validator=called_with("element"))

    @property
    def title(self) -> str:
        return f"flat_map({name_of(self.func)})"

    @property
    def length(self) -> int | None:
        return None

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, spec_of_items(self.func), probe)

    def rows_from(
        self, epoch: int, sources: Sequence[PassFactory], restarts: Restarts
    ) -> Iterator[Row[U]]:
        with closing(self._elements(epoch, restarts.before_each(sources[0]))) as elements:
            yield from enumerate(elements, restarts.yielded)

    def _elements(self, epoch: int, source: PassFactory) -> Generator[U]:
        for position, x in source(epoch):
            try:
                yield from iterator_of_result("flat_map", self.func(x))
            except GeneratorExit:  # the pass is closed
                raise
            except BaseException as error:  # not ``error_at``: the position is the source's
                origin = self.source.origin(epoch, position)
                raise_with_cause(
                    ElementError(self.title, position, epoch, origin, describe_element(x)), error
                )


def iterator_of_result(operator: str, result: Iterable[A]) -> Iterator[A]:
    """An iterator over what the function of an operator returned."""
    refuse_tables(f"{operator}: the result of the function", result)
    try:
        return iter(result)
    except TypeError as error:
        raise SpecMismatch(
            f"the function of {operator} must return an iterable of elements, such as a list or a "
            f"generator, got {type(result).__name__}; use map where it returns one element, and "
            f"filter_map where it returns one or None"
        ) from error


def _annotation(function: object) -> Any:
    """The annotated return type of a function; ``object`` if it cannot be read."""
    try:
        return get_type_hints(function, include_extras=True).get("return", object)
    except Exception:  # the annotation cannot be evaluated
        return object


def _spec_without_none(hint: Any) -> Spec:
    """The spec of ``B``, from ``B | None``."""
    if get_origin(hint) not in (Union, UnionType):
        return UNKNOWN if hint is NoneType else spec_of_type(hint, allow_subclasses=True)
    others = [arg for arg in get_args(hint) if arg is not NoneType]
    return spec_of_type(others[0], allow_subclasses=True) if len(others) == 1 else UNKNOWN


_ITERABLES = (Iterable, Iterator, Generator, Collection, Sequence, list)


def spec_of_items(function: object) -> Spec:
    """The spec of ``B``, for a function that returns ``Iterable[B]``, ``list[B]`` and similar."""
    hint = _annotation(function)
    origin, args = get_origin(hint), get_args(hint)
    has_items = origin in _ITERABLES or (origin is tuple and args[1:] == (...,))
    return spec_of_type(args[0], allow_subclasses=True) if has_items else UNKNOWN


# -- numbers ---------------------------------------------------------------------------------------


@frozen_node
class Enumerate(IndexedMap[A, tuple[int, A], E], Generic[A, E]):
    """Pairs of a number and an element, counted from ``start``."""

    start: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return format_call("enumerate", keyword_unless_default("start", self.start, 0))

    def apply(self, x: A, epoch: int, position: int) -> tuple[int, A]:
        return self.start + position, x

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return StructSpec(tuple, (("0", ValueSpec(int)), ("1", self.source.spec(probe))))


# -- methods ---------------------------------------------------------------------------------------


class Mapping(FlowBase[T, E]):
    """Operators on single elements."""

    @rejects_keywords(map_func="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def map(self, func: Callable[[T], B]) -> Flow[B, E]:
        """Apply ``func`` to every element.

        ``func`` must depend on its argument only: it may run in any process, at any time, and in
        no particular order; results come in the order of their elements. It should not change its
        argument: ``x = x + 1``, and not ``x += 1``. An array that other passes or elements share is
        read-only, and lists, dicts and records are copies, but an object of another class may be in
        use elsewhere.

        Length: the source's.

        Effects: none.

        Errors: an exception of ``func`` is raised at its place in the sequence, as the cause of an
        ``ElementError``; ``InvalidFlow`` for an object that cannot be called.

        >>> import flowdsl as fl
        >>> fl.from_range(3).map(lambda i: i * i).collect()
        [0, 1, 4]

        Source: ``map`` of functional programming.

        Elsewhere: tensorpack ``MapData``; tf.data ``map``; Grain ``map``; torchdata ``Mapper``.
        """
        return flow(Map(self.node, func))

    @overload
    def starmap(self: FlowBase[tuple[*Ts], E], func: Callable[[*Ts], B]) -> Flow[B, E]: ...
    @overload  # rows of unknown types, such as rows of a database
    def starmap(self: FlowBase[tuple[Unknown, ...], E], func: Callable[..., B]) -> Flow[B, E]: ...
    @rejects_keywords(map_func="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def starmap(self: FlowBase[Any, Any], func: Callable[..., Any]) -> Flow[Any, Any]:
        """Apply ``func`` to the components of every tuple; ``starmap(Sample)`` names them.

        Length: the source's.

        Effects: none.

        Errors: as for ``map``.

        >>> import flowdsl as fl
        >>> fl.from_items([(1, 2), (3, 4)]).starmap(lambda a, b: a + b).collect()
        [3, 7]

        Source: ``itertools.starmap``.

        Elsewhere: tensorpack none; tf.data ``map``, of tuples; Grain none; torchdata none.
        """
        return flow(StarMap(self.node, func))

    @rejects_keywords(transform="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def random_map(self, func: Callable[[T, np.random.Generator], B], seed: int = 0) -> Flow[B, E]:
        """Apply ``func`` to every element and the element's own random generator.

        The generator depends on the seed, this operator's place in the chain, the epoch and the
        element's position: never on the worker. So the draws are the same on any number of
        processes, and differ between epochs. The place is the number of operators below: if two
        flows are combined, operators with equal seeds at equal places draw the same numbers, so use
        different seeds. As for ``map``, ``func`` should not change its argument. Numbers that it
        draws from elsewhere, as from ``np.random``, ``random`` or a generator that it keeps, differ
        between passes and between workers: draw from the generator that is its argument, or use it
        to seed others.

        Length: the source's.

        Effects: none.

        Errors: as for ``map``; ``InvalidFlow`` if ``seed`` is negative.

        >>> import flowdsl as fl
        >>> noisy = fl.from_range(3).random_map(lambda i, rng: i + rng.random())
        >>> noisy.collect() == noisy.prefetch(procs=2).collect()
        True

        Source: ``random_map`` in Grain; the generator is Philox, see ``nodes.randomness``.

        Elsewhere: tensorpack none; tf.data none; Grain ``random_map``; torchdata none.
        """
        return flow(RandomMap(self.node, func, seed, self.node.depth))

    # No overload that narrows types by a TypeIs: mypy would no longer report errors in a lambda.
    @rejects_keywords(predicate="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def filter(self, keep: Callable[[T], Truth]) -> Flow[T, E | Unsized]:
        """Keep the elements for which ``keep`` returns a true value, as for ``if``.

        So a condition may return an empty value or None in place of False: ``re.search(pattern,
        line)``, ``line.strip()``, ``row.get("text")``. To type checkers a number is not a
        condition.

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

    @rejects_keywords(map_func="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def filter_map(self, func: Callable[[T], B | None]) -> Flow[B, E | Unsized]:
        """Apply ``func`` to every element, and leave out the elements for which it returns None.

        Use it to check and convert in one function, and to narrow a type, which ``filter`` cannot
        do. For all other operators, None is an element like any other.

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

    @rejects_keywords(map_func="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def flat_map(self, func: Callable[[T], Iterable[B]]) -> Flow[B, E | Unsized]:
        """Replace every element by the elements of ``func(element)``, a list, a generator, a flow.

        These are read one at a time, as the consumer requests them, in the consumer's process. An
        empty iterable leaves its element out. After an endless iterable, later elements are never
        reached. A generator is closed at the end of the pass, even if the pass is ended early.

        Length: unknown until the end of a pass.

        Effects: ``Unsized``.

        Errors: an exception of ``func`` or its iterable is raised at its place in the sequence, as
        the cause of an ``ElementError`` that names the argument of ``func``; likewise a
        ``SpecMismatch`` for a result that is not iterable.

        >>> import flowdsl as fl
        >>> fl.from_items(["a b", "", "c"]).flat_map(str.split).collect()
        ['a', 'b', 'c']

        Source: ``flatMap`` of functional programming, the bind of the list monad.

        Elsewhere: tensorpack none; tf.data ``flat_map``; Grain ``FlatMapIterDataset``; torchdata
        ``FlatMapper``.
        """
        return flow(FlatMap[T, B, E](self.node, func))

    def enumerate(self, start: int = 0) -> Flow[tuple[int, T], E]:
        """Pair every element with its number: ``start``, ``start + 1``, and so on.

        The numbers have no gaps, even after a filter, and begin with ``start`` in each epoch.

        Length: the source's.

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
