"""prefetch: where the operators run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

import attrs

from flowdsl.node import E, FlowBase, Placement, T, at_least, flow, plain_int

if TYPE_CHECKING:
    from flowdsl.flow import Flow


@attrs.frozen
class Prefetch(Placement[T, E], Generic[T, E]):
    """Everything up to here runs ahead of the consumer, in ``procs`` processes."""

    procs: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        return f"prefetch(procs={self.procs})"


class Placing(FlowBase[T, E]):
    """Operators that say where to run."""

    def prefetch(self, procs: int = 0) -> Flow[T, E]:
        """Run everything up to here in ``procs`` worker processes, ahead of the consumer.

        The elements and their order are the same for any ``procs``, 0 included, which runs it in
        the consumer's process. Workers are started by the first ``next``, hold at most a few
        leases of work ahead each, and end with the pass. They need Linux.

        A stream is read ahead of the consumer, in its process: one that waits for the consumer's
        answer to an element needs ``procs=0``.

        Effects: none. Errors: ``InvalidFlow`` for ``procs < 0``; ``NotShippable``, before a worker
        starts, if a function holds what cannot travel; ``WorkerDied``.

        >>> import flowdsl as fl
        >>> fl.from_range(5).map(lambda i: i * i).prefetch(procs=2).collect()
        [0, 1, 4, 9, 16]

        Source: ``prefetch`` in tf.data, ``MultiProcessRunnerZMQ`` and ``MultiProcessMapData`` in
        tensorpack.
        """
        return flow(Prefetch(self.node, procs))
