"""A checkpoint has the state of another flow: here, of one with larger batches.

It is refused, the error names the operator that differs, and the loader is unchanged.
"""

from __future__ import annotations

import flowdsl as fl

state = fl.from_range(100).batch(8).to_torch().state_dict()
loader = fl.from_range(100).batch(4).to_torch()
loader.load_state_dict(state)

# Seen:
# flowdsl.errors.StateMismatch: resume: the state is of another flow: operator 2 is batch(8) there
# and batch(4) here; resume with the flow that was saved (procs may differ)
