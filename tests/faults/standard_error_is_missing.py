"""The program has no standard error stream, or it cannot be written.

Progress bars and descriptions of elements are left out; the elements are the same.
"""

from __future__ import annotations

import sys

import flowdsl as fl


class Broken:
    def write(self, text: str) -> int:
        raise OSError("no space left")

    def flush(self) -> None: ...


for stream in (None, Broken()):
    sys.stderr = stream  # as in programs without a console
    print(sum(fl.from_range(10).inspect().progress()))

# Seen:
# 45
# 45
