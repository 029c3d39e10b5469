"""Several ranks train on a flow of unknown length.

This is refused before anything runs: a rank with more batches than the others would wait for them
forever.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(100).filter(bool).batch(8).to_torch(shard=(4, 0))

# Seen:
# flowdsl.errors.InvalidFlow: to_torch: the length of this flow is unknown, and 4 ranks must get
# equally many elements; make it endless with .repeat(), store the rows in a file, or pass even=None
# if no rank waits for another
