"""Datasets of Hugging Face: from_items by the sequence protocol, from_dataset in workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

import flowdsl as fl
from flowdsl import InvalidFlow
from flowdsl.datasets.arrays import as_arrays
from flowdsl.testing import check_source
from flowdsl.testing.elements import same
from tests.datasets.columns import Columns, summed

DATA: Any = datasets.Dataset  # it has no complete types
ROWS = [{"x": [i, i + 1], "y": i} for i in range(6)]


@pytest.fixture(scope="module")
def rows() -> Any:
    return DATA.from_list(ROWS)


@pytest.fixture(scope="module")
def pictures() -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    images = [Image.new("RGB", (5, 4), (i, 0, 0)) for i in range(3)]
    return DATA.from_dict({"image": images, "label": [0, 1, 2]}, features=features)


class TestDataset:
    def test_obeys_the_laws(self, rows: Any) -> None:
        check_source(lambda: fl.from_items(rows), ROWS, examples=4)

    def test_stored_in_files_is_sent_by_name(self, rows: Any, tmp_path: Path) -> None:
        rows.save_to_disk(str(tmp_path / "rows"))
        stored = datasets.load_from_disk(str(tmp_path / "rows"))
        for flow in (fl.from_items(stored), fl.from_dataset(stored)):
            assert (
                flow.shuffle(seed=1).prefetch(procs=1).collect() == flow.shuffle(seed=1).collect()
            )

    def test_with_a_format_yields_its_arrays(self, rows: Any) -> None:
        arrays = fl.from_items(rows.with_format("numpy"))
        assert str(arrays.spec) == "{x: int64[2], y: int64[]}"
        assert same(arrays.batch(6).collect()[0]["x"], np.array([row["x"] for row in ROWS]))
        tensors = fl.from_dataset(rows.with_format("torch"))
        assert str(tensors.spec) == "{x: int64[2], y: int64[]}"

    def test_column_is_a_source(self, rows: Any) -> None:
        assert fl.from_items(rows["y"]).collect() == list(range(6))

    def test_images_become_arrays(self, pictures: Any) -> None:
        sums = [(0, 0), (20, 1), (40, 2)]
        there = fl.from_items(pictures).map(
            lambda row: (np.asarray(row["image"]).sum(), row["label"])
        )
        arrays = fl.from_dataset(pictures).map(summed)
        assert there.collect() == arrays.collect() == arrays.prefetch(procs=1).collect() == sums
        assert str(fl.from_dataset(pictures).spec) == "{image: uint8[4, 5, 3], label: int}"

    def test_images_are_decoded_in_workers(self, rows: Any) -> None:
        rows = rows.with_transform(lambda batch: {"pid": [os.getpid()] * len(batch["y"])})
        here, there = fl.from_items(rows), fl.from_dataset(rows)
        assert {row["pid"] for row in here.map(dict).prefetch(procs=1)} == {os.getpid()}
        assert os.getpid() not in {row["pid"] for row in there.prefetch(procs=1)}


class TestOthers:
    def test_an_iterable_dataset_is_a_stream(self, rows: Any) -> None:
        flow = fl.from_iterable(rows.to_iterable_dataset())
        assert flow.repeat(2).collect() == ROWS * 2
        with pytest.raises(InvalidFlow, match="for any other iterable use from_iterable"):
            fl.from_items(rows.to_iterable_dataset())

    @pytest.mark.parametrize(
        ("operator", "argument"),
        [("from_items", "items"), ("from_iterable", "iterable"), ("from_dataset", "dataset")],
    )
    def test_a_dict_of_splits_is_refused_with_their_names(
        self, rows: Any, operator: str, argument: str
    ) -> None:
        splits = datasets.DatasetDict({"train": rows, "test": rows})
        streams = datasets.IterableDatasetDict({"train": rows.to_iterable_dataset()})
        for given, names in ((splits, "'train', 'test'"), (streams, "'train'")):
            with pytest.raises(InvalidFlow) as caught:
                getattr(fl, operator)(given)
            assert str(caught.value) == (
                f"{operator}: {argument} must be one dataset, and this {type(given).__name__} has "
                f"several: {names}; pass one of them, such as ['train']"
            )


class TestManyItemsAtOnce:
    @pytest.mark.parametrize("procs", [0, 2])
    def test_the_elements_are_the_same(self, procs: int) -> None:
        flow = fl.from_dataset(Columns()).shuffle(seed=1).prefetch(procs=procs)
        expected = [{"i": i, "square": i * i} for i in fl.from_range(500).shuffle(seed=1)]
        assert flow.collect() == expected

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """The time, which only expensive items take."""
        now = [0.0]
        monkeypatch.setattr("flowdsl.datasets.numbered.perf_counter", lambda: now[0])
        return now

    @pytest.mark.usefixtures("clock")
    def test_cheap_items_are_read_together_also_in_random_order(self) -> None:
        dataset = Columns()
        fl.from_dataset(dataset).shuffle(seed=1).collect()
        assert len(dataset.single) < 50
        assert max(map(len, dataset.many)) == 32
        read = dataset.single + [i for numbers in dataset.many for i in numbers]
        assert sorted(set(read)) == list(range(500))

    def test_expensive_items_are_read_alone(self, clock: list[float]) -> None:
        class Slow(Columns):
            def item(self, i: int) -> dict[str, int]:
                clock[0] += 0.002
                return super().item(i)

        dataset = Slow(40)
        fl.from_dataset(dataset).collect()
        assert dataset.many == []

    @pytest.mark.parametrize("procs", [0, 2])
    def test_an_error_names_the_item_that_failed(self, procs: int) -> None:
        flow = fl.from_dataset(Columns(bad=107)).prefetch(procs=procs)
        run = iter(flow)
        with pytest.raises(fl.ElementError, match="failed on element 107") as caught:
            list(run)
        assert "item 107 is damaged" in str(caught.value.__cause__)
        assert run.position == 107

    def test_wrong_results_are_not_used(self) -> None:
        class Fewer(Columns):
            def __getitems__(self, numbers: list[int]) -> list[dict[str, int]]:
                return super().__getitems__(numbers)[1:]

        assert fl.from_dataset(Fewer()).map(lambda x: x["i"]).collect() == list(range(500))


def test_the_fingerprint_of_the_dataset_identifies_it() -> None:
    one, other = (DATA.from_dict({"x": [n, 2, 3]}) for n in (1, 7))
    state = fl.from_dataset(one).epoch(0).state_dict()
    assert len(list(fl.from_dataset(one).resume(state))) == 3
    with pytest.raises(fl.StateMismatch):
        fl.from_dataset(other).resume(state)


@pytest.mark.parametrize("kind", [None, "numpy", "torch"])
def test_items_of_any_format_are_the_items_read_alone(kind: str | None) -> None:
    columns = {"f": [0.1] * 40, "text": ["a"] * 40, "ids": [[i] * (i % 3) for i in range(40)]}
    dataset = DATA.from_dict({**columns, "n": [None, *range(39)]}).with_format(kind)
    for flow in (fl.from_dataset(dataset), fl.from_dataset(dataset).shuffle(seed=1)):
        numbers = fl.from_range(40) if flow.effects == set() else fl.from_range(40).shuffle(seed=1)
        for i, item in zip(numbers, flow, strict=True):
            alone = as_arrays(dataset[i])
            assert repr(item) == repr(alone)
            assert [type(x) for x in item.values()] == [type(x) for x in alone.values()]


def test_a_transform_gets_one_item_at_a_time() -> None:
    def pad(batch: Any) -> Any:
        longest = max(map(len, batch["ids"]))
        return {"ids": [ids + [0] * (longest - len(ids)) for ids in batch["ids"]]}

    dataset = DATA.from_dict({"ids": [[1] * (i % 5 + 1) for i in range(40)]}).with_transform(pad)
    subset = torch.utils.data.Subset(dataset, range(40))
    for source in (dataset, subset):
        lengths = [len(item["ids"]) for item in fl.from_dataset(source)]
        assert lengths == [i % 5 + 1 for i in range(40)]
