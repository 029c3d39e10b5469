"""The rows of a file do not match the declaration of the program.

The file is refused when the flow is built; the error shows both types.
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
