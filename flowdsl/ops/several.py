"""fl.concat, fl.interleave, fl.choose, fl.mix, fl.zip: operators on a list or a dict of flows."""

# Type checkers try the overloads of ``zip`` in order, as in ``zipping``.
# ruff: noqa: A001
# mypy: disable-error-code="overload-overlap"
# pyright: reportOverlappingOverload=false

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from flowdsl.effects import Counted, Effect, Reordered, Resampled, Unmoved, Unsized
from flowdsl.elements.specs import Spec, StructSpec, ValueSpec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    A,
    CodeTemplate,
    E,
    FlowBase,
    cached_per_node,
    flow,
    frozen_node,
    rejects_keywords,
)
from flowdsl.ops.combining import Concat, Parts, Stop, check_flows, chosen, interleaved, mixed
from flowdsl.ops.live import Merge
from flowdsl.ops.zipping import Zip, ZipNamed

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import FlowOfSingleValues
    from flowdsl.flow import Flow

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
F = TypeVar("F", bound=Effect)
C = TypeVar("C", bound=Counted)
P = TypeVar("P", bound=Unmoved)
A1 = TypeVar("A1")
A2 = TypeVar("A2")
A3 = TypeVar("A3")

Flows: TypeAlias = Iterable[FlowBase[T, F]] | Mapping[str, FlowBase[T, F]]
Weights: TypeAlias = Sequence[float] | Mapping[str, float] | None

_WEIGHTS = "write weights={}"


@frozen_node
class Named(CodeTemplate[A, tuple[str, A], E], Generic[A, E]):
    """Each element with the name of its flow."""

    cheap: ClassVar[bool] = True
    name: str

    @property
    def title(self) -> str:
        return f"named({self.name!r})"

    @property
    def loop_line(self) -> str:
        return "x = ({name}, x)"

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return StructSpec(tuple, (("0", ValueSpec(str)), ("1", self.source.spec(probe))))

    @property
    def depth(self) -> int:
        return self.source.depth  # names do not change the draws of ``choose`` and ``mix``


def _of_one_list(operator: Function) -> Function:
    """Decorate a function of a list of flows: flows one by one are an error with advice."""

    @wraps(operator)
    def called(*flows: Any, **options: Any) -> object:
        if len(flows) > 1:
            name = operator.__name__
            raise InvalidFlow(
                f"{name}: expected one list or dict of flows, got {len(flows)} arguments; write "
                f"fl.{name}([a, b]), or a.{name}(b), and all other arguments with their names"
            )
        return operator(*flows, **options)

    return cast("Function", called)  # it has the operator's signature


@overload
def concat(flows: Flows[T, F], *, with_names: Literal[False] = False) -> Flow[T, F]: ...
@overload
def concat(
    flows: Mapping[str, FlowBase[T, F]], *, with_names: Literal[True]
) -> Flow[tuple[str, T], F]: ...
@overload  # a flag whose value the types do not know
def concat(
    flows: Mapping[str, FlowBase[T, F]], *, with_names: bool
) -> Flow[T | tuple[str, T], F]: ...
@_of_one_list
def concat(flows: Flows[Any, Any], *, with_names: bool = False) -> Flow[Any, Any]:
    """Concatenate a list or dict of flows, as ``first.concat(*others)`` does.

    With ``with_names=True`` each element of a dict of flows becomes ``(name, element)``.

    >>> import flowdsl as fl
    >>> fl.concat([fl.from_range(n) for n in (1, 2, 3)]).collect()
    [0, 0, 1, 0, 1, 2]
    >>> fl.concat({"a": fl.from_range(1), "b": fl.from_range(2)}, with_names=True).collect()
    [('a', 0), ('b', 0), ('b', 1)]
    """
    _, parts = _parts("concat", flows, with_names)
    return flow(Concat(parts))


@overload
def interleave(
    flows: Flows[T, F],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Literal["last"] = "last",
    with_names: Literal[False] = False,
) -> Flow[T, F | Reordered]: ...
@overload
def interleave(
    flows: Flows[T, F],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Stop,
    with_names: Literal[False] = False,
) -> Flow[T, F | Reordered | Resampled]: ...
@overload
def interleave(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Literal["last"] = "last",
    with_names: Literal[True],
) -> Flow[tuple[str, T], F | Reordered]: ...
@overload
def interleave(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Stop,
    with_names: Literal[True],
) -> Flow[tuple[str, T], F | Reordered | Resampled]: ...
@overload  # a flag whose value the types do not know
def interleave(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Literal["last"] = "last",
    with_names: bool,
) -> Flow[T | tuple[str, T], F | Reordered]: ...
@overload
def interleave(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Stop,
    with_names: bool,
) -> Flow[T | tuple[str, T], F | Reordered | Resampled]: ...
@_of_one_list
def interleave(
    flows: Flows[Any, Any],
    *,
    weights: Weights = None,
    cycle: int | None = None,
    block: int = 1,
    stop: Stop = "last",
    with_names: bool = False,
) -> Flow[Any, Any]:
    """Interleave a list or dict of flows, as ``first.interleave(*others)`` does.

    The weights of a dict of flows are a dict with the same names. With ``with_names=True`` each
    element becomes ``(name, element)``.

    >>> import flowdsl as fl
    >>> flows = {"web": fl.from_range(3), "books": fl.from_items([7, 8])}
    >>> fl.interleave(flows, weights={"web": 2, "books": 1}, with_names=True).collect()
    [('web', 0), ('books', 7), ('web', 1), ('web', 2), ('books', 8)]
    """
    names, parts = _parts("interleave", flows, with_names)
    return interleaved(parts, _in_order("interleave", names, weights), cycle, block, stop)


