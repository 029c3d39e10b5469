"""A file is replaced after the flow was built.

The next pass raises an error, since the states, length and spec of the old rows would be wrong.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(3).write_lmdb("rows.lmdb")
rows = fl.from_lmdb("rows.lmdb")
print(rows.collect())
fl.from_range(4).write_lmdb("rows.lmdb", overwrite=True)
rows.collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.SourceError: 'rows.lmdb' has changed since this flow was built; build a new
# flow
