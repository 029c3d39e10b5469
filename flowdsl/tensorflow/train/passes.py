"""The passes of training over its input: where they begin, continue and end.

A trainer that was interrupted, by Ctrl-C or by an error, continues after its last finished step.
The naive way asks the input for its position when training ends. But the step that was interrupted
may have taken elements already, the input may be between two passes, and the flow may be in the
midst of an element, for which ``state_dict`` waits. So the elements of a step are counted until it
has finished, the pass that begins is noted, and the wait is limited.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress

import attrs
import tensorflow as tf

from flowdsl.errors import FlowError
from flowdsl.tensorflow.inputs import EndOfPass, InputSource
from flowdsl.tensorflow.inputs.source import LeftOver, State
from flowdsl.tensorflow.train.callbacks.base import StopTraining

_SECONDS_FOR_POSITION = 1.0
"""The limit on the wait of an interrupted training for the position of its input."""


@attrs.define(eq=False)
class Passes:
    """The passes of one training over its input, one after the other."""

    input: InputSource
    towers: int
    """The number of elements that a step takes."""
    left_over: int = 0
    left_over_rows: int = 0
    of_step: int = 0
    """The number of elements that the unfinished step has taken."""
    next: State | int = 0
    """The state from which ``begin`` restores the input, or the pass that it begins."""
    _beginning: int | None = None
    """The pass that the input is just beginning."""
    _asking: threading.Thread | None = None
    _answers: list[State] = attrs.field(factory=list[State])
    _lost: bool = False
    """True if the position was not known when training was interrupted."""

    def begin(self) -> None:
        """Begin the first pass, or continue after the last finished step.

        Raises:
            FlowError: The position is not known.
        """
        if self._lost:
            raise FlowError(
                f"main_loop: training was interrupted, and its input did not report its position "
                f"within {_SECONDS_FOR_POSITION:g} s, so the next element is unknown: create a new "
                f"trainer, which continues from the latest checkpoint if TrainConfig has a logdir"
            )
        if isinstance(self.next, int):
            self.input.reset(self.next)
        else:
            self.input.restore(self.next)
        self.of_step, self._beginning = 0, None

    def take(self, elements: int) -> tuple[tf.Tensor, ...]:
        """Return the arguments of a step that takes ``elements`` elements of the current pass.

        Raises:
            EndOfPass: Fewer are left.
            FlowError: The data failed.
        """
        args = self.input.next_args(elements)
        self.of_step += elements
        return args

    def begin_next(self, end: EndOfPass) -> None:
        """Begin the next pass, and count what was left over at the end of this one.

        Raises:
            StopTraining: The input must not begin again.
        """
        if end.left:
            self.left_over += end.left
            warn_of_left_over(end.left, self.towers)
        if end.rows:
            self.left_over_rows += end.rows
            _warn_of_rows(end.rows)
        if not self.input.infinite:
            raise StopTraining("the pass over its input has ended")
        self._beginning = self.input.epoch + 1
        self.input.reset(self._beginning)
        self._beginning = None

    def too_few(self, left: int) -> FlowError:
        """Return the error for a flow whose complete pass does not fill a step."""
        return FlowError(
            f"a step of {self.towers} tower(s) takes {self.towers} element(s), a complete pass "
            f"of the flow had {left}"
        )

    def keep_position(self) -> None:
        """Keep the position after the last finished step, for ``begin``."""
        if self._beginning is not None:
            self.next = self._beginning
            return
        states: list[State] = []
        behind = self.of_step

        def ask() -> None:
            with suppress(Exception):  # the error that ended training is raised
                states.append(self.input.state_dict(behind))

        # In a thread, as it waits while the flow is computing an element.
        self._asking = threading.Thread(target=ask, name="position of the input", daemon=True)
        self._answers = states
        self._asking.start()
        self._asking.join(_SECONDS_FOR_POSITION / 2)

    def await_position(self) -> None:
        """Wait for the position a little longer: closing the input has ended most flows' work."""
        if self._asking is not None:
            self._asking.join(_SECONDS_FOR_POSITION / 2)
            self._lost = not self._answers
            self.next = self._answers[0] if self._answers else 0
            self._asking = None


def warn_of_left_over(left: int, towers: int) -> None:
    """Warn of elements at the end of a pass that are too few for a step."""
    warnings.warn(
        f"the last {left} element(s) of a pass are too few for a step of {towers} towers, and are "
        f"not trained on; make the length a multiple of {towers}, or .repeat() the flow, so that "
        f"one pass joins the next, or train on them with remainder='pad'",
        LeftOver,
        stacklevel=2,
    )


def _warn_of_rows(rows: int) -> None:
    warnings.warn(
        f"the last {rows} row(s) of a pass are too few for a batch, and are not trained on; train "
        f"on them with BatchQueueInput(remainder='smaller'), or .repeat() the flow, so that one "
        f"pass joins the next",
        LeftOver,
        stacklevel=2,
    )
