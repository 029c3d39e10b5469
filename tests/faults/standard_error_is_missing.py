"""The program has no standard error stream, or it cannot be written.

Progress bars, descriptions of elements and log messages are left out; the elements are the same.
"""

from __future__ import annotations

import io
import sys

import flowdsl as fl


class Broken:
    def write(self, text: str) -> int:
        raise OSError("no space left")

    def flush(self) -> None: ...


def invert(i: int) -> float:
    return 1 / i


closed = io.StringIO()
closed.close()
for stream in (None, Broken(), closed):
    sys.stderr = stream  # as in programs without a console
    print(sum(fl.from_range(10).inspect().progress()))
    print(fl.from_range(3).map(invert).prefetch(procs=1, on_error="skip").collect())

# Seen:
# 45
# [1.0, 0.5]
# 45
# [1.0, 0.5]
# 45
# [1.0, 0.5]
