"""Ray: the workers of a flow on the machines of a cluster.

cluster.py   the machines of the cluster, and their free CPUs
host.py      the actor of one machine, which runs worker processes there
machine.py   a host as the consumer's process uses it
backend.py   the workers of a stage, here and on other machines
files.py     the files that a stage reads, which every machine must have

Ray is imported where it is used, not here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    from flowdsl.plan.plan import Stage
    from flowdsl.workers.backend import WorkerBackend


def actors(stage: Stage, time_operators: bool = False) -> WorkerBackend:
    """Create the backend of a stage whose workers are processes of a Ray cluster.

    Raises:
        MissingLibrary: Ray is not installed.
        FlowError: This process is not connected to a cluster.
        NotShippable: The program cannot be sent to workers.
    """
    library("ray", "prefetch(actors=...)", "ray")
    backend: WorkerBackend = import_module("flowdsl.ray.backend").Actors(stage, time_operators)
    return backend