@overload
def choose(
    flows: Flows[T, F],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Literal["last"] = "last",
    with_names: Literal[False] = False,
) -> Flow[T, F | Reordered]: ...
@overload
def choose(
    flows: Flows[T, F],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Stop,
    with_names: Literal[False] = False,
) -> Flow[T, F | Reordered | Resampled | Unsized]: ...
@overload
def choose(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Literal["last"] = "last",
    with_names: Literal[True],
) -> Flow[tuple[str, T], F | Reordered]: ...
@overload
def choose(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Stop,
    with_names: Literal[True],
) -> Flow[tuple[str, T], F | Reordered | Resampled | Unsized]: ...
@overload  # a flag whose value the types do not know
def choose(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Literal["last"] = "last",
    with_names: bool,
) -> Flow[T | tuple[str, T], F | Reordered]: ...
@overload
def choose(
    flows: Mapping[str, FlowBase[T, F]],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Stop,
    with_names: bool,
) -> Flow[T | tuple[str, T], F | Reordered | Resampled | Unsized]: ...
@_of_one_list
@rejects_keywords(probs=_WEIGHTS, probabilities=_WEIGHTS, p=_WEIGHTS)
def choose(
    flows: Flows[Any, Any],
    *,
    weights: Weights = None,
    seed: int = 0,
    stop: Stop = "last",
    with_names: bool = False,
) -> Flow[Any, Any]:
    """Draw from a list or dict of flows, as ``first.choose(*others)`` does.

    The weights of a dict of flows are a dict with the same names. With ``with_names=True`` each
    element becomes ``(name, element)``.

    >>> import flowdsl as fl
    >>> flows = {"web": fl.from_range(3), "books": fl.from_items([7, 8])}
    >>> fl.choose(flows, weights={"web": 0.7, "books": 0.3}, with_names=True).take(2).collect()
    [('web', 0), ('books', 7)]
    """
    names, parts = _parts("choose", flows, with_names)
    return chosen(parts, _in_order("choose", names, weights), seed, stop)


@overload
def mix(
    flows: Flows[T, C], *, seed: int = 0, with_names: Literal[False] = False
) -> Flow[T, C | Reordered]: ...
@overload
def mix(
    flows: Mapping[str, FlowBase[T, C]], *, seed: int = 0, with_names: Literal[True]
) -> Flow[tuple[str, T], C | Reordered]: ...
@overload  # a flag whose value the types do not know
def mix(
    flows: Mapping[str, FlowBase[T, C]], *, seed: int = 0, with_names: bool
) -> Flow[T | tuple[str, T], C | Reordered]: ...
@_of_one_list
@rejects_keywords(
    weights="mix has every element once, in random order; write choose(flows, weights={})",
    probabilities="mix has every element once, in random order; write choose(flows, weights={})",
)
def mix(flows: Flows[Any, Any], *, seed: int = 0, with_names: bool = False) -> Flow[Any, Any]:
    """Mix a list or dict of flows evenly, as ``first.mix(*others)`` does.

    With ``with_names=True`` each element of a dict of flows becomes ``(name, element)``.

    >>> import flowdsl as fl
    >>> fl.mix([fl.from_range(3), fl.from_items([7, 8, 9])]).collect()
    [0, 7, 8, 1, 2, 9]
    """
    _, parts = _parts("mix", flows, with_names)
    return mixed(parts, seed)


@overload
def merge(flows: Flows[T, F], *, with_names: Literal[False] = False) -> Flow[T, F | Reordered]: ...
@overload
def merge(
    flows: Mapping[str, FlowBase[T, F]], *, with_names: Literal[True]
) -> Flow[tuple[str, T], F | Reordered]: ...
@overload  # a flag whose value the types do not know
def merge(
    flows: Mapping[str, FlowBase[T, F]], *, with_names: bool
) -> Flow[T | tuple[str, T], F | Reordered]: ...
@_of_one_list
def merge(flows: Flows[Any, Any], *, with_names: bool = False) -> Flow[Any, Any]:
    """Merge a list or dict of streams, as ``first.merge(*others)`` does.

    With ``with_names=True`` each element of a dict of flows becomes ``(name, element)``.

    >>> import flowdsl as fl
    >>> sensors = {"a": fl.from_range(2), "b": fl.from_range(1)}
    >>> sorted(fl.merge(sensors, with_names=True))
    [('a', 0), ('a', 1), ('b', 0)]
    """
    _, parts = _parts("merge", flows, with_names)
    return flow(Merge(parts))


