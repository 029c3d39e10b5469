"""The program changes a setting of its process: the precision of `decimal`, the options of NumPy.

The next pass has the setting wherever functions run: in this process, in threads and in workers.
"""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np

import flowdsl as fl


def third(_: int) -> str:
    return f"{Decimal(1) / 3} {np.array([1 / 3])}"


flow = fl.from_range(1).map(third)
places = [flow, flow.prefetch(threads=1), flow.prefetch(procs=1)]
print([place.collect() for place in places])
decimal.getcontext().prec = 5
np.set_printoptions(precision=2)
print([place.collect() for place in places])

# Seen:
# [['0.3333333333333333333333333333 [0.33333333]'], ['0.3333333333333333333333333333 [0.33333333]'],
# ['0.3333333333333333333333333333 [0.33333333]']]
# [['0.33333 [0.33]'], ['0.33333 [0.33]'], ['0.33333 [0.33]']]
