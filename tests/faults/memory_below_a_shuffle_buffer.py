"""`memory` is less than what the buffer of a shuffle keeps.

An error names both and the least that is enough, instead of a pass that waits forever or exceeds
the limit.
"""

from __future__ import annotations

from collections.abc import Iterator

import flowdsl as fl


def read() -> Iterator[int]:
    yield from range(1000)


def make(i: int) -> bytes:
    return bytes(100_000)


fl.from_iterable(read).map(make).shuffle(buffer=50).prefetch(procs=1, memory=1_000_000).collect()

# Seen:
# flowdsl.errors.FlowError: prefetch: memory=1000000 bytes is less than the 50 elements
# of about 100,... bytes that are held above map(make); ...
