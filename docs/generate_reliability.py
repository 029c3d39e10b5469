"""Writes docs/reliability.md from the programs of tests/faults."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # run by its path, it finds the tests too

from tests.faults.scene import Fault, faults

PAGE = Path(__file__).with_name("reliability.md")

_HEAD = """\
# When things fail

What a user sees when files, disks, servers, queues, functions and processes fail. Written by
`make docs` from the programs in `tests/faults`, one for each fault; `make faults` runs them, and
the tests hold each to what is shown here.

| what fails | what is promised |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = "".join(
        f"| [{fault.title.rstrip('.')}](#{_anchor(fault.title)}) | {_line(fault.promise)} |\n"
        for fault in faults()
    )
    return _HEAD + rows + "".join(map(_section, faults()))


def _section(fault: Fault) -> str:
    output = fault.output.strip()
    program = re.sub(r"^from __future__ import annotations\n+", "", fault.program)
    return (
        f"\n## {fault.title.rstrip('.')}\n\n{fault.promise}\n\n"
        f"```py\n{program}\n```\n\n```text\n{output}\n```\n"
    )


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.rstrip(".").lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page())
