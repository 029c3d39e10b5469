"""Annotations of generic classes: with type arguments in place of type parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import InvalidFlow, SpecMismatch
from flowdsl.elements.declared_specs import Shape, spec_of_type
from flowdsl.elements.hints import hints_of

T = TypeVar("T")
U = TypeVar("U")


class Row(NamedTuple, Generic[T]):
    a: T
    b: int


class Item(TypedDict, Generic[T]):
    a: T
    b: NotRequired[list[T]]


class More(Item[np.float32]):
    c: str


@dataclasses.dataclass
class Pair(Generic[T, U]):
    first: T
    second: U


@dataclasses.dataclass
class Swapped(Pair[U, T], Generic[T, U]):
    third: T


@dataclasses.dataclass
class Row2(Generic[T]):
    fifth: T


@dataclasses.dataclass
class Plain(Swapped[int, bytes]):
    fourth: str


class Below(Plain):
    pass


@dataclasses.dataclass
class Beside(Below, Row2[bool]):
    sixth: str


@attrs.frozen
class Image(Generic[T]):
    pixels: Annotated[NDArray[np.uint8], Shape(None, None, 3)]
    label: T | None
    inner: Row[T]


def test_arguments_replace_parameters() -> None:
    assert hints_of(Row[str]) == {"a": str, "b": int}
    assert hints_of(Item[str]) == {"a": str, "b": NotRequired[list[str]]}
    assert hints_of(Image[str])["inner"] == Row[str]


def test_arguments_reach_generic_bases() -> None:
    assert hints_of(Swapped[int, str]) == {"first": str, "second": int, "third": int}
    assert hints_of(Plain) == {"first": bytes, "second": int, "third": int, "fourth": str}
    assert hints_of(Below) == hints_of(Plain)
    assert hints_of(Beside) == {**hints_of(Plain), "fifth": bool, "sixth": str}
    assert hints_of(More) == {
        "a": np.float32,
        "b": NotRequired[list[np.float32]],
        "c": str,
    }


def test_a_generic_class_without_arguments_declares_what_does_not_depend_on_them() -> None:
    assert hints_of(Row) == {"a": T, "b": int}
    assert str(spec_of_type(Row)) == "Row(a: ?, b: int)"


def test_specs_of_generic_classes() -> None:
    assert str(spec_of_type(Row[NDArray[np.int64]])) == "Row(a: int64[...], b: int)"
    assert str(spec_of_type(Image[int])) == (
        "Image(pixels: uint8[?, ?, 3], label: ?, inner: Row(a: int, b: int))"
    )
    assert str(spec_of_type(Plain)) == "Plain(first: bytes, second: int, third: int, fourth: str)"


Write = Callable[[Any, Path], object]
Read = Callable[[Path, Any], Any]
FORMATS: dict[str, tuple[Write, Read]] = {
    "lmdb": (lambda flow, path: flow.write_lmdb(path), fl.from_lmdb),
    "tfrecord": (lambda flow, path: flow.write_tfrecord(path), fl.from_tfrecord),
    "npz": (lambda flow, path: flow.write_npz(path), fl.from_npz),
    "parquet": (lambda flow, path: flow.write_parquet(path), fl.from_parquet),
    "csv": (lambda flow, path: flow.write_csv(path), fl.from_csv),
}


@pytest.mark.parametrize("name", FORMATS)
def test_stored_rows_are_checked_against_the_arguments(name: str, tmp_path: Path) -> None:
    if name == "tfrecord":
        pytest.importorskip("google_crc32c")
    write, read = FORMATS[name]
    path = tmp_path / f"rows.{name}"
    write(fl.from_range(3).map(lambda i: Row(np.float32(i), i)), path)
    right: Any = Row[np.float32]
    rows = read(path, right).collect()
    assert rows == [Row(np.float32(i), i) for i in range(3)]
    assert {type(row) for row in rows} == {Row}
    if name != "csv":  # any text of a number can be parsed as a date or text
        wrong: Any = Row[np.int64]
        with pytest.raises(SpecMismatch, match=r"a: declared int64"):
            read(path, wrong)


def test_nested_and_inherited_arguments_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_range(3).map(lambda i: Row(Row(i, i), i)).write_lmdb(path)
    assert fl.from_lmdb(path, Row[Row[int]]).at(2) == Row(Row(2, 2), 2)
    with pytest.raises(SpecMismatch, match=r"a\.a: declared str, got int"):
        fl.from_lmdb(path, Row[Row[str]])


def test_packed_tokens_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "packed.lmdb"
    texts = fl.from_items([np.arange(5, dtype=np.int32), np.arange(3, dtype=np.int32)])
    texts.pack(4).write_lmdb(path)
    assert fl.from_lmdb(path, fl.Packed[NDArray[np.int32]]).at(0).tokens.dtype == np.int32
    with pytest.raises(SpecMismatch, match="tokens: declared int64"):
        fl.from_lmdb(path, fl.Packed[NDArray[np.int64]])


def test_cells_that_csv_cannot_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    fl.from_items([Row(1, 2)]).write_csv(path)
    with pytest.raises(
        InvalidFlow, match=r"component 'a' must be declared str, .* got list\[int\]"
    ):
        fl.from_csv(path, Row[list[int]])


@attrs.frozen
class Inner:
    a: int


class MayBeNone(NamedTuple):
    x: Inner | None


class Listed(TypedDict):
    x: list[Inner | Pair[int, int]]


class Keyed(NamedTuple):
    x: Annotated[dict[str, Inner], "by name"]


class Several(NamedTuple):
    x: tuple[int, int] | None
    y: dict[str, int]
    z: list[Item[int] | None]


@pytest.mark.parametrize(
    ("element", "path"), [(MayBeNone, "row.x"), (Listed, r"row.x\[\]"), (Keyed, "row.x")]
)
def test_a_class_that_a_reader_cannot_restore_is_refused(
    element: Any, path: str, tmp_path: Path
) -> None:
    rows = fl.from_items([{"x": None}])
    readers: dict[str, Callable[[], fl.Flow[Any]]] = {
        "write_lmdb": lambda: fl.from_lmdb(tmp_path / "write_lmdb", element),
        "write_tfrecord": lambda: fl.from_tfrecord(tmp_path / "write_tfrecord", element),
        "write_arrayrecord": lambda: fl.from_arrayrecord(tmp_path / "write_arrayrecord", element),
    }
    for write, read in readers.items():
        getattr(rows, write)(tmp_path / write)
        with pytest.raises(InvalidFlow, match=rf"{path} is declared .*Inner.* is not restored"):
            read()
    with pytest.raises(InvalidFlow, match=rf"{path.replace('row', 'element')} is declared"):
        fl.from_zmq("ipc:///tmp/none", element)


def test_values_of_several_types_without_classes_are_declared(tmp_path: Path) -> None:
    row = Several(None, {"a": 1}, [{"a": 1, "b": [2]}, None])
    fl.from_items([row]).write_lmdb(tmp_path / "rows")
    assert fl.from_lmdb(tmp_path / "rows", Several).collect() == [row]
