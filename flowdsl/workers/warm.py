"""Workers at rest: those of a flow that was iterated stay for its next pass.

They belong to the flow: when it is gone, so are they. They also leave by themselves after a while,
and a flow whose functions have changed what they refer to gets new ones.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from flowdsl.plan.plan import Plan, Stage
from flowdsl.workers.crew import Crew, hire

_resting: dict[int, dict[int, Crew]] = {}
"""By the identity of the flow's plan, and the number of the stage."""

_lock = threading.RLock()  # the end of a flow, which takes it too, may come in the midst of this


def take(plan: Plan[Any], stage: Stage, clock: bool) -> Crew:
    """Workers for a stage of a flow: those at rest, if they still can serve it, or new ones."""
    with _lock:
        crew = _resting.get(id(plan), {}).pop(stage.number, None)
    if crew is not None:
        if crew.serves(stage, clock):
            return crew
        crew.close()
    return hire(stage, clock)


def leave(plan: Plan[Any], stage: Stage, crew: Crew) -> None:
    """Let the workers of a pass that is over rest, if they can."""
    if not crew.rest():
        crew.close()
        return
    with _lock:
        if id(plan) not in _resting:
            _resting[id(plan)] = {}
            weakref.finalize(plan, _dismiss, id(plan)).atexit = False
        other = _resting[id(plan)].pop(stage.number, None)
        _resting[id(plan)][stage.number] = crew
    if other is not None:  # of another run of the same flow, at the same time
        other.close()


def _dismiss(key: int) -> None:
    with _lock:
        crews = _resting.pop(key, {})
    for crew in crews.values():
        crew.close()
