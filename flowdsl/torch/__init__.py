"""PyTorch: the elements of a flow as tensors.

methods.py   flow.to_torch and flow.as_iterable_dataset
loader.py    TorchLoader, which needs no DataLoader
dataset.py   FlowDataset, for DataLoader

PyTorch is imported where a loader is created, not here.
"""
