"""A run: an iterator over one pass of a flow."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from inspect import GEN_RUNNING, getgeneratorstate
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from flowdsl.effects import Effect, Endless
from flowdsl.errors import EndlessFlow, FlowError, InvalidArgument, InvalidFlow, NotShippable
from flowdsl.nodes import Node, endless_part
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan
from flowdsl.runtime.execution import Execution
from flowdsl.runtime.resume_points import BEGINNING, ResumePoint
from flowdsl.runtime.state import state_of
from flowdsl.statistics.run import RunStatistics

if TYPE_CHECKING:
    from flowdsl.runtime.origins import Origin

T = TypeVar("T")


class Run(chain[T]):
    """An iterator over one pass of a flow, and a context manager that ends it.

    A run belongs to one thread at a time: of two that call ``next`` at once, one gets a
    ``ValueError``. Its workers start with the first ``next``, unless the workers of the last pass
    are still alive. They end with an error, with ``close``, or when the flow is garbage-collected;
    after a ``break`` they wait for the next pass.

    >>> import flowdsl as fl
    >>> with iter(fl.from_range(4).shuffle()) as run:
    ...     first, state = next(run), run.state_dict()
    >>> [first, *fl.from_range(4).shuffle().resume(state)] == fl.from_range(4).shuffle().collect()
    True
    """

    # A ``__next__`` in Python would cost more than a small user function; chain implements it in C.

    _execution: Execution[T]
    _elements: Generator[T]

    def __new__(
        cls,
        flow: Plan[T] | Node[T, Effect],
        epoch: int = 0,
        position: int = 0,
        resume_point: ResumePoint = BEGINNING,
        profile: bool = False,
        when_ended: Callable[[], object] = lambda: None,
    ) -> Run[T]:
        """Begin a pass over a flow: ``flow`` is its plan, or a node, for which a plan is made.

        The first ``position`` elements of the pass are left out, since they were delivered already.
        If they have to be computed again, only the elements after ``resume_point`` are. With
        ``profile`` every operator is timed, which costs a little. ``when_ended`` is called when
        the pass has ended with its last element.
        """
        plan = flow if isinstance(flow, Plan) else plan_of(flow)
        execution = Execution(plan, epoch, position, resume_point, profile, when_ended)
        elements = execution.elements()
        run = super().__new__(cls, elements, _Rest(execution))
        run._execution, run._elements = execution, elements
        return run

    @property
    def epoch(self) -> int:
        """The epoch of the pass."""
        return self._execution.epoch

    @property
    def position(self) -> int:
        """The number of elements of the pass delivered so far, including before a resume."""
        return self._execution.position

    def __length_hint__(self) -> int:
        node = self._execution.node
        if Endless in node.effects:
            raise EndlessFlow(f"{endless_part(node)} never ends, so it cannot become a list")
        return max(0, (node.length or 0) - self.position)

    if not TYPE_CHECKING:  # to a type checker, any attribute would exist

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"a run has no attribute {name!r}: it is an iterator over one pass, and list(run) "
                f"has its elements; operators are methods of the flow",
                name=name,
                obj=self,
            )

    def __enter__(self) -> Run[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._execution.auto_commit and not self._is_at_work:
                self.commit()  # the block ended, so it has used the last element
            self.close()
        except FlowError as failed:
            if error is None or kind is GeneratorExit:
                raise
            error.add_note(f"closing the run also failed: {failed}")

    def close(self, *, keep_workers: bool = False) -> None:
        """End the pass and its workers; elements already delivered stay valid.

        With ``keep_workers``, workers wait for the next pass over the flow, as after a complete
        pass and after a ``break``, unless they need more than half a second for an element.
        Generators and files that the pass was reading are closed, too. The same happens at the end
        of the pass, after an error, and when nothing refers to the run any more.

        After ``close`` or an error, ``next`` raises a ``FlowError``, so that an incomplete pass is
        not mistaken for a complete one.

        Raises:
            FlowError: The run is computing an element: ``close`` was called by one of the flow's
                functions or by another thread. Or a generator raised an error as it was closed,
                which is the cause; if the ``with`` block raised an error itself, that error gets a
                note instead.
        """
        if self._is_at_work:
            raise FlowError("close: this run is computing an element; close it when that is done")
        self._execution.keep_workers = keep_workers
        try:
            self._elements.close()
        finally:
            self._execution.leave()
            self._execution.close()

    @property
    def acknowledges(self) -> bool:
        """True if a source of the flow acknowledges the rows that are delivered."""
        return bool(self._execution.plan.acknowledging)

    def commit_explicitly(self) -> None:
        """Acknowledge rows only by ``commit``: for a consumer that reads ahead, such as a queue."""
        self._execution.auto_commit = False

    def commit(self, position: int | None = None) -> None:
        """Acknowledge the rows from which the elements so far were made; their senders forget them.

        ``from_zmq(..., auto_commit=False)`` acknowledges no row otherwise: a consumer that stores
        rows commits when they are stored. After a stop, the sender sends the rows that were not
        committed again. After the end of the pass, one more ``commit`` acknowledges the last rows;
        ``close``, at the latest the end of the ``with`` block, ends the connection.

        ``position`` is a number of elements, by default those delivered so far; a consumer of a
        queue passes the number that it took. Other sources have nothing to acknowledge, and ignore
        the call.

        Raises:
            InvalidArgument: ``position`` is before the run's first or after its current position.
            FlowError: The run is computing an element.
        """
        start, now = self._execution.start, self.position
        position = now if position is None else position
        if not start <= position <= now:
            raise InvalidArgument(
                f"commit: position must be between {start} and {now}, got {position}"
            )
        if self._is_at_work:
            raise FlowError("commit: this run is computing an element; commit between two elements")
        self._execution.commit(position)

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return the state of the pass as plain JSON values; ``flow.resume`` continues from it.

        ``position`` selects an earlier state. A consumer of a queue uses it for the last element it
        took, when more elements have been fetched already.

        Raises:
            InvalidArgument: ``position`` is before the run's first or after its current position.
        """
        start, now = self._execution.start, self.position
        position = now if position is None else position
        if position == now and not self._is_at_work:
            self._execution.record_resume_point()
        if not start <= position <= now:
            raise InvalidArgument(
                f"state_dict: position must be between {start} and {now}, got {position}"
            )
        execution = self._execution
        resume_point = execution.resume_point_at(position)
        return {**state_of(execution.node, execution.epoch, position, resume_point)}

    def mark(self, since: int | None = None) -> None:
        """Record a resume point, for a ``state_dict`` of this position or a later one.

        Above a filter, a resume computes the elements between the last resume point and the
        position of the state again. Enough resume points are kept for states from position
        ``since`` on, by default the current position. A call costs a few microseconds.
        """
        if not self._is_at_work:
            self._execution.keep_resume_point(self.position if since is None else since)

    def origins(self) -> list[Origin]:
        """Return the source rows from which the last element delivered was computed.

        See ``flow.origins``. Origins are computed only by this call, and cost nothing otherwise.
        Right after a resume, they are the origins of the last element before it.

        Errors: ``InvalidFlow`` if no element has been delivered yet, or as for ``flow.origins``.

        >>> import flowdsl as fl
        >>> run = iter(fl.from_range(100).shuffle(seed=1).batch(3))
        >>> batch = next(run)
        >>> [origin.row for origin in run.origins()] == batch.tolist()
        True
        """
        from flowdsl.runtime.origins import origins_at  # here: that module imports Run

        if not self.position:
            raise InvalidFlow("origins: this run has delivered no element yet; ask after the first")
        return origins_at(self._execution.node, self.position - 1, self.epoch)

    @property
    def _is_at_work(self) -> bool:
        return getgeneratorstate(self._elements) == GEN_RUNNING

    def statistics(self) -> RunStatistics:
        """Return the statistics so far: the counts of each stage, and where the time was spent."""
        return self._execution.statistics()

    def __reduce__(self) -> NoReturn:
        raise NotShippable("a run cannot be copied or pickled; save its state_dict() instead")


class _Rest(Iterator[NoReturn]):
    """Follows the last element: ends the iteration, or raises if the pass is incomplete."""

    def __init__(self, execution: Execution[T]) -> None:
        self._execution = execution

    def __next__(self) -> NoReturn:
        if self._execution.ended:
            raise StopIteration
        raise FlowError("this run was closed, or ended with an error, before the end of its pass")
