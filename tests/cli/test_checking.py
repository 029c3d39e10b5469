"""flowdsl check."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flowdsl.cli import checking, first_element
from tests.cli.commands import TRAIN, Project


def test_a_flow_that_passes(project: Project) -> None:
    project.write("train.py", TRAIN)
    assert project.succeeds(
        "check", "train.py:train", "--no-types", "--needs", "Reordered"
    ).splitlines() == [
        "flow      from_range(1000).map(square).shuffle(seed=1).batch(4)",
        "types     not checked",
        "spec      int64[4]",
        "effects   Reordered, within Reordered",
        "promises  rows in another order, each row once, a known length, an end",
        "states    a run can be saved and resumed",
    ]


@pytest.mark.parametrize(
    ("needs", "flow", "fails"),
    [
        ("Exact", "train", "Reordered, but Exact is needed: shuffle(seed=1) adds Reordered"),
        ("Reordered", "train", None),
        ("Reordered | Endless", "train", None),
        ("Resampled,Endless", "train.repeat()", "shuffle(seed=1) adds Reordered"),
        ("Reordered", "train.repeat()", "repeat() adds Resampled and Endless"),
        ("Finite", "train.filter(len)", None),
        ("Counted", "train.filter(len)", "filter(len) adds Unsized"),
        ("InOrder", "train", "shuffle(seed=1) adds Reordered"),
        ("Unmoved", "fl.from_range(3).repeat()", None),
    ],
)
def test_effects_are_within_what_is_needed(
    project: Project, needs: str, flow: str, fails: str | None
) -> None:
    project.write("train.py", f"{TRAIN}flow = {flow}")
    result = project.run("check", "train.py:flow", "--no-types", "--needs", needs)
    assert result.exit_code == (fails is not None)
    assert fails is None or fails in result.output


@pytest.mark.parametrize("needs", [("Exact", "Finite"), ("Finite", "Exact"), ("Finite", "InOrder")])
def test_all_needs_must_hold(project: Project, needs: tuple[str, str]) -> None:
    project.write("train.py", TRAIN)
    first, second = needs
    command = "check", "train.py:train", "--no-types", "--needs", first, "--needs", second
    result = project.run(*command)
    assert result.exit_code == 1
    assert "is needed: shuffle(seed=1) adds Reordered" in result.output


def test_an_unknown_effect_is_bad_input(project: Project) -> None:
    project.write("train.py", TRAIN)
    assert project.refuses("check", "train.py:train", "--needs", "Sorted") == (
        "--needs: 'Sorted' is not an effect; expected Exact, Reordered, Resampled, Unsized, "
        "Endless, Counted, Finite, InOrder, Unmoved"
    )


def test_a_function_that_fails_on_the_first_element(project: Project) -> None:
    project.write("train.py", TRAIN + "flow = fl.from_range(3).map(lambda i: 1 // i)")
    result = project.run("check", "train.py:flow", "--no-types")
    assert result.exit_code == 1
    assert "spec      failed: map(<lambda>) failed on element 0" in result.output


FAILS = {
    "fl.from_range(9).map(np.zeros).batch(3)": "batch(3) failed on element 0",
    "fl.from_range(9).shuffle(seed=1).map(np.zeros).batch(3)": "batch(3) failed on element 0",
    "fl.from_range(9).filter(bool).map(np.zeros).batch(3)": "batch(3) failed on element 0",
    "fl.from_range(9).map(np.zeros).batch(3).prefetch(procs=2)": "batch(3) failed on element 0",
    "fl.from_range(9).filter(bool).replicate(procs=1).map(np.zeros).batch(3)": "batch(3) failed",
    "fl.from_range(9).map(np.zeros).cache('f.lmdb').batch(3)": "batch(3) failed on element 0",
}


@pytest.mark.parametrize(("flow", "error"), FAILS.items(), ids=FAILS)
def test_rows_that_do_not_stack(project: Project, flow: str, error: str) -> None:
    project.write("train.py", f"import numpy as np\n{TRAIN}\nflow = {flow}")
    result = project.run("check", "train.py:flow", "--no-types")
    assert result.exit_code == 1
    assert f"spec      failed: {error}" in result.output
    assert not Path("f.lmdb").exists()


PASSES = {
    "fl.from_range(0).batch(2)": "int64[2]",
    "fl.from_range(9).filter(lambda i: False).map(str)": "?",
    "fl.from_range(9).map(lambda i: 1 // (i - 5)).skip(6).filter(lambda i: True)": "int",
    "fl.from_range(10).map(lambda i: 1 / i).skip(1)": "float",
    "fl.from_iterable(iter([1, 2])).batch(2)": "?; the first element was not computed: "
    "from_iterable(list_iterator) yields its elements only once",
    "fl.from_range(9).repeat().filter(lambda i: False)": "int; the first element was not computed: "
    "none was found within 0.1 seconds",
    "fl.from_range(9).repeat().filter(lambda i: False).map(abs)": "?; the first element was not "
    "computed: none was found within 0.1 seconds",
    "fl.from_range(9).map(abs).cache('f.lmdb').map(abs).prefetch(procs=1, on_error='skip')": "?; "
    "the first element was not computed: cache('f.lmdb') is written by the first run",
    "fl.from_range(9).map(abs).cache('f.lmdb').map(abs)": "int",
}


@pytest.mark.parametrize(("flow", "spec"), PASSES.items(), ids=PASSES)
def test_a_first_element_that_need_not_be_computed(
    project: Project, monkeypatch: pytest.MonkeyPatch, flow: str, spec: str
) -> None:
    looks = itertools.count()  # at the clock, a millisecond each
    clock = SimpleNamespace(monotonic=lambda: next(looks) / 1000)
    monkeypatch.setattr(first_element, "time", clock)
    monkeypatch.setattr(first_element, "SECONDS", 0.1)
    project.write("train.py", f"{TRAIN}\nflow = {flow}")
    printed = project.succeeds("check", "train.py:flow", "--no-types")
    assert f"spec      {spec}\n" in printed
    assert not Path("f.lmdb").exists()


def test_a_source_read_only_once_is_not_read(project: Project) -> None:
    project.write("train.py", f"{TRAIN}\nlive = iter([1, 2])\nflow = fl.from_iterable(live)")
    project.write("rest.py", "import train\nflow = train.fl.from_items([next(train.live)])")
    project.succeeds("check", "train.py:flow", "--no-types")
    assert project.succeeds("head", "rest.py:flow") == "1\n"


def test_the_first_element_of_a_shuffle_does_not_need_all_rows(project: Project) -> None:
    project.write(
        "train.py",
        f"{TRAIN}\ncalls = []\n"
        "flow = fl.from_range(1000).map(lambda i: calls.append(i) or i).shuffle(seed=1).batch(2)",
    )
    project.succeeds("check", "train.py:flow", "--no-types")
    assert len(sys.modules["train"].calls) < 10


def test_a_flow_without_states(project: Project) -> None:
    project.write("train.py", TRAIN + "flow = train.prefetch(threads=1, ordered=False)")
    found = json.loads(project.succeeds("check", "train.py:flow", "--no-types", "--json"))
    assert found["ok"]
    assert found["checks"]["states"]["text"].startswith("none: after prefetch(ordered=False)")


CHECKER = """
import sys
from pathlib import Path
if "BAD" in Path(sys.argv[1]).read_text():
    sys.exit("train.py:3: error: BAD")
