"""FeedInput: the elements of a flow as arguments of the step."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from flowdsl.errors import FlowError, InvalidArgument, NotResumable
from flowdsl.feeding.pump import EndOfPass
from flowdsl.flow import Flow
from flowdsl.nodes import checked_flag, checked_int
from flowdsl.tensorflow.inputs.queue_input import checked_flow
from flowdsl.tensorflow.inputs.signature import signature_of
from flowdsl.tensorflow.inputs.source import InputSource, State, Taken, epoch_and_run, taken_of

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.run import RunStatistics


class FeedInput(InputSource):
    """Feeds a step from a flow; elements are computed in the training loop and passed as arguments.

    There is no thread and no queue: the step waits while the flow computes an element. This is the
    simplest source for debugging; for training ``QueueInput`` is faster. A step takes one element,
    so this source serves one device.

    With ``infinite=False``, training ends with the pass; otherwise the next pass begins.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import EndOfPass, FeedInput
    >>> source = FeedInput(fl.from_range(3))
    >>> @tf.function(input_signature=source.signature)
    ... def step(*args):
    ...     (number,) = source.tensors(*args)
    ...     return number * number
    >>> with source:
    ...     source.reset()
    ...     [int(step(*source.next_args())) for _ in range(source.size())]
    [0, 1, 4]

    Raises:
        SpecMismatch: A component has no dtype, or is not an array.

    Source: ``FeedInput`` in tensorpack.
    """

    def __init__(
        self,
        flow: Flow[object],
        infinite: bool = True,
        *,
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        self.flow = checked_flow("FeedInput", flow)
        self._infinite = checked_flag("FeedInput: infinite", infinite)
        self._signature = signature_of("FeedInput", flow.spec, spec)
        self._run: Run[object] | None = None
        self._failed: Exception | None = None
        self._waited = 0.0
        self._position = 0
        """The position after the last element that was returned; the run is one ahead meanwhile."""

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self._signature.specs

    @property
    def by_position(self) -> bool:
        return self._signature.by_position

    @property
    def infinite(self) -> bool:
        return self._infinite

    @property
    def most_a_step(self) -> int | None:
        return 1

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return self._signature.specs

    @property
    def epoch(self) -> int:
        return 0 if self._run is None else self._run.epoch

    @property
    def fill(self) -> int:
        return 0

    @property
    def waited(self) -> float:
        return self._waited

    def size(self) -> int:
        return len(self.flow)

    def reset(self, epoch: int = 0) -> None:
        self._begin(self.flow.epoch(checked_int("FeedInput: epoch", epoch, 0)))

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        if elements != 1:
            raise InvalidArgument(
                f"FeedInput: a step takes one element, not {elements}: use QueueInput"
            )
        run = self._begun()
        if self._failed is not None:
            raise self._failed
        position, began = run.position, monotonic()
        try:
            element = next(run)
        except StopIteration:
            raise EndOfPass(0) from None
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._waited += monotonic() - began
        args = tuple(map(_tensor, self._signature.arrays(element, position)))
        self._position = position + 1  # at the end: an interrupted call has taken nothing
        return args

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return list(args)

    def statistics(self) -> RunStatistics | None:
        return None if self._run is None else self._run.statistics()

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        run = self._begun()
        return taken_of(self.flow, run.epoch, self._position, elements, behind)

    def state_dict(self, behind: int = 0) -> State:
        run = self._begun()
        try:
            return {"epoch": run.epoch, "run": run.state_dict(self._position - behind)}
        except NotResumable as error:
            self.warn_of_restart(error)
            return {"epoch": run.epoch, "run": None}

    def restore(self, state: State) -> None:
        epoch, run = epoch_and_run("FeedInput", state)
        if run is None:
            self.reset(epoch)
        else:
            self._begin(self.flow.resume(run))

    def close(self) -> None:
        self._end_pass()
        self.flow.end_workers()

    def _end_pass(self) -> None:
        if self._run is not None:
            self._run.close()
        self._run = self._failed = None

    def _begin(self, run: Run[object]) -> None:
        self._end_pass()
        self._run, self._position = run, run.position

    def _begun(self) -> Run[object]:
        if self._run is None:
            raise FlowError("FeedInput: no pass has begun: call reset() or restore(state) first")
        return self._run


def _tensor(array: NDArray[Any] | tf.Tensor) -> tf.Tensor:
    """Convert an array to a tensor without a copy if aligned (``tf.constant`` copies twice)."""
    if not isinstance(array, np.ndarray):
        return array
    return tf.constant(array) if array.dtype.hasobject else tf.raw_ops.Identity(input=array)
