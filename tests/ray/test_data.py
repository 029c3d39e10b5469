"""Flows to Ray Data and back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.effects import Reordered, Unsized

ray_data = pytest.importorskip("ray.data")
columns_of = pytest.importorskip("flowdsl.ray.data")._columns

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("cluster"),
    # Ray Data creates its own settings with what it deprecates
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyarrow"),
]


def row(i: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"i": i, "image": np.full((2, 3), i), "text": f"row {i}", "draw": float(rng.random())}


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    context = ray_data.DataContext.get_current()
    context.enable_progress_bars = False
    monkeypatch.setattr(context.execution_options, "preserve_order", True)


@pytest.mark.parametrize("parts", [None, 3])
def test_a_dataset_has_the_rows_of_the_epoch(parts: int | None) -> None:
    flow = fl.from_range(10).shuffle(seed=1).random_map(row, seed=2)
    rows = flow.to_ray(parts=parts, epoch=2).take_all()
    np.testing.assert_equal(rows, list(flow.epoch(2)))


def test_a_stream_is_one_part() -> None:
    dataset = fl.from_iterable(partial(range, 100)).filter(lambda i: i % 3 == 0).to_ray()
    assert [each["item"] for each in dataset.take_all()] == list(range(0, 100, 3))


def test_tuples_and_arrays_of_different_sizes() -> None:
    flow = fl.from_items([1, 2, 3]).map(lambda i: (np.arange(i), i))
    rows = flow.to_ray().take_all()
    assert [(each["0"].tolist(), each["1"]) for each in rows] == [
        ([0], 1),
        ([0, 1], 2),
        ([0, 1, 2], 3),
    ]


@pytest.mark.parametrize("dtype", [int, "U4", object])
def test_masked_arrays_are_refused(dtype: Any) -> None:
    masked = np.ma.array([1, 2], mask=[False, True]).astype(dtype)
    for element in (masked, {"x": masked}, {"x": [masked]}, {"x": {"y": masked}}):
        name = "item" if element is masked else "x"
        with pytest.raises(fl.SpecMismatch, match=f"to_ray: component '{name}' is a masked array"):
            columns_of([element])


def test_a_masked_array_is_an_error_of_the_dataset() -> None:
    masked = fl.from_range(2).map(lambda i: np.ma.array([i, i], mask=[False, True]))
    with pytest.raises(Exception, match="to_ray: component 'item' is a masked array"):
        masked.to_ray().take_all()


def test_two_components_of_one_name_are_refused() -> None:
    with pytest.raises(fl.SpecMismatch, match=r"to_ray: two of the keys \[0, '0'\] are one name"):
        columns_of([{0: 1, "0": 2}])


def test_rows_come_back_in_order() -> None:
    dataset = fl.from_range(1000).map(lambda i: {"i": i}).to_ray(parts=4)
    flow = fl.from_ray(dataset, ordered=True)
    assert flow.effects == {Unsized}
    assert [each["i"] for each in flow.map(dict).prefetch(threads=2)] == list(range(1000))
    with iter(flow) as run:
        first = [next(run)["i"] for _ in range(10)]
        state = run.state_dict()
    assert first + [each["i"] for each in flow.resume(state)] == list(range(1000))


def test_without_order_the_effects_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ray_data.DataContext.get_current().execution_options, "preserve_order", False
    )
    dataset = ray_data.range(100)
    flow = fl.from_ray(dataset)
    assert flow.effects == {Reordered, Unsized}
    assert sorted(each["id"] for each in flow) == list(range(100))
    with iter(flow) as run:
        next(run)
        with pytest.raises(fl.NotResumable, match="another order in each pass"):
            run.state_dict()
    with pytest.raises(fl.InvalidFlow, match="ordered=True needs a dataset that keeps its order"):
        fl.from_ray(dataset, ordered=True)


def test_an_error_in_a_task_is_raised() -> None:
    dataset = ray_data.range(10).map(lambda each: {"x": 1 // (each["id"] - 5)})
    with pytest.raises(fl.ElementError, match="from_ray"):
        fl.from_ray(dataset).collect()


def test_arguments_are_checked() -> None:
    flow: Any = fl.from_range(5)
    with pytest.raises(fl.InvalidFlow, match="to_ray: parts must be an int >= 1, got 0"):
        flow.to_ray(parts=0)
    with pytest.raises(fl.EndlessFlow, match=r"to_ray: .* never ends; write \.take\(n\) before"):
        flow.repeat().to_ray()
    with pytest.raises(
        fl.InvalidFlow, match=r"from_ray: dataset must be a ray\.data\.Dataset, got list"
    ):
        fl.from_ray([1])  # type: ignore[call-overload]  # not a dataset
