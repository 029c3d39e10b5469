"""Names of components in files: dicts keep their names, and tuples must have equal names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import flowdsl as fl


class Pair(NamedTuple):
    image: int
    label: float


class Swapped(NamedTuple):
    label: float
    image: int


def of_two_classes(i: int) -> Any:
    return Swapped(i / 2, i) if i % 2 else Pair(i, i / 2)


def varying(i: int) -> dict[str, Any]:
    return {"image": i, "label": i / 2} if i % 2 else {"label": i / 2, "image": i}


WRITERS: dict[str, Callable[[fl.Flow[Any, Any], str], object]] = {
    "lmdb": lambda flow, path: flow.write_lmdb(path),
    "tfrecord": lambda flow, path: flow.write_tfrecord(path),
    "arrayrecord": lambda flow, path: flow.write_arrayrecord(path),
    "npz": lambda flow, path: flow.write_npz(path),
    "hdf5": lambda flow, path: flow.write_hdf5(path, ["image", "label"]),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_named_tuples_with_other_names_are_not_mixed(kind: str, tmp_path: Path) -> None:
    flow = fl.from_range(4).map(of_two_classes)
    with pytest.raises(fl.SpecMismatch, match=r"row 1: element.*label.*image.*image.*label"):
        WRITERS[kind](flow, str(tmp_path / "rows"))
    nested = flow.map(lambda pair: {"pair": [pair]})
    if kind in ("lmdb", "tfrecord", "arrayrecord"):
        with pytest.raises(fl.SpecMismatch, match=r"row 1: element\.pair\[\]: a NamedTuple of lab"):
            WRITERS[kind](nested, str(tmp_path / "nested"))


def test_named_tuples_with_other_names_are_not_appended(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_items([Pair(1, 2.0)]).write_lmdb(path)
    with pytest.raises(fl.SpecMismatch, match=r"element: a NamedTuple of label, image after one"):
        fl.from_items([Swapped(2.0, 1)]).write_lmdb(path, append=True)


@pytest.mark.parametrize("kind", ["lmdb", "tfrecord", "arrayrecord", "npz", "parquet", "csv"])
def test_dicts_of_varying_order_are_read_back_by_name(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    flow = fl.from_range(4).map(varying)
    getattr(flow, f"write_{kind}")(path)
    rows = [dict(row._asdict()) for row in getattr(fl, f"from_{kind}")(path, Pair)]
    assert rows == [varying(i) for i in range(4)]
