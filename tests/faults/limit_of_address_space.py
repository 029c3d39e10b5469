"""Rows are appended to an LMDB store by a program whose address space is limited (`ulimit -v`).

LMDB maps the file with room to grow; the room is smaller there, and the rows are added.
"""

from __future__ import annotations

import resource

import flowdsl as fl

resource.setrlimit(
    resource.RLIMIT_AS, (1 << 35, resource.RLIM_INFINITY)
)  # LMDB asks for twice that
fl.from_range(3).write_lmdb("rows.lmdb", append=True)
fl.from_range(3).write_lmdb("rows.lmdb", append=True)
print(fl.from_lmdb("rows.lmdb").collect())

# Seen:
# [0, 1, 2, 0, 1, 2]
