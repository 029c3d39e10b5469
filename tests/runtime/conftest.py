"""Workers that cost nothing to start."""

from __future__ import annotations

import pytest

from flowdsl.runtime.processes import Processes
from tests.chaos.mortals import Mortals


@pytest.fixture
def mortals(monkeypatch: pytest.MonkeyPatch) -> Mortals:
    """Workers are threads that die as processes do, without the time that those take to start."""
    workers = Mortals()
    monkeypatch.setattr(Processes, "spawn", staticmethod(workers.spawn))
    return workers
