"""The row that mypy reveals for a chain is the row that the chain computes when it runs."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.effects import TAGS

ROOT = Path(__file__).parents[2]

CHAINS = {
    "fl.from_range(6)": "",
    "fl.from_items([1, 2, 3])": "",
    "fl.from_iterable([1, 2, 3])": "",
    "fl.from_lmdb(path, int)": "",
    "s.map(str)": "",
    "s.map(lambda i: (i, i)).starmap(lambda i, j: i + j)": "",
    "s.random_map(lambda i, rng: i + rng.random())": "",
    "s.filter(bool)": "",
    "s.batch(4)": "",
    "s.batch(4, drop_remainder=True)": "",
    "s.batch(3, drop_remainder=True)": "Resampled",  # 3 divides 6
    "s.repeat().batch(4, drop_remainder=True)": "",
    "s.filter(bool).batch(2, collate=list)": "",
    "s.take(3)": "",
    "s.filter(bool).take(3)": "",
    "s.shuffle().take(3)": "",
    "s.shuffle(2).take(3)": "",
    "s.repeat(2).take(3)": "",
    "s.repeat().take(3)": "",
    "s.repeat().shuffle(2).take(3)": "",
    "s.filter(bool).repeat().take(3)": "Reordered | Unsized",  # there is no row for each case
    "s.filter(bool).shuffle(2).take(3)": "",
    "s.repeat(2)": "",
    "s.repeat()": "",
    "s.repeat(None)": "",
    "s.filter(bool).repeat()": "",
    "s.shuffle(seed=7)": "",
    "s.shuffle(2).repeat()": "",
    "s.repeat(2).shuffle()": "",
    "s.filter(bool).shuffle(2)": "",
    "s.shuffle().prefetch(procs=2)": "",
    "s.shuffle().pipe(evens)": "",
    "s.apply(Repeat, 2)": "",
    "s.shuffle().map(str).batch(2, collate=list).repeat().prefetch()": "",
}
"""Chains, and the tags by which the static row is wider than it need be."""

HEAD = """
from typing import TypeVar
import flowdsl as fl
from flowdsl.effects import Effect
from flowdsl.ops.sizing import Repeat
F = TypeVar("F", bound=Effect)
def evens(flow: fl.Flow[int, F]) -> fl.Flow[int, F | fl.Unsized]:
    return flow.filter(lambda i: i % 2 == 0)
s = fl.from_range(6)
"""


def tags(row: str) -> set[str]:
    return set(re.findall(r"\w+", row.replace("flowdsl.effects.", ""))) - {"Exact"}


@pytest.fixture(scope="module")
def revealed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The row of each chain, from one run of mypy."""
    file = tmp_path_factory.mktemp("chains") / "chains.py"
    lines = [f"reveal_type({chain})\n" for chain in CHAINS]
    file.write_text(HEAD + "path = ''\n" + "".join(lines))
    command = [sys.executable, "-m", "mypy", "--output=json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    notes = map(json.loads, done.stdout.splitlines())
    told = [note for note in notes if Path(note["file"]).name == file.name]
    assert {note["severity"] for note in told} == {"note"}, told
    rows = [re.search(r", ([^,\[\]]+)\]\"$", note["message"]) for note in told]
    return {chain: tags(row[1]) for chain, row in zip(CHAINS, rows, strict=True) if row}


@pytest.mark.parametrize("chain", CHAINS)
def test_static_row_is_dynamic_row(
    chain: str, revealed: dict[str, set[str]], tmp_path: Path
) -> None:
    scope: dict[str, Any] = {"path": tmp_path / "numbers.lmdb"}
    fl.from_range(3).write_lmdb(scope["path"])
    exec(HEAD, scope)
    flow: fl.Flow[object] = eval(chain, scope)
    dynamic = {tag.__name__ for tag in flow.effects}
    wider = tags(CHAINS[chain])
    assert revealed[chain] == dynamic | wider
    assert not dynamic & wider, "the static row is exact: say no more than it needs"


def test_every_operator_and_source_is_here() -> None:
    def returns_flow(name: str, function: Callable[..., Any]) -> bool:
        returns = str(inspect.signature(function).return_annotation)
        return not name.startswith("_") and (returns.startswith("Flow[") or name == "pipe")

    methods = inspect.getmembers(fl.Flow, inspect.isfunction)
    operators = [f".{name}(" for name, method in methods if returns_flow(name, method)]
    sources = [f"fl.{name}(" for name in fl.__all__ if name.startswith("from_")]
    assert len(operators) >= 11
    chains = " ".join(CHAINS)
    assert [call for call in operators + sources if call not in chains] == []


def test_every_tag_is_here(revealed: dict[str, set[str]]) -> None:
    assert set().union(*revealed.values()) == {tag.__name__ for tag in TAGS}
