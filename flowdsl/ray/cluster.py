"""The machines of the Ray cluster, and the CPUs that are free on each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import attrs

from flowdsl.errors import FlowError
from flowdsl.storage.libraries import library


@attrs.frozen
class Node:
    """A machine of the cluster: a node, in Ray's words."""

    id: str
    address: str
    cpus: int
    free: int
    """The CPUs that no task or actor has reserved."""
    store: int
    """The size of its object store in bytes."""
    is_here: bool
    """True for the machine of this process."""

    def __str__(self) -> str:
        return f"machine {self.address} (node {self.id[:6]})"


_user: int | None = None
"""The id of the process that has used the connection to Ray."""


def connect() -> Any:
    """Return the module ``ray``, connected to a cluster.

    A cluster is never started: the user decides where one runs. If this process is not connected
    and ``RAY_ADDRESS`` is set, it connects to that address.

    Raises:
        MissingLibrary: Ray is not installed.
        FlowError: There is no cluster to connect to, or a fork uses its parent's connection.
    """
    global _user
    ray = library("ray", "prefetch(actors=...)", "ray")
    if ray.is_initialized() and _user is not None and _user != os.getpid():
        raise FlowError(
            "prefetch(actors=...): this process is a fork of one that is connected to Ray, and "
            "cannot use the connection; start it by another way, such as subprocess or spawn"
        )
    if not ray.is_initialized():
        if not os.environ.get("RAY_ADDRESS"):
            raise FlowError(
                "prefetch(actors=...) needs a Ray cluster: call ray.init() first, or set "
                "RAY_ADDRESS to the address of a running cluster"
            )
        ray.init()
    if library("ray.util.client", "prefetch(actors=...)", "ray").ray.is_connected():
        raise FlowError(
            "prefetch(actors=...) needs a process on a machine of the cluster, and Ray Client "
            "(ray://) connects from outside; run the program there, for example as a Ray job"
        )
    _user = os.getpid()
    return ray


def session() -> str | None:
    """Return the id of this process's connection to Ray; None if there is none."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    return str(ray.get_runtime_context().get_job_id())


def nodes() -> list[Node]:
    """Return the machines that are alive; this one first, then those with the most free CPUs."""
    ray = connect()
    state = library("ray._private.state", "prefetch(actors=...)", "ray")
    here = ray.get_runtime_context().get_node_id()
    free = state.available_resources_per_node()
    found = [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            cpus=int(node["Resources"].get("CPU", 0)),
            free=int(free.get(node["NodeID"], {}).get("CPU", 0)),
            store=int(node["Resources"].get("object_store_memory", 0)),
            is_here=node["NodeID"] == here,
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (not node.is_here, -node.free, node.id))


def cpus() -> int:
    """Return the number of CPUs of the cluster, which limits the workers of ``actors="auto"``."""
    return max(1, sum(node.cpus for node in nodes()))


def allot(count: int, machines: Sequence[Node]) -> dict[Node, int]:
    """Divide ``count`` workers, one CPU each, among machines; fewer if too few CPUs are free.

    The first machine is filled first, since elements of workers there cross no network. The other
    machines get the same number each, as far as their CPUs allow.

    >>> a, b, c = (
    ...     Node(id=id, address=id, cpus=4, free=free, store=0, is_here=id == "a")
    ...     for id, free in zip("abc", (1, 4, 2))
    ... )
    >>> {node.id: n for node, n in allot(5, [a, b, c]).items()}
    {'a': 1, 'b': 2, 'c': 2}
    >>> sum(allot(9, [a, b, c]).values())
    7
    """
    allotted = dict.fromkeys(machines, 0)
    for node in machines:
        if node.is_here:
            allotted[node] = min(count, node.free)
    others = [node for node in machines if not node.is_here]
    left = count - sum(allotted.values())
    while left and (roomy := [node for node in others if allotted[node] < node.free]):
        for node in roomy[:left]:
            allotted[node] += 1
        left = count - sum(allotted.values())
    return {node: n for node, n in allotted.items() if n}
