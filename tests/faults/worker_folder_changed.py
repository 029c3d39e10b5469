"""The program changes its folder and its variables after a pass.

The next pass finds files by the new folder, and has the new variables, in workers as well.
"""

from __future__ import annotations

import os
from pathlib import Path

import flowdsl as fl


def read(name: str) -> str:
    return f"{Path(name).read_text()} {os.environ.get('MODE')}"


for folder in ("first", "second"):
    Path(folder).mkdir()
    Path(folder, "name.txt").write_text(folder)
flow = fl.from_items(["name.txt"]).map(read).prefetch(procs=1)
os.chdir("first")
print(flow.collect())
os.chdir("../second")
os.environ["MODE"] = "fast"
print(flow.collect())

# Seen:
# ['first None']
# ['second fast']
