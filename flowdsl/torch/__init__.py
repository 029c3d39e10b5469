"""PyTorch: the elements of a flow as tensors.

methods.py   flow.to_torch and flow.as_iterable_dataset
loader.py    TorchLoader, which needs no DataLoader
dataset.py   FlowDataset, for DataLoader

PyTorch is imported where a loader is created, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.storage.libraries import imports_later

if TYPE_CHECKING:
    from flowdsl.torch.loader import TorchLoader

__all__ = ["TorchLoader"]

__getattr__ = imports_later(__name__, "TorchLoader", "loader", "torch")


def __dir__() -> list[str]:
    return __all__
