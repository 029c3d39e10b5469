"""TrainConfig: the model, the data and the length of a training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import attrs
import numpy as np
import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.flow import Flow
from flowdsl.nodes import (
    ListOf,
    checked,
    checked_choice,
    checked_int,
    checked_list,
    checked_path,
    is_int,
    plain_int,
    wrong,
)
from flowdsl.tensorflow.inputs import InputSource, QueueInput, towers
from flowdsl.tensorflow.inputs.devices import device_of
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.callbacks.progress import ProgressBar
from flowdsl.tensorflow.train.callbacks.summaries import MergeAllSummaries, MovingAverageSummary
from flowdsl.tensorflow.train.callbacks.updates import RunUpdateOps
from flowdsl.tensorflow.train.events import TFEventWriter
from flowdsl.tensorflow.train.initial_values import Initial
from flowdsl.tensorflow.train.model import GivenModel, Optimizer
from flowdsl.tensorflow.train.monitors import JSONWriter, Monitor, ScalarPrinter
from flowdsl.tensorflow.train.session import SessionConfig
from flowdsl.tensorflow.train.step import Remainder


def _as_callbacks(callbacks: Sequence[Callback] | None) -> Sequence[Callback]:
    given = () if callbacks is None else callbacks
    return checked_list("TrainConfig: callbacks", given, Callback, "callbacks")


def _default_callbacks(callbacks: Sequence[Callback] | None) -> Sequence[Callback]:
    if callbacks is not None:
        return checked_list("TrainConfig: extra_callbacks", callbacks, Callback, "callbacks")
    return (MovingAverageSummary(), ProgressBar(), MergeAllSummaries(), RunUpdateOps())


_DEFAULT_MONITORS: Sequence[Monitor] = []
"""Stands for the default monitors, which depend on the ``logdir``."""


def _as_monitors(monitors: Sequence[Monitor] | None) -> Sequence[Monitor]:
    if monitors is None:
        return _DEFAULT_MONITORS
    return checked_list("TrainConfig: monitors", monitors, Monitor, "monitors")


def _default_monitors(config: TrainConfig) -> Sequence[Monitor]:
    if config.logdir is None:
        return (ScalarPrinter(),)
    return (TFEventWriter(), JSONWriter(), ScalarPrinter())


def _plain(value: int) -> int:
    """Convert a NumPy int to int: the epoch's number is stored in checkpoints as JSON."""
    plain: int = plain_int(value)
    return plain


def _plain_if_given(value: int | None) -> int | None:
    return None if value is None else _plain(value)


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else checked_path("TrainConfig: logdir", value)


def _at_least(least: int) -> Callable[[TrainConfig, attrs.Attribute[int], object], None]:
    def check(config: TrainConfig, field: attrs.Attribute[int], value: object) -> None:
        if value is not None or field.default is not None:
            checked_int(f"TrainConfig: {field.name}", value, least)

    return check


