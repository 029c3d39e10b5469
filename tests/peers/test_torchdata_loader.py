"""What the tests of StatefulDataLoader and its datasets ask, as flows."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, check_resumes, table

TEN = fl.from_range(10)
PAIRED = fl.from_items((np.arange(4.0), np.arange(4)))


class Squares:
    """A map-style dataset."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> int:
        if i == 7:
            raise ValueError("seven")
        return i * i


class Eight(Squares):
    def __len__(self) -> int:
        return 8


class Stream:
    """An iterable dataset."""

    def __iter__(self) -> Any:
        return iter(range(3))


class Pair(NamedTuple):
    x: int
    y: int


@table(
    Case(
        "elements of a map-style dataset",
        "DataLoader(ds, batch_size=None)",
        lambda: fl.from_dataset(Squares()),
        [0, 1, 4, 9],
    ),
    Case(
        "elements of an iterable dataset",
        "DataLoader(iterable)",
        lambda: fl.from_iterable(Stream()),
        [0, 1, 2],
    ),
    Case(
        "several workers read an iterable dataset once",
        "DataLoader(iterable, num_workers=2)",
        lambda: fl.from_iterable(Stream()).map(lambda i: i).prefetch(threads=2),
        [0, 1, 2],
    ),
    Case("tensors are rows", "TensorDataset(x, y)[1]", lambda: PAIRED[1], (1.0, 1)),
    Case(
        "tensors of different lengths are refused",
        "TensorDataset(x, y) of lengths 2 and 3",
        lambda: fl.from_items((np.ones(2), np.ones(3))),
        Refusal(fl.InvalidFlow, "from_items"),
    ),
    Case(
        "datasets are stacked",
        "StackDataset(a, b)",
        lambda: fl.from_dataset(Squares()).zip(fl.from_range(4)),
        [(0, 0), (1, 1), (4, 2), (9, 3)],
    ),
    Case(
        "datasets are stacked by name",
        "StackDataset(x=a, y=b)",
        lambda: fl.zip({"x": fl.from_range(1), "y": fl.from_items([5])}),
        [{"x": 0, "y": 5}],
    ),
    Case(
        "datasets of other lengths are not stacked",
        "StackDataset of lengths 4 and 3",
        lambda: fl.from_range(4).zip(fl.from_range(3)),
        Refusal(fl.InvalidFlow, "zip"),
    ),
    Case(
        "datasets follow one another",
        "ConcatDataset([a, b])",
        lambda: fl.from_dataset(Squares()).concat(fl.from_dataset(Squares())),
        [0, 1, 4, 9, 0, 1, 4, 9],
    ),
    Case(
        "flows follow one another",
        "a + b",
        lambda: fl.from_dataset(Squares()).concat(fl.from_items([7])),
        [0, 1, 4, 9, 7],
    ),
    Case(
        "iterable datasets follow one another",
        "ChainDataset([a, b])",
        lambda: fl.from_iterable(Stream()).concat(fl.from_iterable(Stream())),
        [0, 1, 2, 0, 1, 2],
    ),
    Case(
        "a subset has rows",
        "Subset(ds, [3, 0])",
        lambda: fl.from_dataset(Squares()).select_rows([3, 0]),
        [9, 0],
    ),
    Case(
        "a subset of a subset has rows",
        "Subset(Subset(ds, [3, 0]), [1])",
        lambda: fl.from_dataset(Squares()).select_rows([3, 0]).select_rows([1]),
        [0],
    ),
    Case(
        "parts have sizes",
        "random_split(ds, [7, 3])",
        lambda: [len(part) for part in TEN.split(7, seed=1)],
        [7, 3],
    ),
    Case(
        "parts have shares",
        "random_split(ds, [0.5, 0.3, 0.2])",
        lambda: [len(part) for part in TEN.split(0.5, 0.3, seed=1)],
        [5, 3, 2],
    ),
    Case(
        "parts exclude one another",
        "random_split(ds, [7, 3])",
        lambda: sorted(x for part in TEN.split(7, seed=1) for x in part),
        list(range(10)),
    ),
    Case(
        "parts are the same for a seed",
        "random_split(ds, [7, 3], generator)",
        lambda: [list(p) for p in TEN.split(7, seed=1)] == [list(p) for p in TEN.split(7, seed=1)],
        True,
    ),
    Case(
        "sizes of parts must add up",
        "random_split(ds, [7, 9])",
        lambda: TEN.split(7, 9, seed=1),
        Refusal(fl.InvalidFlow, "split"),
    ),
    Case(
        "a loader shuffles",
        "DataLoader(ds, shuffle=True)",
        lambda: sorted(TEN.shuffle(seed=1)),
        list(range(10)),
    ),
    Case(
        "a loader shuffles each epoch differently",
        "for epoch in range(2): list(loader)",
        lambda: (lambda runs: runs[0] != runs[1])(
            [list(run) for run in TEN.shuffle(seed=1).epochs(2)]
        ),
        True,
    ),
    Case(
        "a loader is reproducible",
        "DataLoader(ds, generator=seeded)",
        lambda: list(TEN.shuffle(seed=1)) == list(TEN.shuffle(seed=1)),
        True,
    ),
    Case(
        "a loader batches",
        "DataLoader(ds, batch_size=4)",
        lambda: TEN.batch(4),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    ),
    Case(
        "a loader drops the last",
        "DataLoader(ds, batch_size=4, drop_last=True)",
        lambda: TEN.batch(4, drop_remainder=True),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    Case(
        "the length of a loader", "len(DataLoader(ds, batch_size=4))", lambda: len(TEN.batch(4)), 3
    ),
    Case(
        "the length of an iterable loader is not known",
        "len(DataLoader(iterable))",
        lambda: len(fl.from_iterable(Stream())),
        Refusal(TypeError, "length is known only at the end"),
    ),
    Case(
        "samples are drawn with replacement",
        "RandomSampler(ds, replacement=True, num_samples=20)",
        lambda: len(TEN.sample(20, seed=1)),
        20,
    ),
    Case(
        "samples are drawn without replacement",
        "RandomSampler(ds, num_samples=4)",
        lambda: len(set(TEN.sample(4, replacement=False, seed=1))),
        4,
    ),
    Case(
        "samples have weights",
        "WeightedRandomSampler([0, 1], 5)",
        lambda: fl.from_range(2).sample(5, [0, 1], seed=1),
        [1, 1, 1, 1, 1],
    ),
    Case(
        "a sampler has an order",
        "DataLoader(ds, sampler=[3, 1])",
        lambda: TEN.select_rows([3, 1]),
        [3, 1],
    ),
    Case(
        "a sampler has batches",
        "DataLoader(ds, batch_sampler=[[1, 2], [5]])",
        lambda: fl.from_items([[1, 2], [5]]).map(lambda rows: [TEN[i] for i in rows]),
        [[1, 2], [5]],
    ),
    Case(
        "a sampler for ranks repeats rows",
        "DistributedSampler(ds, 3, rank)",
        lambda: [list(TEN.shard(3, i, even="pad")) for i in range(3)],
        [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]],
    ),
    Case(
        "a sampler for ranks drops rows",
        "DistributedSampler(ds, 3, rank, drop_last=True)",
        lambda: [list(TEN.shard(3, i, even="drop")) for i in range(3)],
        [[0, 3, 6], [1, 4, 7], [2, 5, 8]],
    ),
    Case(
        "a sampler for ranks shuffles each epoch",
        "sampler.set_epoch(1)",
        lambda: (lambda flow: list(flow) != list(flow.epoch(1)))(TEN.shuffle(seed=1).shard(2, 0)),
        True,
    ),
    Case(
        "a rank beyond the last is refused",
        "DistributedSampler(ds, 3, rank=3)",
        lambda: TEN.shard(3, 3),
        Refusal(fl.InvalidFlow, "shard"),
    ),
    Case(
        "numbers become arrays",
        "default_collate([1, 2])",
        lambda: str(fl.from_range(2).batch(2)[0].dtype),
        "int64",
    ),
    Case(
        "floats become arrays",
        "default_collate([1.0, 2.0])",
        lambda: str(fl.from_items([1.0, 2.0]).batch(2)[0].dtype),
        "float64",
    ),
    Case(
        "arrays keep their dtype",
        "default_collate of uint8",
        lambda: str(fl.from_items(np.ones((2, 3), np.uint8)).batch(2)[0].dtype),
        "uint8",
    ),
    Case(
        "dicts stay dicts",
        "default_collate([{...}, {...}])",
        lambda: fl.from_items([{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]).batch(2),
        [{"a": [1, 2], "s": ["x", "y"]}],
    ),
    Case(
        "named tuples stay named tuples",
        "default_collate([Pair(...), ...])",
        lambda: (
            fl.from_items([Pair(1, 2), Pair(3, 4)]).batch(2).map(lambda pair: type(pair).__name__)
        ),
        ["Pair"],
    ),
    Case(
        "strings stay strings",
        "default_collate(['a', 'b'])",
        lambda: fl.from_items(["a", "b"]).batch(2),
        [["a", "b"]],
    ),
    Case(
        "arrays of objects do not stack",
        "default_collate of dtype object",
        lambda: fl.from_items([np.array([object()])]).batch(1),
        Refusal(fl.FlowError, "object"),
    ),
    Case(
        "lists of unequal sizes do not stack",
        "default_collate([[1], [1, 2]])",
        lambda: fl.from_items([[1], [1, 2]]).batch(2),
        Refusal(fl.ElementError, "batch(2)"),
    ),
    Case(
        "a function collates",
        "DataLoader(ds, collate_fn=f)",
        lambda: fl.from_items(["a", "b"]).batch(2, collate="".join),
        ["ab"],
    ),
    Case(
        "an error of a dataset is raised here",
        "DataLoader(failing)",
        lambda: fl.from_dataset(Eight()),
        Refusal(fl.ElementError, "seven"),
    ),
    Case(
        "an error of a dataset in a worker is raised here",
        "DataLoader(failing, num_workers=2)",
        lambda: fl.from_dataset(Eight()).prefetch(threads=2),
        Refusal(fl.ElementError, "seven"),
    ),
    Case(
        "a number of workers is not negative",
        "DataLoader(ds, num_workers=-1)",
        lambda: TEN.prefetch(procs=-1),
        Refusal(fl.InvalidFlow, "procs"),
    ),
    Case(
        "batches come as they are ready",
        "DataLoader(ds, in_order=False)",
        lambda: sorted(TEN.map(lambda i: i).prefetch(threads=2, ordered=False)),
        list(range(10)),
    ),
    Case(
        "a worker has a seed of its own",
        "worker_init_fn, torch.initial_seed()",
        lambda: len(
            set(TEN.random_map(lambda i, rng: int(rng.integers(2**40)), seed=1).prefetch(threads=2))
        ),
        10,
    ),
)
def test_loaders_have_the_outcome_of_torchdata(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "flow",
    [
        pytest.param(fl.from_dataset(Squares()), id="a map-style dataset"),
        pytest.param(fl.from_dataset(Squares()).shuffle(seed=1).repeat(2), id="a shuffled dataset"),
        pytest.param(fl.from_iterable(Stream()), id="an iterable dataset"),
        pytest.param(fl.from_iterable(lambda: iter(range(5))), id="a generator without a state"),
        pytest.param(TEN.batch(3), id="a batcher"),
        pytest.param(TEN.batch(3).unbatch(), id="an unbatcher"),
        pytest.param(fl.from_range(2).repeat(3), id="a cycler"),
        pytest.param(TEN.interleave(TEN, stop="all"), id="round robin"),
        pytest.param(TEN.choose(TEN, weights=[2, 1], stop="first"), id="a weighted sampler"),
        pytest.param(TEN.map(lambda i: -i).prefetch(threads=2), id="a parallel mapper"),
    ],
)
def test_a_loader_is_restored_as_in_torchdata(flow: fl.Flow[Any, Any]) -> None:
    """torchdata: loader.load_state_dict(loader.state_dict())."""
    check_resumes(flow, (0, 1, 2))


def test_a_state_of_one_number_of_workers_is_one_of_another() -> None:
    """torchdata: load_state_dict of a loader with another num_workers, which is refused."""
    flow = TEN.map(lambda i: -i).batch(2)
    run = iter(flow.prefetch(threads=2))
    next(run)
    state = run.state_dict()
    run.close()
    rest = [[-2, -3], [-4, -5], [-6, -7], [-8, -9]]
    assert [x.tolist() for x in flow.prefetch(threads=1).resume(state)] == rest


def test_a_state_is_json() -> None:
    """torchdata: json.dumps(loader.state_dict())."""
    run = iter(TEN.shuffle(seed=1))
    first = [next(run) for _ in range(3)]
    state = json.loads(json.dumps(run.state_dict()))
    assert sorted([*first, *TEN.shuffle(seed=1).resume(state)]) == list(range(10))


def test_a_state_at_the_end_of_an_epoch_begins_the_next_one() -> None:
    """torchdata: loader.state_dict() after the last batch, then a new epoch."""
    flow = TEN.shuffle(seed=1)
    run = flow.epoch(0)
    list(run)
    rest = [list(run) for run in flow.epochs(2, resume=run.state_dict())]
    assert rest == [[], list(flow.epoch(1))]


def test_two_loaders_run_at_once() -> None:
    """torchdata: zip(loader, loader)."""
    assert list(zip(TEN, TEN, strict=True)) == [(i, i) for i in range(10)]
