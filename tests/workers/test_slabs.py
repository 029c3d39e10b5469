"""Slabs: shared memory that is viewed without a copy, and reused afterwards."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.workers import slabs
from flowdsl.workers.slabs import ALIGNMENT, WORTH_SHARING, Extent, Slabs, Window, _slab_size

FLOAT = np.dtype(np.float64)
BIG = (WORTH_SHARING // 8 + 1,)


class Pair:
    """A worker's side and the consumer's, in one process."""

    def __init__(self) -> None:
        self.window = Window()
        self.slabs = Slabs(lambda number, fd: self.window.attach(number, os.dup(fd)))

    def send(self, *arrays: np.ndarray[Any, Any]) -> list[Extent]:
        return [self.slabs.place(array.data.cast("B")) for array in arrays]

    def result(self, *values: float) -> list[Extent]:
        """A result of one big array for every value."""
        self.slabs.begin()
        return self.send(*[self.filled(value) for value in values])

    def filled(self, value: float, shape: tuple[int, ...] = BIG) -> np.ndarray[Any, Any]:
        array = self.slabs.allocate(shape, FLOAT)
        array[...] = value
        return array

    def view(self, places: list[Extent]) -> list[np.ndarray[Any, Any]]:
        return [buffer.view(np.float64) for buffer in self.window.buffers(places)]


@pytest.fixture
def pair() -> Pair:
    return Pair()


class TestAllocate:
    def test_small_arrays_are_not_in_a_slab(self, pair: Pair) -> None:
        array = pair.slabs.allocate((3, 2), FLOAT)
        assert (array.shape, array.dtype) == ((3, 2), FLOAT)
        assert not pair.window.has([(0, 0, 0)])
        assert pair.slabs.allocate((WORTH_SHARING - 1,), np.dtype(np.uint8)).base is None

    def test_large_arrays_are_shared_without_a_copy(self, pair: Pair) -> None:
        (place,) = pair.result(3.5)
        (array,) = pair.view([place])
        assert (array == 3.5).all()
        assert len(array) == BIG[0]

    @given(st.lists(st.integers(WORTH_SHARING, 3 * WORTH_SHARING), min_size=1, max_size=8))
    def test_arrays_are_aligned_and_disjoint(self, sizes: list[int]) -> None:
        pair = Pair()
        pair.slabs.begin()
        arrays = [pair.slabs.allocate((size,), np.dtype(np.uint8)) for size in sizes]
        for i, array in enumerate(arrays):
            array[:] = i
        for i, array in enumerate(arrays):
            assert array.ctypes.data % ALIGNMENT == 0
            assert (array == i).all()
        places = pair.send(*arrays)
        for i, seen in enumerate(pair.window.buffers(places)):
            assert seen.ctypes.data % ALIGNMENT == 0
            assert (seen == i).all()

    @given(st.lists(st.integers(1, 300_000), min_size=1, max_size=12))
    def test_arrays_end_within_their_slab(self, counts: list[int]) -> None:
        pair = Pair()
        pair.slabs.begin()
        arrays = [pair.slabs.allocate((count,), FLOAT) for count in counts]
        for i, array in enumerate(arrays):
            array[...] = i
        assert all((array == i).all() for i, array in enumerate(arrays))
        for i, seen in enumerate(pair.view(pair.send(*arrays))):
            assert (seen == i).all()


class TestDescriptors:
    def test_slabs_that_are_held_need_none(self, pair: Pair) -> None:
        pair.view(pair.result(0.0))
        before = len(os.listdir("/proc/self/fd"))
        held = [pair.view(pair.result(float(i))) for i in range(200)]
        assert len(os.listdir("/proc/self/fd")) == before
        assert [float(x[-1]) for (x,) in held] == list(range(200))

    def test_a_slab_that_cannot_be_mapped_raises_the_error_of_the_system(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with pytest.raises(OSError, match=r"Invalid argument|Permission denied|No such device"):
            Window().attach(0, writing)


class TestSize:
    @given(st.integers(1 << 16, 1 << 28))
    def test_at_most_an_eighth_is_unused(self, nbytes: int) -> None:
        size = _slab_size(nbytes)
        assert nbytes + ALIGNMENT <= size <= 1.125 * (nbytes + ALIGNMENT)
        assert size % mmap.PAGESIZE == 0

    def test_size_for_a_batch_of_images(self, pair: Pair) -> None:
        pair.slabs.begin()
        places = pair.send(np.zeros((32, 224, 224, 3), np.uint8))
        assert pair.window.nbytes(places) == 5 << 20  # of 4.6 that it needs

    def test_sizes_that_vary_a_little_share_slabs(self, pair: Pair) -> None:
        for i in range(100):
            pair.slabs.begin()
            places = pair.send(np.zeros(1_000_000 + 100 * i, np.uint8))
            pair.window.discard(places)
        assert len({slab.size for slab in pair.slabs._all}) == 1


class TestPlace:
    def test_of_an_array_in_a_slab_copies_nothing(self, pair: Pair) -> None:
        pair.slabs.begin()
        array = pair.filled(1.0)
        (place,) = pair.send(array)
        array[...] = 2.0
        assert (pair.view([place])[0] == 2.0).all()

    def test_of_a_part_of_a_slab_is_that_part(self, pair: Pair) -> None:
        pair.slabs.begin()
        array = pair.slabs.allocate(BIG, FLOAT)
        array[...] = np.arange(BIG[0])
        (seen,) = pair.view(pair.send(array[10:20]))
        assert seen.tolist() == list(range(10, 20))

    def test_of_other_memory_copies(self, pair: Pair) -> None:
        pair.slabs.begin()
        mine = np.full(BIG, 1.0)
        places = pair.send(mine, np.full(BIG, 5.0))
        mine[...] = 2.0
        assert [float(seen[-1]) for seen in pair.view(places)] == [1.0, 5.0]

    def test_of_an_earlier_results_array_copies(self, pair: Pair) -> None:
        pair.slabs.begin()
        array = pair.filled(1.0)
        (first,) = pair.send(array)
        pair.slabs.begin()
        (second,) = pair.send(array)
        assert first[0] != second[0]
        assert all((seen == 1.0).all() for seen in pair.view([first, second]))


class TestReuse:
    def test_begins_when_the_last_view_is_collected(self, pair: Pair) -> None:
        first = pair.result(1.0)
        kept = pair.view(first)[0][5:10].reshape(1, 5).T
        second = pair.result(2.0)
        assert second[0][0] != first[0][0]
        assert (kept == 1.0).all()
        del kept
        gc.collect()
        assert pair.result(3.0)[0][0] == first[0][0]

    def test_waits_for_both_of_two_arrays_in_one_slab(self, pair: Pair) -> None:
        places = pair.result(1.0, 2.0)
        assert places[0][0] == places[1][0]
        one, two = pair.view(places)
        del one
        gc.collect()
        other = pair.result(3.0)
        assert other[0][0] != places[0][0]
        assert (two == 2.0).all()
        del two
        gc.collect()
        assert pair.result(4.0)[0][0] == places[0][0]

    def test_waits_for_the_arrays_of_each_slab_separately(self, pair: Pair) -> None:
        pair.slabs.begin()
        huge = 1 << 18
        places = pair.send(pair.filled(1.0, (huge,)), pair.filled(2.0, (huge,)))
        assert places[0][0] != places[1][0]
        one, two = pair.view(places)
        del one
        gc.collect()
        pair.slabs.begin()
        again = pair.send(pair.filled(3.0, (huge,)))
        assert again[0][0] == places[0][0]
        assert (two == 2.0).all()

    def test_takes_the_smallest_sufficient_slab(self, pair: Pair) -> None:
        pair.slabs.begin()
        sizes = [1 << 19, 1 << 17, 1 << 18]  # of 4, 1 and 2 MiB, and a little
        places = pair.send(*[pair.filled(0.0, (size - 64,)) for size in sizes])
        assert len({number for number, _, _ in places}) == 3
        pair.window.discard(places)
        pair.slabs.begin()
        assert pair.send(pair.filled(1.0, (1 << 16,)))[0][0] == places[1][0]

    def test_discarded_results_are_free(self, pair: Pair) -> None:
        first = pair.result(1.0)
        pair.window.discard([*first, (77, 0, 1)])  # one that was never shown is no trouble
        assert pair.result(2.0)[0][0] == first[0][0]

    def test_discarded_results_are_freed_once(self, pair: Pair) -> None:
        """The worker may fill the slab again during the discard."""
        first = pair.result(1.0)
        places, refilled = [*first, *first], list[Any]()
        slab = pair.window._slabs[first[0][0]]

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(slab, name)

            def __setattr__(self, name: str, value: Any) -> None:
                assert not refilled, "it was freed again"
                slab.in_use = value
                refilled.append(pair.result(2.0))

        pair.window._slabs[first[0][0]] = Watched()  # type: ignore[assignment]  # a test double
        pair.window.discard(places)
        assert refilled[0][0][0] == first[0][0]

    def test_unplaced_allocations_are_free(self, pair: Pair) -> None:
        for _ in range(5):
            pair.slabs.begin()
            pair.filled(1.0)  # a stack that failed, or whose result was converted
        assert pair.result(2.0)[0][0] == 0

    def test_a_view_may_be_collected_after_modules_are_cleared(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A view held by a daemon thread is collected this late."""
        reported: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", reported.append)
        views = pair.view(pair.result(1.0))
        monkeypatch.setattr(slabs, "os", None)
        views.clear()
        assert reported == []
        assert not any(slab.in_use for slab in pair.slabs._all)

    def test_a_view_may_outlive_the_window(self, pair: Pair) -> None:
        (array,) = pair.view(pair.result(1.0))
        pair.window = Window()
        gc.collect()
        assert (array == 1.0).all()


