"""Writers that are killed at any moment: what was there before is there, or the new rows, whole.

python -m tests.storage.killing --kills 200 --seed 0
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from flowdsl.ops.sources import from_items
from flowdsl.testing.formats import Format
from flowdsl.testing.outcomes import element_difference
from tests.storage.formats import FORMATS

_WRITTEN = [name for name in FORMATS if name != "npy"]  # np.save writes in place


def kill(format_: Format, times: int, seed: int, folder: Path) -> Iterator[str | None]:
    """Kill writers over an older file; yield a description of each invalid remainder."""
    rng = random.Random(seed)
    path = folder / f"rows{format_.suffix}"
    old, new = list(format_.some[::-1]), list(format_.some) * _TIMES
    lasted = max(_lasting(format_, path, None) for _ in range(2))
    for _ in range(times):
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        format_.written(old, path)
        _lasting(format_, path, rng.uniform(0, 1.1 * lasted))
        got = format_.read(path).collect()
        whole = any(element_difference(got, rows) is None for rows in (old, new))
        yield None if whole else f"neither the old rows nor the new ones: {got!r}"[:500]


_TIMES = 20


def _lasting(format_: Format, path: Path, seconds: float | None) -> float:
    """Write in another process, kill it after a delay, and return how long it lasted."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            format_.write(from_items(list(format_.some) * _TIMES), path)
        finally:
            os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - began


def main() -> int:
    """Kill writers of every format; return 1 if one left an invalid file."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.killing", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(FORMATS), default=_WRITTEN)
    options = parser.parse_args()
    console, failed = Console(), 0
    with Progress(console=console) as progress:
        for name in options.only:
            task = progress.add_task(name, total=options.kills)
            with tempfile.TemporaryDirectory() as folder:
                for wrong in kill(FORMATS[name], options.kills, options.seed, Path(folder)):
                    progress.advance(task)
                    if wrong is not None:
                        failed += 1
                        console.print(f"{name}: {wrong}", markup=False)
    console.print(
        f"{options.kills} writers of each of {len(options.only)} formats killed; "
        f"{failed} left something wrong"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
