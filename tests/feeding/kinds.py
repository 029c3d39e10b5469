"""flowdsl's consumers, for the laws of consumers."""

from __future__ import annotations

from typing import Any

import jax
import torch

from flowdsl.feeding.loader import Loader, Ranks
from flowdsl.testing.consumers import ConsumerKind


def _add_one(element: Any) -> None:
    """Write into a batch, like an in-place step."""
    for tensor in element:
        tensor.add_(1)


def _donate(element: Any) -> None:
    """Donate a batch to a step, which may reuse its memory."""
    for array in element:
        _plus_one(array).block_until_ready()


_plus_one = jax.jit(lambda x: x + 1, donate_argnums=0)


def _pointer(array: jax.Array) -> int:
    return int(array.unsafe_buffer_pointer())


KINDS: dict[str, ConsumerKind] = {
    "loader": ConsumerKind(
        lambda flow: Loader(flow, lambda element, position: element),
        address=lambda array: int(array.ctypes.data),
        ahead=2,
        shard=lambda flow, n, i: Loader(flow, lambda element, position: element, ranks=Ranks(n, i)),
    ),
    "torch": ConsumerKind(
        lambda flow: flow.to_torch(),
        address=torch.Tensor.data_ptr,
        use=_add_one,
        ahead=2,
        shard=lambda flow, n, i: flow.to_torch(shard=(n, i)),
    ),
    "torch, copied": ConsumerKind(
        lambda flow: flow.to_torch(copy=True, ahead=4), use=_add_one, ahead=4
    ),
    "jax": ConsumerKind(
        lambda flow: flow.to_jax(),
        address=_pointer,
        use=_donate,
        ahead=2,
        shard=lambda flow, n, i: flow.to_jax(shard=(n, i)),
    ),
}
