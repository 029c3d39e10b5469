"""A file has another format.

It is refused, and the error names the expected format. No bytes are mistaken for rows.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

Path("rows.lmdb").write_text("id,name\n" * 10_000)
fl.from_lmdb("rows.lmdb")

# Seen:
# flowdsl.errors.SourceError: from_lmdb: 'rows.lmdb' cannot be read: it is not an LMDB file;
# expected a file that flow.write_lmdb(path) made
