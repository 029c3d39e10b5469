"""The batches of an epoch do not divide among the ranks of a training.

All ranks get equally many, since one with a batch more would wait for the others forever. A warning
says how many batches are left out, or repeated. Too few for one each are refused.
"""

from __future__ import annotations

import flowdsl as fl

batches = fl.from_range(6).batch(2)
for rank in range(2):
    print(rank, [batch.tolist() for batch in batches.to_torch(shard=(2, rank))])
    print(rank, [batch.tolist() for batch in batches.to_torch(shard=(2, rank), even="pad")])
batches.to_torch(shard=(4, 0))

# Seen:
# to_torch: 1 of 3 elements of each pass are left out, so that 2 ranks get equally many;
# even='pad' repeats some instead
# 0 [[0, 1]]
# to_torch: elements are repeated 1 time(s) in each pass of 3, so that 2 ranks get equally many;
# even='drop' leaves some out instead
# 0 [[0, 1], [4, 5]]
# to_torch: 1 of 3 elements of each pass are left out, so that 2 ranks get equally many;
# even='pad' repeats some instead
# 1 [[2, 3]]
# to_torch: elements are repeated 1 time(s) in each pass of 3, so that 2 ranks get equally many;
# even='drop' leaves some out instead
# 1 [[2, 3], [0, 1]]
# flowdsl.errors.InvalidFlow: to_torch: there are 3 elements for 4 ranks, so even='drop' would
# leave out all of them; make smaller batches, or pass even='pad'
