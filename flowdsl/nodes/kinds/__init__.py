"""The kinds of node that the planner distinguishes.

The layers above never refer to a single operator: its kind determines what they may do with it:

Source          starts a flow. An ``IndexedSource`` reads any row by its number.
Elementwise     one element in; one out, or none. Any process may run it on any element; an
                ``IndexedMap`` only if the process knows the element's number.
Windowed        ``n`` consecutive elements in, one out. The groups of a ``Batched`` do not overlap.
IndexTransform  chooses or reorders whole elements. Over a random-access flow it is arithmetic on
                positions, and no element moves (databases call this late materialization).
Copying         interleaves several passes over the same flow.
Merging         yields the elements of several flows: each element is an element of one of them.
Joining         makes one element from one element of each of several flows, at one position.
Placement       sets the workers that run the operators below it. It does not change elements.
Unordered       drops the order of the elements below it, which may then arrive as they are ready.

A node of any other class runs in the consuming process, as its ``rows`` method defines.

``rows`` and ``rows_after`` read passes over the sources that the runtime passes to them. When a run
resumes, the runtime has already advanced these passes: the first row is the next one to use.
"""

from __future__ import annotations

from flowdsl.nodes.kinds.elementwise import CodeTemplate, Elementwise, IndexedMap
from flowdsl.nodes.kinds.index_transforms import Copying, IndexTransform, epoch_of_copy, in_turn
from flowdsl.nodes.kinds.merging import Joining, Merging
from flowdsl.nodes.kinds.placement import Identity, Placement, Unordered, worker_kinds
from flowdsl.nodes.kinds.sources import Expecting, IndexedSource, ReadsInPlace
from flowdsl.nodes.kinds.windowed import Batched, Windowed

__all__ = [
    "Batched",
    "CodeTemplate",
    "Copying",
    "Elementwise",
    "Expecting",
    "Identity",
    "IndexTransform",
    "IndexedMap",
    "IndexedSource",
    "Joining",
    "Merging",
    "Placement",
    "ReadsInPlace",
    "Unordered",
    "Windowed",
    "epoch_of_copy",
    "in_turn",
    "worker_kinds",
]
