"""The rows of a batch cannot be stacked.

The error names the row and the component, and suggests a correction. Nothing is padded, cast or
cut.
"""

from __future__ import annotations

import numpy as np

import flowdsl as fl

fl.from_items([(np.zeros(3), 0), (np.zeros(4), 1)]).batch(2).collect()

# Seen:
# flowdsl.errors.ElementError: batch(2) failed on element 0 (row 0 of from_items(2 items) to row 1
# of from_items(2 items)): SpecMismatch('element.0: row 0 of the batch is float64[3], row 1 is
# float64[4]; ragged rows do not stack: padded_batch pads them, or make them alike with .map'); the
# group was [(float64[3], 0), (float64[4], 1)]
