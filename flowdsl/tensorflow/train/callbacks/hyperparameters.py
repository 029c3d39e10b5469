"""ScheduledHyperParamSetter: hyperparameters that change during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, Protocol, cast, runtime_checkable

import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import checked_choice, checked_flag, is_int, wrong
from flowdsl.tensorflow.train.callbacks.base import Callback
from flowdsl.tensorflow.train.variables import named_variables


@runtime_checkable
class _Settable(Protocol):
    def assign(self, value: float, /) -> object: ...


class ScheduledHyperParamSetter(Callback):
    """Sets a hyperparameter by a schedule, and records its value each epoch.

    ``param`` is the name of a hyperparameter of the optimizer, such as ``"learning_rate"``, the
    name of a variable of the model, or a variable. ``schedule`` lists pairs of an epoch and a
    value: the value applies when that many epochs have finished. So ``(0, 0.1)`` applies from the
    start, and ``(30, 0.01)`` from the 31st epoch. Between two pairs the value is constant, or is
    interpolated with ``interp="linear"``, changing once an epoch. With ``step_based``, numbers are
    steps, not epochs.

    Raises:
        InvalidArgument: The schedule is not in order; or when training begins, the hyperparameter
            does not exist or cannot be set.

    Source: ``ScheduledHyperParamSetter`` in tensorpack.
    """

    def __init__(
        self,
        param: str | tf.Variable,
        schedule: Sequence[tuple[int, float]],
        interp: Literal["linear"] | None = None,
        step_based: bool = False,
    ) -> None:
        name = "ScheduledHyperParamSetter"
        if not isinstance(param, str) and not isinstance(param, _Settable):
            raise wrong(f"{name}: param", "a name or a variable", param)
        self.param = param
        self.schedule = _points(schedule)
        self.interp = checked_choice(f"{name}: interp", interp, None, "linear")
        self.step_based = checked_flag(f"{name}: step_based", step_based)
        self._value: float | None = None

    def before_train(self) -> None:
        self._name, self._variable = self._resolved()
        self._value = None
        self._set()

    def trigger_step(self) -> None:
        if self.step_based:
            self._set()

    def trigger_epoch(self) -> None:
        if self._value is not None:  # the value during the epoch
            self.trainer.monitors.put_scalar(self._name, self._value)
        self._set()

    def value_at(self, at: int) -> float | None:
        """Return the value after ``at`` epochs or steps; None before the first pair."""
        before = [point for point in self.schedule if point[0] <= at]
        if not before:
            return None
        (start, value), rest = before[-1], self.schedule[len(before) :]
        if self.interp is None or not rest:
            return value
        end, last = rest[0]
        return value + (last - value) * (at - start) / (end - start)

    def _set(self) -> None:
        trainer = self.trainer
        value = self.value_at(trainer.global_step if self.step_based else trainer.epoch_num)
        if value is not None and value != self._value:
            self._variable.assign(value)
            self._value = value

    def _resolved(self) -> tuple[str, _Settable]:
        if not isinstance(self.param, str):
            return self.param.name.removesuffix(":0"), self.param
        found: object = getattr(self.trainer.optimizer, self.param, None)
        if found is None:
            found = named_variables(self.trainer.model).get(self.param)
        if not isinstance(found, _Settable):
            why = (
                f"neither the optimizer nor the model's variables have it "
                f"({', '.join(sorted(named_variables(self.trainer.model)))})"
                if found is None
                else f"it is a {type(found).__name__}, not a variable: a Keras schedule, or a "
                f"number that is part of the traced step"
            )
            raise InvalidArgument(f"ScheduledHyperParamSetter: {self.param!r} cannot be set: {why}")
        return self.param, found


def _points(schedule: object) -> tuple[tuple[int, float], ...]:
    try:
        points = [(at, float(value)) for at, value in cast("Sequence[tuple[int, float]]", schedule)]
    except (TypeError, ValueError):
        points = []
    rising = all(is_int(at, 0) for at, _ in points) and all(
        a < b for (a, _), (b, _) in pairwise(points)
    )
    if not points or not rising:
        is_mapping = isinstance(schedule, Mapping)
        raise wrong(
            "ScheduledHyperParamSetter: schedule",
            "a list of pairs of an epoch and a value, with increasing epochs from 0, "
            "e.g. [(0, 0.1), (30, 0.01)]",
            schedule,
            f"write {list(cast('dict[object, object]', schedule).items())}" if is_mapping else "",
        )
    return tuple(points)
