"""A store contains pickled objects, which execute code when they are read.

They are read only with `trusted=True`, which states that their writer is trusted.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_items([{1, 2}, {3}]).write_lmdb("sets.lmdb", trusted=True)
print(fl.from_lmdb("sets.lmdb", trusted=True).collect())
fl.from_lmdb("sets.lmdb").collect()

# Seen:
# [{1, 2}, {3}]
# flowdsl.errors.ElementError: from_lmdb('sets.lmdb') failed on element 0 (row 0 of
# from_lmdb('sets.lmdb')): SourceError("'sets.lmdb': row 0 cannot be read: it holds a pickled Python
# object, and reading it runs code: pass trusted=True if you trust its author")
