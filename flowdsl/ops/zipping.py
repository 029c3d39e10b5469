"""zip: the elements of several flows at the same position, joined into one."""

# Type checkers try overloads in order. The types that separate them for mypy are in
# ``elements/batch_types.pyi``.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from typing_extensions import TypeVarTuple

from flowdsl.effects import Endless, Reordered, Tag, Unmoved, Unsized
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.errors import FlowError, InvalidFlow, SpecMismatch, raise_with_cause
from flowdsl.nodes import (
    E,
    FlowBase,
    Joining,
    PassFactory,
    Resumable,
    Row,
    T,
    cached_per_node,
    describe_group,
    flow,
    frozen_node,
    when_read,
    with_inferred,
)
from flowdsl.ops.combining import check_flows
from flowdsl.ops.taking_turns import ending_with_first

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import (
        FlowOfNonTuples,
        FlowOfSingleValues,
        FlowOfTuples,
        FlowOfTuplesInPyright,
    )
    from flowdsl.flow import Flow

A = TypeVar("A")
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
V = TypeVar("V")
W = TypeVar("W")
Ts = TypeVarTuple("Ts")

P = TypeVar("P", bound=Unmoved)


@frozen_node
class Zip(Joining[T, E], Resumable[T, E], Generic[T, E]):
    """The elements of several flows at the same position, joined into one."""

    def __attrs_post_init__(self) -> None:
        for part in self.parts:
            if Reordered in part.effects:
                raise InvalidFlow(
                    f"zip: {part.title} is reordered, so its elements would be paired by chance; "
                    f"zip first, then shuffle"
                )
        try:
            self.joined_spec([part.spec(probe=False) for part in self.parts])
        except SpecMismatch as error:
            raise InvalidFlow(str(error)) from error
        with_length = [part for part in self.parts if part.length is not None]
        for other in with_length[1:]:
            first = with_length[0]
            if other.length != first.length:
                raise InvalidFlow(
                    f"zip: {first.title} has {first.length} elements and {other.title} "
                    f"{other.length}; put .take(n) after the longer one, or .repeat() after the "
                    f"shorter"
                )

    @property
    def title(self) -> str:
        return "zip(...)"

    def combined_effects(self) -> frozenset[Tag]:
        return ending_with_first(super().combined_effects(), self.parts)

    @property
    @cached_per_node
    def length(self) -> int | None:
        return None if Unsized in self.effects else self._shortest

    @property
    def _shortest(self) -> int | None:
        return min((part.length for part in self.parts if part.length is not None), default=None)

    def gather(self, group: Sequence[Any]) -> T:
        joined: Any = _joined(group)
        return joined  # type: ignore[no-any-return]

    def joined_spec(self, specs: Sequence[Spec]) -> Spec:
        """The spec of elements that are joined from elements with these specs."""
        return _joined_spec(specs)

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        known = self.joined_spec([part.spec(probe) for part in self.parts])
        return with_inferred(self, known, probe)

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        streams = [when_read(source, epoch) for source in sources]
        for position in count(yielded):
            group = [x for stream in streams for _, x in islice(stream, 1)]
            if len(group) < len(streams):
                if group and all(Endless not in part.effects for part in self.parts):
                    raise FlowError(
                        f"zip: one of the flows ended after {position} elements, and another "
                        f'continues. If a filter or on_error="skip" left elements out, zip before '
                        f"it: those after them have wrong partners. Otherwise put .take(n) after "
                        f"the longer flow, or .repeat() after the shorter"
                    )
                return
            try:
                y = self.join(group)
            except BaseException as error:
                raise_with_cause(self.error_at(epoch, position, describe_group(group)), error)
            yield position, y


@frozen_node
class ZipNamed(Zip[T, E], Generic[T, E]):
    """The elements of several flows at the same position, in a dict."""

    names: tuple[str, ...]

    def gather(self, group: Sequence[Any]) -> Any:
        return dict(zip(self.names, group, strict=True))

    def joined_spec(self, specs: Sequence[Spec]) -> Spec:
        return StructSpec(dict, tuple(zip(self.names, specs, strict=True)))

    @property
    def fingerprint(self) -> str:
        return f"{self.title} {self.names}"


def _joined(group: Sequence[Any]) -> Any:
    """Join elements: merge dicts, or concatenate tuples of components."""
    if all(isinstance(x, dict) for x in group):
        _check_keys([*chain.from_iterable(group)])
        return {name: value for x in group for name, value in x.items()}
    return tuple(chain.from_iterable(x if isinstance(x, tuple) else (x,) for x in group))


def _check_keys(names: Sequence[Any]) -> None:
    if len(set(names)) < len(names):
        repeated = sorted({str(name) for name in names if names.count(name) > 1})
        raise SpecMismatch(f"zip: two elements have the keys {repeated}; rename one with .map")


def _joined_spec(specs: Sequence[Spec]) -> Spec:
    if UNKNOWN in specs:
        return UNKNOWN
    if all(_is_struct_of(spec, dict) for spec in specs):
        fields = tuple(chain.from_iterable(map(_fields, specs)))
        _check_keys([name for name, _ in fields])
        return StructSpec(dict, fields)
    components = [component for spec in specs for component in _components_of(spec)]
    return StructSpec(tuple, tuple((str(i), spec) for i, spec in enumerate(components)))


