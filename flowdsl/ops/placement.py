"""prefetch: where the operators run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

import attrs

from flowdsl.errors import InvalidFlow
from flowdsl.node import AnyNode, E, FlowBase, Placement, T, at_least, flow, plain_int

if TYPE_CHECKING:
    from flowdsl.flow import Flow


_MOST_PROCS = 1024
"""More is a slip of the pen, which a machine would not survive."""


def _can_be_started(node: AnyNode, field: attrs.Attribute[int], value: int) -> None:
    if value > _MOST_PROCS:
        raise InvalidFlow(f"prefetch: {field.name} must be at most {_MOST_PROCS}, got {value}")


@attrs.frozen
class Prefetch(Placement[T, E], Generic[T, E]):
    """Everything up to here runs ahead of the consumer, in ``procs`` processes."""

    procs: int = attrs.field(converter=plain_int, validator=[at_least(0), _can_be_started])

    @property
    def title(self) -> str:
        return f"prefetch(procs={self.procs})"


class Placing(FlowBase[T, E]):
    """Operators that say where to run."""

    def prefetch(self, procs: int = 0) -> Flow[T, E]:
        """Run everything up to here in ``procs`` worker processes, ahead of the consumer.

        The elements and their order are the same for any ``procs``, 0 included, which runs it in
        the consumer's process. Workers are started by the first ``next``, hold at most a few
        leases of work ahead each, and end with the pass. They need Linux. What must see the whole
        sequence runs in the consumer's process; below it the work is done by ``procs`` others, and
        where several streams come together there they share them, at least one for each.

        A stream is read ahead of the consumer, in its process: one that waits for the consumer's
        answer to an element needs ``procs=0``.

        Length: as many elements as before.

        Effects: none.

        Errors: ``InvalidFlow`` for ``procs < 0``, or more than 1024; ``NotShippable``, before a
        worker starts, if a function holds what cannot travel; ``WorkerDied``.

        >>> import flowdsl as fl
        >>> fl.from_range(5).map(lambda i: i * i).prefetch(procs=2).collect()
        [0, 1, 4, 9, 16]

        Source: ``prefetch`` in tf.data, ``MultiProcessRunnerZMQ`` and ``MultiProcessMapData`` in
        tensorpack.

        Elsewhere: tensorpack ``MultiProcessMapData``, ``MultiProcessRunnerZMQ``; tf.data
        ``prefetch``; Grain ``mp_prefetch``; torchdata ``DataLoader``, ``ParallelMapper``.
        """
        return flow(Prefetch(self.node, procs))
