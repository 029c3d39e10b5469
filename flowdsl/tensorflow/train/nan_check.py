"""A loss that is not finite: which step it was, and which rows it came from."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from flowdsl.errors import FlowError, NotResumable, UnknownLength
from flowdsl.runtime.origins import Origin
from flowdsl.tensorflow.inputs.source import InputSource, Taken

_MOST_ROWS = 12
"""How many rows an error lists."""


class NonFiniteLoss(FlowError):
    """The loss of a step was NaN or infinite.

    ``step`` is its ``global_step``, ``epoch`` the number of its epoch, and ``origins`` are the rows
    of the sources that its elements were made of; none where that is not known.
    """

    def __init__(self, message: str, step: int, epoch: int, origins: Sequence[Origin]) -> None:
        super().__init__(message)
        self.step, self.epoch, self.origins = step, epoch, tuple(origins)


def non_finite_loss(
    loss: float, step: int, epoch: int, source: InputSource, elements: int, behind: int
) -> NonFiniteLoss:
    """The error for a step that took so many elements, so many before the latest."""
    taken = source.taken(elements, behind)
    origins = [] if taken is None else _origins(taken)
    rows = ", ".join(map(str, origins[:_MOST_ROWS]))
    more = f" and {len(origins) - _MOST_ROWS} more" if len(origins) > _MOST_ROWS else ""
    told = "not finite" if isfinite(loss) else str(loss)
    made_of = f"; its elements were made of {rows}{more}" if origins else ""
    return NonFiniteLoss(
        f"the loss of step {step}, in epoch {epoch}, is {told}{made_of}{_again(taken)}. To train "
        f"on and count such steps: TrainConfig(non_finite='count')",
        *(step, epoch, origins),
    )


def _origins(taken: Taken) -> list[Origin]:
    flow, epoch, first, length = taken
    try:
        return [row for k in range(first, first + length) for row in flow.origins(k, epoch)]
    except (FlowError, NotResumable, UnknownLength, IndexError):
        return []  # the flow cannot tell; the error is about the loss


def _again(taken: Taken | None) -> str:
    """The code that reads the elements again."""
    if taken is None:
        return ""
    _, epoch, first, length = taken
    at = f"flow.at({first}, epoch={epoch})"
    if length > 1:
        at = f"[flow.at(k, epoch={epoch}) for k in range({first}, {first + length})]"
    return f"; read again by {at}"
