"""Damaged files, thrown at every reader.

    python -m tests.storage.fuzz --files 100000 --seed 0      (make fuzz)

Each format's files have bits flipped, are cut short or made longer, have pieces moved or replaced,
and huge numbers written into them. Reading one must give the rows that were written, up to an error
that names the file; or, where a format has no checksum, any rows. Never a crash, a hang, or memory
beyond a bound. A batch of files is read by a process of its own, which may die of one.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO

import attrs
from rich.console import Console
from rich.progress import Progress

from flowdsl.errors import ElementError, FlowError, SourceError, SpecMismatch
from flowdsl.testing.formats import Format
from flowdsl.testing.outcomes import element_difference
from tests.storage.formats import FORMATS
from tests.storage.others import OTHERS

READERS = {**FORMATS, **OTHERS}

MAX_SECONDS = 20
MAX_BYTES = 1 << 30
"""Address space beyond what a process has before it reads: a file here has some kilobytes."""
_BATCH = 200
_NUMBERS = [0, 1, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


@attrs.frozen
class Finding:
    """A forbidden behaviour of a reader, and the command that reproduces it."""

    name: str
    number: int
    seed: int
    what: str

    def __str__(self) -> str:
        again = f"--only {self.name} --first {self.number} --files 1 --seed {self.seed}"
        return f"{self.name}: {self.what}\n  shown again by: python -m tests.storage.fuzz {again}"


# -- damage ----------------------------------------------------------------------------------------


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to four kinds of damage."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        rng.choice(_DAMAGES)(data, rng)
    return bytes(data)


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 3, 30])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _lengthen(data: bytearray, rng: random.Random) -> None:
    data += rng.choice([bytes(100), rng.randbytes(50), bytes(data[:200])])


def _remove(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    del data[start : start + rng.choice([1, 2, 8, 100, 4096])]


def _move(data: bytearray, rng: random.Random) -> None:
    a, b = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    n = rng.choice([4, 16, 100, 4096])
    piece = data[a : a + n]
    data[b : b + len(piece)] = piece


def _number(data: bytearray, rng: random.Random) -> None:
    code = rng.choice(["<Q", ">Q", "<I", ">I", "<H", ">H", "B"])
    size = struct.calcsize(code)
    if len(data) > size:
        at, top = rng.randrange(len(data) - size), 1 << 8 * size
        near = int.from_bytes(data[at : at + size], "little" if code[0] == "<" else "big")
        value = rng.choice([*_NUMBERS, near + 1, near - 1, near * 2]) % top
        struct.pack_into(code, data, at, value)


def _blank(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    n = min(rng.choice([1, 8, 100, 4096]), len(data) - start)
    data[start : start + n] = bytes([rng.choice([0, 255, 32])]) * n


_DAMAGES: list[Callable[[bytearray, random.Random], None]] = [
    *(_flip, _flip, _cut, _lengthen, _remove, _move, _number, _number, _blank),
]


# -- one format ------------------------------------------------------------------------------------


@attrs.frozen
class Sample:
    """A file of a format, and its rows."""

    format_: Format
    rows: Sequence[object]
    path: Path
    contents: list[tuple[Path, bytes]]


def sample(format_: Format, folder: Path) -> Sample:
    """Write rows in this format to a file, or to a folder of files."""
    rows, path = format_.some, folder / f"rows{format_.suffix}"
    format_.written(rows, path)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return Sample(format_, rows, path, [(file, file.read_bytes()) for file in files])


def wrong(sample: Sample, number: int, seed: int) -> str | None:
    """Return a description of a reader's misbehaviour on one damaged file, or None."""
    rng = random.Random(f"{seed} {number}")
    file, content = rng.choice(sample.contents)
    changed = damaged(content, rng)
    file.unlink()  # an open file must not be written to
    file.write_bytes(changed)
    began = time.monotonic()
    try:
        misbehaviour = fault_of(sample, changed == content)
    finally:
        took = time.monotonic() - began
        file.unlink()
        file.write_bytes(content)
    return f"it took {took:.1f} seconds" if took > MAX_SECONDS else misbehaviour


