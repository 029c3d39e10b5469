"""Memory: work in flight is limited by count and bytes, and released memory is freed."""

from __future__ import annotations

import gc
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow, FlowError
from flowdsl.runtime.run import Run
from flowdsl.workers import pool
from flowdsl.workers.slabs import _MOST_FREE
from flowdsl.workers.tasks import BYTES_IN_FLIGHT
from tests.paces import paced

KIB, MIB = 1 << 10, 1 << 20


def rows(nbytes: int) -> Callable[[int], NDArray[np.uint8]]:
    return lambda i: np.full(nbytes, i % 251, np.uint8)


def mapped(pid: int | str = "self") -> int:
    """The bytes of all slabs that a process maps."""
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:flowdsl" in line:
            low, high = (int(end, 16) for end in re.split("[- ]", line)[:2])
            total += high - low
    return total


def workers_of(run: Run[Any]) -> list[int]:
    return [worker.process.pid for p in run._execution.pools for worker in p.backend.workers]  # type: ignore[attr-defined]  # of processes


def shared(run: Run[Any]) -> int:
    """Return the bytes of shared memory of a run: every slab is mapped by its worker."""
    return sum(map(mapped, workers_of(run)))


def settled(value: Callable[[], int], seconds: float = 20) -> int:
    """Return a value that other threads change, when it has been stable for a while."""
    deadline, before = time.monotonic() + seconds, -1
    while time.monotonic() < deadline:
        if before == (now := value()):
            return now
        before = now
        time.sleep(0.25)
    raise AssertionError("it goes on and on")


class TestBytesInFlight:
    @pytest.mark.parametrize("size", [100 * KIB, 1000 * KIB])
    @pytest.mark.parametrize("memory", [4 * MIB, 16 * MIB])
    def test_are_limited_when_the_consumer_stops(self, size: int, memory: int) -> None:
        """Slabs are powers of two, so half of each may be empty: that counts as well."""
        run = iter(fl.from_range(10**6).map(rows(size)).prefetch(procs=2, memory=memory))
        for x in islice(run, 30):
            assert len(x) == size
        most = settled(lambda: shared(run))
        assert size <= most <= 2 * memory + 2 * 2 * size  # in flight, and as much for later
        assert run.statistics().stages[-1].in_flight < memory / size + 1
        run.close()

    def test_are_limited_while_the_consumer_reads(self) -> None:
        run = iter(fl.from_range(400).map(rows(300 * KIB)).prefetch(procs=2, memory=8 * MIB))
        most = max(shared(run) for _ in run)
        assert most <= 2 * 8 * MIB + 4 * 512 * KIB  # in flight, and as much for later

    @pytest.mark.parametrize("pace", [nullcontext(), paced([4])], ids=["its own", "of 4"])
    def test_include_rows_sent_to_workers(self, pace: AbstractContextManager[None]) -> None:
        """Rows read ahead count, even if workers compute small results from them."""
        read: list[int] = []
        gone: list[int] = []

        def stream() -> Iterator[NDArray[np.uint8]]:
            for i in range(10**6):
                row = np.full(MIB, i % 251, np.uint8)
                weakref.finalize(row, gone.append, i)
                read.append(i)
                yield row

        flow = fl.from_iterable(stream).map(lambda x: x[:10].copy())
        with pace:
            run = iter(flow.prefetch(procs=2, memory=6 * MIB))
            for _ in range(200):
                next(run)
                assert len(read) - len(gone) <= 6
        run.close()

    def test_include_a_shuffle_buffer(self) -> None:
        """The elements of the buffer reduce the limit."""
        flow = fl.from_range(2000).map(rows(100 * KIB)).shuffle(40)  # 128 KiB each: 5 MiB
        run = iter(flow.prefetch(procs=2, memory=8 * MIB))
        list(islice(run, 20))
        pools = run._execution.pools[-1]
        assert pools._budget.in_flight <= 8 * MIB - 40 * 128 * KIB
        assert settled(lambda: shared(run)) <= 8 * MIB + _MOST_FREE * 2 * 128 * KIB
        run.close()

    def test_a_limit_below_a_shuffle_buffer_is_an_error(self) -> None:
        flow = (
            fl.from_range(2000).map(rows(100 * KIB)).shuffle(40).prefetch(procs=2, memory=2 * MIB)
        )
        with pytest.raises(FlowError) as caught:
            flow.collect()
        assert re.fullmatch(
            r"prefetch: memory=2097152 bytes is less than the 40 elements of about [\d,]+ bytes "
            r"that are held above map\(<lambda>\); give at least [\d,]+, or a smaller buffer",
            str(caught.value),
        )

    @pytest.mark.parametrize("memory", [1, 1000, 300 * KIB])
    def test_a_limit_below_one_element_allows_one_at_a_time(self, memory: int) -> None:
        run = iter(fl.from_range(12).map(rows(MIB)).prefetch(procs=2, memory=memory))
        for i, x in enumerate(run):
            assert (x == i).all()
            assert run._execution.pools[0]._budget.in_flight <= 2 * MIB + 4 * KIB
            assert not run._execution.pools[0]._assigned
        assert run.position == 12

    def test_are_limited_with_threads(self) -> None:
        run = iter(fl.from_range(1000).map(rows(MIB)).prefetch(threads=2, memory=6 * MIB))
        for _ in islice(run, 50):
            in_flight = len(run._execution.pools[0]._assigned) + len(
                run._execution.pools[0]._arrived
            )
            assert in_flight <= 6
        run.close()

    def test_are_limited_with_occasional_large_elements(self) -> None:
        def sometimes(i: int) -> NDArray[np.uint8]:
            return np.full(4 * MIB if i % 20 == 10 else 10 * KIB, i, np.uint8)

        flow = fl.from_range(80).map(sometimes).prefetch(procs=2, memory=MIB)
        assert [int(x[-1]) for x in flow] == list(range(80))


