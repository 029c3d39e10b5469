"""Batches are to go to a GPU that does not exist.

This is refused when the loader is created, with the number of GPUs that PyTorch sees.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(8).batch(4).to_torch("cuda:63")

# Seen:
# flowdsl.errors.InvalidFlow: to_torch: there is no device 'cuda:63': PyTorch sees ... CUDA
# device(s) here
