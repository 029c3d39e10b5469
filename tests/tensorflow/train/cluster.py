"""Processes of this machine that train together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from flowdsl.tensorflow.train import cluster


class Processes:
    """Processes of a program; ``jobs`` lists how many of each kind there are."""

    def __init__(self, program: str, **jobs: int) -> None:
        self._program = program
        ports = iter(free_ports(sum(jobs.values())))
        self.cluster = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()
        }
        self._started: list[subprocess.Popen[str]] = []
        self.said: list[str] = []
        """The output of each process, after its end."""

    def start(self, job: str, index: int, *arguments: object) -> subprocess.Popen[str]:
        config = {"cluster": self.cluster, "task": {"type": job, "index": index}}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.quick_tensorflow", self._program, *map(str, arguments)],
            env={**os.environ, "TF_CONFIG": json.dumps(config)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        self._started.append(process)
        return process

    def end(self) -> list[int]:
        """Wait for all; return their exit codes, in the order of their start."""
        self.said = [each.communicate(timeout=cluster.PATIENCE)[0] for each in self._started]
        return [each.returncode for each in self._started]


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
