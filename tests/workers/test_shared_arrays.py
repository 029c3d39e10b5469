"""Shared arrays: large arrays of functions are stored once for all workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import flowdsl as fl
from flowdsl.workers.shared_arrays import LARGE, SharedArrays, mapped
from flowdsl.workers.wire import _ship
from flowdsl.workers.wire import unpack as unpacked
from tests.workers.test_launching import first

MIB = 1 << 20
SIZES = st.integers(0, 99)


def megabytes(field: str) -> float:
    """Return memory figures of this process from /proc."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


class TestLargeArrays:
    @given(
        st.lists(npst.arrays(st.sampled_from(["u1", ">f8", "c16"]), st.integers(0, 99)), max_size=3)
    )
    def test_buffers_are_mapped_back(self, arrays: list[Any]) -> None:
        large = [np.resize(x, LARGE) if x.size else x for x in arrays]
        shipped = _ship(large, out_of_band=True)
        assert len(shipped.out_of_band) == sum(x.nbytes >= LARGE for x in large)
        assert len(shipped.content) < 10_000 + 1000 * len(large)
        beside = SharedArrays(shipped.out_of_band) if shipped.out_of_band else None
        got = unpacked(shipped.content, mapped(beside.layout) if beside else [])
        for x, y in zip(large, got, strict=True):
            assert x.dtype == y.dtype
            assert np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")
        assert beside is None or beside.holds(shipped.out_of_band)

    def test_are_stored_once_for_all_workers(self) -> None:
        table = np.ones(64 * MIB, np.uint8)

        def look(i: int) -> tuple[int, float]:
            return int(table[i::4096].sum()), megabytes("Private_Dirty")

        for total, private in fl.from_range(8).map(look).prefetch(procs=4):
            assert total == 64 * MIB // 4096
            assert private < 40

    def test_writes_of_a_function_stay_in_its_worker(self) -> None:
        table = np.zeros(4 * MIB, np.uint8)

        def count(i: int) -> int:
            table[0] += 1
            return int(table[0])

        flow = fl.from_range(50).map(count).prefetch(procs=2)
        assert max(flow) > 1
        assert table[0] == 0

    def test_changed_contents_are_used_in_the_next_pass(self) -> None:
        table = np.zeros(4 * MIB, np.uint8)
        flow = fl.from_range(4).map(lambda i: int(table[-1])).prefetch(procs=2)
        assert list(flow) == [0] * 4
        table[-1] = 1
        assert list(flow) == [1] * 4

    def test_read_only_arrays_stay_read_only(self) -> None:
        table = np.zeros(4 * MIB, np.uint8)
        table.flags.writeable = False
        assert first(lambda _: table.flags.writeable) is False


class TestMemmap:
    @pytest.fixture
    def file(self, tmp_path: Path) -> np.memmap[Any, np.dtype[np.int32]]:
        path = tmp_path / "table"
        np.arange(4 * MIB, dtype=np.int32).tofile(path)
        return np.memmap(path, np.int32, "r", 400, (1000, 1000))

    VIEWS: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012  # cases
        "as it is": lambda x: x,
        "a part": lambda x: x[10:20],
        "backwards": lambda x: x[::-3, ::-1],
        "transposed": lambda x: x.T,
        "as bytes": lambda x: x.view(np.uint8)[3:, 7:],
        "reshaped": lambda x: x.reshape(10, 100, 1000)[1],
    }

    @pytest.mark.parametrize("view", VIEWS)
    def test_is_mapped_in_another_process(self, view: str, file: Any) -> None:
        x = self.VIEWS[view](file)
        shipped = _ship(x)
        assert len(shipped.content) < 1000
        y = unpacked(shipped.content)
        assert type(y) is np.memmap
        assert (y.dtype, y.shape, y.flags.writeable) == (x.dtype, x.shape, False)
        assert np.array_equal(x, y)

    def test_is_mapped_in_a_worker(self, file: Any) -> None:
        flow = fl.from_range(100).map(lambda i: int(file[i, 5]))
        assert flow.prefetch(procs=2).collect() == flow.collect()

    def test_a_writable_memmap_is_shared_by_all_workers(self, tmp_path: Path) -> None:
        seen = np.memmap(tmp_path / "seen", np.uint8, "w+", shape=(100,))

        def note(i: int) -> int:
            seen[i] = i
            return i

        fl.from_range(100).map(note).prefetch(procs=2).collect()
        assert seen.tolist() == list(range(100))

    def test_a_copy_on_write_memmap_is_sent_by_value(self, tmp_path: Path) -> None:
        np.zeros(100, np.uint8).tofile(tmp_path / "x")
        changed = np.memmap(tmp_path / "x", np.uint8, "c")
        changed[3] = 7
        assert first(lambda _: changed.tolist())[3] == 7

    def test_a_memmap_of_a_deleted_file_is_sent_by_value(self, file: Any) -> None:
        Path(file.filename).unlink()
        assert first(lambda _: int(file[0, 5])) == 105
