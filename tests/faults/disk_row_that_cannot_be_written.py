"""A row cannot be stored.

The error names the row, the component and what can be stored. No file appears.
"""

from __future__ import annotations

import os

import flowdsl as fl

try:
    fl.from_items([("a", 1), ("b", {2, 3})]).write_lmdb("rows.lmdb")
finally:
    print(os.listdir())

# Seen:
# []
# flowdsl.errors.SpecMismatch: write_lmdb: row 1: element.1: set cannot be written; arrays, bool,
# int, float, complex, text, bytes, None, lists, dicts, tuples and records can
