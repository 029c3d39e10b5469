"""The worker cache: parks the workers of a flow after a pass, and reuses them in the next one.

Parked workers belong to the flow and end when it is collected. They also exit by themselves after a
timeout. They are replaced if the values that the flow's functions refer to have changed.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from flowdsl.plan.plan import Plan, Stage
from flowdsl.workers.backend import WorkerBackend, create_backend

_parked: dict[int, dict[int, WorkerBackend]] = {}
"""The parked backends, by the identity of the flow's plan and the number of the stage."""

_tuned: dict[int, dict[int, int]] = {}
"""The numbers of workers at the end of the last pass, by the same keys."""

_lock = threading.RLock()  # reentrant: a flow may be collected while this thread has locked it


def take(plan: Plan[Any], stage: Stage, time_operators: bool) -> WorkerBackend:
    """Return a backend for a stage of a flow: the parked one if it can be reused, or a new one."""
    with _lock:
        backend = _parked.get(id(plan), {}).pop(stage.number, None)
    if backend is not None:
        if backend.can_reuse(stage, time_operators):
            return backend
        backend.close()
    return create_backend(stage, time_operators)


def tuned_workers(plan: Plan[Any], stage: Stage) -> int | None:
    """Return the number of workers at the end of the last pass over a flow, if any."""
    return _tuned.get(id(plan), {}).get(stage.number)


def put_back(plan: Plan[Any], stage: Stage, backend: WorkerBackend) -> None:
    """Park the workers after a pass if they can be reused, or end them."""
    number, is_parked = len(backend.workers), backend.park()
    with _lock:
        if id(plan) not in _parked:
            _parked[id(plan)], _tuned[id(plan)] = {}, {}
            weakref.finalize(plan, _forget, id(plan)).atexit = False
        _tuned[id(plan)][stage.number] = number
        other = _parked[id(plan)].pop(stage.number, None) if is_parked else backend
        if is_parked:
            _parked[id(plan)][stage.number] = backend
    if other is not None:  # put back by another run of the same flow at the same time
        other.close()


def end(plan: Plan[Any]) -> None:
    """End the parked workers of a flow."""
    with _lock:
        backends = list(_parked.get(id(plan), {}).values())
        _parked.get(id(plan), {}).clear()
    for backend in backends:
        backend.close()


def _forget(key: int) -> None:
    with _lock:
        backends = _parked.pop(key, {})
        _tuned.pop(key, None)
    for backend in backends.values():
        backend.close()
