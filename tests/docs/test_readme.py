"""The README: its first chain equals the example, and its output is real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_the_first_block_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    block, shown = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)[0]
    done = subprocess.run(
        [sys.executable, "-"], cwd=tmp_path, input=block, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (shown, "")


def test_every_operator_is_listed() -> None:
    listed = set(re.findall(r"`(\w+)`", README))
    methods = {name for name in vars(fl.Flow) if not name.startswith("_")}
    for family in fl.Flow.__mro__:
        if family.__module__.startswith("flowdsl."):
            methods |= {name for name in vars(family) if not name.startswith("_")}
    assert methods - {"node", "effects"} <= listed
    assert {name for name in fl.__all__ if name.startswith("from_")} | {"fake"} <= listed
