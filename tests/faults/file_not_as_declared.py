"""The rows of a file are not what the program declares.

It is refused when the flow is built, with both sides.
"""

from __future__ import annotations

from typing import NamedTuple

import flowdsl as fl


class Sample(NamedTuple):
    image: bytes
    label: int


fl.from_items([(b"...", "cat")]).write_lmdb("rows.lmdb")
fl.from_lmdb("rows.lmdb", Sample)

# Seen:
# flowdsl.errors.SpecMismatch: from_lmdb: 'rows.lmdb': row.label: declared int, got str; declared
# Sample(image: bytes, label: int), stored (bytes, str)
