"""Random pipelines on a cluster whose workers and machines die: ``python -m tests.ray.chaos``.

The pipelines, their faults and what is checked are those of ``tests.chaos``: order, each row once,
errors at their place, balanced counts, nothing left. Each ``prefetch`` and ``replicate`` of
processes runs on a cluster of three machines instead, one of them this one. Meanwhile worker
processes are killed at random, and now and then a whole machine, which another replaces.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import ray

from flowdsl.nodes import AnyNode, Copying, Placement, flow, with_sources
from flowdsl.resources.worker_kinds import ACTORS, PROCESSES
from flowdsl.testing.recipes import AnyFlow
from tests.chaos import trials
from tests.chaos.cases import Case, case_of
from tests.chaos.trials import Tally, try_case
from tests.children import workers_of
from tests.ray.cluster import TestCluster

CPUS = 4
"""Of each other machine."""

DEATHS = 1000
"""More deaths than chance brings to one element."""


def on_cluster(node: AnyNode) -> AnyNode:
    """The flow with workers of the cluster instead of processes."""
    node = with_sources(node, tuple(map(on_cluster, node.sources)))
    if isinstance(node, Copying):
        return attrs.evolve(node, kind=ACTORS)
    if isinstance(node, Placement) and node.workers.kind == PROCESSES:
        return attrs.evolve(node, workers=attrs.evolve(node.workers, kind=ACTORS))
    return node


@contextlib.contextmanager
def pipelines_on(cluster: TestCluster) -> Iterator[None]:
    """Build the pipelines of ``tests.chaos`` with workers of a cluster."""
    build = Case.build

    def built(
        case: Case, strike: Callable[[Any], Any], handler: Callable[[Any], object], procs: int
    ) -> AnyFlow:
        return flow(on_cluster(build(case, strike, handler, procs).node))

    def left_behind() -> dict[str, int]:  # not descriptors, of which Ray opens more at any time
        maps = Path("/proc/self/maps").read_text()
        return {
            "processes": len(workers_of()),
            "slabs": maps.count("memfd:flowdsl"),
            "workers of the cluster": len(cluster.worker_processes()),
        }

    with (
        mock.patch.object(Case, "build", built),
        mock.patch.object(trials, "_left_behind", left_behind),
    ):
        yield


def case_on_the_cluster(number: int) -> Case:
    """A case in which an element survives the deaths that others cause."""
    return attrs.evolve(case_of(number), deaths=DEATHS, poison=(), stillborn=frozenset())


@attrs.define
class Killer:
    """Kills workers and machines from a thread."""

    cluster: TestCluster
    machines: list[Any]
    seconds: float
    """Between two workers; every tenth time a machine dies instead."""
    workers_killed: int = 0
    machines_killed: int = 0
    _end: threading.Event = attrs.field(factory=threading.Event)

    def run(self) -> None:
        """Kill until ``stop``."""
        choice = random.Random(0)
        while not self._end.wait(self.seconds * choice.uniform(0.5, 1.5)):
            if choice.random() < 0.1:
                self.cluster.remove(self.machines.pop(choice.randrange(len(self.machines))))
                self.machines_killed += 1
                self.machines.append(self.cluster.add(cpus=CPUS))
            elif workers := sorted(self.cluster.worker_processes()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(choice.choice(workers), signal.SIGKILL)
                    self.workers_killed += 1

    def stop(self) -> None:
        """End the thread after its current deed."""
        self._end.set()


def main() -> int:
    """Run the requested number, or as many as time allows; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.ray.chaos", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next one")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long, at most")
    parser.add_argument("--seconds", type=float, default=0.5, help="between two workers killed")
    asked = parser.parse_args()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = TestCluster(cpus=1)
    killer = Killer(cluster, [cluster.add(cpus=CPUS) for _ in range(2)], asked.seconds)
    thread = threading.Thread(target=killer.run, daemon=True)
    thread.start()
    tally, deadline = Tally(), time.monotonic() + 60 * asked.minutes
    with pipelines_on(cluster):
        for number in range(asked.seed, asked.seed + asked.pipelines):
            if time.monotonic() > deadline:
                break
            try:
                with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                    try_case(case_on_the_cluster(number), tally, real=True)
            except Exception:
                print(f"{traceback.format_exc()}\nseed {number}\n{case_on_the_cluster(number)}")
                return 1
            if tally.pipelines % 20 == 0:
                print(tally, killer.workers_killed, killer.machines_killed, flush=True)
    killer.stop()
    thread.join()
    print(
        f"{tally}\n{killer.workers_killed} workers and {killer.machines_killed} machines killed; "
        f"every pipeline gave its reference, and nothing is left"
    )
    return 0


if __name__ == "__main__":
    status = main()
    ray.shutdown()
    sys.exit(status)
