"""A function in a worker returns an open file.

It cannot be sent to the program: the error names the file and the row. The program does not get a
copy of its content instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

import flowdsl as fl


def opened(name: str) -> TextIO:
    return Path(name).open()


def read(name: str) -> str:
    with Path(name).open() as file:
        return file.read()


Path("first.txt").write_text("one")
names = fl.from_items(["first.txt"])
print(names.map(read).prefetch(procs=1).collect())
names.map(opened).prefetch(procs=1).collect()

# Seen:
# ['one']
# flowdsl.errors.ElementError: map(opened) failed on element 0 (row 0 of from_items(1 items)):
# NotShippable("the element cannot be sent from its worker process: cannot pickle the open file
# 'first.txt'")
