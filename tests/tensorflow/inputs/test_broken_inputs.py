"""Every law of input sources can fail: broken sources, and the laws that detect them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import EndOfPass, InputSource, QueueInput
from flowdsl.tensorflow.inputs.source import State
from flowdsl.testing import check_input, endings
from flowdsl.testing.inputs import (
    INPUT_LAWS,
    InputLaw,
    MakeInput,
    a_reset_begins_with_the_first_element,
    a_step_is_traced_once,
    an_abandoned_source_is_collected,
    an_error_is_raised_at_its_position,
    an_interrupt_is_immediate,
    arguments_are_of_the_signature,
    closing_leaves_nothing,
    each_pass_is_its_epoch,
    elements_come_once_and_in_order,
    nothing_works_before_a_pass,
    resuming_gives_the_rest,
    size_is_the_length_of_the_flow,
    the_end_is_exact,
)
from flowdsl.testing.recipes import AnyFlow


class OtherSpecs(QueueInput):
    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return super().specs[:1]


class OneQueue(QueueInput):
    """The queue is not an argument of the step: the step keeps the queue of its tracing pass."""

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return super().tensors(self.queue.queue_ref)


class OneEpoch(QueueInput):
    def reset(self, epoch: int = 0) -> None:
        super().reset(0)


class GoesOn(QueueInput):
    """Does not restart a running pass."""

    _begun_once = False

    def reset(self, epoch: int = 0) -> None:
        if not self._begun_once:
            super().reset(epoch)
        self._begun_once = True


class TellsNotWhatIsLeft(QueueInput):
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        try:
            return super().next_args(elements)
        except EndOfPass as end:
            raise EndOfPass(0) from end


class EndsAtAnError(QueueInput):
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        try:
            return super().next_args(elements)
        except fl.ElementError as error:
            raise EndOfPass(0) from error


class BeginsByItself(QueueInput):
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        if self._pass is None:
            self.reset()
        return super().next_args(elements)


class OneMore(QueueInput):
    def size(self) -> int:
        return super().size() + 1


class TellsOnlyTheEpoch(QueueInput):
    def state_dict(self, behind: int = 0) -> State:
        return {**super().state_dict(behind), "run": None}


class StaysOpen(QueueInput):
    def close(self) -> None:
        pass


KEPT: list[InputSource] = []


class Kept(QueueInput):
    def reset(self, epoch: int = 0) -> None:
        super().reset(epoch)
        KEPT.append(self)


class TakesAnInterruptForTheEnd(QueueInput):
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        try:
            return super().next_args(elements)
        except KeyboardInterrupt:
            raise EndOfPass(0) from None


def fed(change: Callable[[AnyFlow], Any]) -> MakeInput:
    return lambda flow: QueueInput(change(flow))


@pytest.mark.parametrize(
    ("broken", "noticed_by"),
    [
        (OtherSpecs, arguments_are_of_the_signature),
        (fed(lambda flow: flow.skip(1)), elements_come_once_and_in_order),
        (fed(lambda flow: flow.repeat_each(2)), elements_come_once_and_in_order),
        (fed(lambda flow: flow.shuffle(2, seed=1)), elements_come_once_and_in_order),
        (fed(lambda flow: flow.take(10)), elements_come_once_and_in_order),
        (fed(lambda flow: flow.repeat(2)), the_end_is_exact),
        (TellsNotWhatIsLeft, the_end_is_exact),
        (OneQueue, a_step_is_traced_once),
        (OneEpoch, each_pass_is_its_epoch),
        (GoesOn, a_reset_begins_with_the_first_element),
        (EndsAtAnError, an_error_is_raised_at_its_position),
        (fed(lambda flow: flow.prefetch(on_error="skip")), an_error_is_raised_at_its_position),
        (BeginsByItself, nothing_works_before_a_pass),
        (OneMore, size_is_the_length_of_the_flow),
        (TellsOnlyTheEpoch, resuming_gives_the_rest),
        (StaysOpen, closing_leaves_nothing),
        (Kept, an_abandoned_source_is_collected),
        (TakesAnInterruptForTheEnd, an_interrupt_is_immediate),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_implementation_is_detected(
    broken: MakeInput, noticed_by: InputLaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "PATIENCE", 0.3)
    with pytest.raises((AssertionError, tf.errors.OpError, EndOfPass)):
        noticed_by(broken)
    while KEPT:
        KEPT.pop().close()


def test_every_law_can_fail() -> None:
    (mark,) = [
        mark
        for mark in test_broken_implementation_is_detected.pytestmark  # type: ignore[attr-defined]  # pytest's
        if mark.name == "parametrize"
    ]
    assert {noticed_by for _, noticed_by in mark.args[1]} == set(INPUT_LAWS)


def test_check_input_names_the_violated_law() -> None:
    with pytest.raises(AssertionError, match="a flow of 11 elements is said to have 12") as failed:
        check_input(OneMore)
    assert failed.value.__notes__[-1].startswith("the law: It is the length of a pass")
