"""The processes that take part in distributed training, and processes that only serve it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument
from flowdsl.nodes import checked
from flowdsl.resources.logs import logger

_log = logger(__name__)

PATIENCE = 300.0
"""Seconds within which all processes of a cluster must be reachable."""

_SILENCE = 30.0
"""Seconds after which a log warning names the processes that have not answered."""


Cluster = tf.distribute.cluster_resolver.ClusterResolver


def cluster_of(trainer: str, server: object, example: str) -> Cluster:
    """Return ``server``, or the cluster that ``TF_CONFIG`` describes if it is None.

    Raises:
        InvalidArgument: There is no cluster, or ``server`` is not a ClusterResolver.
    """
    if server is None:
        return cluster_from_environment(trainer, example)
    return checked(f"{trainer}: server", server, Cluster, "a ClusterResolver of tf.distribute")


def cluster_from_environment(trainer: str, example: str) -> Cluster:
    """Return the cluster of ``TF_CONFIG``; ``example`` is a cluster to show in errors."""
    config = os.environ.get("TF_CONFIG")
    if not config:
        raise InvalidArgument(
            f"{trainer}: set the environment variable TF_CONFIG, which lists the processes, e.g. "
            f'{{"cluster": {example}, "task": {{"type": "worker", "index": 0}}}}; or pass '
            f"server="
        )
    try:
        json.loads(config)
    except ValueError as error:
        raise InvalidArgument(f"{trainer}: TF_CONFIG is not JSON: {error}") from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def require_jobs(trainer: str, resolver: Cluster, jobs: Sequence[str]) -> None:
    """Raise InvalidArgument if a job has no process in the cluster."""
    known_jobs = resolver.cluster_spec().jobs
    missing = [job for job in jobs if job not in known_jobs]
    if missing:
        raise InvalidArgument(
            f"{trainer}: the cluster has no {' and no '.join(missing)}, only "
            f"{', '.join(known_jobs) or 'nothing'}"
        )


def serve(trainer: str, resolver: Cluster) -> None:
    """Run operations for the chief, or store its variables, until the chief's process ends.

    Raises:
        FlowError: The chief was not reachable.
    """
    spec = resolver.cluster_spec()
    tf.distribute.Server(spec, job_name=resolver.task_type, task_index=resolver.task_id or 0)
    (chief,) = spec.job_tasks("chief")
    await_all(trainer, [chief])
    while _answers(chief):
        time.sleep(1)
    _log.info("the chief has ended, so this %s ends too", resolver.task_type)


def await_all(trainer: str, addresses: Sequence[str]) -> None:
    """Wait until each process answers.

    Raises:
        FlowError: Some have not answered within ``PATIENCE`` seconds.
    """
    began, reported = time.monotonic(), False
    missing = [*addresses]
    while missing := [address for address in missing if not _answers(address)]:
        waited = time.monotonic() - began
        if waited > _SILENCE and not reported:
            reported = True
            _log.warning("%s: waiting for %s", trainer, ", ".join(missing))
        if waited > PATIENCE:
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
