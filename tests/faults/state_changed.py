"""A saved state was edited, or damaged on its way.

It is refused: other numbers in it would be valid too, and skip and repeat rows silently.
"""

from __future__ import annotations

import flowdsl as fl

flow = fl.from_range(100).filter(lambda i: i % 3 > 0).batch(4)
run = iter(flow)
next(run)
state = run.state_dict()
flow.resume({**state, "places": [1, 0, 1, 0, 9]})

# Seen:
# flowdsl.errors.StateMismatch: resume: the state was changed after state_dict() returned it, or
# damaged: its checksum differs; resume from a state as it was saved, got {...
