"""zip: the elements of two flows at the same position, joined into one."""

# The overloads are tried in order. The types that separate them for mypy are in
# ``elements/batch_types.pyi``.
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs
from typing_extensions import TypeVarTuple

from flowdsl.effects import Endless, Reordered, Tag, Unmoved, Unsized
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.errors import FlowError, InvalidFlow, SpecMismatch, raise_ending
from flowdsl.nodes import (
    E,
    FlowBase,
    Joining,
    PassFactory,
    Row,
    T,
    cached_per_node,
    describe_group,
    flow,
    with_inferred,
)
from flowdsl.ops.combining import check_flows
from flowdsl.ops.taking_turns import ending_with_first

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import OfLongTuples, OfSingles, OfTuplesToPyright, OfWholes
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


@attrs.frozen(repr=False)
class Zip(Joining[T, E], Generic[T, E]):
    """The elements of two flows at the same position, joined into one."""

    def __attrs_post_init__(self) -> None:
        for part in self.parts:
            if Reordered in part.effects:
                raise InvalidFlow(
                    f"zip: {part.title} is reordered, so its elements would be paired by chance; "
                    f"zip first, then shuffle"
                )
        first, other = self.parts
        try:
            _joined_spec(first.spec(probe=False), other.spec(probe=False))
        except SpecMismatch as error:
            raise InvalidFlow(str(error)) from error
        if None not in (first.length, other.length) and first.length != other.length:
            raise InvalidFlow(
                f"zip: {first.title} has {first.length} elements and {other.title} {other.length}; "
                f"put .take(n) after the longer one, or .repeat() after the shorter"
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
        joined: T = _joined(*group)
        return joined

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        known = _joined_spec(*(part.spec(probe) for part in self.parts))
        return with_inferred(self, known, probe)

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        streams = [read(epoch) for read in sources]
        for position in count():
            group = [x for stream in streams for _, x in islice(stream, 1)]
            if len(group) < len(streams):
                if group and all(Endless not in part.effects for part in self.parts):
                    raise FlowError(
                        f"zip: one of the two flows ended after {position} elements, and the other "
                        f"continues; put .take(n) after the longer one, or .repeat() after the "
                        f"shorter"
                    )
                return
            try:
                y = self.join(group)
            except BaseException as error:
                raise_ending(self.failure(epoch, position, describe_group(group)), error)
            yield position, y


def _joined(one: Any, other: Any) -> Any:
    """Join two elements: merge two dicts, or concatenate tuples of components."""
    if isinstance(one, dict) and isinstance(other, dict):
        _check_keys(one.keys() & other.keys())
        return {**one, **other}
    return (
        *(one if isinstance(one, tuple) else (one,)),
        *(other if isinstance(other, tuple) else (other,)),
    )


def _check_keys(both: set[Any]) -> None:
    if both:
        raise SpecMismatch(
            f"zip: both elements have the keys {sorted(map(str, both))}; rename one with .map"
        )


def _joined_spec(one: Spec, other: Spec) -> Spec:
    if UNKNOWN in (one, other):
        return UNKNOWN
    if _is(one, dict) and _is(other, dict):
        _check_keys(dict(_fields(one)).keys() & dict(_fields(other)).keys())
        return StructSpec(dict, (*_fields(one), *_fields(other)))
    specs = (spec for _, spec in (*_parts_of(one), *_parts_of(other)))
    return StructSpec(tuple, tuple((str(i), spec) for i, spec in enumerate(specs)))


def _is(spec: Spec, form: type) -> bool:
    return isinstance(spec, StructSpec) and issubclass(spec.form, form)


def _fields(spec: Spec) -> tuple[tuple[str, Spec], ...]:
    return spec.fields if isinstance(spec, StructSpec) else ()


def _parts_of(spec: Spec) -> tuple[tuple[str, Spec], ...]:
    return _fields(spec) if _is(spec, tuple) else (("", spec),)


class Zipping(FlowBase[T, E]):
    """Elements at the same position, joined."""

    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1], P]
    ) -> Flow[tuple[*Ts, A1], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2], P]
    ) -> Flow[tuple[*Ts, A1, A2], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2, A3], P]
    ) -> Flow[tuple[*Ts, A1, A2, A3], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: FlowBase[tuple[A1, A2, A3, A4], P]
    ) -> Flow[tuple[*Ts, A1, A2, A3, A4], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[A1, ...], Unmoved], other: OfLongTuples[A2, P]
    ) -> Flow[tuple[A1 | A2, ...], E | P]: ...
    @overload
    def zip(
        self: OfTuplesToPyright[A1, Unmoved], other: FlowBase[tuple[A2, ...], P]
    ) -> Flow[tuple[A1 | A2, ...], E | P]: ...
    @overload
    def zip(
        self: FlowBase[tuple[*Ts], Unmoved], other: OfWholes[A, P]
    ) -> Flow[tuple[*Ts, A], E | P]: ...
    @overload
    def zip(
        self: FlowBase[dict[str, V], Unmoved], other: FlowBase[Mapping[str, W], P]
    ) -> Flow[dict[str, V | W], E | P]: ...
    @overload
    def zip(
        self: OfWholes[A, Unmoved], other: FlowBase[tuple[*Ts], P]
    ) -> Flow[tuple[A, *Ts], E | P]: ...
    @overload
    def zip(
        self: FlowBase[dict[str, V], Unmoved], other: OfSingles[A1, P]
    ) -> Flow[tuple[dict[str, V], A1], E | P]: ...
    @overload
    def zip(self: OfSingles[A, Unmoved], other: OfWholes[A1, P]) -> Flow[tuple[A, A1], E | P]: ...
    def zip(self: Any, other: Any) -> Flow[Any, Any]:
        """Join the elements of two flows at each position into one element.

        The result is a plain tuple. The components of tuples and NamedTuples become its components;
        any other element is one component; two dicts are merged into one dict. Zip more flows by
        chaining: ``a.zip(b).zip(c)``.

        Both flows must have the same length, so that no rows are lost; an endless flow, such as
        ``b.repeat()``, ends with the other.

        Length: the common length. Effects: the effects of both. A reordered flow cannot be paired
        by position: zip first, then shuffle. Errors: ``InvalidFlow`` for a reordered flow, or for
        lengths known to differ; ``FlowError`` at the end of a pass if the lengths differ; an
        ``ElementError`` for two dicts with a key in common.

        >>> import flowdsl as fl
        >>> fl.from_range(3).zip(fl.from_items("abc")).collect()
        [(0, 'a'), (1, 'b'), (2, 'c')]

        Source: ``zip`` of Python, with its ``strict=True``.

        Elsewhere: tensorpack ``JoinData``; tf.data ``zip``; Grain ``ZipMapDataset``,
        ``ZipIterDataset``; torchdata ``Zipper``.
        """
        check_flows("zip", [other])
        return flow(Zip((self.node, other.node)))
