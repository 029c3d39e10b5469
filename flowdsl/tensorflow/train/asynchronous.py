"""Asynchronous training: towers that update shared variables without waiting for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import isfinite

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import checked_flag
from flowdsl.resources.logs import logger
from flowdsl.tensorflow.train.compiled import CompiledModel
from flowdsl.tensorflow.train.config import TrainConfig
from flowdsl.tensorflow.train.multi_gpu import MultiGPUTrainerBase, shared_variables
from flowdsl.tensorflow.train.single_cost import SingleCost
from flowdsl.tensorflow.train.step import variables_of
from flowdsl.tensorflow.train.towers import Computed, Element, SharedVariables

_log = logger(__name__)


class AsyncTrainerBase(MultiGPUTrainerBase):
    """Each tower updates the shared variables with its own gradients, as soon as it has them.

    A step passes an element to each tower, in the tower's thread, and does not wait: a tower may be
    one element behind the others. Gradients are therefore computed on variables that change in the
    meantime, and two runs differ. But each element is trained on once, and updates are applied one
    at a time, without loss. If a tower fails, training ends; another ``train`` does not repeat the
    tower's element. With ``scale_gradient``, gradients are divided by the number of towers. The
    scalars of a step are means over the towers' latest elements.

    All towers wait for each other at the end of an epoch and before a checkpoint.
    """

    def __init__(self, config: TrainConfig, towers: SharedVariables, scale_gradient: bool) -> None:
        name = type(self).__name__
        self.scale_gradient = checked_flag(f"{name}: scale_gradient", scale_gradient)
        if config.steps_per_call > 1 or config.remainder != "drop":
            raise InvalidArgument(
                f"{type(self).__name__}: each tower takes one element at a time: leave "
                f"steps_per_call and remainder at their defaults"
            )
        super().__init__(config, towers, gpu_prefetch=False)
        if hasattr(self.optimizer, "dynamic_scale"):
            raise InvalidArgument(
                f"{type(self).__name__}: a LossScaleOptimizer changes its scale with each update, "
                f"also between the gradients of a tower and their update: use a trainer whose "
                f"towers are in step, or loss_scale_factor= of the optimizer"
            )
        self.updates = 0
        """The number of gradients that were applied."""
        self._apply_lock = threading.Lock()
        self._cost = SingleCost(self.model, self._binding, self.optimizer, self.devices)
        self._apply = tf.function(autograph=False)(self._cost.apply)
        self._compute = [self._compute_function(device) for device in self.devices.devices]
        self._threads: ThreadPoolExecutor | None = None
        self._running_steps: dict[int, tuple[int, Future[dict[str, float]]]] = {}
        """For each tower that computes: the number of its step, and its future scalars."""
        self._latest: dict[int, dict[str, float]] = {}
        """For each tower, the scalars of the last step that it has finished."""

    def trace(self) -> Sequence[tf.Variable]:
        return [v for computed in self._compute for v in variables_of(computed)]

    def require_can_train(self, model: CompiledModel) -> None:
        if model.has_its_own_step:
            raise InvalidArgument(
                f"{type(self).__name__}: {type(model.net).__name__} overrides train_step, which "
                f"computes and applies gradients together; this trainer does so separately"
            )

    def run_step(self) -> None:
        """Pass each tower an element, when it has finished the one before."""
        args = self.next_args(self.towers)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.towers, type(self).__name__)
        # Dequeued here, so that tower k gets the step's k-th element, however fast others are.
        elements = [self.input.tensors(*args) for _ in range(self.towers)]
        for k, element in enumerate(elements):
            self._await_tower(k)
            self._running_steps[k] = self.global_step, self._threads.submit(self._train, k, element)
            self.passes.of_step -= 1  # it will be trained on, also if this step is interrupted
        if self.reached_multiple_of(self.config.record_every) and len(self._latest) == self.towers:
            each = [*self._latest.values()]
            means = {name: sum(s[name] for s in each) / self.towers for name in each[0]}
            self.scalars = means | self.of_input()

    def settle(self) -> None:
        for k in range(self.towers):
            self._await_tower(k)

    def end_steps(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()  # waits for running steps
        self._threads = None
        for step, running in self._running_steps.values():
            if (error := running.exception()) is not None:  # another error has ended training
                _log.error("step %d failed too, and did not train on its element: %r", step, error)
        self._running_steps.clear()

    def _await_tower(self, k: int) -> None:
        """Wait until a tower has finished its step."""
        if k not in self._running_steps:
            return
        step, running = self._running_steps.pop(k)
        scalars = running.result()
        self._latest[k] = scalars
        if not isfinite(scalars["loss"]):
            self.counts.not_finite.assign_add(1)
            self.refuse_non_finite(scalars["loss"], step)

    def _require_finite(self) -> None:
        """Do nothing: each tower's loss was checked when the tower finished."""

    def _compute_function(self, device: str) -> Callable[..., Computed]:
        share = 1.0 / self.towers if self.scale_gradient else 1.0

        @tf.function(input_signature=self.input.specs, autograph=False)
        def computed(*element: tf.Tensor) -> Computed:
            with tf.device(device):
                return self._cost.computed(element, share)

        computed.get_concrete_function()  # trace now: TensorFlow traces in one thread at a time
        return computed

    def _train(self, k: int, element: Element) -> dict[str, float]:
        """Train on an element, in the thread of a tower."""
        scalars, gradients = self._compute[k](*element)
        with self._apply_lock:
            self._apply(gradients)
            self.updates += 1
        share = self.towers if self.scale_gradient else 1
        return {name: float(value) * share for name, value in scalars.items()}


class AsyncMultiGPUTrainer(AsyncTrainerBase):
    """Trains on several devices of this process, which update shared variables without waiting.

    Each device is a tower; the variables are spread over the devices by size. With
    ``scale_gradient``, gradients are divided by the number of towers.

    Source: ``AsyncMultiGPUTrainer`` in tensorpack.
    """

    def __init__(self, config: TrainConfig, scale_gradient: bool = True) -> None:
        towers = shared_variables(self, config, "gpu")
        super().__init__(config, towers, scale_gradient)