def fault_of(sample: Sample, whole: bool) -> str | None:
    got: list[object] = []
    failed: FlowError | None = None
    try:
        for row in sample.format_.read(sample.path):
            got.append(row)  # noqa: PERF402  # what came before an error counts too
    except FlowError as error:
        failed = error
    except MemoryError:
        return "memory beyond the bound"
    except Exception:
        return f"another error than a FlowError:\n{traceback.format_exc()}"
    if failed is not None:
        if whole:
            return f"the file is whole, and {failed!r}"
        if not _names(failed, sample.path):
            return f"no error names the file: {failed!r}"
    if sample.format_.checked:
        rows = list(sample.rows)
        if sample.path.suffix == ".gz" and len(got) > len(rows):
            rows *= -(-len(got) // len(rows))  # a file that was lengthened by itself is valid
        found = element_difference(got, rows[: len(got)])
        if found is not None:
            return f"another row than was written: {found}"
        if failed is None and len(got) != len(rows):
            return f"{len(got)} rows came without an error, of {len(sample.rows)}"
    return None


def _names(error: BaseException | None, path: Path) -> bool:
    while error is not None:
        if isinstance(error, SourceError | SpecMismatch) and str(path) in str(error):
            return True
        if isinstance(error, ElementError) and path.name in str(error.origin):
            return True  # of a function above the reader
        error = error.__cause__
    return False


# -- all of them, in processes that may die --------------------------------------------------------


def fuzz(name: str, first: int, count: int, seed: int) -> Iterator[Finding | None]:
    """Read ``n`` damaged files of a format; yields a description or None for each."""
    at, end = first, first + count
    while at < end:
        for number, what in _batch(name, at, min(at + _BATCH, end), seed):
            yield None if what is None else Finding(name, number, seed, what)
            at = number + 1


def _batch(name: str, first: int, end: int, seed: int) -> Iterator[tuple[int, str | None]]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as log:
            _read_all(name, first, end, seed, log)
        os._exit(0)
    os.close(writing)
    number = first
    with os.fdopen(reading) as lines:
        while select.select([lines], [], [], 3 * MAX_SECONDS)[0] and (line := lines.readline()):
            number = int(line.partition(" ")[0])
            yield number, line.partition(" ")[2].rstrip("\n").replace("\\n", "\n") or None
            number += 1
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if number < end:
        hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        yield (
            number,
            "it hung" if hung else f"the process died: {os.waitstatus_to_exitcode(status)}",
        )


def _read_all(name: str, first: int, end: int, seed: int, log: IO[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ready = sample(READERS[name], Path(folder))
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders of images print of their own
        resource.setrlimit(resource.RLIMIT_AS, (held + MAX_BYTES, held + MAX_BYTES))
        for number in range(first, end):
            what = (wrong(ready, number, seed) or "").replace("\n", "\\n")
            log.write(f"{number} {what}\n")
            log.flush()


def main() -> int:
    """Damage files until there are enough; return 1 if there was a finding."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(READERS), default=list(READERS))
    options = parser.parse_args()
    each = -(-options.files // len(options.only))
    # Those that take longest to import: in all children at once.
    for library in ("pyarrow.parquet", "sklearn.datasets"):
        import_module(library)
    found = Counter[str]()
    console = Console()
    with Progress(console=console) as progress:
        for name in options.only:
            task = progress.add_task(name, total=each)
            for finding in fuzz(name, options.first, each, options.seed):
                progress.advance(task)
                if finding is not None:
                    found[name] += 1
                    console.print(str(finding), markup=False)
    counts = ", ".join(f"{name} {found[name]}" for name in options.only)
    console.print(f"{each * len(options.only)} damaged files; findings: {counts}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
