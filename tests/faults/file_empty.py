"""A file is empty.

It is refused when the flow is built: an empty file is not a valid file with zero rows. Only formats
that have no header, text and TFRecord, have valid empty files: they are read as no rows.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("rows.lmdb").touch()
fl.from_lmdb("rows.lmdb")

# Seen:
# flowdsl.errors.SourceError: from_lmdb: 'rows.lmdb' cannot be read: it is empty (0 bytes), as
# if its writer or a copy had failed; expected a file that flow.write_lmdb(path) made
