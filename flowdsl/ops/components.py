"""map_component and select: operators on the components of each element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
from typing_extensions import TypeVarTuple

from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, ValueSpec, class_of
from flowdsl.elements.structure import (
    Component,
    arguments_of,
    assemble,
    components,
    form_of,
    is_named_tuple,
)
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import (
    PARALLEL_KEYWORD_ADVICE,
    AnyNode,
    CodeTemplate,
    E,
    FlowBase,
    T,
    cached_per_node,
    called_with,
    flow,
    format_call,
    frozen_node,
    name_of,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
    spec_of_result,
    with_inferred,
)

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Named, TypedDictLike
    from flowdsl.flow import Flow

A0 = TypeVar("A0")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
A5 = TypeVar("A5")
A6 = TypeVar("A6")
A7 = TypeVar("A7")
V = TypeVar("V")
W = TypeVar("W")
Ts = TypeVarTuple("Ts")


def _validate_index(node: AnyNode, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, (int, str)) or isinstance(value, bool):
        raise InvalidFlow(
            f"map_component: {field.name} must be the number of a component, its key in a dict, or "
            f"the name of a field, got {value!r}"
        )


def _validate_picks(node: AnyNode, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    keys = [x for x in value if isinstance(x, str)]
    wrong = [x for x in value if not callable(x) and not isinstance(x, str)]
    if wrong or not value or (keys and len(keys) < len(value)):
        raise InvalidFlow(
            f"select: pass selectors, such as c0, or names of components, one or more, and all of "
            f"one kind; got ({', '.join(map(_spelled, value))})"
        )
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InvalidFlow(f"select: a dict has each key only once, got {twice!r} twice")


def _spelled(selector: object) -> str:
    return name_of(selector) if callable(selector) else repr(selector)


@frozen_node
class MapComponent(CodeTemplate[Any, Any, E], Generic[E]):
    """Elements with ``func`` applied to one component."""

    func: Callable[[Any], Any] = attrs.field(validator=called_with("component"))
    index: int | str = attrs.field(converter=plain_int, validator=_validate_index)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        index = "" if self.index == 0 else repr(self.index)
        return format_call("map_component", name_of(self.func), index)

    @property
    def loop_line(self) -> str:
        """Source code that changes pairs inline, without a call: most rows are pairs.

        ``{func}`` and ``{change}`` are attributes of this node (see ``CodeTemplate``).
        """
        changed_pairs = {0: "({func}(x[0]), x[1])", 1: "(x[0], {func}(x[1]))"}
        if self.index not in changed_pairs:
            return "x = {change}(x)"
        pair = changed_pairs[self.index]
        return f"x = {pair} if type(x) is tuple and len(x) == 2 else {{change}}(x)"

    @property
    def change(self) -> Callable[[Any], Any]:
        """The function that changes the component of an element; fast for tuples."""
        func, index, change_any = self.func, self.index, self._change
        if isinstance(index, str):
            return change_any

        def change(x: Any) -> Any:
            if isinstance(x, tuple) and -len(x) <= index < len(x):
                values = list(x)
                values[index] = func(values[index])
                return tuple(values) if type(x) is tuple else with_values(x, values)
            return change_any(x)

        return change

    def _change(self, x: Any) -> Any:
        parts = dict(components(x) or ())
        name = _name(self.index, form_of(x), list(parts))
        _require_settable(form_of(x), name)
        parts[name] = self.func(parts[name])
        if isinstance(x, tuple):
            return with_values(x, parts.values())
        return assemble(form_of(x), parts)

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        source = self.source.spec(probe)
        if may_have_any(source):
            return with_inferred(self, UNKNOWN, probe)
        form, parts = _parts(source)
        name = _name(self.index, form, list(parts))
        _require_settable(form, name)
        parts[name] = spec_of_result(self.func)
        if _is_plain_tuple(form):
            return with_inferred(self, _tuple_of(parts.values()), probe)
        return with_inferred(self, StructSpec(form, (*parts.items(),)), probe)


@frozen_node
class Select(CodeTemplate[Any, Any, E], Generic[E]):
    """The components that selectors or keys pick from every element, in the selectors' order."""

    picks: tuple[Any, ...] = attrs.field(validator=_validate_picks)

    def __attrs_post_init__(self) -> None:
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        return f"select({', '.join(map(_spelled, self.picks))})"

    @property
    def loop_line(self) -> str:
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

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        source = self.source.spec(probe)
        specs = [_spec_of_pick(pick, source) for pick in self.picks]
        if callable(self.picks[0]):
            return with_inferred(self, _tuple_of(specs), probe)
        return with_inferred(
            self, StructSpec(dict, tuple(zip(self.picks, specs, strict=True))), probe
        )


def with_values(x: Any, values: Iterable[Any]) -> Any:
    """A tuple with other components: a NamedTuple keeps its class."""
    return tuple(values) if _is_plain_tuple(type(x)) else type(x)._make(values)


