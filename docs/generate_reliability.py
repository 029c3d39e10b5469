"""Writes docs/reliability.md from the programs of tests/faults."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # run by its path, it finds the tests too

from tests.faults.peers import CASES, LIBRARIES, RECORD, title
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
    return _HEAD + rows + _beside_others() + "".join(map(_section, faults()))


def _beside_others() -> str:
    """The table of the same faults in other libraries, as they were recorded."""
    record = json.loads(RECORD.read_text())
    versions = ", ".join(f"{LIBRARIES[name]} {v}" for name, v in record["versions"].items())
    lines = [
        "\n## The same faults in other libraries\n",
        "Each row is one program for each library, with two workers (threads, for tf.data) and 20",
        "rows, if no other number is mentioned. `make faults-peers` runs them again; these were",
        f"recorded with {versions}.\n",
        f"| what happens | {' | '.join(LIBRARIES)} |",
        f"|---|{'---|' * len(LIBRARIES)}",
    ]
    for case in CASES:
        cells = (_cell(record["cases"][case.__name__][library]) for library in LIBRARIES)
        lines.append(f"| {title(case)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(outcome: str) -> str:
    """An outcome as code, without the numbers of processes and the names of TensorFlow's nodes."""
    text = re.sub(r"\{\{function_node .*?\}\} | \[Op:.*", "", outcome.strip())
    text = re.sub(r"(pid\(s\) |process |psm_)\w+", r"\1...", text)
    return f"`{text.replace('|', '/').replace('`', '')}`"


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
