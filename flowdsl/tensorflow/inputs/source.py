"""The protocol between data and a step function, for queues, feeds, datasets and constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import tensorflow as tf

from flowdsl.errors import StateMismatch
from flowdsl.nodes import is_int
from flowdsl.resources.logs import logger

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.statistics.run import RunStatistics

_log = logger(__name__)

State: TypeAlias = Mapping[str, object]
"""A position in the data, as JSON values."""


class LeftOver(UserWarning):
    """Warns of elements at the end of a pass that do not fill a step of all devices."""


class Taken(NamedTuple):
    """Consecutive elements of a flow's pass: ``length`` of them, from position ``first``."""

    flow: Flow[object]
    epoch: int
    first: int
    length: int


class InputSource(ABC):
    """The interface through which data enters a step function.

    A step is traced once, with arguments of this ``signature``. While it is traced, it calls
    ``tensors`` once for each element it takes. Before every step, ``next_args`` returns, in Python,
    the arguments for the call::

        @tf.function(input_signature=source.signature)
        def step(*args):
            image, label = source.tensors(*args)
            ...

        source.reset()
        while True:
            step(*source.next_args())

    Source: ``InputSource`` in tensorpack, whose session hooks ``next_args`` replaces.
    """

    _warned_of_restart = False

    @property
    @abstractmethod
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """The tensors of one element, named by its components."""

    @property
    def by_position(self) -> bool:
        """True if components may be identified by their order, as in a tuple.

        The components of a dict or record have only names: they are in ``specs``, and a trainer
        passes each component to the argument of its name.
        """
        return True

    @property
    def most_a_step(self) -> int | None:
        """The largest number of elements that a step may take; None if there is no limit."""
        return None

    @property
    def allows_loops(self) -> bool:
        """True if ``tensors`` may be called in a loop or a branch of the step."""
        return self.most_a_step is None

    @property
    def infinite(self) -> bool:
        """True if training continues with the next pass when one ends."""
        return True

    @property
    @abstractmethod
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        """The types of the values that ``next_args`` returns, for ``tf.function``."""

    @abstractmethod
    def reset(self, epoch: int = 0) -> None:
        """Begin the pass of this epoch, and drop the rest of the current pass."""

    @abstractmethod
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        """Return the arguments of the next step, which takes ``elements`` elements.

        Raises:
            EndOfPass: Fewer are left. The step must not be run.
            FlowError: The data failed; all full steps before the failure were delivered.
        """

    @abstractmethod
    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        """Return the tensors of one element, during tracing; each call takes the next element."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of elements of a pass.

        Raises:
            UnknownLength: The number is known only at the end of a pass.
            EndlessFlow: The pass never ends.
        """

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The number of the pass, from 0."""

    @property
    @abstractmethod
    def fill(self) -> int:
        """The number of elements that wait for a step."""

    @property
    def waited(self) -> float:
        """The seconds that steps have waited for elements, in all passes.

        0 if it is unknown, e.g. for elements that TensorFlow itself computes in the step.
        """
        return 0.0

    def statistics(self) -> RunStatistics | None:
        """Return the statistics of the run that computes the elements; None if there is no flow."""
        return None

    def scalars(self) -> dict[str, float]:
        """Return further scalars of the input for monitors, such as the fill of earlier queues."""
        return {}

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        """Return the flow's positions of the last ``elements`` elements that a step took.

        With ``behind``, they are the ``elements`` elements before the last ``behind`` ones, for a
        consumer that takes elements before it uses them. Return None if the elements are not from a
        flow, or not from the current pass.
        """
        return None

    @abstractmethod
    def state_dict(self, behind: int = 0) -> State:
        """Return the position after the last step: elements that wait for a step are not counted.

        With ``behind``, the state is ``behind`` elements earlier, for a consumer that takes
        elements before it uses them, such as ``StagingInput``.
        """

    def warn_of_restart(self, why: object) -> None:
        """Log, once, that the states of this source do not contain its position."""
        if not self._warned_of_restart:
            _log.warning("training resumed from this state would restart the pass: %s", why)
        self._warned_of_restart = True

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from a saved position, instead of ``reset``."""

    @abstractmethod
    def close(self) -> None:
        """End the pass, its threads and its processes; ``reset`` may follow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def epoch_and_run(name: str, state: State) -> tuple[int, Mapping[str, object] | None]:
    """Return the epoch and the run's state in an input source's state; None if not resumable.

    Raises:
        StateMismatch: The state is not valid; the message begins with ``name``.
    """
    match state:
        case {"epoch": int(epoch), "run": None} if is_int(epoch, 0):
            return epoch, None
        case {"epoch": int(epoch), "run": Mapping() as run} if is_int(epoch, 0):
            return epoch, run
    raise StateMismatch(f"{name}: state must be what state_dict() returned, got {state!r}")


class InputOver(InputSource):
    """The base of input sources over another one; a subclass overrides what it changes."""

    def __init__(self, source: InputSource) -> None:
        self.source = source

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self.source.specs

    @property
    def by_position(self) -> bool:
        return self.source.by_position

    @property
    def most_a_step(self) -> int | None:
        return self.source.most_a_step

    @property
    def allows_loops(self) -> bool:
        return self.source.allows_loops

    @property
    def infinite(self) -> bool:
        return self.source.infinite

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        return self.source.signature

    @property
    def epoch(self) -> int:
        return self.source.epoch

    @property
    def fill(self) -> int:
        return self.source.fill

    @property
    def waited(self) -> float:
        return self.source.waited

    def size(self) -> int:
        return self.source.size()

    def reset(self, epoch: int = 0) -> None:
        self.source.reset(epoch)

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        return self.source.next_args(elements)

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        return self.source.tensors(*args)

    def statistics(self) -> RunStatistics | None:
        return self.source.statistics()

    def scalars(self) -> dict[str, float]:
        return self.source.scalars()

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        return self.source.taken(elements, behind)

    def state_dict(self, behind: int = 0) -> State:
        return self.source.state_dict(behind)

    def restore(self, state: State) -> None:
        self.source.restore(state)

    def close(self) -> None:
        self.source.close()


def taken_of(
    flow: Flow[object], epoch: int, position: int, elements: int, behind: int
) -> Taken | None:
    """Return the result of ``InputSource.taken``, if a pass of a flow is at ``position``."""
    first = position - behind - elements
    return Taken(flow, epoch, first, elements) if first >= 0 else None
