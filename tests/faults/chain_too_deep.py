"""A chain nests more streams than Python allows nested calls.

Thousands of maps, filters and shuffles are one loop, which runs. Streams that are nested, as by
thousands of `flat_map`, are an error with a suggestion.
"""

from __future__ import annotations

import flowdsl as fl

numbers = fl.from_range(3)
for _ in range(2000):
    numbers = numbers.map(abs)
print(numbers.collect())
nested: fl.Flow[int, fl.Unsized] = fl.from_range(3)
for _ in range(2000):
    nested = nested.flat_map(lambda i: [i])
nested.collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.FlowError: flat_map(<lambda>): the flow is a chain of 2001 operators, and the
# iterators of those that do not run as one loop are nested deeper than the 1000 calls that Python
# allows; use one operator for several (one concat of all flows, one map of all functions), or raise
# sys.setrecursionlimit
