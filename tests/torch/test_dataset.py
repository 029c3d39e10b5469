"""as_iterable_dataset: a flow in the workers of a DataLoader."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import flowdsl as fl
from flowdsl.torch.dataset import FlowDataset


def shuffled(n: int = 20) -> fl.Flow[Any, Any]:
    return fl.from_range(n).shuffle(seed=1).map(lambda i: torch.tensor(i))


def flat(loader: DataLoader[Any]) -> list[int]:
    return [int(x) for x in loader]


# A spawned worker imports PyTorch: one shows that a flow reaches it.
@pytest.mark.parametrize(
    ("workers", "context"),
    [
        (0, None),
        (1, "spawn"),
        (2, "fork"),
        pytest.param(1, "fork", marks=pytest.mark.long),
        pytest.param(2, "spawn", marks=pytest.mark.long),
    ],
)
def test_workers_divide_the_elements_in_the_order_of_the_flow(
    workers: int, context: str | None
) -> None:
    dataset = shuffled().as_iterable_dataset()
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
    )
    assert flat(loader) == [int(x) for x in shuffled()]


def test_batches_are_collated() -> None:
    loader: DataLoader[Any] = DataLoader(fl.from_range(6).as_iterable_dataset(), batch_size=3)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("persistent", [True, False])
def test_the_epoch_reaches_workers(persistent: bool) -> None:
    dataset = shuffled().as_iterable_dataset()
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=persistent
    )
    for epoch in (0, 2, 1):
        dataset.set_epoch(epoch)
        assert flat(loader) == [int(x) for x in shuffled().epoch(epoch)]


def test_ranks_have_shards_of_equal_length() -> None:
    datasets = [shuffled(11).as_iterable_dataset(shard=(2, i)) for i in range(2)]
    whole = [int(x) for x in shuffled(11)]
    for i, dataset in enumerate(datasets):
        loader: DataLoader[Any] = DataLoader(dataset, batch_size=None, num_workers=2)
        assert flat(loader) == whole[i:10:2]
        assert len(dataset) == 5


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize(
    "taken", [*(pytest.param(k, marks=pytest.mark.long) for k in (0, 1, 20)), 7, 19]
)
@pytest.mark.filterwarnings("ignore:.set_vital. is deprecated")  # torchdata calls it
def test_a_stateful_loader_resumes_exactly(workers: int, taken: int) -> None:
    loader: Any = StatefulDataLoader(
        shuffled().as_iterable_dataset(), batch_size=None, num_workers=workers
    )
    elements = iter(loader)
    before = [int(next(elements)) for _ in range(taken)]
    other: Any = StatefulDataLoader(
        shuffled().as_iterable_dataset(), batch_size=None, num_workers=workers
    )
    other.load_state_dict(loader.state_dict())
    assert before + flat(other) == [int(x) for x in shuffled()]


def test_workers_may_prefetch_themselves() -> None:
    flow = fl.from_range(9).map(lambda i: i * i).prefetch(threads=2)
    loader: DataLoader[Any] = DataLoader(flow.as_iterable_dataset(), batch_size=None, num_workers=2)
    assert list(loader) == [i * i for i in range(9)]


def test_a_flow_that_cannot_be_sent_is_refused() -> None:
    lock = threading.Lock()
    dataset: FlowDataset[Any] = fl.from_range(3).map(lambda i: (i, lock)).as_iterable_dataset()
    with pytest.raises(fl.NotShippable, match="as_iterable_dataset: this flow cannot be sent"):
        pickle.dumps(dataset)


def test_invalid_epochs_are_refused() -> None:
    with pytest.raises(fl.InvalidFlow, match="as_iterable_dataset: epoch must be an int >= 0"):
        fl.from_range(3).as_iterable_dataset().set_epoch(-1)


def test_an_endless_flow_is_divided_among_ranks() -> None:
    endless = fl.from_range(4).repeat()
    elements = iter(endless.as_iterable_dataset(shard=(2, 1)))
    assert [next(elements) for _ in range(4)] == [1, 3, 1, 3]
    with pytest.raises(fl.InvalidFlow, match="as_iterable_dataset: the length of this flow is"):
        fl.from_range(4).filter(bool).as_iterable_dataset(shard=(2, 1))


def test_arguments_of_a_data_loader_are_refused_with_advice() -> None:
    load: Any = fl.from_range(3).as_iterable_dataset
    with pytest.raises(fl.InvalidFlow, match=r"no batch_size=; write \.batch\(8\)\.as_iterable"):
        load(batch_size=8)
    with pytest.raises(fl.InvalidFlow, match=r"write DataLoader\(.*num_workers=2\)"):
        load(num_workers=2)
