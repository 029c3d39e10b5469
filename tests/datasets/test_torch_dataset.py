"""from_dataset: conversion of items, workers, and refused arguments."""

from __future__ import annotations

import os
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, assert_type

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
)

import flowdsl as fl
from flowdsl import ElementError, Exact, Flow, InvalidFlow, NotShippable, SourceError, Unsized
from flowdsl.datasets.arrays import as_arrays
from flowdsl.testing import check_source
from flowdsl.testing.elements import same
from flowdsl.workers.shared_arrays import LARGE, pickled_as_array
from tests.waiting import meet


class Squares(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, n: int, bad: int | None = None) -> None:
        self.n, self.bad = n, bad

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.n:
            raise IndexError(index)
        if index == self.bad:
            raise OSError("the file is cut off")
        return torch.tensor([index * index]), index


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, n: int) -> None:
        self.n, self.open = n, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        assert get_worker_info() is None
        self.open += 1
        try:
            for i in range(self.n):
                yield torch.tensor([i, i])
        finally:
            self.open -= 1


def squares(n: int) -> list[tuple[NDArray[np.int64], int]]:
    return [(np.array([i * i]), i) for i in range(n)]


class Given(Dataset[Any]):
    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def only(item: object) -> Any:
    (element,) = fl.from_dataset(Given(item))
    return element


class TestLaws:
    def test_map_style_datasets_obey_the_laws(self) -> None:
        check_source(lambda: fl.from_dataset(Squares(7)), squares(7), examples=6)

    def test_iterable_datasets_obey_the_laws(self) -> None:
        rows = [np.array([i, i]) for i in range(5)]
        check_source(lambda: fl.from_dataset(Stream(5)), rows, examples=4)


@dataclass(frozen=True)
class Sample:
    x: Any
    name: str


class Pair(NamedTuple):
    x: Any
    y: Any


class TestItems:
    @pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64"])
    def test_a_tensor_is_an_array_that_shares_its_memory(self, dtype: str) -> None:
        tensor = torch.ones(2, 3, dtype=getattr(torch, dtype))
        array = only(tensor)
        assert (array.dtype, array.shape) == (np.dtype(dtype), (2, 3))
        tensor[0, 0] = 0
        assert array[0, 0] == 0

    def test_tensors_with_a_gradient_are_detached(self) -> None:
        assert same(only(torch.nn.Parameter(torch.ones(2))), np.ones(2, np.float32))

    def test_containers_keep_their_class(self) -> None:
        x, array = torch.ones(2), np.ones(2, np.float32)
        for item, expected in [
            ((x, 3), (array, 3)),
            ([x, x], [array, array]),
            (Pair(x, {"a": x}), Pair(array, {"a": array})),
            ({"a": (x, "text")}, {"a": (array, "text")}),
            (Sample(x, "n"), Sample(array, "n")),
            (OrderedDict(b=x, a=1), {"b": array, "a": 1}),
            (UserDict(a=x), {"a": array}),
            (torch.ones(1, 2).max(1), (np.ones(1, np.float32), np.zeros(1, np.int64))),
        ]:
            made = only(item)
            assert same(made, expected), item
            assert type(made) is type(expected)

    @pytest.mark.parametrize(
        "item", [1, 2.5, "text", b"b", None, np.float32(1), torch.Size([1]), (1, ("a",)), {"a": 1}]
    )
    def test_values_without_tensors_are_the_same_object(self, item: object) -> None:
        assert as_arrays(item) is item

    def test_a_picture_is_an_array(self) -> None:
        picture = Image.new("RGB", (5, 4), (1, 2, 3))
        image, label = only((picture, 7))
        assert (image.dtype, image.shape, label) == (np.dtype(np.uint8), (4, 5, 3), 7)
        assert image[0, 0].tolist() == [1, 2, 3]
        mask = Image.new("P", (5, 4), 2)
        assert same(only(mask), np.full((4, 5), 2, np.uint8))

    @pytest.mark.parametrize(
        ("tensor", "message"),
        [
            (torch.zeros(2, dtype=torch.bfloat16), r"a Tensor \(torch.bfloat16, cpu\)"),
            (torch.eye(2).to_sparse(), r"a Tensor \(torch.float32, cpu\)"),
            (torch.zeros(2, device="meta"), r"a Tensor \(torch.float32, meta\)"),
        ],
    )
    def test_tensors_numpy_cannot_read_are_named(self, tensor: torch.Tensor, message: str) -> None:
        flow = fl.from_dataset(Given(({"x": tensor}, 1)))
        with pytest.raises(
            ElementError, match=rf"failed on element 0 .*component '0.x' is {message}"
        ):
            flow.collect()

    def test_the_spec_is_read_from_an_item(self) -> None:
        assert str(fl.from_dataset(Squares(3)).spec) == "(int64[1], int)"
        assert str(fl.from_dataset(Squares(0)).spec) == "?"
        assert fl.from_dataset(Squares(0)).batch(2).collect() == []


