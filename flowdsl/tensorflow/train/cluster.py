"""Who takes part in a training of several processes, and the processes that only serve it."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Sequence

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidFlow

_log = logging.getLogger(__name__)

PATIENCE = 300.0
"""Seconds within which all processes of a cluster have to be there."""

Cluster = tf.distribute.cluster_resolver.ClusterResolver


def cluster_from_environment(trainer: str, cluster: str) -> Cluster:
    """What ``TF_CONFIG`` says; ``cluster`` is an example of one, for errors."""
    told = os.environ.get("TF_CONFIG")
    if not told:
        raise InvalidFlow(
            f"{trainer}: the environment variable TF_CONFIG is missing, which says who takes part, "
            f'e.g. {{"cluster": {cluster}, "task": {{"type": "worker", "index": 0}}}}; or give '
            f"server="
        )
    try:
        json.loads(told)
    except ValueError as error:
        raise InvalidFlow(f"{trainer}: TF_CONFIG is no JSON: {error}") from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def require_jobs(trainer: str, resolver: Cluster, jobs: Sequence[str]) -> None:
    """Raise InvalidFlow where a job has no process in the cluster."""
    there = resolver.cluster_spec().jobs
    missing = [job for job in jobs if job not in there]
    if missing:
        raise InvalidFlow(
            f"{trainer}: the cluster has no {' and no '.join(missing)}, only "
            f"{', '.join(there) or 'nothing'}"
        )


def serve(trainer: str, resolver: Cluster) -> None:
    """Compute for the chief, or hold its variables, until its process has ended.

    Raises:
        FlowError: The chief did not come.
    """
    spec = resolver.cluster_spec()
    tf.distribute.Server(spec, job_name=resolver.task_type, task_index=resolver.task_id or 0)
    (chief,) = spec.job_tasks("chief")
    await_all(trainer, [chief])
    while _answers(chief):
        time.sleep(1)
    _log.info("the chief has ended, and so does this %s", resolver.task_type)


def await_all(trainer: str, addresses: Sequence[str]) -> None:
    """Wait until each of the processes answers.

    Raises:
        FlowError: Some did not, for ``PATIENCE`` seconds.
    """
    until = time.monotonic() + PATIENCE
    missing = [*addresses]
    while missing := [address for address in missing if not _answers(address)]:
        if time.monotonic() > until:
            raise FlowError(
                f"{trainer}: after {PATIENCE:.0f} s nothing answers at {', '.join(missing)}; are "
                f"these processes running, and the addresses in TF_CONFIG right?"
            )
        time.sleep(0.1)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except OSError:
        return False
    return True
