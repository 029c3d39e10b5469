"""Workers at rest: after a pass over a flow, its workers stay for the next one.

They belong to the flow and end with it. They also leave by themselves after a while, and are
replaced by new ones if the values that the flow's functions refer to have changed.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from flowdsl.plan.plan import Plan, Stage
from flowdsl.workers.backend import WorkerBackend, create_backend

_resting: dict[int, dict[int, WorkerBackend]] = {}
"""The resting backends, by the identity of the flow's plan and the number of the stage."""

_found: dict[int, dict[int, int]] = {}
"""The numbers of workers that runs have found to pay, likewise."""

_lock = threading.RLock()  # reentrant: a flow may be collected while this thread holds it


def take(plan: Plan[Any], stage: Stage, clock: bool) -> WorkerBackend:
    """A backend for a stage of a flow: the resting one if it can still serve, or a new one."""
    with _lock:
        backend = _resting.get(id(plan), {}).pop(stage.number, None)
    if backend is not None:
        if backend.can_reuse(stage, clock):
            return backend
        backend.close()
    return create_backend(stage, clock)


def found(plan: Plan[Any], stage: Stage) -> int | None:
    """How many workers the last pass over a flow ended with, if there was one."""
    return _found.get(id(plan), {}).get(stage.number)


def leave(plan: Plan[Any], stage: Stage, backend: WorkerBackend) -> None:
    """After a pass: let its workers rest if they can, or end them."""
    number, rests = len(backend.workers), backend.park()
    with _lock:
        if id(plan) not in _resting:
            _resting[id(plan)], _found[id(plan)] = {}, {}
            weakref.finalize(plan, _dismiss, id(plan)).atexit = False
        _found[id(plan)][stage.number] = number
        other = _resting[id(plan)].pop(stage.number, None) if rests else backend
        if rests:
            _resting[id(plan)][stage.number] = backend
    if other is not None:  # left by another run of the same flow at the same time
        other.close()


def _dismiss(key: int) -> None:
    with _lock:
        backends = _resting.pop(key, {})
        _found.pop(key, None)
    for backend in backends.values():
        backend.close()
