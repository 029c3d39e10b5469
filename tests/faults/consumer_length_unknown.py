"""Several ranks train on a flow whose length is not known.

It is refused before anything runs: a rank that has a batch more than the others would wait for them
for ever.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(100).filter(bool).batch(8).to_torch(ranks=(0, 4))

# Seen:
# flowdsl.errors.InvalidFlow: to_torch: the length of this flow is not known, and 4 ranks are to
# take equally many elements; let them take as many as there are with .repeat(), store the rows
# first, or give remainder='keep', where no rank waits for another
