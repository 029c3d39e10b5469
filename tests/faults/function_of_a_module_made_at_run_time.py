"""A function is of a module that a worker cannot import: here, one that the program has made.

It is sent by value, with all that it refers to. Its classes are the program's own in the results.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import flowdsl as fl

made: Any = ModuleType("made")
sys.modules["made"] = made
code = """
from dataclasses import dataclass

@dataclass
class Row:
    i: int

def row(i):
    return Row(i)
"""
exec(code, vars(made))

rows = fl.from_range(2).map(made.row).prefetch(procs=1).collect()
print(rows, type(rows[0]) is made.Row)

# Seen:
# [Row(i=0), Row(i=1)] True
