"""A saved state belongs to another flow.

It is refused, and the error names the operator that differs: resuming would skip and repeat rows.
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
