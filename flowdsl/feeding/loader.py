"""The loader: iterates over the passes of a flow, and converts each element for a framework.

This module depends on no framework. A framework provides a function that converts an element (see
``flowdsl.torch`` and ``flowdsl.jax``), which the thread of a pump calls ahead of the consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

import attrs

from flowdsl.effects import Endless
from flowdsl.errors import FlowError, InvalidFlow, NotShippable
from flowdsl.feeding.pump import EndOfPass, Pump, Sink
from flowdsl.nodes import AnyNode, checked_int, is_int
from flowdsl.ops.sharding import Even, EvenShard, Shard
from flowdsl.ops.sizing import Skip
from flowdsl.plan.lower import plan_of
from flowdsl.plan.tree import walk
from flowdsl.resources.logs import logger
from flowdsl.runtime.resume_points import BEGINNING, ResumePoint
from flowdsl.runtime.run import Run
from flowdsl.runtime.state import resumed_from, state_of
from flowdsl.workers import worker_cache

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.plan.plan import Plan
    from flowdsl.statistics.run import RunStatistics

X = TypeVar("X")

Convert: TypeAlias = Callable[[Any, int], X]
"""Converts an element for a framework; the arguments are the element and its position."""

_log = logger(__name__)


@attrs.frozen
class Ranks:
    """The rank of this process among ``n`` that train together; each gets every n-th element."""

    n: int = 1
    i: int = 0
    even: Even | None = "drop"
    """The way to equal lengths on all ranks, as in ``flow.shard``; None if they may differ."""

    @classmethod
    def of_arguments(cls, name: str, shard: tuple[int, int], even: Even | None) -> Ranks:
        """Create ranks from the arguments ``shard=(n, i)`` and ``even=``.

        Raises:
            InvalidFlow: An argument is invalid.
        """
        if even not in ("drop", "pad", None):
            raise InvalidFlow(f"{name}: even must be 'drop', 'pad' or None, got {even!r}")
        match shard:
            case (n, i) if is_int(n, 1) and is_int(i, 0) and i < n:
                return cls(int(n), int(i), even)
        raise InvalidFlow(
            f"{name}: shard must be (number of ranks, rank), two ints such as (4, 0) for the first "
            f"of four, got {shard!r}"
        )


ALONE = Ranks()
"""A single process, which gets every element."""


class Loader(Generic[X]):
    """The passes of a flow: each ``for`` loop iterates over the next epoch.

    A thread computes elements, and converts each by ``convert(element, position)``, at most
    ``ahead`` elements ahead of the consumer. ``arrived`` is called with each element when the
    consumer takes it, in the consumer's thread. One pass is open at a time: beginning the next
    pass ends it. A pass counts as an epoch once an element was taken. A loader belongs to one
    thread; it stops when it is closed, when it is garbage-collected, and when the program ends.

    With several ``ranks``, each rank gets every ``n``-th element, like ``shard``. All ranks get the
    same number of elements, so that no rank waits for the others at the end: the last elements of a
    pass are left out if they are too few for all ranks, or with ``even="pad"`` the first ones are
    repeated, and a warning is logged.

    >>> import flowdsl as fl
    >>> flow = fl.from_range(4).shuffle(seed=1)
    >>> loader = Loader(flow, lambda element, position: -element)
    >>> [[x for x in loader] for epoch in range(2)]
    [[-2, -1, -3, 0], [0, -3, -1, -2]]
    >>> state = loader.state_dict()
    >>> again = Loader(flow, lambda element, position: -element)
    >>> again.load_state_dict(state)
    >>> again.epoch, list(again) == [-x for x in flow.epoch(2)]
    (2, True)

    Raises:
        InvalidFlow: ``ahead`` is not an int of at least 1; or the length of the flow is unknown,
            and several ranks must end a pass together.

    Source: ``DataLoader`` of PyTorch, and the states of torchdata's ``StatefulDataLoader``.
    """

    def __init__(
        self,
        flow: Flow[Any, Any],
        convert: Convert[X],
        *,
        ahead: int = 2,
        ranks: Ranks = ALONE,
        arrived: Callable[[X], None] | None = None,
        name: str = "Loader",
    ) -> None:
        self._name = name
        self._flow = flow
        self._convert = convert
        self._arrived = arrived
        self._ahead = checked_int(f"{name}: ahead", ahead, 1)
        self._ranks = ranks
        check_length(name, flow.node, ranks)
        self._full_plan: Plan[Any] = plan_of(part_of(flow.node, ranks))
        self._pass: LoaderPass[X] = self.begin(0)

    @property
    def epoch(self) -> int:
        """The number of the current pass, or of the next one after its end.

        After a ``break`` it is the pass that was left, as in ``state_dict``, and the next ``for``
        iterates over the one after it. So count epochs by ``for epoch in range(loader.epoch, n)``.
        """
        return self._pass.epoch + self._pass.ended

    @property
    def taken(self) -> int:
        """The elements of the pass taken so far by all ranks, including before a resume."""
        return self._pass.taken

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next ``for``.

        After ``load_state_dict``, the next ``for`` continues from the state if it belongs to this
        epoch and is not at its end. So trainers that always set the epoch resume exactly, and train
        whole epochs after the resumed one.

        Raises:
            InvalidFlow: ``epoch`` is not an int of at least 0.
        """
        epoch = checked_int(f"{self._name}: epoch", epoch, 0)
        ends = self._pass.taken > 0 and self._has_no_more(self._pass.taken)
        if self._pass.began or ends or self._pass.epoch != epoch:
            self._continue_at(self.begin(epoch))

    def _has_no_more(self, taken: int) -> bool:
        """Return True if no rank has an element after the first ``taken`` of the flow."""
        length = self._flow.node.length
        if length is None:
            return False
        drops = self._ranks.even == "drop"
        return taken >= (length - length % self._ranks.n if drops else length)

    def _continue_at(self, other: LoaderPass[X]) -> None:
        """Replace the current pass by another one.

        Trainers may create the iterator first, and then set the epoch or load a state. So an
        iterator that was not read yet yields the elements of the other pass.
        """
        if self._pass.began:
            self._pass.close()
            self._pass = other
        else:
            self._pass.move_to(other)

    def __iter__(self) -> Iterator[X]:
        before = self._pass
        if before.began:
            before.close()
            self._pass = self.begin(before.epoch + 1)
        else:  # wrappers of a loader may create an iterator without reading from it
            self._pass = self.begin(*before.start)
        return self._pass

    def __len__(self) -> int:
        """The number of elements that this process gets in a complete pass."""
        length, ranks = len(self._flow), self._ranks
        if ranks.even == "drop":
            return length // ranks.n
        if ranks.even == "pad":
            return len(range(0, length, ranks.n))
        return len(range(ranks.i, length, ranks.n))

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last element taken, as plain JSON values.

        After the end of a pass, it is the beginning of the next pass. It is a state of the flow
        for all ranks together, which have taken the same number of elements. So the state of any
        rank can be loaded by every rank, by another number of ranks, and by ``flow.resume``.

        Raises:
            NotResumable: A position does not identify the elements that this flow delivered.
        """
        if self._pass.ended:
            return {**state_of(self._flow.node, self._pass.epoch + 1, 0)}
        return self._pass.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume from a state: the next ``for`` iterates over the rest of its pass.

        Raises:
            StateMismatch: The state belongs to another flow, or is not a state. The loader is then
                unchanged.
        """
        self._continue_at(self.begin(*resumed_from(self._flow.node, state)))

    def statistics(self) -> RunStatistics | None:
        """Return the statistics of the current or last pass; None before the first."""
        return self._pass.statistics()

    def close(self) -> None:
        """End the current pass and its workers; the next ``for`` begins another pass."""
        self._pass.close()
        worker_cache.end(self._full_plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{self._flow!r}.{self._name}()"

    def __reduce__(self) -> NoReturn:
        raise NotShippable(
            f"{self._name}: a loader cannot be copied or sent to another process, which would get "
            f"its elements again; in a DataLoader, use num_workers=0, and add "
            f".prefetch(procs=n) to the flow"
        )

    def begin(
        self, epoch: int, position: int = 0, resume_point: ResumePoint = BEGINNING
    ) -> LoaderPass[X]:
        """Return a separate pass, which the loader does not count, close or save."""
        node, ranks = self._flow.node, self._ranks
        skipped = 0
        if ranks.n == 1:
            run = partial(Run, self._full_plan, epoch, position, resume_point)
        elif position % ranks.n == 0:
            run = partial(Run, self._full_plan, epoch, position // ranks.n)
        else:  # a state of another number of ranks: divide the elements after the position
            skipped = position
            plan: Plan[Any] = plan_of(part_of(Skip[Any, Any](node, position), ranks))
            run = partial(Run, plan, epoch)
        return LoaderPass(
            node,
            PassStart(epoch, position, resume_point),
            run,
            ranks,
            ready=_Converted(self._convert, partial(_position_of, ranks, node.length, skipped)),
            arrived=self._arrived,
            ahead=self._ahead,
            name=self._name,
        )


def refuse_second_shard(
    name: str, node: AnyNode, processes: tuple[int, int], accepts_shard: bool = True
) -> None:
    """Refuse a flow that the program has already divided among the processes of a consumer.

    The consumer would divide it once more, so most elements would reach no process.
    ``accepts_shard`` is True if the consumer has an argument ``shard``, which the message names.

    Raises:
        InvalidFlow: The flow contains ``shard(n, i)`` of the same ``n`` and ``i``, above 1.
    """
    n, i = processes
    if n == 1:
        return
    instead = f", or pass {name}(shard=(1, 0)), which does not divide" if accepts_shard else ""
    for part in walk(node):
        if isinstance(part, Shard) and part.shard == (n, i):
            raise InvalidFlow(
                f"{name}: the flow contains {part.title}, and {name} divides it among the same {n} "
                f"processes once more, so together they would get one element in {n}; leave "
                f".shard out{instead}"
            )


def part_of(node: AnyNode, ranks: Ranks) -> AnyNode:
    """Return the part of a flow for one of several ranks."""
    if ranks.n == 1:
        return node
    if ranks.even is None or Endless in node.effects:
        return Shard[Any, Any](node, ranks.n, ranks.i)
    return EvenShard[Any, Any](node, ranks.n, ranks.i, ranks.even)


def _position_of(ranks: Ranks, length: int | None, skipped: int, k: int) -> int:
    """Return the position in the flow of element ``k`` of a rank's part, for messages."""
    position = skipped + k * ranks.n + ranks.i
    if length is None or position < length:
        return position
    return skipped + (position - skipped) % max(length - skipped, 1)  # repeated by "pad"


def check_length(name: str, node: AnyNode, ranks: Ranks) -> None:
    """Warn if elements are left out or repeated, so that all ranks get the same number.

    Raises:
        InvalidFlow: The length of the flow is unknown, or "drop" leaves all elements out.
    """
    if ranks.n == 1 or ranks.even is None or Endless in node.effects:
        return
    if node.length is None:
        raise InvalidFlow(
            f"{name}: the length of this flow is unknown, and {ranks.n} ranks must get equally "
            f"many elements; make it endless with .repeat(), store the rows in a file, or pass "
            f"even=None if no rank waits for another"
        )
    if not node.length % ranks.n:
        return
    if ranks.even == "drop" and node.length < ranks.n:
        raise InvalidFlow(
            f"{name}: there are {node.length} elements for {ranks.n} ranks, so even='drop' would "
            f"leave out all of them; make smaller batches, or pass even='pad'"
        )
    if ranks.even == "drop":
        _log.warning(
            "%s: %d of %d elements of each pass are left out, so that %d ranks get equally many; "
            "even='pad' repeats some instead",
            *(name, node.length % ranks.n, node.length, ranks.n),
        )
    else:
        _log.warning(
            "%s: elements are repeated %d time(s) in each pass of %d, so that %d ranks get equally "
            "many; even='drop' leaves some out instead",
            *(name, -node.length % ranks.n, node.length, ranks.n),
        )


class _Converted(Sink[Any], Generic[X]):
    """The queue of converted elements."""

    def __init__(self, convert: Convert[X], position_of: Callable[[int], int]) -> None:
        """``position_of`` returns the position in the flow of an element of this rank's part."""
        self._convert = convert
        self._position_of = position_of
        self.elements = deque[X]()

    def put(self, element: Any, position: int) -> None:
        self.elements.append(self._convert(element, self._position_of(position)))


class PassStart(NamedTuple):
    """The start of a pass, for all ranks together."""

    epoch: int
    position: int
    resume_point: ResumePoint


class LoaderPass(Iterator[X], Generic[X]):
    """One pass of a loader, which begins with the first ``next``.

    After an error or ``close``, every ``next`` raises an error, so that an incomplete pass is not
    mistaken for a complete one.
    """

    def __init__(
        self,
        node: AnyNode,
        start: PassStart,
        run: Callable[[], Run[Any]],
        ranks: Ranks,
        ready: _Converted[X],
        arrived: Callable[[X], None] | None,
        ahead: int,
        name: str,
    ) -> None:
        self.start = start
        self.began = False
        """True after the first ``next``."""
        self.ended = False
        """True after a ``next`` that found no further elements."""
        self._node = node
        self._run = run
        self._ranks = ranks
        self._ready = ready
        self._arrived = arrived
        self._ahead = ahead
        self._name = name
        self._pump: Pump[Any] | None = None
        self._closed = False
        self._taken = 0

    def move_to(self, other: LoaderPass[X]) -> None:
        """Become another pass; neither has begun."""
        self.start, self._run, self._ready = other.start, other._run, other._ready

    @property
    def epoch(self) -> int:
        """The epoch of the pass."""
        return self.start.epoch

    @property
    def taken(self) -> int:
        """The elements of the flow's pass taken so far by all ranks, without repeated ones."""
        taken = self.start.position + self._taken * self._ranks.n
        return taken if self._node.length is None else min(taken, self._node.length)

    def __next__(self) -> X:
        pump = self._pump or self._begin()
        try:
            pump.take()
        except EndOfPass:
            self.ended = True
            raise StopIteration from None
        self._taken += 1
        element = self._ready.elements.popleft()
        if self._arrived is not None:
            self._arrived(element)
        return element

    def _begin(self) -> Pump[Any]:
        if self._closed:
            raise FlowError(f"{self._name}: this pass was closed; begin another one")
        self.began = True
        self._pump = Pump(self._run(), self._ready, self._ahead, name=self._name)
        return self._pump

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last element taken."""
        if self._pump is None:
            return {**state_of(self._node, *self.start)}
        if self._ranks.n == 1:
            return self._pump.state_dict()
        return {**state_of(self._node, self.epoch, self.taken)}

    def statistics(self) -> RunStatistics | None:
        """Return the statistics of the run; None before it begins."""
        return None if self._pump is None else self._pump.statistics()

    def close(self) -> None:
        """End the pass; elements that were taken stay valid."""
        self._closed = True
        self._ready.elements.clear()
        if self._pump is not None:
            self._pump.stop()
