"""A chain nests more streams than Python allows nested calls.

Thousands of maps, filters and shuffles are one loop, which runs. Streams that are nested, as by
thousands of calls of `concat` in a loop, are an error that suggests one call for all of them.
"""

from __future__ import annotations

import flowdsl as fl

numbers = fl.from_range(3)
for _ in range(2000):
    numbers = numbers.map(abs)
print(numbers.collect())
joined = fl.from_range(3)
for _ in range(2000):
    joined = joined.concat(fl.from_range(1))
joined.collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.FlowError: concat(...): the flow is a chain of 2001 operators, and the iterators of
# those that do not run as one loop are nested deeper than the 1000 calls that Python allows; use
# one operator for several (one concat of all flows, one map of all functions), or raise
# sys.setrecursionlimit