class WhoReads(Dataset[int]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return os.getpid()


class Drawn(Dataset[tuple[float, float, int]]):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[float, float, int]:
        meet(self.folder, 2)  # so that both workers draw
        return torch.rand(1).item(), np.random.rand(), os.getpid()  # noqa: NPY002  # what users do


class TestWorkers:
    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize(
        "chained",
        [
            lambda flow: flow,
            lambda flow: flow.shuffle(seed=3).batch(4),
            lambda flow: flow.shard(3, 1).repeat(2),
            lambda flow: flow.split(0.5, seed=1)[0],
        ],
    )
    def test_do_not_change_elements(self, chained: Callable[[Any], Flow[Any, Any]]) -> None:
        flow = chained(fl.from_dataset(Squares(20)))
        assert same(flow.prefetch(procs=2).collect(), flow.collect())

    def test_read_the_items(self) -> None:
        flow = fl.from_dataset(WhoReads())
        assert set(flow.collect()) == {os.getpid()}
        assert os.getpid() not in flow.prefetch(procs=2).collect()

    def test_have_separate_random_generators(self, tmp_path: Path) -> None:
        def draw(name: str) -> list[tuple[float, float, int]]:
            folder = tmp_path / name
            folder.mkdir()
            return fl.from_dataset(Drawn(folder)).prefetch(procs=2).collect()

        drawn = draw("first")
        assert len({pid for _, _, pid in drawn}) == 2
        assert len({x for x, _, _ in drawn}) == len({y for _, y, _ in drawn}) == 12
        assert {x for x, _, _ in drawn}.isdisjoint(x for x, _, _ in draw("again"))

    def test_an_error_names_the_item(self) -> None:
        flow = fl.from_dataset(Squares(9, bad=5)).shuffle(seed=1)
        for run in (flow, flow.prefetch(procs=2)):
            with pytest.raises(ElementError, match=r"row 5 of .*Squares, 9 items.*cut off"):
                run.collect()

    @pytest.mark.parametrize("procs", [0, 2])
    def test_a_damaged_item_can_be_skipped(self, procs: int) -> None:
        flow = fl.from_dataset(Squares(9, bad=5)).shuffle(seed=1)
        kept = flow.prefetch(procs=procs, on_error="skip").collect()
        assert sorted(y for _, y in kept) == [0, 1, 2, 3, 4, 6, 7, 8]

    def test_unpicklable_datasets_are_named(self) -> None:
        with open(os.devnull) as file:
            flow = fl.from_dataset(Given(file, file))
            with pytest.raises(NotShippable, match=r"^from_dataset\(.*: dataset cannot be"):
                flow.prefetch(procs=1).collect()

    def test_large_tensors_are_in_shared_memory(self) -> None:
        x = torch.arange(LARGE, dtype=torch.uint8).reshape(4, -1)
        assert pickled_as_array(x) is not None
        flow = fl.from_dataset(TensorDataset(x, torch.arange(4)))
        got = flow.prefetch(procs=2).collect()
        assert same(got, flow.collect())

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.zeros(3),
            torch.zeros(1).expand(LARGE),
            torch.zeros(LARGE, requires_grad=True),
            torch.zeros(LARGE, dtype=torch.bfloat16),
            torch.nn.Parameter(torch.zeros(LARGE)),
            np.zeros(LARGE),
        ],
    )
    def test_other_tensors_are_pickled_by_pytorch(self, tensor: object) -> None:
        assert pickled_as_array(tensor) is None