def _is_plain_tuple(form: type) -> bool:
    """Return True for the class of a tuple without names."""
    return issubclass(form, tuple) and not is_named_tuple(form)


def _require_settable(form: type, name: str) -> None:
    if (arguments_of(form) or {}).get(name, name) is None:  # the constructor takes no such argument
        raise SpecMismatch(f"{form.__name__} sets its field {name!r} by itself")


def _name(component: int | str, form: type, names: Sequence[str]) -> str:
    """The name of a component, from its number in a tuple, its key in a dict, or its field.

    Raises:
        SpecMismatch: There is no such component; the message lists the existing ones.
    """
    has_names = bool(names) and not _is_plain_tuple(form)
    if isinstance(component, str):
        if has_names and component in names:
            return component
    elif issubclass(form, tuple) and -len(names) <= component < len(names):
        return names[component]
    valid = ", ".join(map(repr, names)) if has_names else str(len(names))
    of = f" of {valid}" if has_names or issubclass(form, (tuple, dict)) else ""
    raise SpecMismatch(
        f"there is no component {component!r} in this {form.__name__}{of}; components of a tuple "
        f"are numbered from 0, those of a dict, a NamedTuple or a record are named; for any other "
        f"element use map"
    )


def may_have_any(spec: Spec) -> bool:
    """Return True if a spec leaves the components unknown."""
    if not isinstance(spec, ValueSpec):
        return False
    return spec.type is object or issubclass(spec.type, (tuple, dict))


def _parts(spec: Spec) -> tuple[type, dict[str, Spec]]:
    """The class of elements with a spec, and the specs of their components."""
    if isinstance(spec, StructSpec):
        return spec.form, dict(spec.fields)
    return class_of(spec), {}


def _tuple_of(specs: Iterable[Spec]) -> StructSpec:
    return StructSpec(tuple, tuple((str(i), spec) for i, spec in enumerate(specs)))


def _spec_of_pick(pick: Any, source: Spec) -> Spec:
    component = pick.index if isinstance(pick, Component) else pick
    if callable(component):
        return spec_of_result(component)
    if may_have_any(source):
        return UNKNOWN
    form, parts = _parts(source)
    return parts[_name(component, form, list(parts))]


class Components(FlowBase[T, E]):
    """Operators on the components of each element."""

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
    @overload
    def map_component(
        self: FlowBase[Named, E], func: Callable[[Any], object], index: str
    ) -> Flow[Any, E]: ...
    @rejects_keywords(map_func="write {name}(f)", **PARALLEL_KEYWORD_ADVICE)
    def map_component(
        self: FlowBase[Any, Any], func: Callable[[Any], Any], index: int | str = 0
    ) -> Flow[Any, Any]:
        """Apply ``func`` to one component, and keep the others unchanged.

        ``index`` is the number of a tuple's component, -1 for the last, a key of a dict, or the
        name of a field of a NamedTuple, a dataclass or an attrs class. The element keeps its class,
        whose annotations may no longer be true, as in ``augment``; a dataclass or attrs class is
        constructed again.

        Type checkers support the numbers 0 to 7 and -1, and check ``func``; to them the result is a
        plain tuple, which ``starmap(Sample)`` names again. For a field's name, the result is
        ``Any`` to them, as they do not know the field's type. Nor do they distinguish the keys of a
        dict with values of several types.

        Length: the source's.

        Effects: none.

        Errors: as for ``map``. ``InvalidFlow`` for a component that is known not to exist;
        otherwise a ``SpecMismatch`` in an ``ElementError``.

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
        self: FlowBase[TypedDictLike | Named, E], key: str, /, *keys: str
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
        """Select components of each element, in the order of the arguments.

        With selectors, ``c0`` to ``c7`` or any functions of the element, each element is a tuple of
        their results; with keys of a dict, or names of the fields of a NamedTuple, a dataclass or
        an attrs class, it is a dict with these. Type checkers support up to eight selectors.

        Length: the source's.

        Effects: none.

        Errors: ``InvalidFlow`` without arguments, for keys and selectors together, and for a
        component that is known not to exist; otherwise a ``SpecMismatch`` in an ``ElementError``,
        or the exception of the selector.

        >>> import flowdsl as fl
        >>> fl.from_items([("a", 1, 0.5)]).select(fl.c2, fl.c0).collect()
        [(0.5, 'a')]
        >>> fl.from_items([{"left": 1, "right": 2, "up": 3}]).select("up", "left").collect()
        [{'up': 3, 'left': 1}]

        Source: ``SelectComponent`` in tensorpack.

        Elsewhere: tensorpack ``SelectComponent``; tf.data none; Grain none; torchdata ``Slicer``.
        """
        return flow(Select[Any](self.node, picks))
