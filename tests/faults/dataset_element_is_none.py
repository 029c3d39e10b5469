"""An element of a Grain dataset without a filter is None.

Grain uses None for elements that a filter left out. Without a filter the error names the element,
and suggests a correction.
"""

from __future__ import annotations

from typing import Any

import grain

import flowdsl as fl

dataset: Any = grain.MapDataset.range(4).map(lambda i: None if i == 2 else i * i)
print(fl.from_dataset(dataset.filter(lambda x: x is not None)).collect())
for square in fl.from_dataset(dataset):
    print(square)

# Seen:
# [0, 1, 9]
# 0
# 1
# flowdsl.errors.ElementError: from_dataset(MapMapDataset, 4 items) failed on element 2 (row 2 of
# from_dataset(MapMapDataset, 4 items)): SourceError('the element is None, which Grain uses for
# elements that are left out, but the dataset has no filter; add .filter(lambda x: x is not None)
# to it')
