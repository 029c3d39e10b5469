"""The dataset of as_iterable_dataset: a flow that the workers of a DataLoader divide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info

from flowdsl import nodes
from flowdsl.errors import NotShippable
from flowdsl.feeding.loader import Loader, Ranks, check_length, part_of
from flowdsl.nodes import checked_int
from flowdsl.ops.sharding import Even
from flowdsl.runtime.state import resumed_from
from flowdsl.torch.loader import Tensors, ranks_of, refuse_late_ranks
from flowdsl.workers.wire import pickled, unpack

if TYPE_CHECKING:
    from flowdsl.flow import Flow

X = TypeVar("X", covariant=True)


class FlowDataset(IterableDataset[X]):
    """The elements of a flow as tensors, as documented in ``flow.as_iterable_dataset``."""

    def __init__(
        self,
        flow: Flow[Any, Any],
        *,
        shard: tuple[int, int] | None = None,
        even: Even | None = "drop",
    ) -> None:
        ranks = ranks_of("as_iterable_dataset", flow.node, shard, even)
        self._ranks = (ranks.n, ranks.i) if shard is None else None
        check_length("as_iterable_dataset", flow.node, ranks)
        self._flow: Flow[Any, Any] = nodes.flow(part_of(flow.node, ranks))
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        """The epoch, in memory that persistent workers share with this process."""

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iterators.

        Raises:
            InvalidFlow: ``epoch`` is not an int of at least 0.
        """
        self._epoch.fill_(checked_int("as_iterable_dataset: epoch", epoch, 0))

    def __iter__(self) -> Iterator[X]:
        info = get_worker_info()
        if info is None and self._ranks is not None:
            refuse_late_ranks("as_iterable_dataset", self._ranks)
        workers = Ranks(even=None) if info is None else Ranks(info.num_workers, info.id, even=None)
        return DatasetPass(self._flow, int(self._epoch), workers)

    def __len__(self) -> int:
        """Return the number of elements that this rank gets in a pass."""
        return len(self._flow)

    def __repr__(self) -> str:
        return f"{self._flow!r}.as_iterable_dataset()"

    def __getstate__(self) -> dict[str, Any]:
        try:
            return {"flow": pickled(self._flow), "epoch": self._epoch, "ranks": self._ranks}
        except Exception as error:
            raise NotShippable(
                f"as_iterable_dataset: this flow cannot be sent to the workers of a DataLoader: "
                f"{error}; create what cannot be sent inside the function that uses it"
            ) from error

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._flow, self._epoch = unpack(state["flow"]), state["epoch"]
        self._ranks = state["ranks"]


class DatasetPass(Iterator[X]):
    """One pass over the elements of a worker, whose state torchdata saves."""

    def __init__(self, flow: Flow[Any, Any], epoch: int, ranks: Ranks) -> None:
        tensors = Tensors(device=None, pin=False, copy=None)
        self._node = flow.node
        self._loader = Loader[X](flow, tensors, ranks=ranks, name="as_iterable_dataset")
        self._pass = self._loader.begin(epoch)

    def __next__(self) -> X:
        return next(self._pass)

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last element that was taken."""
        return self._pass.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue after the state of this worker, with the same number of workers.

        Raises:
            StateMismatch: The state belongs to another flow, or is not a state.
        """
        self._pass = self._loader.begin(*resumed_from(self._node, state))
