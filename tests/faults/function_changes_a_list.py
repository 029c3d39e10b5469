"""A function changes a list, a dict, a set or a record that it gets.

It changes a copy: every pass yields the same elements, here and in workers, and the items are
unchanged.
"""

from __future__ import annotations

from typing import Any

import flowdsl as fl


def change(row: dict[str, Any]) -> dict[str, Any]:
    row["words"].append("!")
    row["tags"].add("seen")
    return row


items = [{"words": ["a", "b"], "tags": {"new"}}]
flow = fl.from_items(items).map(change)
for chain in (flow, flow, flow.prefetch(procs=1)):
    (row,) = chain.collect()
    print(row["words"], sorted(row["tags"]))
print(items)

# Seen:
# ['a', 'b', '!'] ['new', 'seen']
# ['a', 'b', '!'] ['new', 'seen']
# ['a', 'b', '!'] ['new', 'seen']
# [{'words': ['a', 'b'], 'tags': {'new'}}]
