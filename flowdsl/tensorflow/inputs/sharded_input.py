"""ShardedInput: one process's shard of a flow, where all shards have equal lengths."""

from __future__ import annotations

from math import inf

import tensorflow as tf

from flowdsl.errors import EndlessFlow, InvalidArgument, StateMismatch, UnknownLength
from flowdsl.feeding.loader import refuse_second_shard
from flowdsl.feeding.pump import EndOfPass
from flowdsl.flow import Flow
from flowdsl.nodes import checked_int, is_int
from flowdsl.tensorflow.inputs.queue_input import QueueInput, checked_flow
from flowdsl.tensorflow.inputs.source import InputOver, State, Taken


class ShardedInput(InputOver):
    """Feeds a step from every ``n``-th element of a flow: the shard of one of ``n`` processes.

    All shards end together: elements at the end of a pass that are too few for all processes are
    left out. So if all processes have taken the same number of elements, these are the first
    elements of the pass, and their number is the state: training can resume with another ``n``, and
    no element is repeated or left out.

    In each process, a random-access flow computes only the elements of its own shard; any other
    flow computes all elements and leaves the other shards out.

    >>> import flowdsl as fl
    >>> source = ShardedInput(fl.from_range(7), n=3, i=1)
    >>> source.size()
    2

    Raises:
        InvalidArgument: ``i`` is not an int from 0 to ``n - 1``, or the flow's length is unknown.
        InvalidFlow: The flow contains ``shard(n, i)`` itself, so elements would be left out.
    """

    def __init__(self, flow: Flow[object], n: int, i: int, *, capacity: int = 50) -> None:
        self.flow = checked_flow("ShardedInput", flow)
        self.n = checked_int("ShardedInput: n", n, 1)
        if not is_int(i, 0) or i >= self.n:
            raise InvalidArgument(
                f"ShardedInput: i must be an int from 0 to {self.n - 1}, got {i!r}"
            )
        self.i = i
        refuse_second_shard("ShardedInput", self.flow.node, (self.n, i), accepts_shard=False)
        self._capacity = capacity
        try:
            self._length: float = len(self.flow)
        except EndlessFlow:
            self._length = inf  # so that there is always another element
        except UnknownLength as error:
            raise InvalidArgument(
                f"ShardedInput: {error}; all processes end a pass together, so the flow's "
                f"length must be known: make the flow endless with .repeat(), or write it to a "
                f"file first"
            ) from error
        self._start = 0
        """The number of elements of the pass before the state from which it was resumed."""
        self._from_start = self._part_from(0)
        super().__init__(self._from_start)

    def _part_from(self, start: int) -> QueueInput:
        rest = self.flow.skip(start) if start else self.flow
        return QueueInput(rest.shard(self.n, self.i), capacity=self._capacity)

    def size(self) -> int:
        return len(self.flow) // self.n

    def reset(self, epoch: int = 0) -> None:
        self._switch_to(self._from_start, 0, epoch)

    def _switch_to(self, source: QueueInput, start: int, epoch: int) -> None:
        if source is not self.source:
            self.source.close()
        self.source, self._start, self._delivered = source, start, 0
        source.reset(epoch)

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        elements = checked_int("ShardedInput: elements", elements, 1)
        left = (self._length - self._start) // self.n - self._delivered
        if elements > left:
            raise EndOfPass(int(left))
        args = self.source.next_args(elements)
        self._delivered += elements
        return args

    def taken(self, elements: int, behind: int = 0) -> Taken | None:
        # the elements of a shard are not consecutive in the flow, and ``Taken`` describes only
        # consecutive ones
        return None

    def state_dict(self, behind: int = 0) -> State:
        """Return the state ``behind`` elements earlier, as in ``InputSource.state_dict``.

        It counts the elements of all processes together, which take the same number.
        """
        return {"epoch": self.epoch, "taken": self._start + (self._delivered - behind) * self.n}

    def restore(self, state: State) -> None:
        match state:
            case {"epoch": int(epoch), "taken": int(taken)} if is_int(epoch, 0) and taken >= 0:
                if taken > self._length:
                    raise StateMismatch(
                        f"ShardedInput: the state is after {taken} elements, the flow has "
                        f"{self._length}"
                    )
                self._switch_to(self._part_from(taken), taken, epoch)
            case _:
                raise StateMismatch(
                    f"ShardedInput: state must be what state_dict() returned, got {state!r}"
                )
