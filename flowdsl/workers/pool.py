"""A pool: hands the work of one stage to its workers, and delivers their results in order.

The consumer's own thread coordinates: each time it needs a result, it hands out more leases and
takes in the results that have come. Only a stream is read ahead, in a thread of its own. Credit
bounds the work in flight and the rows read ahead, by count and by bytes, so when the consumer stops
reading, the workers and the stream soon stop too.

Contract: every lease is delivered once, in the order of its elements, whichever worker finishes
first and whichever dies. A worker that dies is replaced, and the leases it held are handed out
again. A worker marks each lease as begun before it works on it; the lease it was working on when it
died is cut into single elements, to find the one that kills workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

import attrs

from flowdsl.attempts import NOT_KNOWN, Attempt, AttemptToRead, LeaveOut
from flowdsl.errors import FlowError, WorkerDied
from flowdsl.making.costs import Costs, add_costs, costs_of
from flowdsl.making.make import Left, Tell, answerable
from flowdsl.making.program import RanOut, failure_in
from flowdsl.node import Failed, Passes, Row
from flowdsl.plan.plan import Stage
from flowdsl.statistics.books import Books, Times
from flowdsl.statistics.run import StageStatistics, WorkerStatistics
from flowdsl.wanted import is_wanted
from flowdsl.workers.crew import Crew, Delivery, Died, Done, Result, Worker
from flowdsl.workers.leases import BYTES_IN_FLIGHT, Lease, Pace, Piece, Work
from flowdsl.workers.staff import Staff

LEASES_IN_HAND = 2
"""Leases held by each worker: one to work on, and one so that it need not wait for the next."""

LEASES_AHEAD = 6
"""Finished leases for each worker that may wait for their turn behind a slow one."""

STILLBIRTHS = 3
"""When this many workers in a row have ended before they were ready, the pass fails."""


@attrs.frozen
class _Arrived:
    """A lease that waits to be delivered: its result, or the death that it led to."""

    lease: Lease
    nbytes: int
    result: Result | None = None
    delivery: Delivery | None = None
    death: WorkerDied | None = None


class Pool:
    """Runs a stage by the workers of a crew, one pass at a time."""

    def __init__(
        self,
        stage: Stage,
        bases: tuple[Passes, ...],
        crew: Crew,
        tell: Tell,
        held: int = 0,
        found: int | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a pool; ``bases`` begin passes over the stage's bases that are streams.

        These are read in a thread, which ``close`` is called in when it has done with them.

        ``tell`` is called with each element that is left out. ``held`` is the number of elements
        kept by the operators above, which count as in flight. ``found`` is the number of workers
        that paid in the last pass, if that is for the run to find.
        """
        self.stage = stage
        self._leave_out = tell
        self.crew = crew
        self._held = held
        self._staff = Staff.of(crew, stage.workers, found)
        self._memory = stage.workers.memory or BYTES_IN_FLIGHT
        self._pace = Pace(self._staff.count, self._bytes_a_lease, stage.workers.timeout)
        ahead = self._memory // 4
        self._work = Work(stage, bases, self._pace, crew.pack, close, crew.wake, ahead)
        self._clear()
        self._delivering: tuple[int, Sequence[int], Iterator[Any]] | None = None
        """The lease being delivered: its start, its elements' positions, and the elements left."""
        self._stillborn = 0
        self._books = Books()
        self._costs: Costs = {}
        self._times = Times()
        self._began: float | None = None
        self._ended: float | None = None
        self._deaths = 0
        self._reading = self._waited = self._outside = self._worked = self._filled = 0.0
        self._nbytes = 0
        self._most_bytes = self._most_sent = 0.0
        """The largest recent bytes per element: of a result, and of the rows sent for it."""

    def rows(self, epoch: int, start: int = 0) -> Iterator[Row[Any]]:
        """The rows of one pass from the position ``start`` on; ends the pass before it."""
        return self._pass(epoch, start, places=True)

    def elements(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The elements of one pass from the position ``start`` on, without their positions."""
        return self._pass(epoch, start, places=False)

    def _pass(self, epoch: int, start: int, places: bool) -> Iterator[Any]:
        """One pass.

        Raises:
            ElementError: An operator failed, after every element before it was yielded.
            WorkerDied: Workers ended, again and again, over an element or before they were ready.
            FlowError: The books do not balance, or operators hold more than ``memory``.
        """
        self._began = self._began or time.perf_counter()
        self._ended = None
        # raises in a fork, before the fork could discard the owner's results
        self._staff.start(self._waited, self._outside, self._worked)
        self._discard()
        self._books.settle()
        self._turn, self._delivering = start, None
        work = self._work.pieces(epoch, start)
        while True:
            self._hand_out(work)
            arrived = self._next()
            if arrived is not None:
                yield from self._deliver(arrived, places)
            elif self._leased or self._again or not self._exhausted:
                self._take_in()
            elif self._failed is not None:
                raise self._failed
            else:
                break
        self._ended = time.perf_counter()
        self._books.check(self.stage.meaning.title)

    @property
    def by_position(self) -> bool:
        """Whether a pass can begin at any position: not if its base is a stream."""
        return not self._work.streams

    @property
    def place(self) -> int:
        """The position that comes next, in a pass that can begin at any position."""
        if self._delivering is None:
            return self._turn
        start, positions, to_come = self._delivering
        given = len(positions) - length_hint(to_come)
        return positions[given - 1] + 1 if given else start

    def end_reading(self) -> None:
        """Read no more of a stream; what it reads is closed."""
        if self._work.reading is not None:
            self._work.reading.stop()

    def end(self) -> None:
        """End the pass, however far it came, so that the workers may rest."""
        turn = self.place
        self._discard()
        self._turn, self._delivering = turn, None

    def close(self) -> None:
        """End the workers; arrays that the consumer holds stay valid."""
        self.end_reading()
        self._ended = self._ended or time.perf_counter()
        self._turn, self._delivering = self.place, None
        self._arrived.clear()
        self.crew.close()

    def statistics(self) -> StageStatistics:
        """The statistics of the stage so far."""
        now = self._ended or time.perf_counter()
        seconds = now - (self._began or now)
        workers = self.crew.workers
        return StageStatistics(
            operators=self.stage.titles,
            kind=self.stage.workers.kind,
            seconds=seconds,
            entered=self._books.entered,
            delivered=self._books.delivered,
            filtered=self._books.filtered,
            skipped=self._books.skipped,
            retried=self._books.retried,
            in_flight=self._books.under_way,
            deaths=self._deaths,
            workers=tuple(WorkerStatistics(w.elements, w.busy, w.cpu) for w in workers),
            dismissed=self._staff.dismissed,
            staffed=self._staff.seconds(now),
            input_seconds=self._reading,
            waited=self._waited,
            fill=min(1.0, self._filled / seconds / self._credit) if seconds else 0.0,
            nbytes=self._nbytes,
            times=self._times.bins,
            ordered=self.stage.ordered,
            copies=self.stage.copies,
            costs=costs_of(self.stage, self._costs),
        )

    @property
    def outside(self) -> float:
        """The seconds that the consumer spent outside the pool while it had elements."""
        return self._outside

    # -- handing out ---------------------------------------------------------------------------

    def _discard(self) -> None:
        """Discard results that have come and were not delivered."""
        for stale in self._arrived.values():
            if stale.delivery is not None:
                stale.delivery.discard()
        self._clear()

    def _clear(self) -> None:
        self._leased: dict[int, Lease] = {}
        self._again: list[Piece] = []
        """Pieces to retry, in order of position. The results that wait for them keep their credit,
        so there is always room for a retry."""
        self._arrived: dict[int, _Arrived] = {}
        """Leases that wait to be delivered, by the position at which they start."""
        self._in_flight = 0
        """Bytes in flight: rows sent and not answered, and results that wait to be delivered."""
        self._exhausted = False
        self._starved = False
        """Whether a worker could be given more, and the stream has no more yet."""
        self._failed: Exception | None = None
        self._turn = 0

    def _hand_out(self, work: Iterator[Piece | None]) -> None:
        self._starved = False
        while self._may_hand_out():
            worker = self._idle()
            if worker is None:
                return
            if self._again:
                piece = self._again.pop(0)
            elif self._exhausted:
                return
            else:
                began = time.perf_counter()
                try:
                    found = next(work)
                except StopIteration:
                    self._exhausted = True
                    return
                except Exception as error:  # of the base: raised after all elements before it
                    self._exhausted, self._failed = True, error
                    return
                finally:
                    if self.stage.bases:
                        self._reading += time.perf_counter() - began
                if found is None:
                    self._starved = True
                    return
                piece = found
                self._books.entered += 0 if self.stage.end_to_end else piece.size
            self._leased[piece.lease.number] = piece.lease
            self._in_flight += piece.nbytes
            self.crew.give(worker, piece)

    @property
    def _under_way(self) -> int:
        """The number of leases that were handed out and are not delivered."""
        return len(self._leased) + len(self._arrived)

    @property
    def _credit(self) -> int:
        """The most leases that may be under way."""
        return self._staff.count * (LEASES_IN_HAND + LEASES_AHEAD)

    @property
    def _bytes_a_lease(self) -> int:
        return max(1, self._memory // self._credit)

    def _idle(self) -> Worker | None:
        """The worker with the fewest pieces, if any has room for another."""
        roomy = (w for w in self._staff.able if w.ready and len(w.held) < LEASES_IN_HAND)
        return min(roomy, key=lambda worker: len(worker.held), default=None)

    def _may_hand_out(self) -> bool:
        """Whether credit allows another piece; one that all others wait for is always allowed."""
        if not self._leased and not self._arrived:
            return True
        if self._again and self._again[0].lease.start == self._turn:
            return True
        if self._under_way >= self._credit:
            return False
        if not self._most_bytes:
            return self.stage.workers.memory is None
        expected = sum(lease.stop - lease.start for lease in self._leased.values())
        held = self._held * self._most_bytes
        if held > self._memory:
            raise FlowError(
                f"prefetch: memory={self._memory} bytes is less than the {self._held} elements of "
                f"about {self._most_bytes:,.0f} bytes that are held above "
                f"{self.stage.meaning.title}; give at least {2 * held:,.0f}, or a smaller buffer"
            )
        next_one = self._pace.size(None)
        coming = (expected + next_one) * self._most_bytes + next_one * self._most_sent
        stream = self._work.reading
        ahead = 0 if stream is None else stream.nbytes
        return self._in_flight + held + ahead + coming <= self._memory

    # -- taking in -----------------------------------------------------------------------------

    def _take_in(self) -> None:
        """Wait for events from the workers, and act on them."""
        self._staff.complete()
        began = time.perf_counter()
        events = self.crew.hear()
        if not is_wanted():
            raise FlowError(f"{self.stage.meaning.title}: the pass was given up")
        waited = time.perf_counter() - began
        if self._starved:  # more workers would wait for the stream, too
            self._reading += waited
        else:
            self._waited += waited
        self._filled += waited * len(self._arrived)
        for event in events:
            if isinstance(event, Done):
                self._done(event)
            elif isinstance(event, Died):
                self._died(event)
            else:
                self._stillborn = 0
        self._staff.dismiss_idle()

    def _done(self, event: Done) -> None:
        worker, result = event.worker, event.result
        piece = worker.held.pop(result.number, None)
        lease = self._leased.pop(result.number, None)
        if lease is None or piece is None:  # the result belongs to a pass that was abandoned
            event.delivery.discard()
            return
        nbytes = event.delivery.nbytes
        worker.elements += result.count
        worker.busy += result.seconds
        self._worked += result.seconds
        worker.cpu += result.cpu
        add_costs(self._costs, result.costs)
        self._nbytes += nbytes
        self._times.add(result.times)
        if not result.times:
            self._times.add_mean(result.seconds, result.count)
        self._most_bytes = max(nbytes / max(1, result.count), 0.9 * self._most_bytes)
        self._most_sent = max(piece.nbytes / piece.size, 0.9 * self._most_sent)
        self._in_flight += nbytes - piece.nbytes
        made = result.count if self.stage.end_to_end else piece.size
        if result.failure is None and made:
            self._pace.observe(made, result.seconds, max(nbytes, piece.nbytes))
        self._arrived[lease.start] = _Arrived(lease, nbytes, result, event.delivery)
        if self.stage.end_to_end and result.failure is None and result.count < piece.size:
            self._exhausted = True

    def _died(self, event: Died) -> None:
        worker = event.worker
        self._deaths += 1
        if not worker.ready:
            self._stillborn += 1
            if self._stillborn == STILLBIRTHS:
                raise WorkerDied(f"{worker.name} ended before it was ready ({event.how})")
        pieces = [p for p in worker.held.values() if p.lease.number in self._leased]
        blamed, most = event.begun, self.stage.workers.deaths
        if blamed not in worker.held and pieces:  # as far as is known, it had begun none of them
            blamed, most = pieces[0].lease.number, max(most, STILLBIRTHS)
        worker.held.clear()
        again: list[Piece] = []
        for piece in pieces:
            del self._leased[piece.lease.number]
            self._in_flight -= piece.nbytes
            self._books.retried += piece.size
            if piece.lease.number != blamed:
                again.append(self._work.again(piece))
                continue
            piece = attrs.evolve(piece, deaths=piece.deaths + 1)
            if piece.size > 1:
                again += self._work.split(piece)
            elif piece.deaths < most:
                again.append(self._work.again(piece))
            else:
                self._give_up(piece, event)
        self._again = sorted([*again, *self._again], key=lambda piece: piece.lease.start)
        self.crew.replace(worker)

    def _give_up(self, piece: Piece, event: Died) -> None:
        lease, meaning = piece.lease, self.stage.meaning
        if isinstance(meaning, LeaveOut):
            meaning = meaning.source  # the operator whose failures it leaves out
        many = piece.deaths > 1
        who = f"{piece.deaths} workers died, one after another," if many else "a worker died"
        died = WorkerDied(
            f"{who} at work on element {lease.first} of {meaning.title} "
            f"({meaning.origin(lease.epoch, lease.first)}); {'the last of them' if many else 'it'} "
            f"was {event.worker.name} ({event.how})"
        )
        self._arrived[lease.start] = _Arrived(lease, 0, death=died)

    # -- delivering ----------------------------------------------------------------------------

    def _next(self) -> _Arrived | None:
        """The lease to deliver now, if it has arrived."""
        turn = self._turn if self.stage.ordered else next(iter(self._arrived), None)
        return None if turn is None else self._arrived.pop(turn, None)

    def _deliver(self, arrived: _Arrived, places: bool) -> Iterator[Any]:
        lease, result = arrived.lease, arrived.result
        self._turn = lease.stop
        if result is None or arrived.delivery is None:
            yield from self._leave(lease, arrived.death)
            return
        elements = iter(arrived.delivery.open())
        consecutive = range(lease.start, lease.start + result.count)
        positions = consecutive if result.positions is None else result.positions
        self._delivering = lease.start, positions, elements
        began = time.perf_counter()
        rows = zip(positions, elements, strict=True) if places else elements
        given = 0
        for left in result.left:  # an error of a handler is raised at its element's position
            yield from islice(rows, left.before - given)
            given = left.before
            self._tell(left)
        yield from rows
        self._delivering = None
        now = time.perf_counter()
        self._outside += now - began
        self._filled += (now - began) * len(self._arrived)
        self._in_flight -= arrived.nbytes
        spent = self._waited, self._outside, self._worked
        if self._staff.observe(lease.stop - lease.start, *spent, self._under_way):
            self._pace.share(self._staff.count, self._bytes_a_lease)
        books = self._books
        books.delivered += result.count
        books.entered += result.count if self.stage.end_to_end else 0
        books.filtered += result.filtered
        failure = result.failure
        if failure is None:
            return
        if isinstance(failure.cause, RanOut):  # of the base: raised after all elements before it
            self._exhausted, self._failed = True, self._work.failures[failure.cause.slot]
            return
        if failure.path is None:
            raise failure.cause
        where = (failure.path, failure.epoch, failure.position, failure.given)
        raise failure_in(self.stage, *where) from failure.cause

    def _tell(self, left: Left) -> None:
        self._books.skipped += 1
        self._books.entered += self.stage.end_to_end
        self._leave_out(self.stage.top.at(left.path), left.failed)

    def _leave(self, lease: Lease, death: WorkerDied | None) -> Iterator[Row[Any]]:
        """Handle an element that workers died on: raise, leave it out, or deliver a stand-in."""
        assert death is not None
        step, epoch, there = answerable(self.stage.top, lease.epoch, lease.first)
        if step is None or self.stage.end_to_end:
            raise death
        if isinstance(step.node, LeaveOut):
            self._books.skipped += 1
            self._leave_out(step, Failed(NOT_KNOWN, epoch, there, death))
        elif isinstance(step.node, Attempt | AttemptToRead):  # an operator above leaves it out
            self._books.delivered += 1
            yield lease.first, Failed(step.node.number, epoch, there, death)
