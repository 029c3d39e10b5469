"""A file ends too early: a copy was cut off, or a disk was full.

It is refused when the flow is built, with its actual and expected size. No rows are read from it.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

fl.from_range(1000).write_lmdb("rows.lmdb")
data = Path("rows.lmdb").read_bytes()
Path("rows.lmdb").write_bytes(data[: len(data) // 2])
fl.from_lmdb("rows.lmdb")

# Seen:
# flowdsl.errors.SourceError: from_lmdb: 'rows.lmdb' is cut short, or is not a file that
# flow.write_lmdb(path) made: it has 94208 bytes and needs 188416; fl.from_tensorpack_lmdb(path)
# reads a file of tensorpack, fl.from_lmdb_raw(path) a store of any other program
