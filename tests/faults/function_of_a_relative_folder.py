"""`sys.path` has a relative entry, and the program changes its folder after an import.

A worker would not find the module, or find another one of this name. So what the module defines is
sent by value.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import flowdsl as fl

for folder, factor in (("mine", 2), ("elsewhere/mine", 3)):
    Path(folder).mkdir(parents=True)
    Path(folder, "scaling.py").write_text(f"def scale(i): return {factor} * i")
sys.path.insert(0, "mine")
scaling = importlib.import_module("scaling")

os.chdir("elsewhere")
flow = fl.from_range(3).map(scaling.scale)
print(flow.collect(), flow.prefetch(procs=1).collect())

# Seen:
# [0, 2, 4] [0, 2, 4]