JUMP = 3000
"""The number of small elements before the large ones: tasks have thousands of elements then."""


def jumping(large: Any) -> Callable[[int], Any]:
    return lambda i: large[:4] if i < JUMP else large[:]


def private(pid: int) -> int:
    """The bytes of memory that a process shares with no other."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text)
    return KIB * sum(map(int, found))


class TestElementsThatGrow:
    """The bytes in flight are limited although the next element may be any times as large."""

    @pytest.mark.parametrize("large", [np.zeros(MIB, np.uint8), bytes(MIB)], ids=["array", "bytes"])
    @pytest.mark.parametrize("where", ["source", "stream", "items", "end to end"])
    def test_from_bytes_to_a_megabyte(self, where: str, large: Any) -> None:
        """Each worker exceeds the limit by its last element, of which it has two tasks at most."""
        grow, memory, procs = jumping(large), 8 * MIB, 2
        if where == "source":
            flow: Flow[Any, Any] = fl.from_range(JUMP + 100).map(grow)
        elif where == "items":
            flow = fl.from_items([grow(i) for i in range(JUMP + 100)]).map(lambda x: x)
        else:
            flow = fl.from_iterable(lambda: map(grow, range(JUMP + 100))).map(lambda x: x)
        if where == "end to end":
            flow = flow.replicate(procs=1)
            procs, memory = 1, BYTES_IN_FLIGHT
        else:
            flow = flow.prefetch(procs=procs, memory=memory)
        run = iter(flow)
        for i in range(JUMP + 100):
            assert len(next(run)) == (4 if i < JUMP else MIB)
            if i >= JUMP:
                (all_at_work,) = run._execution.pools
                largest = 2.2 * MIB  # a result with its row
                assert all_at_work._budget.in_flight <= memory + 2 * procs * largest
        assert list(run) == []

    def test_private_memory_and_slabs_of_workers(self) -> None:
        memory, large = 4 * MIB, np.zeros(4 * MIB, np.uint8)
        run = iter(fl.from_range(JUMP + 40).map(jumping(large)).prefetch(procs=1, memory=memory))
        list(islice(run, JUMP // 2))
        before = sum(map(private, workers_of(run)))
        most = 0
        for x in run:
            if len(x) > 4:
                now = sum(map(private, workers_of(run)))
                most = max(most, now - before + shared(run))
        assert most <= 2 * memory + 4 * large.nbytes

    def test_giants_of_a_hundred_megabytes(self) -> None:
        giant = 100 * MIB
        run = iter(
            fl.from_range(6)
            .map(lambda i: np.zeros(giant if i > 2 else 4, np.uint8))
            .prefetch(procs=1, memory=4 * MIB)
        )
        next(run)
        (worker,) = workers_of(run)
        before, most = private(worker), 0
        for _ in run:
            most = max(most, private(worker) - before + shared(run))
        assert most <= 2 * 4 * MIB + 4 * giant

    def test_in_threads(self) -> None:
        flow = fl.from_range(JUMP + 100).map(jumping(bytes(MIB)))
        run = iter(flow.prefetch(threads=2, memory=8 * MIB))
        for i in range(JUMP + 100):
            assert len(next(run)) == (4 if i < JUMP else MIB)
            assert run._execution.pools[0]._budget.in_flight <= 8 * MIB + 4 * MIB + 64 * KIB

    def test_some_are_left_out(self) -> None:
        """A filter leaves gaps, also behind the last element of a task that is cut short."""
        flow = fl.from_range(JUMP + 99).filter(lambda i: i % 3 == 1).map(jumping(bytes(MIB)))
        run = iter(flow.prefetch(procs=2, memory=4 * MIB))
        expected = [4 if i < JUMP else MIB for i in range(JUMP + 99) if i % 3 == 1]
        assert [len(x) for x in run] == expected
        (stage,) = run.statistics().stages
        assert (stage.entered, stage.delivered) == (JUMP + 99, len(expected))


class TestTasksInFlight:
    def test_are_a_few_tasks_per_worker(self, tmp_path: Path) -> None:
        """A consumer that stops reading stops the workers, without a limit in bytes."""

        def note(i: int) -> int:
            (tmp_path / str(i)).touch()
            return i

        with paced([3]):
            run = iter(fl.from_range(10**6).map(note).prefetch(procs=2))
            assert next(run) == 0
            made = settled(lambda: len(list(tmp_path.iterdir())))
        assert made <= 3 * 2 * (pool.TASKS_PER_WORKER + pool.TASKS_AHEAD)
        run.close()

    def test_are_limited_although_workers_die(self, tmp_path: Path) -> None:
        def note(i: int) -> int:
            (tmp_path / f"{i} {os.getpid()}").touch()
            if i == 5 and len(list(tmp_path.glob("5 *"))) < 3:
                os._exit(3)
            return i

        with paced([3]):
            run = iter(fl.from_range(10**6).map(note).prefetch(procs=2))
            assert list(islice(run, 7)) == list(range(7))
            settled(lambda: len(list(tmp_path.iterdir())))
        made = {int(path.name.split()[0]) for path in tmp_path.iterdir()}
        assert max(made) <= 7 + 3 * (1 + 2 * (pool.TASKS_PER_WORKER + pool.TASKS_AHEAD))
        run.close()


class TestViews:
    def test_a_list_of_all_elements_is_correct_for_any_memory(self) -> None:
        """Elements that the consumer keeps are not in flight."""
        flow = fl.from_range(64).map(rows(256 * KIB)).prefetch(procs=2, memory=2 * MIB)
        for i, x in enumerate(flow.collect()):
            assert (x == i).all()

    @pytest.mark.parametrize("size", [100 * KIB, 1000 * KIB])
    def test_released_views_free_their_memory(self, size: int) -> None:
        before = mapped()
        run = iter(fl.from_range(10**6).map(rows(size)).prefetch(procs=1, memory=4 * MIB))
        kept = list(islice(run, 200))
        assert shared(run) >= 200 * size
        del kept
        for x in islice(run, 200):
            assert len(x) == size
        most = 2 * 4 * MIB + 2 * 2 * size  # in flight, and as much for later
        assert settled(lambda: shared(run)) <= most
        assert mapped() <= before + most  # it hears what the worker dropped with the next results
        run.close()

    def test_memory_does_not_grow_with_passes(self) -> None:
        before = mapped()
        flow: Flow[Any, Any] = fl.from_range(100).map(rows(100 * KIB)).prefetch(procs=1)
        sizes = list[int]()
        for _ in range(4):
            run = iter(flow)
            assert all(len(x) == 100 * KIB for x in run)
            sizes.append(mapped())
            del run
        assert max(sizes) <= 2 * 100 * 100 * KIB  # two passes, at the most, of four
        del flow
        gc.collect()
        assert mapped() <= before
