"""The README: its first chain equals the example, and its output is real."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import flowdsl as fl

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def _tokens(code: str) -> str:
    return re.sub(r"#.*|\s", "", code)


def test_the_chain_equals_the_example() -> None:
    (chain,) = re.findall(r"(train = \(.*?\n\))", README, re.DOTALL)
    example = (ROOT / "examples" / "digits.py").read_text()
    assert _tokens(chain) in _tokens(example)
    assert len(example.splitlines()) < 80  # short enough to be read, and copied, as a whole


def test_the_plan_equals_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(ROOT / "examples" / "digits.py"), run_name="digits")
    example["write_digits"]()
    (chain,) = re.findall(r"(train = \(.*?\n\))", README, re.DOTALL)
    exec(chain, example)
    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert example["train"].explain() == shown.rstrip()


def test_every_operator_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", README))
    methods = {name for name in vars(fl.Flow) if not name.startswith("_")}
    for family in fl.Flow.__mro__:
        if family.__module__.startswith("flowdsl."):
            methods |= {name for name in vars(family) if not name.startswith("_")}
    assert methods - {"node", "effects"} <= listed
    assert {name for name in fl.__all__ if name.startswith("from_")} | {"fake"} <= listed
