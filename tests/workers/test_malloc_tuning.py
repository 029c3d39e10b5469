"""Malloc tuning: freed memory is kept in the worker, up to a limit."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.resources.cores import cores
from flowdsl.workers import native_threads
from tests.paces import paced

MIB = 1 << 20
glibc = pytest.mark.skipif("glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="glibc")


def faults_after_arrays(i: int) -> int:
    x = np.ones(8 * MIB, np.uint8) + 1  # 4,096 pages: more than what is free already
    x = x * 2 - 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def faults_a_row(**options: Any) -> float:
    counts: list[int] = (
        fl.from_range(40).map(faults_after_arrays).prefetch(procs=1, **options).collect()
    )
    return (counts[-1] - counts[20]) / 19


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a fault for each page: NumPy asks for huge pages, of which few faults are enough."""
    monkeypatch.setenv("NUMPY_MADVISE_HUGEPAGE", "0")


@glibc
class TestFreedMemory:
    def test_is_reused_without_page_faults(self) -> None:
        assert faults_a_row() < 10

    def test_is_not_kept_if_the_environment_configures_malloc(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
        assert faults_a_row() > 1000

    def test_is_limited_by_the_memory_argument(self) -> None:
        """An array larger than the limit is returned to the system."""
        assert faults_a_row(memory=100_000) > 1000

    def test_is_limited_to_a_constant(self) -> None:
        def resident(i: int) -> int:
            if i == 1:
                np.stack([np.ones(150_000, np.uint8) for _ in range(2000)])  # 300 MB, twice
            return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

        with paced([1]):  # it is given back between two tasks
            before, _, after = fl.from_range(3).map(resident).prefetch(procs=1).collect()
        assert after - before < 100 * MIB

    def test_child_programs_do_not_inherit_the_settings(self) -> None:
        def variables(_: int) -> dict[str, str]:
            return dict(os.environ)

        (got,) = fl.from_range(1).map(variables).prefetch(procs=1).collect()
        expected = {**native_threads.variables(cores()), **os.environ}
        for each in (got, expected):  # which threadpoolctl sets when it is imported
            each.pop("KMP_DUPLICATE_LIB_OK", None)
        assert got == expected
