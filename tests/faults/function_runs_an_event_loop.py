"""A function runs an event loop of `asyncio`, in a worker and in a program that runs one itself.

In a worker it works. In the program's own loop `asyncio` refuses, and the error names the row.
"""

from __future__ import annotations

import asyncio
import warnings

import flowdsl as fl

warnings.simplefilter("ignore", RuntimeWarning)  # of the coroutine that is never awaited


async def double(i: int) -> int:
    await asyncio.sleep(0.001)
    return 2 * i


def doubled(i: int) -> int:
    return asyncio.run(double(i))


flow = fl.from_range(3).map(doubled)


async def main() -> None:
    print(flow.prefetch(procs=1).collect())
    flow.collect()


asyncio.run(main())

# Seen:
# [0, 2, 4]
# flowdsl.errors.ElementError: map(doubled) failed on element 0 (row 0 of from_range(3)):
# RuntimeError('asyncio.run() cannot be called from a running event loop'); the element was 0
