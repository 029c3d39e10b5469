"""Writes each format where files may have no more than so many bytes, and prints what was wrong.

As the limit is one of a process, it is a program: ``python -m tests.storage.disk_full FOLDER``.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from flowdsl.errors import SourceError
from flowdsl.ops.sources import from_items
from flowdsl.testing.formats import Format
from tests.storage.formats import FORMATS

_BYTES = 1 << 16
_TIMES = 1250
SKIPPED = {"npy", "text, gzip", "csv, gzip"}
"""np.save writes ``npy`` in place; equal lines are compressed to fewer bytes than the limit."""


def wrong(format_: Format, folder: Path) -> str | None:
    """Return a description of the failure if the disk stops accepting bytes, or None."""
    path = folder / f"rows{format_.suffix}"
    format_.written(format_.some, path)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BYTES, hard))
    try:
        format_.write(from_items(list(format_.some) * _TIMES), path)
    except SourceError as error:
        said = str(error)
        if str(path) not in said or f"are needed for {len(format_.some) * _TIMES} rows" not in said:
            return f"it does not say what was needed: {said}"
    else:
        return "it was not noticed"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return None if after == before else f"{sorted(map(str, after))} are there"


def main(folder: Path) -> None:
    for name, format_ in FORMATS.items():
        if name in SKIPPED:
            continue
        (folder / name).mkdir()
        print(f"{name}: {wrong(format_, folder / name)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
