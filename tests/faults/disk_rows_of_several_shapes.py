"""Rows of different shapes are written to a format for one shape.

The error names the row, the component and both shapes. Nothing is padded, and no file appears.
"""

from __future__ import annotations

import os

import numpy as np

import flowdsl as fl

rows = fl.from_items([(np.zeros(3), 0), (np.zeros(4), 1)])
try:
    rows.write_hdf5("rows.h5", ["x", "y"])
finally:
    print(os.listdir())

# Seen:
# []
# flowdsl.errors.SpecMismatch: write_hdf5: row 1: element.x: float64[4] (array); the first row has
# float64[3] (array): all must be alike