class Columns(Dataset[Any]):
    """A dataset whose ``__getitems__`` returns a batch of columns instead of a list of items."""

    def __init__(self, form: Callable[..., Any]) -> None:
        self.form = form

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.form(index, index * index)

    def __getitems__(self, numbers: list[int]) -> Any:
        return self.form(numbers, [i * i for i in numbers])


class TestDatasets:
    @pytest.mark.parametrize("form", [lambda a, b: (a, b), lambda a, b: {"a": a, "b": b}, Pair])
    def test_a_column_is_not_mistaken_for_an_item(self, form: Callable[..., Any]) -> None:
        # After four items that are read alone, two are left: as many as the columns.
        flow = fl.from_dataset(Columns(form))
        assert flow.collect() == [form(i, i * i) for i in range(6)]

    def test_combined_datasets(self) -> None:
        both: Any = ConcatDataset([Squares(3), Subset(Squares(9), [8, 0])])
        assert [y for _, y in fl.from_dataset(both)] == [0, 1, 2, 8, 0]

    def test_to_torch_restores_the_tensors(self) -> None:
        flow = fl.from_dataset(Squares(4))
        assert same(fl.from_dataset(flow.to_torch()).collect(), flow.collect())

    def test_an_iterable_dataset_is_closed_with_its_pass(self) -> None:
        stream = Stream(9)
        flow = fl.from_dataset(stream)
        with iter(flow) as run:
            next(run)
            assert stream.open == 1
        assert stream.open == 0
        assert len(flow.repeat(2).take(15).prefetch(procs=1).collect()) == 15

    def test_a_changed_length_is_an_error(self) -> None:
        dataset = Squares(3)
        flow = fl.from_dataset(dataset)
        flow.collect()
        dataset.n = 4
        with pytest.raises(SourceError, match=r"^from_dataset: there were 3 items .* are 4"):
            flow.collect()

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (None, "must have numbered items and a length, or be an IterableDataset, got NoneType"),
            (Squares, "must have numbered .*, got the class Squares; for any other iterable use"),
            ({"a": 1}, "must have numbered .*, got dict"),
            (iter([1]), "must have numbered .*, got list_iterator"),
            (DataLoader(Squares(3)), "must be the dataset of the DataLoader, loader.dataset"),
            (Dataset(), "must have a length, and Dataset has none"),
        ],
    )
    def test_objects_that_are_not_datasets_are_refused(self, given: Any, message: str) -> None:
        with pytest.raises(InvalidFlow, match=f"^from_dataset: dataset {message}"):
            fl.from_dataset(given)

    def test_arguments_of_a_data_loader_are_refused(self) -> None:
        load: Any = fl.from_dataset
        with pytest.raises(InvalidFlow, match=r"no num_workers=; write .*\.prefetch\(procs=4\)"):
            load(Squares(3), num_workers=4)


def test_elements_have_the_declared_types() -> None:
    assert_type(fl.from_dataset(Squares(3)), Flow[tuple[NDArray[Any], int], Exact])
    assert_type(fl.from_dataset(Stream(3)), Flow[NDArray[Any], Unsized])
    assert_type(fl.from_dataset(Given(3)), Flow[Any, Exact])
    assert_type(fl.from_dataset(WhoReads()), Flow[int, Exact])
