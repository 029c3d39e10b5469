"""A file is of another format.

It is refused, with what was expected. No bytes are taken for rows.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("rows.lmdb").write_text("id,name\n" * 10_000)
fl.from_lmdb("rows.lmdb")

# Seen:
# flowdsl.errors.SourceError: from_lmdb: 'rows.lmdb' cannot be read: it is not an LMDB file;
# expected a file that flow.write_lmdb(path) made
