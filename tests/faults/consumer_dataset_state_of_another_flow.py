"""A `StatefulDataLoader` of torchdata has a checkpoint of another flow.

It is refused, and the error names the operator that differs.
"""

from __future__ import annotations

from torchdata.stateful_dataloader import StatefulDataLoader

import flowdsl as fl

loader = StatefulDataLoader(fl.from_range(9).as_iterable_dataset(), batch_size=None)
elements = iter(loader)
print(next(elements), next(elements))
other = StatefulDataLoader(fl.from_range(9).shuffle(seed=1).as_iterable_dataset(), batch_size=None)
other.load_state_dict(loader.state_dict())
next(iter(other))

# Seen:
# ...
# 0 1
# flowdsl.errors.StateMismatch: resume: the state is of another flow: operator 2 is nothing there
# and shuffle(seed=1) here; resume with the flow that was saved (procs may differ)
