"""Several ranks train on a flow of unknown length.

This is refused before anything runs: a rank with more batches than the others would wait for them
forever.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(100).filter(bool).batch(8).to_torch(ranks=(0, 4))

# Seen:
# flowdsl.errors.InvalidFlow: to_torch: the length of this flow is not known, and 4 ranks are to
# take equally many elements; let them take as many as there are with .repeat(), store the rows
# first, or give remainder='keep', where no rank waits for another
