"""Two programs write the same new file, without `overwrite=True`.

The first that is complete creates the file. The other gets an error when it is complete, and its
rows replace nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import flowdsl as fl


def slowly() -> Iterator[int]:
    yield 0
    fl.from_range(3).write_lmdb("rows.lmdb")  # another program, in the middle of the first
    yield 1


try:
    fl.from_iterable(slowly).write_lmdb("rows.lmdb")
except fl.InvalidFlow as error:
    print(error)
print(fl.from_lmdb("rows.lmdb").collect())

# Seen:
# write_lmdb: 'rows.lmdb' was created by another program meanwhile and was not replaced; pass
# overwrite=True
# [0, 1, 2]
