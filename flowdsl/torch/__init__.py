"""PyTorch: the elements of a flow as tensors.

methods.py   flow.to_torch and flow.as_iterable_dataset
loader.py    TorchLoader, which needs no DataLoader
dataset.py   FlowDataset, for DataLoader

PyTorch is imported where a loader is created, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.torch.loader import TorchLoader

__all__ = ["TorchLoader"]


def __getattr__(name: str) -> object:
    if name != "TorchLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowdsl.storage.libraries import library

    library("torch", "torch.TorchLoader", "torch")
    from flowdsl.torch.loader import TorchLoader

    return TorchLoader


def __dir__() -> list[str]:
    return __all__