def test_lack_of_memory_is_an_error(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    open_files = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        pair.slabs.allocate(BIG, FLOAT)
    assert len(os.listdir("/proc/self/fd")) == open_files
    monkeypatch.undo()
    assert pair.slabs.allocate(BIG, FLOAT).shape == BIG


def test_memory_whose_place_could_not_be_taken_is_never_unmapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel may have unmapped it, and another thread may have mapped something else there."""
    kept: list[mmap.mmap] = []
    monkeypatch.setattr(slabs, "_lost", kept)
    monkeypatch.setattr(slabs, "_mmap", lambda: lambda *_: None)
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        slabs._mapped(0, 1 << 12)
    assert [len(memory) for memory in kept] == [1 << 12]


def test_memory_is_reserved_before_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    reserved: list[int] = []
    real = os.posix_fallocate

    def note(fd: int, offset: int, size: int) -> None:
        reserved.append(size)
        real(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", note)
    shown: list[int] = []
    slabs = Slabs(lambda number, fd: shown.append(os.fstat(fd).st_blocks * 512))
    slabs.allocate((1 << 20,), FLOAT)
    assert reserved == shown
    assert reserved[0] >= 8 << 20


def test_has_requires_every_slab(pair: Pair) -> None:
    (place,) = pair.result(1.0)
    assert pair.window.has([])
    assert pair.window.has([place, place])
    assert not pair.window.has([place, (9, 64, 8)])
