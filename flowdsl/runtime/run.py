"""A run: one pass over a flow, under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import attrs

from flowdsl.effects import Effect, Endless
from flowdsl.errors import EndlessFlow, FlowError, StateMismatch
from flowdsl.node import Addresses, AnyNode, Node, Row, is_int, with_sources
from flowdsl.plan.lower import Stage, StandIn, lower
from flowdsl.plan.optimize import optimize
from flowdsl.plan.tree import walk
from flowdsl.runtime.pool import Pool, PoolStatistics
from flowdsl.runtime.program import OperatorFailed, Program, failure_in

T = TypeVar("T")
State = dict[str, int | list[str]]
_STATE_VERSION = 1
_MOST_A_BLOCK = 1024


class Runner(Protocol):
    """What runs a stage."""

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """One pass, from a position on."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


@attrs.frozen(eq=False)
class Channel(StandIn):
    """A stage as the operators above it see it: its rows come from where it runs."""

    stage: Stage
    runner: Runner

    @property
    def meaning(self) -> AnyNode:
        return self.stage.meaning

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        return self.runner.rows(epoch)


class Inline:
    """Runs a stage in the consumer's thread, an element at a time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._program = Program(stage.program)

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """One pass, from a position on. Nothing is made before it is asked for."""
        end, size = self._stage.length, 1
        while end is None or start < end:
            stop = start + size if end is None else min(start + size, end)
            try:
                yield from self._program.rows(Addresses.span(epoch, start, stop))
            except OperatorFailed as failed:
                where = failure_in(self._stage.meaning, *failed.args)
                raise where from failed.__cause__
            start, size = stop, min(2 * size, _MOST_A_BLOCK)

    def close(self) -> None:
        """Nothing is held."""


class Run(Iterator[T], Generic[T]):
    """An iterator over one pass of a flow, and a context manager that ends it.

    A run belongs to one thread at a time. Its workers start with the first ``next`` and end with
    the pass, an error, ``close``, or the run itself.

    >>> import flowdsl as fl
    >>> with iter(fl.from_range(4).shuffle()) as run:
    ...     first, state = next(run), run.state_dict()
    >>> [first, *fl.from_range(4).shuffle().resume(state)] == fl.from_range(4).shuffle().collect()
    True
    """

    def __init__(self, node: Node[T, Effect], epoch: int = 0, position: int = 0) -> None:
        """``position`` elements of the pass are left out, as already delivered."""
        self._node = node
        self._epoch = epoch
        self._start = self._position = position
        self._pools: list[Pool] = []
        self._rows: Iterator[Row[T]] | None = None
        self._ended = False

    @property
    def position(self) -> int:
        """How many elements of the pass have been delivered, those before a resume included."""
        return self._position

    def __next__(self) -> T:
        try:
            if self._rows is None:
                self._rows = self._begin()
            _, element = next(self._rows)
        except StopIteration:
            self._ended = True
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        self._position += 1
        return element

    def __length_hint__(self) -> int:
        if Endless in self._node.effects:
            raise EndlessFlow(f"{endless_part(self._node)} never ends, so it can not be listed")
        return max(0, (self._node.length or 0) - self._position)

    def __enter__(self) -> Run[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the pass and its workers; elements that were delivered stay valid.

        After it, and after an error, ``next`` is a ``FlowError``: what was cut short does not look
        like the end.
        """
        self._rows = iter(()) if self._ended else _CutShort()
        for pool in self._pools:
            pool.close()

    def state_dict(self, position: int | None = None) -> State:
        """Where the pass stands, as plain JSON values: what ``flow.resume`` continues from.

        ``position`` asks for an earlier place, e.g. that of the last element a queue's consumer
        took, out of more that were fetched.

        Raises:
            ValueError: ``position`` is not between where the run began and where it is.
        """
        position = self._position if position is None else position
        if not self._start <= position <= self._position:
            raise ValueError(
                f"state_dict: position must be between {self._start} and {self._position}, "
                f"got {position}"
            )
        return state_of(self._node, self._epoch, position)

    def statistics(self) -> list[PoolStatistics]:
        """What each pool of workers has done so far."""
        return [pool.statistics() for pool in self._pools]

    def _begin(self) -> Iterator[Row[T]]:
        root = self._bind(lower(optimize(self._node)))
        if isinstance(root, Channel) and not root.stage.drops:
            return root.runner.rows(self._epoch, self._position)
        return islice(root.rows(self._epoch), self._position, None)

    def _bind(self, node: AnyNode) -> AnyNode:
        """Replace every stage by the channel its elements come through."""
        if not isinstance(node, Stage):
            return with_sources(node, tuple(self._bind(source) for source in node.sources))
        if not node.procs:
            return Channel(node, Inline(node))
        pool = Pool(node, tuple(map(self._bind_base, node.bases)))
        self._pools.append(pool)
        return Channel(node, pool)

    def _bind_base(self, base: AnyNode) -> AnyNode:
        """A base in memory is looked up as it is needed; any other is a stream."""
        return base if isinstance(base, Stage) and not base.procs else self._bind(base)


class _CutShort(Iterator[NoReturn]):
    """What is left of a pass that did not come to its end."""

    def __next__(self) -> NoReturn:
        raise FlowError("this run was closed, or ended with an error, before the end of its pass")


def endless_part(node: AnyNode) -> str:
    """The operator that makes a flow endless."""
    for source in node.sources:
        if Endless in source.effects:
            return endless_part(source)
    return node.title


def state_of(node: AnyNode, epoch: int, position: int) -> State:
    """The state of a run of this flow that has delivered ``position`` elements."""
    return {
        "version": _STATE_VERSION,
        "epoch": epoch,
        "position": position,
        "flow": _operators(node),
    }


def resume(node: Node[T, Effect], state: Mapping[str, object]) -> Run[T]:
    """Continue from a state.

    Raises:
        StateMismatch: The state is of another flow, or is no state.
    """
    try:
        version, epoch, position = (state[key] for key in ("version", "epoch", "position"))
        saved = state["flow"]
    except (KeyError, TypeError) as error:
        raise StateMismatch(f"resume: not a state that state_dict() gave: {state!r}") from error
    whole = is_int(epoch, 0) and is_int(position, 0)
    if version != _STATE_VERSION or not whole or not isinstance(saved, list):
        raise StateMismatch(f"resume: not a state of this version of flowdsl: {state!r}")
    here = _operators(node)
    if saved != here:
        pairs = enumerate(zip([*saved, "nothing"], [*here, "nothing"], strict=False), 1)
        step, (theirs, ours) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        raise StateMismatch(
            f"resume: the state is of another flow: its operator {step} is {theirs}, here it is "
            f"{ours}; resume with the flow that was saved (procs may differ)"
        )
    assert isinstance(epoch, int)
    assert isinstance(position, int)
    if node.length is not None and position > node.length:
        raise StateMismatch(f"resume: position {position} of a flow of {node.length} elements")
    return Run(node, epoch, position)


def _operators(node: AnyNode) -> list[str]:
    """What a state belongs to: every operator that says which elements come, and in what order."""
    return [
        part.fingerprint if len(part.sources) < 2 else f"{part.fingerprint} of {len(part.sources)}"
        for part in walk(node)
        if part.fingerprint
    ]
