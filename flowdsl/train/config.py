"""TrainConfig: what to train, on what, for how long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from flowdsl.arguments import checked_int, plain_int
from flowdsl.errors import InvalidFlow
from flowdsl.flow import Flow
from flowdsl.graph import InputSource, QueueInput, towers
from flowdsl.train.callbacks.base import Callback
from flowdsl.train.callbacks.progress import ProgressBar
from flowdsl.train.events import TFEventWriter
from flowdsl.train.model import Model, Optimizer
from flowdsl.train.monitors import JSONWriter, Monitor, ScalarPrinter
from flowdsl.train.step import Remainder


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


def _factory(config: TrainConfig, field: attrs.Attribute[Any], value: object) -> None:
    if not callable(value):
        raise InvalidFlow(
            f"TrainConfig: {field.name} must be a function that makes it (its variables belong on "
            f"the towers), got the {type(value).__name__} itself: write {field.name}=lambda: ..."
        )


def _are_names(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(isinstance(name, str) for name in value)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


@attrs.frozen(kw_only=True)
class TrainConfig:
    """The configuration of a trainer, with tensorpack's names.

    Give either ``dataflow``, a flow, or ``data``, an input source; a flow is fed through a
    ``QueueInput``. A finite one begins its next pass, with fresh shuffles, when one has ended; an
    epoch is ``steps_per_epoch`` steps whatever the passes.

    Raises:
        InvalidFlow: An argument is missing, contradicts another, or is out of bounds.

    Source: ``TrainConfig`` in tensorpack.
    """

    dataflow: Flow[object] | None = None
    """The elements to train on; a step takes one for each tower."""

    data: InputSource | None = None
    """Your own input source of the elements to train on, instead of ``dataflow``."""

    model: Callable[[], Model] = attrs.field(validator=_factory)
    """Makes the model: called once, where variables are made for all towers."""

    optimizer: Callable[[], Optimizer] = attrs.field(validator=_factory)
    """Makes the optimizer: called once, where variables are made for all towers."""

    logdir: Path | None = attrs.field(default=None, converter=_path)
    """Where checkpoints, ``stats.json`` and event files go; without it nothing is written."""

    callbacks: Sequence[Callback] = ()
    """Callbacks to run besides the defaults."""

    extra_callbacks: Sequence[Callback] = attrs.field(factory=lambda: (ProgressBar(),))
    """The default callbacks; they run after ``callbacks``."""

    monitors: Sequence[Monitor] = attrs.field(
        default=attrs.Factory(_default_monitors, takes_self=True)
    )
    """Where scalars go; those that write files are among the defaults if there is a ``logdir``."""

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

    tower: Sequence[str] | None = None
    """The devices of a step, instead of their number, e.g. ``("/gpu:0", "/gpu:1")``."""

    steps_per_call: int = attrs.field(default=1, converter=_plain, validator=_at_least(1))
    """Steps in one call of TensorFlow, which saves time where a step takes less than about 1 ms.

    What is trained is the same. Callbacks come after each call, scalars are means over its steps,
    and a call begins when the elements for all of them are there.
    """

    remainder: Remainder = attrs.field(default="drop", validator=_one_of("drop", "pad", "smaller"))
    """What becomes of the elements at the end of a pass that are too few for all towers.

    They are left out and counted in ``left_over``; or trained on in a step of their own, counted in
    ``partial_steps``, which is that of one device on these elements joined: the other towers take
    one of them again, with no weight ("pad"), or compute nothing ("smaller"). With "pad" a layer
    that keeps statistics of its batches sees that element twice.
    """

    record_every: int = attrs.field(default=1, converter=_plain, validator=_at_least(1))
    """Steps between two readings of the loss; reading it waits for the device."""

    def __attrs_post_init__(self) -> None:
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
        if self.tower is not None and not _are_names(self.tower):
            raise InvalidFlow(
                f"TrainConfig: tower must list device names, e.g. ('/gpu:0', '/gpu:1'), got "
                f"{self.tower!r}"
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
        """The towers' devices."""
        return tuple(self.tower) if self.tower is not None else towers(self.nr_tower or 1)

    def source(self, towers: int = 1) -> InputSource:
        """The input: ``data``, or the flow through a ``QueueInput`` for so many towers."""
        if self.data is not None:
            return self.data
        assert self.dataflow is not None
        return QueueInput(self.dataflow, capacity=max(50, 2 * towers * self.steps_per_call))
