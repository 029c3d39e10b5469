"""A row's bytes have changed on the disk.

An error names the file and the row. With `on_error="skip"` the other rows are delivered, and a
message names the skipped one.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

fl.from_items(["a" * 9, "b" * 9, "c" * 9]).write_lmdb("rows.lmdb")
data = Path("rows.lmdb").read_bytes()
Path("rows.lmdb").write_bytes(data.replace(b"b" * 9, b"x" * 9))
rows = fl.from_lmdb("rows.lmdb", str)
print(rows.prefetch(on_error="skip").collect())
rows.collect()

# Seen:
# 1 element failed and was left out: from_lmdb('rows.lmdb') failed on element 1
# (row 1 of from_lmdb('rows.lmdb')): SourceError("'rows.lmdb': row 1 cannot be read: its bytes are
# not those that were written: the checksum differs")
# ['aaaaaaaaa', 'ccccccccc']
# flowdsl.errors.ElementError: from_lmdb('rows.lmdb') failed on element 1 (row 1 of
# from_lmdb('rows.lmdb')): SourceError("'rows.lmdb': row 1 cannot be read: its bytes are not those
# that were written: the checksum differs")
