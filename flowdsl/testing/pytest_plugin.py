"""A fixture that times a flow with pytest-benchmark, in your own benches.

Name the plugin in a ``conftest.py``, ``pytest_plugins = ["flowdsl.testing.pytest_plugin"]``, and
take the fixture::

    def test_train(flow_benchmark: FlowBenchmark) -> None:
        flow_benchmark(train, size=1000)

pytest-benchmark shows and saves the rounds; the extra figures are ``elements``,
``elements_per_second`` and ``rows_per_second``, which counts rows as in the first element.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import pytest

from flowdsl.errors import FlowError
from flowdsl.flow import Flow


class FlowBenchmark(Protocol):
    """Times a flow: the type of the fixture ``flow_benchmark``."""

    def __call__(
        self, flow: Flow[Any, Any], *, size: int | None = None, rounds: int = 5, warmups: int = 1
    ) -> None:
        """Time passes over a flow, or over its first ``size`` elements.

        Args:
            flow: The flow. Workers that it starts are kept between rounds.
            size: The elements of a round; None for a whole pass.
            rounds: The number of passes that are timed.
            warmups: The number of passes before them.
        """
        ...


@pytest.fixture
def flow_benchmark(request: pytest.FixtureRequest) -> FlowBenchmark:
    """Time a flow with the fixture ``benchmark`` of pytest-benchmark."""
    if not request.config.pluginmanager.hasplugin("benchmark"):
        pytest.fail("flow_benchmark needs pytest-benchmark: pip install pytest-benchmark")
    benchmark = request.getfixturevalue("benchmark")

    def timed(
        flow: Flow[Any, Any], *, size: int | None = None, rounds: int = 5, warmups: int = 1
    ) -> None:
        whole = flow if size is None else flow.take(size)  # a pass that ends keeps its workers
        elements = benchmark.pedantic(_run, args=(whole,), rounds=rounds, warmup_rounds=warmups)
        benchmark.extra_info["elements"] = elements
        if benchmark.stats is not None:  # None with --benchmark-disable
            rate = elements / benchmark.stats.stats.median
            benchmark.extra_info["elements_per_second"] = rate
            benchmark.extra_info["rows_per_second"] = rate * _rows(flow)

    return timed


def _run(flow: Flow[Any, Any]) -> int:
    """Run a pass and return the number of its elements; the elements are not kept."""
    run = flow.epoch(0)
    deque(run, maxlen=0)
    return run.position


def _rows(flow: Flow[Any, Any]) -> int:
    """The rows of the sources in the first element; 1 if they are unknown."""
    try:
        return len(flow.origins(0))
    except (FlowError, IndexError):
        return 1
