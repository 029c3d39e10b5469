"""A module begins a pass with workers when it is imported, and workers import it.

Each worker would begin the pass again, with workers that do the same. The first one refuses, and
the error suggests a correction.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

Path("train.py").write_text(
    """
import flowdsl as fl

def double(i):
    return 2 * i

print(fl.from_range(3).map(double).prefetch(procs=1).collect())
"""
)
sys.path.insert(0, str(Path.cwd()))
importlib.import_module("train")

# Seen:
# flowdsl.errors.NotShippable: map(double): func cannot be loaded by a worker process: FlowError("a
# worker process has imported a module that begins a pass with worker processes when it is imported:
# put that code under if __name__ == '__main__'"); make what it needs inside the function, or run
# without prefetch(procs=...)
