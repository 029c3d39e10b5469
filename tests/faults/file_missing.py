"""A file is missing.

An error names it when the flow is built, not at the first row.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_lmdb("rows.lmdb")

# Seen:
# flowdsl.errors.SourceError: from_lmdb: 'rows.lmdb' cannot be opened: No such file or directory;
# expected a file that flow.write_lmdb(path) made