def _is_struct_of(spec: Spec, form: type) -> bool:
    return isinstance(spec, StructSpec) and issubclass(spec.form, form)


def _fields(spec: Spec) -> tuple[tuple[str, Spec], ...]:
    return spec.fields if isinstance(spec, StructSpec) else ()


def _components_of(spec: Spec) -> list[Spec]:
    """The specs of a tuple's components; any other element is one component."""
    return [component for _, component in _fields(spec)] if _is_struct_of(spec, tuple) else [spec]


class Zipping(FlowBase[T, E]):
    """Elements at the same position, joined."""

    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1], P], /
    ) -> Flow[tuple[*Ts, A1], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2], P], /
    ) -> Flow[tuple[*Ts, A1, A2], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2, A3], P], /
    ) -> Flow[tuple[*Ts, A1, A2, A3], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2, A3, A4], P], /
    ) -> Flow[tuple[*Ts, A1, A2, A3, A4], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[A1, ...], Unmoved], other: FlowOfTuples[A2, P], /
    ) -> Flow[tuple[A1 | A2, ...], E | P]: ...
    @overload
    def zip(
        self: FlowOfTuplesInPyright[A1, Unmoved], other: FlowBase[tuple[A2, ...], P], /
    ) -> Flow[tuple[A1 | A2, ...], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowOfNonTuples[A, P], /
    ) -> Flow[tuple[*Ts, A], E | P]: ...
    @overload
    def zip(
        self: FlowBase[dict[str, V], Unmoved], other: FlowBase[Mapping[str, W], P], /
    ) -> Flow[dict[str, V | W], E | P]: ...
    @overload
    def zip(
        self: FlowOfNonTuples[A, Unmoved], other: FlowBase[tuple[*Ts], P], /
    ) -> Flow[tuple[A, *Ts], E | P]: ...
    @overload
    def zip(
        self: FlowBase[dict[str, V], Unmoved], other: FlowOfSingleValues[A1, P], /
    ) -> Flow[tuple[dict[str, V], A1], E | P]: ...
    @overload
    def zip(
        self: FlowOfSingleValues[A, Unmoved], other: FlowOfNonTuples[A1, P], /
    ) -> Flow[tuple[A, A1], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[Any, ...], Unmoved],
        other: FlowBase[Any, P],
        third: FlowBase[Any, P],
        /,
        *others: FlowBase[Any, P],
    ) -> Flow[tuple[Any, ...], E | P]: ...
    @overload
    def zip(
        self: FlowBase[Any, Unmoved],
        other: FlowBase[tuple[Any, ...], P],
        third: FlowBase[Any, P],
        /,
        *others: FlowBase[Any, P],
    ) -> Flow[tuple[Any, ...], E | P]: ...
    @overload
    def zip(
        self: FlowBase[Any, Unmoved],
        other: FlowBase[Any, P],
        third: FlowBase[tuple[Any, ...], P],
        /,
        *others: FlowBase[Any, P],
    ) -> Flow[tuple[Any, ...], E | P]: ...
    @overload
    def zip(
        self: FlowOfSingleValues[A, Unmoved],
        other: FlowOfSingleValues[A1, P],
        third: FlowOfSingleValues[A2, P],
        /,
    ) -> Flow[tuple[A, A1, A2], E | P]: ...
    @overload
    def zip(
        self: FlowBase[Any, Unmoved],
        other: FlowBase[Any, P],
        third: FlowBase[Any, P],
        /,
        *others: FlowBase[Any, P],
    ) -> Flow[Any, E | P]: ...
    def zip(self: Any, *others: Any) -> Flow[Any, Any]:
        """Join the elements of several flows at each position into one element.

        The result is a plain tuple. The components of tuples and NamedTuples become its components;
        any other element is one component. If all elements are dicts, they are merged into one
        dict. ``fl.zip({"a": a, "b": b})`` makes dicts of other elements.

        The flows must have the same length, so that no rows are lost; an endless flow, such as
        ``b.repeat()``, ends when the others end.

        Length: the common length. Effects: the effects of all. A reordered flow cannot be paired
        by position: zip first, then shuffle. Errors: ``InvalidFlow`` for a reordered flow, or for
        lengths known to differ; ``FlowError`` at the end of a pass if the lengths differ; an
        ``ElementError`` for dicts with a key in common.

        >>> import flowdsl as fl
        >>> fl.from_range(3).zip(fl.from_items("abc")).collect()
        [(0, 'a'), (1, 'b'), (2, 'c')]

        Source: ``zip`` of Python, with its ``strict=True``.

        Elsewhere: tensorpack ``JoinData``; tf.data ``zip``; Grain ``ZipMapDataset``,
        ``ZipIterDataset``; torchdata ``Zipper``.
        """
        check_flows("zip", others)
        return flow(Zip((self.node, *(other.node for other in others))))
