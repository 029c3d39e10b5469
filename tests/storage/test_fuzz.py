"""A sample of `make fuzz`: damaged files for every reader, kills for every writer."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.testing.formats import Format
from tests.storage import fuzz


def _ends_well(*command: str) -> str:
    """Run a program in another process: it forks, which a process with threads must not."""
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_damaged_files_are_handled() -> None:
    each = 2
    message = _ends_well("tests.storage.fuzz", f"--files={each * len(fuzz.READERS)}", "--seed=1")
    assert f"{each * len(fuzz.READERS)} damaged files" in message


@pytest.mark.slow
def test_killed_writer_leaves_the_old_or_the_new_rows() -> None:
    message = _ends_well("tests.storage.killing", "--kills=1", "--seed=1")
    assert "; 0 left something wrong" in message


@pytest.mark.long
def test_many_damaged_files_are_handled() -> None:
    _ends_well("tests.storage.fuzz", "--files=20000", "--seed=2")


# -- the fuzzer notices ----------------------------------------------------------------------------


def _careless(path: Path) -> fl.Flow[object, fl.Exact]:
    data = path.read_bytes()
    if len(data) % 7 == 3:
        raise KeyError("a bare error")
    return fl.from_items([data[i : i + 10] for i in range(0, len(data), 10)])


def _carelessly(flow: fl.Flow[bytes, fl.Exact], path: Path) -> int:
    rows = flow.collect()
    path.write_bytes(b"".join(rows))
    return len(rows)


def test_fuzzing_finds_a_careless_reader(tmp_path: Path) -> None:
    some: list[object] = [bytes([i] * 10) for i in range(12)]
    ready = fuzz.sample(Format(_carelessly, _careless, some=some), tmp_path)
    found = {str(fuzz.wrong(ready, i, 0)).partition(":")[0][:20] for i in range(300)}
    assert {"another row than was", "another error than a"} <= found
    lenient = fuzz.Sample(
        Format(_carelessly, _careless, some=some, checked=False), some, ready.path, ready.contents
    )
    found = {str(fuzz.wrong(lenient, i, 0)).partition(":")[0][:20] for i in range(300)}
    assert found == {"None", "another error than a"}


def test_damage_of_each_kind_changes_bytes() -> None:
    content = bytes(range(200))
    for damage in fuzz._DAMAGES:
        changed = set[bytes]()
        for seed in range(20):
            data = bytearray(content)
            damage(data, random.Random(seed))
            changed.add(bytes(data))
        assert len(changed - {content}) > 1
