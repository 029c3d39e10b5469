"""TrainConfig: what to train, on what, for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.flow import Flow
from flowdsl.nodes import checked_int, is_int, plain_int
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


def _given_callbacks(given: Sequence[Callback] | None) -> Sequence[Callback]:
    return () if given is None else tuple(given)


def _default_callbacks(given: Sequence[Callback] | None) -> Sequence[Callback]:
    if given is not None:
        return tuple(given)
    return (MovingAverageSummary(), ProgressBar(), MergeAllSummaries(), RunUpdateOps())


_NOT_GIVEN: Sequence[Monitor] = []


def _given_monitors(given: Sequence[Monitor] | None) -> Sequence[Monitor]:
    return _NOT_GIVEN if given is None else tuple(given)


def _default_monitors(config: TrainConfig) -> Sequence[Monitor]:
    if config.logdir is None:
        return (ScalarPrinter(),)
    return (TFEventWriter(), JSONWriter(), ScalarPrinter())


def _plain(value: int) -> int:
    """A NumPy int as an int: the number of the epoch goes into a checkpoint, as JSON."""
    plain: int = plain_int(value)
    return plain


def _plain_if_given(value: int | None) -> int | None:
    return None if value is None else _plain(value)


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)


def _at_least(least: int) -> Callable[[TrainConfig, attrs.Attribute[int], object], None]:
    def check(config: TrainConfig, field: attrs.Attribute[int], value: object) -> None:
        if value is not None or field.default is not None:
            checked_int(f"TrainConfig: {field.name}", value, least)

    return check


def _one_of(*names: str) -> Callable[[TrainConfig, attrs.Attribute[Any], object], None]:
    def check(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
        if value not in names:
            choices = ", ".join(map(repr, names))
            raise InvalidFlow(f"TrainConfig: {field.name} must be one of {choices}, got {value!r}")

    return check


def _makes_model(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if not callable(value) and not isinstance(value, tf.Module):
        raise InvalidFlow(
            f"TrainConfig: model must be a function that makes it, or the model itself where one "
            f"device is meant, got {value!r}"
        )


def _makes_optimizer(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and not callable(value):
        raise InvalidFlow(
            f"TrainConfig: optimizer must be a function that makes it (its variables belong on "
            f"the towers), got the {type(value).__name__} itself: write optimizer=lambda: ..."
        )


def _not_in_tf2(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        raise InvalidFlow(
            f"TrainConfig: {field.name} made a session, and TensorFlow 2 has none: devices are "
            f"chosen by nr_tower or tower, what variables begin with by session_init, and threads "
            f"and memory by session_config"
        )


def _are_devices(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(device, str) or is_int(device, -1) for device in value)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


@attrs.frozen
class TrainConfig:
    """The configuration of a trainer, with tensorpack's names.

    Give either ``dataflow``, a flow, or ``data``, an input source. A finite one begins its next
    pass, with fresh shuffles, when one has ended; an epoch is ``steps_per_epoch`` steps whatever
    the passes.

    Raises:
        InvalidFlow: An argument is missing, contradicts another, or is out of bounds.

    Source: ``TrainConfig`` in tensorpack.
    """

    logdir: Path | None = attrs.field(default=None, kw_only=True, converter=_path)
    """Where checkpoints, ``stats.json`` and event files go; without it nothing is written."""

    dataflow: Flow[object] | None = None
    """The elements to train on; a step takes one for each tower."""

    data: InputSource | None = None
    """Your own input source of the elements to train on, instead of ``dataflow``."""

    model: Callable[[], GivenModel] | GivenModel | None = attrs.field(
        default=None, validator=_makes_model
    )
    """Makes the model: called once, where variables are made for all towers.

    Where there is one tower it may be the model itself. A compiled Keras model brings its own loss
    and optimizer.
    """

    callbacks: Sequence[Callback] = attrs.field(default=(), converter=_given_callbacks)
    """Callbacks to run besides the defaults."""

    extra_callbacks: Sequence[Callback] = attrs.field(default=None, converter=_default_callbacks)
    """The default callbacks; they run after ``callbacks``."""

    monitors: Sequence[Monitor] = attrs.field(default=None, converter=_given_monitors)
    """Where scalars go; those that write files are among the defaults if there is a ``logdir``."""

    session_creator: None = attrs.field(default=None, validator=_not_in_tf2)
    """Refused: what it did is done by the other arguments."""

    session_config: SessionConfig | None = None
    """Threads and GPU memory, of a ``tf.compat.v1.ConfigProto``; set before TensorFlow starts."""

    session_init: Initial | None = None
    """What variables begin with: a checkpoint, an ``.npz`` file, or values by name.

    A checkpoint of this training itself, in ``logdir``, takes precedence.
    """

    starting_epoch: int = attrs.field(default=1, converter=_plain, validator=_at_least(0))
    """The number of the first epoch."""

    steps_per_epoch: int | None = attrs.field(
        default=None, converter=_plain_if_given, validator=_at_least(1)
    )
    """Steps in an epoch, by default those of one pass; required if a pass has no known length."""

    max_epoch: int = attrs.field(default=99999, converter=_plain, validator=_at_least(0))
    """The number of the last epoch."""

    nr_tower: int | None = attrs.field(
        default=None, converter=_plain_if_given, validator=_at_least(1)
    )
    """The number of devices to spread a step over: the first GPUs, or else logical CPUs."""

    tower: Sequence[int | str] | None = None
    """The devices of a step, instead of their number: of GPUs the numbers, or of any the names."""

    predict_tower: Sequence[int | str] = (0,)
    """The devices of predictors: numbers of GPUs, -1 for the CPU, or names."""

    optimizer: Callable[[], Optimizer] | None = attrs.field(
        default=None, kw_only=True, validator=_makes_optimizer
    )
    """Makes the optimizer: called once, where variables are made for all towers."""

    steps_per_call: int = attrs.field(
        default=1, kw_only=True, converter=_plain, validator=_at_least(1)
    )
    """Steps in one call of TensorFlow, which saves time where a step takes less than about 1 ms.

    What is trained is the same. Callbacks come after each call, scalars are means over its steps,
    and a call begins when the elements for all of them are there.
    """

    remainder: Remainder = attrs.field(
        default="drop", kw_only=True, validator=_one_of("drop", "pad", "smaller")
    )
    """What becomes of the elements at the end of a pass that are too few for all towers.

    They are left out and counted in ``left_over``; or trained on in a step of their own, counted in
    ``partial_steps``, which is that of one device on these elements joined: the other towers take
    one of them again, with no weight ("pad"), or compute nothing ("smaller"). With "pad" a layer
    that keeps statistics of its batches sees that element twice.
    """

    record_every: int = attrs.field(
        default=1, kw_only=True, converter=_plain, validator=_at_least(1)
    )
    """Steps between two readings of the loss; reading it waits for the device."""

    non_finite: Literal["raise", "count"] = attrs.field(
        default="raise", kw_only=True, validator=_one_of("raise", "count")
    )
    """What a loss that is not finite does, once it is read: end training, or be counted.

    ``trainer.non_finite_steps`` is the count.
    """

    def __attrs_post_init__(self) -> None:
        if self.monitors is _NOT_GIVEN:
            object.__setattr__(self, "monitors", _default_monitors(self))  # it is frozen
        if (self.dataflow is None) == (self.data is None):
            given = "neither" if self.data is None else "both"
            raise InvalidFlow(f"TrainConfig: give either dataflow or data, got {given}")
        if self.dataflow is not None and not isinstance(self.dataflow, Flow):
            raise InvalidFlow(f"TrainConfig: dataflow must be a Flow, got {_kind(self.dataflow)}")
        if self.data is not None and not isinstance(self.data, InputSource):
            raise InvalidFlow(
                f"TrainConfig: data must be an InputSource, got {_kind(self.data)}; a Flow goes to "
                f"dataflow=, or into QueueInput(flow)"
            )
        for name, devices in (("tower", self.tower), ("predict_tower", self.predict_tower)):
            if devices is not None and not _are_devices(devices):
                raise InvalidFlow(
                    f"TrainConfig: {name} must list devices, numbers of GPUs or names such as "
                    f"'/gpu:0', got {devices!r}"
                )
        if self.nr_tower is not None and self.tower is not None:
            raise InvalidFlow(
                f"TrainConfig: give either nr_tower or tower, got {self.nr_tower} and {self.tower}"
            )
        if self.tower is not None and not self.tower:
            raise InvalidFlow("TrainConfig: tower must list a device or more, got none")
        if self.max_epoch < self.starting_epoch:
            raise InvalidFlow(
                f"TrainConfig: max_epoch must be >= starting_epoch={self.starting_epoch}, "
                f"got {self.max_epoch}"
            )

    def devices(self) -> tuple[str, ...]:
        """The towers' devices.

        Raises:
            FlowError: One of them does not exist.
        """
        if self.tower is None:
            return towers(self.nr_tower or 1)
        return tuple(device_of("TrainConfig: tower", device) for device in self.tower)

    def predict_device(self, tower: int) -> str:
        """The device of the predictors on tower ``tower`` of ``predict_tower``.

        Raises:
            InvalidFlow: There is no such tower.
            FlowError: There is no such device.
        """
        if not is_int(tower, 0) or tower >= len(self.predict_tower):
            raise InvalidFlow(
                f"get_predictor: tower must be a position in predict_tower={self.predict_tower!r}, "
                f"got {tower!r}"
            )
        return device_of("TrainConfig: predict_tower", self.predict_tower[tower])

    def source(self, towers: int = 1) -> InputSource:
        """The input: ``data``, or the flow through a ``QueueInput`` for so many towers."""
        if self.data is not None:
            return self.data
        assert self.dataflow is not None
        return QueueInput(self.dataflow, capacity=max(50, 2 * towers * self.steps_per_call))
