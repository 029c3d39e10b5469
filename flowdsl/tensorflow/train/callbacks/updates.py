"""RunUpdateOps: updates after each step, in addition to the optimizer's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from flowdsl.nodes import checked_functions
from flowdsl.tensorflow.train.callbacks.base import Callback


class RunUpdateOps(Callback):
    """Runs update functions after each call of a step, in one TensorFlow function.

    ``updates`` lists functions without arguments that change variables; by default the model's
    attribute ``updates``. Examples are a slowly following target network, or an average of the
    weights. The state of layers such as ``BatchNormalization`` is updated within the step itself.

    >>> import tensorflow as tf
    >>> steps = tf.Variable(0)
    >>> callback = RunUpdateOps([lambda: steps.assign_add(1)])

    Source: ``RunUpdateOps`` in tensorpack, for the graph's collection ``UPDATE_OPS``.
    """

    def __init__(self, updates: Sequence[Callable[[], object]] | None = None) -> None:
        name = "RunUpdateOps: updates"
        self._updates = None if updates is None else checked_functions(name, updates)

    def before_train(self) -> None:
        updates = self._updates
        if updates is None:
            updates = getattr(self.trainer.model, "updates", ())
        self._run: Callable[[], None] | None = _together(tuple(updates)) if updates else None

    def after_run(self) -> None:
        if self._run is not None:
            self._run()


def _together(updates: tuple[Callable[[], object], ...]) -> Callable[[], None]:
    @tf.function
    def run() -> None:
        for update in updates:
            update()

    return run