@overload
def zip(flows: Mapping[str, FlowBase[T, P]], /) -> Flow[dict[str, T], P]: ...
@overload
def zip(
    one: FlowBase[tuple[Any, ...], P], /, *flows: FlowBase[Any, P]
) -> Flow[tuple[Any, ...], P]: ...
@overload
def zip(
    one: FlowBase[Any, P], two: FlowBase[tuple[Any, ...], P], /, *flows: FlowBase[Any, P]
) -> Flow[tuple[Any, ...], P]: ...
@overload
def zip(
    one: FlowBase[Any, P],
    two: FlowBase[Any, P],
    three: FlowBase[tuple[Any, ...], P],
    /,
    *flows: FlowBase[Any, P],
) -> Flow[tuple[Any, ...], P]: ...
@overload
def zip(
    one: FlowBase[Mapping[str, Any], P], /, *flows: FlowBase[Mapping[str, Any], P]
) -> Flow[dict[str, Any], P]: ...
@overload
def zip(
    one: FlowOfSingleValues[A1, P], two: FlowOfSingleValues[A2, P], /
) -> Flow[tuple[A1, A2], P]: ...
@overload
def zip(
    one: FlowOfSingleValues[A1, P],
    two: FlowOfSingleValues[A2, P],
    three: FlowOfSingleValues[A3, P],
    /,
) -> Flow[tuple[A1, A2, A3], P]: ...
@overload
def zip(flow: FlowBase[Any, P], /, *flows: FlowBase[Any, P]) -> Flow[Any, P]: ...
def zip(*flows: Any) -> Flow[Any, Any]:
    """Join the elements of several flows at each position, as ``first.zip(*others)`` does.

    Of a dict of flows, each element is a dict: the element of each flow under its name.

    >>> import flowdsl as fl
    >>> fl.zip(fl.from_range(2), fl.from_items("ab"), fl.from_items([0.5, 1.5])).collect()
    [(0, 'a', 0.5), (1, 'b', 1.5)]
    >>> fl.zip({"number": fl.from_range(2), "letter": fl.from_items("ab")}).collect()
    [{'number': 0, 'letter': 'a'}, {'number': 1, 'letter': 'b'}]
    """
    if len(flows) == 1 and isinstance(flows[0], Mapping):
        names, parts = _parts("zip", flows[0], with_names=False)
        return flow(ZipNamed(parts, names))
    if not flows:
        raise InvalidFlow("zip: expected one flow at least")
    check_flows("zip", flows)
    return flow(Zip(tuple(one.node for one in flows)))


def _parts(
    operator: str, flows: Flows[Any, Any], with_names: bool
) -> tuple[tuple[str, ...], Parts]:
    """The names of a dict of flows, empty for a list, and the nodes of the flows."""
    if isinstance(flows, FlowBase) or not isinstance(flows, Iterable):
        raise InvalidFlow(
            f"{operator}: expected a list or dict of flows, got {type(flows).__name__}; write "
            f"fl.{operator}([a, b]), or a.{operator}(b)"
        )
    names: tuple[Any, ...] = tuple(flows) if isinstance(flows, Mapping) else ()
    members: tuple[Any, ...] = tuple(flows.values() if isinstance(flows, Mapping) else flows)
    if not members:
        raise InvalidFlow(f"{operator}: expected one flow at least, got {flows!r}")
    check_flows(operator, members)
    if not all(isinstance(name, str) for name in names):
        raise InvalidFlow(f"{operator}: names of flows must be str, got {list(names)!r}")
    if with_names and not names:
        raise InvalidFlow(
            f"{operator}: with_names=True needs the names of the flows; write "
            f"fl.{operator}({{'name': flow, ...}}, with_names=True)"
        )
    parts: Parts = tuple(member.node for member in members)
    if with_names:
        pairs = builtins.zip(parts, names, strict=True)
        parts = tuple(Named(part, name) for part, name in pairs)
    return names, parts


def _in_order(operator: str, names: tuple[str, ...], weights: Weights) -> Sequence[float] | None:
    """The weights in the order of the flows."""
    if weights is None:
        return None
    if isinstance(weights, Mapping) != bool(names):
        expected = "a dict with the names of the flows" if names else "a list, as the flows are"
        raise InvalidFlow(f"{operator}: weights must be {expected}, got {weights!r}")
    if not isinstance(weights, Mapping):
        return weights
    if weights.keys() != set(names):
        raise InvalidFlow(
            f"{operator}: weights must have the names of the flows, {', '.join(map(repr, names))}; "
            f"got {', '.join(map(repr, weights))}"
        )
    return [weights[name] for name in names]
