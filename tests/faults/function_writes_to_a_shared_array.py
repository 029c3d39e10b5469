"""A function writes to an array that the next pass reads too.

Shared arrays are read-only in this process, in threads and in workers alike. The error names the
operator and the row, and suggests a correction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl


def add_one(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x += 1
    return x


flow = fl.from_items([np.zeros(2), np.zeros(2)])
for chain in (
    flow.map(add_one),
    flow.map(add_one).prefetch(threads=1),
    flow.map(add_one).prefetch(procs=1),
    flow.map(np.copy).map(add_one).prefetch(procs=1),
):
    try:
        print(chain.collect())
    except fl.ElementError as error:
        print(error)

# Seen:
# map(add_one) failed on element 0 (row 0 of from_items(2 items)): ValueError('output array is
# read-only'); copy it first, x = x.copy(), as other passes or elements share its memory; the
# element was float64[2]
# map(add_one) failed on element 0 (row 0 of from_items(2 items)): ValueError('output array is
# read-only'); copy it first, x = x.copy(), as other passes or elements share its memory; the
# element was float64[2]
# map(add_one) failed on element 0 (row 0 of from_items(2 items)): ValueError('output array is
# read-only'); copy it first, x = x.copy(), as other passes or elements share its memory; the
# element was float64[2]
# [array([1., 1.]), array([1., 1.])]
