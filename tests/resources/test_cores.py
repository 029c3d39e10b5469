from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowdsl.resources.cores import cores


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("max 100000", 16), ("400000 100000", 4), ("150000 100000", 2), ("10000 100000", 1), ("", 16)],
)
def test_a_container_quota_limits_the_cores(
    quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path / "cpu.max") == expected


def test_cpu_affinity_limits_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert cores(tmp_path / "none") == 1


def test_without_other_limits_the_machine_cores_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cores(tmp_path / "none") == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores(tmp_path / "none") == 1