"""


def test_types_are_checked_by_the_first_installed_checker(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "CHECKERS", ("no_such_checker", "my_checker"))
    project.write("my_checker.py", CHECKER)
    project.write("my_checker-1.5.dist-info/METADATA", "Name: my_checker\nVersion: 1.5\n")
    project.write("train.py", TRAIN)
    project.write("bad.py", TRAIN + "# BAD")
    assert "types     no errors (my_checker 1.5)" in project.succeeds("check", "train.py:train")
    result = project.run("check", "bad.py:train")
    assert result.exit_code == 1
    assert "types     failed: my_checker 1.5\ntrain.py:3: error: BAD\n" in result.output


@pytest.mark.long
def test_types_are_checked_by_mypy(project: Project) -> None:
    project.write("bad.py", TRAIN + "text: str = train")
    result = project.run("check", "bad.py:train")
    assert result.exit_code == 1
    assert "types     failed: mypy" in result.output
    assert "Incompatible types in assignment" in result.output


def test_without_a_checker(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "CHECKERS", ("no_such_checker",))
    project.write("train.py", TRAIN)
    line = "not checked: none of no_such_checker is installed"
    assert f"types     {line}" in project.succeeds("check", "train.py:train")
    result = project.run("check", "train.py:train", "--types")
    assert result.exit_code == 1
    assert f"types     failed: {line}" in result.output
