"""A saved position belongs to another flow.

It is refused, with the operator that differs: going on would skip and repeat rows.
"""

from __future__ import annotations

import flowdsl as fl

run = iter(fl.from_range(10).shuffle(seed=1).batch(2))
next(run)
state = run.state_dict()
fl.from_range(10).shuffle(seed=2).batch(2).resume(state)

# Seen:
# flowdsl.errors.StateMismatch: resume: the state is of another flow: operator 2 is shuffle(seed=1)
# there and shuffle(seed=2) here; resume with the flow that was saved (procs may differ)
