"""The error for a loss that is not finite, with its step and the source rows of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from flowdsl.errors import FlowError, NotResumable, UnknownLength
from flowdsl.runtime.origins import Origin
from flowdsl.tensorflow.inputs.source import InputSource, Taken

_MAX_ROWS = 12
"""The most rows that an error lists."""


class NonFiniteLoss(FlowError):
    """The loss of a step was NaN or infinite.

    ``step`` is its ``global_step``, ``epoch`` the number of its epoch, and ``origins`` lists the
    source rows of its elements; it is empty if they are unknown.
    """

    def __init__(self, message: str, step: int, epoch: int, origins: Sequence[Origin]) -> None:
        super().__init__(message)
        self.step, self.epoch, self.origins = step, epoch, tuple(origins)


def non_finite_loss(
    loss: float, step: int, epoch: int, source: InputSource, elements: int, elements_since: int
) -> NonFiniteLoss:
    """Return the error for a step that took ``elements`` elements.

    ``elements_since`` is the number of elements taken after that step.
    """
    step_elements = source.taken(elements, elements_since)
    origins = [] if step_elements is None else _origins(step_elements)
    rows = ", ".join(map(str, origins[:_MAX_ROWS]))
    more = f" and {len(origins) - _MAX_ROWS} more" if len(origins) > _MAX_ROWS else ""
    # ``loss`` is the latest one read; it can be finite if an earlier step's loss was not.
    value = "not finite" if isfinite(loss) else str(loss)
    made_of = f"; its elements were made of {rows}{more}" if origins else ""
    return NonFiniteLoss(
        f"the loss of step {step}, in epoch {epoch}, is "
        f"{value}{made_of}{_reread_hint(step_elements)}. To train on and count such steps: "
        f"TrainConfig(non_finite='count')",
        *(step, epoch, origins),
    )


def _origins(taken: Taken) -> list[Origin]:
    flow, epoch, first, length = taken
    try:
        return [row for k in range(first, first + length) for row in flow.origins(k, epoch)]
    except (FlowError, NotResumable, UnknownLength, IndexError):
        return []  # origins are unknown; the error is about the loss


def _reread_hint(taken: Taken | None) -> str:
    """Return the code that reads the elements again."""
    if taken is None:
        return ""
    _, epoch, first, length = taken
    code = f"flow.at({first}, epoch={epoch})"
    if length > 1:
        code = f"[flow.at(k, epoch={epoch}) for k in range({first}, {first + length})]"
    return f"; read again by {code}"
