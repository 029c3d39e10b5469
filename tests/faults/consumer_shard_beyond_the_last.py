"""The number of a shard or rank is too large: they are counted from 0.

This is refused when the flow or the loader is built, and the error lists the valid numbers.
"""

from __future__ import annotations

import flowdsl as fl

rows = fl.from_range(8)
try:
    rows.shard(4, 4, even="drop")
except fl.InvalidFlow as error:
    print(error)
rows.to_torch(shard=(4, 4))

# Seen:
# shard: i must be below n, got shard(4, 4, even='drop'); the shards of 4 are numbered from 0 to 3
# flowdsl.errors.InvalidFlow: to_torch: shard must be (number of ranks, rank), two ints such as
# (4, 0) for the first of four, got (4, 4)
