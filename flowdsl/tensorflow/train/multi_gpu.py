"""Trainers of several devices in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, Literal, TypeVar

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import ListOf, checked_choice, checked_flag, checked_function, checked_list
from flowdsl.tensorflow.inputs import InputSource, StagingInput
from flowdsl.tensorflow.inputs.devices import device_of, devices_of
from flowdsl.tensorflow.train.config import TrainConfig, checked_config
from flowdsl.tensorflow.train.feedfree import SingleCostFeedfreeTrainer
from flowdsl.tensorflow.train.towers import Mirrored, Replicas, SharedVariables, Towers

R = TypeVar("R")

_CLIPS = "clips each tower's gradient before they are summed, unlike training on one device"
_NOT_ON_REPLICAS = {
    "clipnorm": _CLIPS,
    "clipvalue": _CLIPS,
    "global_clipnorm": _CLIPS,
    "gradient_accumulation_steps": "cannot be used on replicas, nor in Keras's fit",
}
"""The settings of a Keras optimizer that act differently on replicas than on one device."""


class MultiGPUTrainerBase(SingleCostFeedfreeTrainer):
    """Trains on several devices: GPUs, or logical CPUs (see ``logical_cpus``).

    With ``gpu_prefetch``, a ``StagingInput`` copies the elements of the next step to the devices
    while the current step runs, if there are several devices and the step itself reads the input.
    It is not used with ``steps_per_call`` or ``remainder``.

    Source: ``MultiGPUTrainerBase`` in tensorpack.
    """

    def __init__(self, config: TrainConfig, towers: Towers, gpu_prefetch: bool = True) -> None:
        self._towers = len(towers.devices)
        if config.nr_tower not in (None, self._towers):
            raise InvalidArgument(
                f"{type(self).__name__}: nr_tower={config.nr_tower}, but {self._towers} devices "
                f"are listed: {', '.join(towers.devices)}"
            )
        self._gpu_prefetch = checked_flag(f"{type(self).__name__}: gpu_prefetch", gpu_prefetch)
        super().__init__(config, towers)

    def make_input(self) -> InputSource:
        source = super().make_input()
        return StagingInput(source) if self.stages and StagingInput.can_stage(source) else source

    @property
    def stages(self) -> bool:
        """True if elements are copied to the devices one step ahead."""
        one_full_step = self.config.steps_per_call == 1 and self.config.remainder == "drop"
        return self._gpu_prefetch and self.towers > 1 and one_full_step

    @staticmethod
    def build_on_multi_tower(
        towers: ListOf[int | str],
        func: Callable[[], R],
        devices: ListOf[str] | None = None,
        var_strategy: Literal["shared", "replicated"] = "shared",
        vs_names: ListOf[str] | None = None,
    ) -> list[R]:
        """Call a function on each tower and return the results.

        ``devices`` are the devices to run on, by default the GPUs with the numbers in ``towers``.
        With ``"shared"``, the variables that ``func`` creates on the first tower are reused on the
        others, in the order of creation. With ``"replicated"``, each tower has its own variables,
        on its device, with names that begin with ``vs_names``: by default ``tower0`` and so on.

        >>> import tensorflow as tf
        >>> def make() -> tf.Variable:
        ...     return tf.Variable(0.0, name="w")
        >>> build = MultiGPUTrainerBase.build_on_multi_tower
        >>> first, second = build([0, 1], make, devices=["/cpu:0", "/cpu:0"])
        >>> first is second
        True
        >>> own = build([0, 1], make, ["/cpu:0", "/cpu:0"], "replicated")
        >>> [variable.name for variable in own]
        ['tower0/w:0', 'tower1/w:0']

        Raises:
            InvalidArgument: The arguments do not match; or on a later tower ``func`` creates
                other variables than on the first.
        """
        name = "build_on_multi_tower"
        checked_choice(f"{name}: var_strategy", var_strategy, "shared", "replicated")
        checked_function(f"{name}: func", func)
        checked_list(f"{name}: towers", towers, (int, str), "devices")
        if var_strategy == "shared" and vs_names is not None:
            raise InvalidArgument("build_on_multi_tower: vs_names is for var_strategy='replicated'")
        on = (
            tuple(device_of(name, tower) for tower in towers)
            if devices is None
            else devices_of(f"{name}: devices", devices)
        )
        names = (
            tuple(f"tower{k}" for k in range(len(towers)))
            if vs_names is None
            else checked_list(f"{name}: vs_names", vs_names, str, "names")
        )
        if not len(on) == len(towers) == len(names) or not towers:
            raise InvalidArgument(
                f"build_on_multi_tower: one or more towers are needed, and as many devices and "
                f"names, got {len(towers)}, {len(on)} and {len(names)}"
            )
        shared = _SharedVariables()
        built: list[R] = []
        for k, device in enumerate(on):
            with ExitStack() as within:
                within.enter_context(tf.device(device))
                if var_strategy == "shared":
                    within.enter_context(shared.scope_of(k))
                else:
                    within.enter_context(tf.name_scope(names[k]))
                built.append(func())
            shared.require_all(k if var_strategy == "shared" else 0)
        return built


class _SharedVariables:
    """The variables that the first tower creates, for reuse on the others."""

    def __init__(self) -> None:
        self._variables: list[tf.Variable] = []
        self._next = 0

    def scope_of(self, k: int) -> Any:
        self._next = 0
        return tf.variable_creator_scope(self._create if k == 0 else self._reuse)

    def require_all(self, k: int) -> None:
        if k and self._next != len(self._variables):
            raise InvalidArgument(
                f"build_on_multi_tower: on tower {k} func made {self._next} variables, on the "
                f"first {len(self._variables)}"
            )

    def _create(self, make: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        self._variables.append(make(**settings))
        return self._variables[-1]

    def _reuse(self, make: Callable[..., tf.Variable], **settings: Any) -> tf.Variable:
        self._next += 1
        if self._next > len(self._variables):
            raise InvalidArgument(
                f"build_on_multi_tower: func makes more variables than the {len(self._variables)} "
                f"of the first tower"
            )
        variable = self._variables[self._next - 1]
        initial = settings["initial_value"]
        shape = tf.convert_to_tensor(initial() if callable(initial) else initial).shape
        if shape.as_list() != variable.shape.as_list():
            raise InvalidArgument(
                f"build_on_multi_tower: variable {self._next} of func has shape {shape.as_list()}, "
                f"on the first tower it had {variable.shape.as_list()}"
            )
        return variable


class SyncMultiGPUTrainerReplicated(MultiGPUTrainerBase):
    """Data-parallel training: each device has a copy of the model and takes one element per step.

    Gradients are summed over the devices and applied to every copy, so the copies stay equal.
    Layers that keep statistics of their batches (``BatchNormalization``) use the statistics of
    their own tower; checkpoints contain those of the first tower. By default, ``devices`` are the
    devices of the configuration.

    Source: ``SyncMultiGPUTrainerReplicated`` in tensorpack; implemented with ``tf.distribute``.
    """

    def __init__(
        self,
        config: TrainConfig,
        devices: ListOf[str] | None = None,
        *,
        gpu_prefetch: bool = True,
    ) -> None:
        checked_config(self, config)
        argument = f"{type(self).__name__}: devices"
        on = config.devices() if devices is None else devices_of(argument, devices)
        super().__init__(config, Replicas(mirrored(on), on), gpu_prefetch)
        optimizer: object = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        for name, why in _NOT_ON_REPLICAS.items():
            if getattr(optimizer, name, None) is not None and self.towers > 1:
                raise InvalidArgument(
                    f"SyncMultiGPUTrainerReplicated: {name} of the optimizer {why}; use "
                    f"SyncMultiGPUTrainerParameterServer"
                )

    @staticmethod
    def get_post_init_ops() -> list[Callable[[], object]]:
        """Return the operations that make copies equal after initialization: none are needed.

        ``tf.distribute`` assigns the same value to all copies when it creates, restores or assigns
        a variable.
        """
        return []


class SyncMultiGPUTrainerParameterServer(MultiGPUTrainerBase):
    """Data-parallel training on variables that all devices share.

    The gradients of a step are summed and applied once. With ``ps_device="gpu"``, the variables are
    spread over the devices by size; with ``"cpu"``, they are in the CPU's memory. Layers that keep
    statistics of their batches process the towers' batches one after another.

    Raises:
        InvalidArgument: ``ps_device`` is neither "gpu" nor "cpu".

    Source: ``SyncMultiGPUTrainerParameterServer`` in tensorpack.
    """

    def __init__(
        self,
        config: TrainConfig,
        ps_device: Literal["gpu", "cpu"] = "gpu",
        gpu_prefetch: bool = True,
    ) -> None:
        super().__init__(config, shared_variables(self, config, ps_device), gpu_prefetch)


SyncMultiGPUTrainer = SyncMultiGPUTrainerParameterServer
"""tensorpack's name for the trainer with variables spread over the GPUs."""


def shared_variables(trainer: object, config: TrainConfig, ps_device: str) -> SharedVariables:
    """Create towers with shared variables: on the devices, or on the CPU."""
    devices = checked_config(trainer, config).devices()
    checked_choice(f"{type(trainer).__name__}: ps_device", ps_device, "gpu", "cpu")
    return SharedVariables(devices, devices if ps_device == "gpu" else ["/cpu:0"])


@cache  # two strategies confuse their collectives (tensorflow #62790)
def mirrored(devices: tuple[str, ...]) -> Mirrored:
    """Return the strategy that keeps a copy of each variable on each device."""
    on_cpu = all("cpu" in device.lower() for device in devices)
    reduction = tf.distribute.ReductionToOneDevice() if on_cpu else None  # None: the GPUs' default
    return Mirrored(devices, cross_device_ops=reduction)
