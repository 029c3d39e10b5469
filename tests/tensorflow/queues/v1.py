"""The cases in TensorFlow 1's graph mode, each in a graph and a session of its own.

    python -m tests.tensorflow.queues.v1 tests/tensorflow/queues/outcomes.json

records the outcomes. ``make test`` compares with the recorded ones, ``make long`` with new ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.tensorflow.queues.cases import CASES, MAX_EVALUATIONS, Case
from tests.tensorflow.queues.outcome import Outcome, as_json, plain

v1: Any = tf.compat.v1


class TheirApi:
    """``tf.train`` of TensorFlow 1."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(v1.train, name)
        return function

    def apply(self, function: Callable[..., Any], *tensors: Any) -> Any:
        return function(*tensors)


def outcome_of(case: Case) -> Outcome:
    with v1.Graph().as_default():
        try:
            made = case.make(TheirApi())
        except Exception as error:
            return Outcome(type(error).__name__, str(error))
        if hasattr(made, "dequeue"):
            made = made.dequeue()
        parts = [made] if isinstance(made, tf.Tensor) else made
        shapes = [x.shape for x in (parts.values() if isinstance(parts, dict) else parts)]
        seen: list[Any] = []
        with v1.Session() as session:
            session.run([v1.local_variables_initializer(), v1.global_variables_initializer()])
            coordinator = v1.train.Coordinator()
            threads = v1.train.start_queue_runners(session, coordinator)
            ended = ""
            try:
                while len(seen) < MAX_EVALUATIONS:
                    seen.append(plain(session.run(made)))
            except tf.errors.OpError as error:
                ended = type(error).__name__
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
        return Outcome(ended, "", plain_shapes(shapes), seen)


def plain_shapes(shapes: list[Any]) -> list[list[int | None]]:
    return [shape.as_list() for shape in shapes]


if __name__ == "__main__":
    v1.disable_eager_execution()
    found = {case.name: outcome_of(case) for case in CASES}
    Path(sys.argv[1]).write_text(as_json(found))
