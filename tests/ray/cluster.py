"""A Ray cluster for tests."""

from __future__ import annotations

import os
import signal
import socket
from itertools import count
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

STORE = 200 << 20
"""The size of each object store in bytes."""


_numbers = count(21_000 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]), 2)


def _ports() -> dict[str, int]:
    """Ports that no other node of these tests uses, in this process or beside it.

    A node that looks for a dead one at its port would otherwise reach a node of another cluster,
    whose objects have the same numbers.
    """
    while True:
        first = next(_numbers)
        if _is_free(first) and _is_free(first + 1):
            return {"node_manager_port": first, "object_manager_port": first + 1}


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("", port))
        except OSError:
            return False
    return True


class TestCluster:
    """Several nodes of Ray on this machine, and this process as the driver on the first."""

    __test__ = False

    def __init__(self, cpus: int = 0) -> None:
        """Start the first node, with ``cpus`` for workers, and connect to it."""
        options = {"num_cpus": cpus, "object_store_memory": STORE, "include_dashboard": False}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=options | _ports())
        ray.init(address=self._cluster.address, log_to_driver=False)

    def add(self, cpus: int) -> Any:
        """Start another node."""
        return self._cluster.add_node(num_cpus=cpus, object_store_memory=STORE, **_ports())

    def remove(self, node: Any) -> None:
        """Stop a node as if its machine had lost its power."""
        self._cluster.remove_node(node, allow_graceful=False)

    @property
    def address(self) -> str:
        """The address that programs connect to."""
        return str(self._cluster.address)

    def stop(self, node: Any) -> list[int]:
        """Stop a node's processes as if its machine hung; return their ids."""
        raylet = node.all_processes["raylet"][0].process.pid
        stopped = [raylet, *_descendants(raylet)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        return stopped

    def shutdown(self) -> None:
        """Disconnect and stop all nodes."""
        ray.shutdown()
        self._cluster.shutdown()

    def worker_processes(self) -> set[int]:
        """Return the ids of flowdsl's worker processes on the nodes, without their fork servers."""
        found = set[int]()
        for node in self._cluster.list_all_nodes():
            raylet = node.all_processes["raylet"][0].process.pid
            found |= {pid for pid in _descendants(raylet) if _is_worker(pid)}
        return found


def _descendants(pid: int) -> set[int]:
    found = set[int]()
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= {int(child), *_descendants(int(child))}
    except OSError:  # it has ended
        pass
    return found


def _is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"flowdsl worker of" in command or b"flowdsl.workers.worker\0" in command


def end_of_process() -> None:
    """End the worker that calls this."""
    os.abort()
