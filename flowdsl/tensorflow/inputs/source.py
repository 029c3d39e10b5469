"""The protocol between data and a step function, for queues, feeds, datasets and constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import tensorflow as tf

from flowdsl.errors import StateMismatch
from flowdsl.nodes import is_int

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.statistics.run import RunStatistics

State: TypeAlias = Mapping[str, object]
"""A position in the data, as JSON values."""


class LeftOver(UserWarning):
    """Warns of elements at the end of a pass that were too few for a step of all devices."""


class Taken(NamedTuple):
    """Elements of a pass of a flow: ``length`` of them, from position ``first`` on."""

    flow: Flow[object]
    epoch: int
    first: int
    length: int


class InputSource(ABC):
    """How data enters a step function.

    A step is traced once, over arguments of this ``signature``; while it is traced it calls
    ``tensors`` once for each element it takes. Before every step, ``next_args`` gives, in Python,
    the arguments to call it with::

        @tf.function(input_signature=source.signature)
        def step(*args):
            image, label = source.tensors(*args)
            ...

        source.reset()
        while True:
            step(*source.next_args())

    Source: ``InputSource`` in tensorpack, whose callbacks and session hooks became ``next_args``.
    """

    @property
    @abstractmethod
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """The tensors of one element, named by its components."""

    @property
    def by_place(self) -> bool:
        """Whether components may be told apart by their places, as those of a tuple may.

        Those of a dict or record have names alone: ``specs`` has them, and a trainer passes each to
        the argument of its name.
        """
        return True

    @property
    def most_a_step(self) -> int | None:
        """The most elements that a step may take; None if it may take any number."""
        return None

    @property
    def nests(self) -> bool:
        """Whether ``tensors`` may be called in a loop or a branch of the step."""
        return self.most_a_step is None

    @property
    def infinite(self) -> bool:
        """Whether training goes on with the next pass where one has ended."""
        return True

    @property
    @abstractmethod
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        """The types of the values of ``next_args``, for ``tf.function``."""

    @abstractmethod
    def reset(self, epoch: int = 0) -> None:
        """Begin the pass of this epoch, and drop the rest of a pass that is under way."""

    @abstractmethod
    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        """The arguments of the next step, which takes this many elements.

        Raises:
            EndOfPass: Fewer are left. The step is not to be run.
            FlowError: The data failed, after all the full steps before it.
        """

    @abstractmethod
    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        """The tensors of one element, while a step is traced; each call takes the next element."""

    @abstractmethod
    def size(self) -> int:
        """The number of elements of a pass.

        Raises:
            UnknownLength: It is known only at the end.
            EndlessFlow: It has none.
        """

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The number of the pass, from 0."""

    @property
    @abstractmethod
    def fill(self) -> int:
        """How many elements wait for a step."""

    @property
    def waited(self) -> float:
        """The seconds that steps have waited for elements, in all passes.

        0 where that is not known, as of data that TensorFlow itself makes within the step.
        """
        return 0.0

    def statistics(self) -> RunStatistics | None:
        """The statistics of the run that makes the elements; None where no flow makes them."""
        return None

    def scalars(self) -> dict[str, float]:
        """Further scalars of the input for monitors, such as the fill of queues before it."""
        return {}

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        """What a flow gave for the last ``elements`` that a step took.

        ``behind`` asks for those so many elements earlier. None where no flow has made them, or
        they are not of the present pass.
        """
        return None

    @abstractmethod
    def state_dict(self, behind: int = 0) -> State:
        """The position after the last step: elements that wait for a step count as not yet read.

        ``behind`` is asked for by sources over this one: the position so many elements earlier.
        """

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
    """What a source of runs saved: the epoch, and the run's state, None if it cannot be resumed.

    Raises:
        StateMismatch: It is no such state; the message begins with ``name``.
    """
    match state:
        case {"epoch": int(epoch), "run": None} if is_int(epoch, 0):
            return epoch, None
        case {"epoch": int(epoch), "run": Mapping() as run} if is_int(epoch, 0):
            return epoch, run
    raise StateMismatch(f"{name}: state must be what state_dict() gave, got {state!r}")


class InputOver(InputSource):
    """An input source over another one: what a subclass does not change is the other's."""

    def __init__(self, source: InputSource) -> None:
        self.source = source

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self.source.specs

    @property
    def by_place(self) -> bool:
        return self.source.by_place

    @property
    def most_a_step(self) -> int | None:
        return self.source.most_a_step

    @property
    def nests(self) -> bool:
        return self.source.nests

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
    """What ``InputSource.taken`` gives, of a pass of this flow that is at a position."""
    first = position - behind - elements
    return Taken(flow, epoch, first, elements) if first >= 0 else None