def _one_of(*names: str) -> Callable[[TrainConfig, attrs.Attribute[Any], object], None]:
    def check(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
        checked_choice(f"TrainConfig: {field.name}", value, *names)

    return check


def _listed_devices(name: str, devices: object) -> tuple[int | str, ...]:
    expected = "devices, numbers of GPUs or names such as '/gpu:0'"
    listed = checked_list(f"TrainConfig: {name}", devices, (int, np.integer, str), expected)
    if not all(isinstance(device, str) or is_int(device, -1) for device in listed):
        raise wrong(f"TrainConfig: {name}", f"a list of {expected}", listed)
    return cast("tuple[int | str, ...]", listed)


def _as_towers(devices: ListOf[int | str] | None) -> tuple[int | str, ...] | None:
    return None if devices is None else _listed_devices("tower", devices)


def _as_predict_towers(devices: ListOf[int | str]) -> tuple[int | str, ...]:
    return _listed_devices("predict_tower", devices)


def _configures(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        checked("TrainConfig: session_config", value, tf.compat.v1.ConfigProto, "a ConfigProto")


def _initializes(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, (Mapping, str, os.PathLike)):
        raise wrong(
            "TrainConfig: session_init",
            "a path, or a dict of values by the variables' names",
            value,
        )


def _makes_model(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if not callable(value) and not isinstance(value, tf.Module):
        raise InvalidArgument(
            f"TrainConfig: model must be a function that creates it, or for one device the "
            f"model itself, got {value!r}"
        )


def _makes_optimizer(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise InvalidArgument(
            f"TrainConfig: optimizer must be a function that creates it (its variables belong on "
            f"the towers), got the {type(value).__name__} itself: write optimizer=lambda: ..."
        )


def _not_in_tf2(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        raise InvalidArgument(
            f"TrainConfig: {field.name} made a session, which TensorFlow 2 does not have: devices "
            f"are chosen by nr_tower or tower, initial values by session_init, and threads and "
            f"memory by session_config"
        )


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


@attrs.frozen
class TrainConfig:
    """The configuration of a trainer, with tensorpack's names.

    Pass either ``dataflow``, a flow, or ``data``, an input source. When a finite one ends, its next
    pass begins, with fresh shuffles. An epoch is ``steps_per_epoch`` steps, independent of passes.

    Raises:
        InvalidArgument: An argument is missing, contradicts another, or is out of bounds.

    Source: ``TrainConfig`` in tensorpack.
    """

    logdir: Path | None = attrs.field(default=None, kw_only=True, converter=_path)
    """The folder of checkpoints, ``stats.json`` and event files; without it nothing is written."""

    dataflow: Flow[object] | None = None
    """The elements to train on; a step takes one for each tower."""

    data: InputSource | None = None
    """An input source of your own with the elements to train on, instead of ``dataflow``."""

    model: Callable[[], GivenModel] | GivenModel | None = attrs.field(
        default=None, validator=_makes_model
    )
    """Creates the model: called once, where variables are created for all towers.

    For one tower it may be the model itself. A compiled Keras model includes its loss and
    optimizer.
    """

    callbacks: Sequence[Callback] = attrs.field(default=(), converter=_as_callbacks)
    """Callbacks to run in addition to the defaults."""

    extra_callbacks: Sequence[Callback] = attrs.field(default=None, converter=_default_callbacks)
    """The default callbacks; they run after ``callbacks``."""

    monitors: Sequence[Monitor] = attrs.field(default=None, converter=_as_monitors)
    """The destinations of scalars; with a ``logdir``, the defaults write files."""

    session_creator: None = attrs.field(default=None, validator=_not_in_tf2)
    """Refused: its purpose is covered by other arguments."""

    session_config: SessionConfig | None = attrs.field(default=None, validator=_configures)
    """Threads and GPU memory, as a ``tf.compat.v1.ConfigProto``; set before TensorFlow starts."""

    session_init: Initial | None = attrs.field(default=None, validator=_initializes)
    """The initial values of variables: a checkpoint, an ``.npz`` file, or values by name.

    A checkpoint of this training in ``logdir`` takes precedence.
    """

    starting_epoch: int = attrs.field(default=1, converter=_plain, validator=_at_least(0))
    """The number of the first epoch."""

    steps_per_epoch: int | None = attrs.field(
        default=None, converter=_plain_if_given, validator=_at_least(1)
    )
    """Steps in an epoch, by default the steps of one pass; required if its length is unknown."""

    max_epoch: int = attrs.field(default=99999, converter=_plain, validator=_at_least(0))
    """The number of the last epoch."""

    nr_tower: int | None = attrs.field(
        default=None, converter=_plain_if_given, validator=_at_least(1)
    )
    """The number of devices to spread a step over: the first GPUs, or else logical CPUs."""

    tower: Sequence[int | str] | None = attrs.field(default=None, converter=_as_towers)
    """The devices of a step, instead of their number: numbers of GPUs, or names."""

    predict_tower: Sequence[int | str] = attrs.field(default=(0,), converter=_as_predict_towers)
    """The devices of predictors: numbers of GPUs, -1 for the CPU, or names."""

    optimizer: Callable[[], Optimizer] | None = attrs.field(
        default=None, kw_only=True, validator=_makes_optimizer
    )
    """Creates the optimizer: called once, where variables are created for all towers."""

    steps_per_call: int = attrs.field(
        default=1, kw_only=True, converter=_plain, validator=_at_least(1)
    )
    """Steps in one call of TensorFlow, which saves time if a step takes less than about 1 ms.

    The training result is the same. Callbacks run after each call, scalars are means over its
    steps, and a call begins when the elements for all of its steps are available.
    """

    remainder: Remainder = attrs.field(
        default="drop", kw_only=True, validator=_one_of("drop", "pad", "smaller")
    )
    """The treatment of elements at the end of a pass that are too few for all towers.

    With "drop" they are left out and counted in ``left_over``. Otherwise they are trained on in a
    step of their own, counted in ``partial_steps``, which equals a step of one device on the joined
    elements: the other towers repeat one of them with zero weight ("pad"), or compute nothing
    ("smaller"). With "pad", a layer that keeps statistics of its batches sees that element twice.
    """

    record_every: int = attrs.field(
        default=1, kw_only=True, converter=_plain, validator=_at_least(1)
    )
    """Steps between two readings of the loss; reading it waits for the device.

    The end of an epoch and each checkpoint check all losses up to there.
    """

    non_finite: Literal["raise", "count"] = attrs.field(
        default="raise", kw_only=True, validator=_one_of("raise", "count")
    )
    """The reaction to a loss that is not finite, once it is read: end training, or count it.

    The count is ``trainer.non_finite_steps``.
    """

    def __attrs_post_init__(self) -> None:
        if self.monitors is _DEFAULT_MONITORS:
            object.__setattr__(self, "monitors", _default_monitors(self))  # the class is frozen
        if (self.dataflow is None) == (self.data is None):
            got = "neither" if self.data is None else "both"
            raise InvalidArgument(f"TrainConfig: pass either dataflow or data, got {got}")
        if self.dataflow is not None and not isinstance(self.dataflow, Flow):
            raise InvalidArgument(
                f"TrainConfig: dataflow must be a Flow, got {_kind(self.dataflow)}"
            )
        if self.data is not None and not isinstance(self.data, InputSource):
            raise InvalidArgument(
                f"TrainConfig: data must be an InputSource, got {_kind(self.data)}; a Flow goes to "
                f"dataflow=, or into QueueInput(flow)"
            )
        if self.nr_tower is not None and self.tower is not None:
            raise InvalidArgument(
                f"TrainConfig: pass either nr_tower or tower, got {self.nr_tower} and {self.tower}"
            )
        if self.tower is not None and not self.tower:
            raise InvalidArgument("TrainConfig: tower must list a device or more, got none")
        if self.max_epoch < self.starting_epoch:
            raise InvalidArgument(
                f"TrainConfig: max_epoch must be >= starting_epoch={self.starting_epoch}, "
                f"got {self.max_epoch}"
            )

    def devices(self) -> tuple[str, ...]:
        """Return the devices of the towers.

        Raises:
            FlowError: A device does not exist.
        """
        if self.tower is None:
            return towers(self.nr_tower or 1)
        return tuple(device_of("TrainConfig: tower", device) for device in self.tower)

    def predict_device(self, tower: int) -> str:
        """Return the device of predictors, by its position in ``predict_tower``.

        Raises:
            InvalidArgument: The position does not exist.
            FlowError: The device does not exist.
        """
        if not is_int(tower, 0) or tower >= len(self.predict_tower):
            raise InvalidArgument(
                f"get_predictor: tower must be a position in predict_tower={self.predict_tower!r}, "
                f"got {tower!r}"
            )
        return device_of("TrainConfig: predict_tower", self.predict_tower[tower])

    def source(self, towers: int = 1) -> InputSource:
        """Return the input: ``data``, or the flow through a ``QueueInput`` for this many towers."""
        if self.data is not None:
            return self.data
        assert self.dataflow is not None
        return QueueInput(self.dataflow, capacity=max(50, 2 * towers * self.steps_per_call))


def checked_config(trainer: object, config: object) -> TrainConfig:
    """Return the configuration of a trainer.

    Raises:
        InvalidArgument: It is something else, such as a flow.
    """
    name = type(trainer).__name__
    if not isinstance(config, TrainConfig):
        advice = f"write {name}(TrainConfig(dataflow=..., model=..., ...))"
        raise wrong(f"{name}: config", "a TrainConfig", config, advice)
    return config
