"""Items are added to a dataset after the flow was built.

The next pass raises an error, since length, order and states of the flow would be wrong.
"""

from __future__ import annotations

import flowdsl as fl


class Numbers(list[int]):
    """A dataset: it has a length and numbered items."""


numbers = Numbers([1, 2])
flow = fl.from_dataset(numbers)
print(flow.collect())
numbers.append(3)
flow.collect()

# Seen:
# [1, 2]
# flowdsl.errors.SourceError: from_dataset: there were 2 items when this flow was built, and there
# are 3 now; build a new flow of them
