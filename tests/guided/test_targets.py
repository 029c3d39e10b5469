"""The targets of the guided fuzzer, without Atheris: a sample of what it gives them."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.testing.formats import Format
from tests.guided.targets import NAMES, Found, target_of
from tests.storage import fuzz as storage


@pytest.fixture(autouse=True)
def without_traces() -> Iterator[None]:
    """Stop the trace of memory that the decoders of messages start."""
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", NAMES)
def test_altered_bytes_are_read_or_refused(name: str, tmp_path: Path) -> None:
    target, rng = target_of(name, tmp_path), random.Random(1)
    for data in (b"", *target.valid[:20]):
        target.read(data)
    for _ in range(5):
        target.read(target.mutate(rng.choice(target.valid), rng))


def _careless(path: Path) -> fl.Flow[bytes, fl.Exact]:
    data = path.read_bytes()
    return fl.from_items([{b"row": data}[data]])


def _write(flow: fl.Flow[bytes, fl.Exact], path: Path) -> int:
    path.write_bytes(flow.at(0))
    return 1


def test_fault_of_a_reader_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    careless = Format(_write, _careless, some=[b"row"])
    monkeypatch.setitem(storage.READERS, "careless", careless)
    target = target_of("careless", tmp_path)
    (valid,) = target.valid
    target.read(valid)
    with pytest.raises(Found, match="KeyError"):
        target.read(valid + b"!")


def test_accepted_state_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = target_of("states", tmp_path)
    monkeypatch.setattr(fl.Flow, "resume", lambda flow, state: iter(flow.map(str)))
    state = json.loads(target.valid[1][1:])
    altered = json.dumps({**state, "position": 2}).encode()
    with pytest.raises(Found, match="was accepted"):
        target.read(target.valid[1][:1] + altered)
