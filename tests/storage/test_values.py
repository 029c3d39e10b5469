"""What was written comes back, with its class and dtype, or is refused by name."""
# ml_dtypes declares its classes as variables, which pyright accepts in no type:
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypedDict

import attrs
import h5py  # type: ignore[import-untyped]  # it has no types
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, MissingLibrary, SourceError, SpecMismatch
from flowdsl.storage.values import dtype_of, spelling_of
from flowdsl.testing.recipes import AnyFlow
from tests.sampling import examples
from tests.storage.elements import ELEMENTS, SMALL_DTYPES, identical


@attrs.frozen
class Kept:
    """A format: how a value is written as a row, and read as the same value."""

    write: Callable[[AnyFlow, str], int]
    read: Callable[[str, type], AnyFlow]


def _read_csv(path: str, kind: Any) -> AnyFlow:
    row: Any = tuple[str | None] if kind is NoneType else tuple[kind]
    return fl.from_csv(path, row, header=False).map(lambda row: row[0])


def _write_samples(flow: AnyFlow, path: str) -> int:
    keys = map(str, count())
    return flow.map(lambda value: {"__key__": next(keys), "x": value}).write_webdataset(path)


def _read_samples(path: str, kind: Any) -> AnyFlow:
    sample: Any = TypedDict("sample", {"__key__": str, "x": kind})
    return fl.from_webdataset(path, sample).map(lambda row: row["x"])


def _encoded(flow: AnyFlow) -> AnyFlow:
    """In a tuple: bytes by themselves are records of any program."""
    return flow.map(lambda value: (value,))


KEPT = {
    "lmdb": Kept(lambda f, path: f.write_lmdb(path), lambda path, _: fl.from_lmdb(path)),
    "tfrecord": Kept(
        lambda f, path: _encoded(f).write_tfrecord(path),
        lambda path, _: fl.from_tfrecord(path, object).map(lambda row: row[0]),  # type: ignore[index]  # a tuple
    ),
    "arrayrecord": Kept(
        lambda f, path: _encoded(f).write_arrayrecord(path),
        lambda path, _: fl.from_arrayrecord(path, object).map(lambda row: row[0]),  # type: ignore[index]  # a tuple
    ),
    "parquet": Kept(lambda f, path: f.write_parquet(path), lambda path, _: fl.from_parquet(path)),
    "hdf5": Kept(lambda f, path: f.write_hdf5(path, "x"), lambda path, _: fl.from_hdf5(path, "x")),
    "npz": Kept(lambda f, path: f.write_npz(path), lambda path, _: fl.from_npz(path)),
    "csv": Kept(lambda f, path: f.map(lambda x: (x,)).write_csv(path), _read_csv),
    "text": Kept(lambda f, path: f.write_text(path), lambda path, _: fl.from_text(path)),
    "webdataset": Kept(_write_samples, _read_samples),
}

each_format = pytest.mark.parametrize("name", KEPT)


class Default(dict[str, int]):
    pass


class Size(tuple[int, ...]):
    pass


class Celsius(np.float64):
    pass


class Named(np.ndarray[Any, Any]):
    pass


ODD_VALUES: list[Any] = [
    *(OrderedDict(a=1), defaultdict(int, a=1), Counter(a=1), Default(a=1), Size((1, 2))),
    *(np.eye(2).view(np.matrix), np.ones(2).view(Named), Celsius(1)),
    *(np.rec.array([(1, 2.0)], dtype="i4,f4"), np.ma.array([1, 2], mask=[False, True])),
    *(np.array(["a"], np.dtypes.StringDType()), np.zeros(2, "i4,f4"), np.zeros(2, "V3")),
    *(np.float32(1), np.datetime64("NaT", "s"), np.zeros(2, ">f2"), np.zeros((2, 3), order="F")),
    *(np.str_("a"), np.str_("a\0"), np.str_("\0a"), np.str_(""), "a\0", "\0", ""),
    *(np.bytes_(b"a"), np.bytes_(b"a\0"), np.bytes_(b"\0a"), np.bytes_(b""), b"a\0", b"\0", b""),
    *(bytearray(b"a"), range(3), {1}, 2**70, -(2**63), True, None, 1j, object),
]
"""Values that formats lose easily: most formats refuse most of them."""
_TEXT = st.text(st.sampled_from("a\0é GCOL\1,\n"), max_size=12)
_BYTES = st.lists(st.sampled_from([b"\0", b"\xff", b"GCOL\1"]), max_size=4).map(b"".join)
ODD: st.SearchStrategy[Any] = st.one_of(
    *(_TEXT, _TEXT.map(np.str_), _BYTES, _BYTES.map(np.bytes_), ELEMENTS),
    st.integers(0, 64).map(lambda n: np.zeros((1,) * n, np.uint8)),
    st.sampled_from(ODD_VALUES),
)
_FORMS: list[Callable[[Any], Any]] = [
    *(lambda x: x, lambda x: (x, 1), lambda x: {"a": x, "b": x}, lambda x: [x], lambda x: ([(x,)],))
]


def comes_back_or_is_refused(folder: Path, name: str, rows: list[Any]) -> None:
    path, kept, refusal = str(folder / "rows"), KEPT[name], None
    try:
        kept.write(fl.from_items(rows), path)
    except SpecMismatch as error:
        refusal = str(error)
    if refusal is not None:
        assert re.search(r": row [01]: element", refusal)
        assert not list(folder.iterdir())
        return
    got = kept.read(path, type(rows[0])).collect()
    assert len(got) == len(rows)
    assert all(map(identical, got, rows)), (got, rows)


@pytest.mark.hypothesis
@settings(max_examples=examples(80), deadline=None)
@given(values=st.lists(ODD, min_size=1, max_size=2), form=st.sampled_from(_FORMS))
@each_format
def test_what_a_writer_accepts_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, values: list[Any], form: Any
) -> None:
    rows = list(map(form, values))
    if name in ("csv", "webdataset"):  # the rows are of one declared type
        rows = rows[:1] * len(rows)
    comes_back_or_is_refused(tmp_path_factory.mktemp(name), name, rows)


@each_format
def test_each_odd_value_comes_back_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    for value in ODD_VALUES:
        comes_back_or_is_refused(tmp_path_factory.mktemp(name), name, [value])


@pytest.mark.parametrize("row", [OrderedDict(a=1), defaultdict(int, a=1), Counter(a=1), Size((1,))])
@pytest.mark.parametrize("write", ["lmdb", "tfrecord", "arrayrecord", "parquet", "npz", "csv"])
def test_subclasses_of_dict_and_tuple_are_refused(tmp_path: Path, write: str, row: Any) -> None:
    base = "tuple" if isinstance(row, tuple) else "dict"
    with pytest.raises(SpecMismatch) as caught:
        getattr(fl.from_items([row]), f"write_{write}")(tmp_path / "rows")
    assert str(caught.value) == (
        f"write_{write}: row 0: element: {type(row).__name__} cannot be written: it would be read "
        f"as a {base}; make it one with .map({base})"
    )


def test_a_trusted_store_keeps_the_class_of_a_dict(tmp_path: Path) -> None:
    row = (defaultdict(int, a=1),)
    fl.from_items([row]).write_lmdb(tmp_path / "rows", trusted=True)
    [got] = fl.from_lmdb(tmp_path / "rows", trusted=True)
    assert isinstance(got, tuple)
    assert type(got[0]) is defaultdict
    assert got == row


@pytest.mark.parametrize(("write", "most"), [("hdf5", 31), ("npz", 63), ("parquet", 63)])
def test_an_array_of_too_many_axes_is_refused(tmp_path: Path, write: str, most: int) -> None:
    kept = KEPT[write]
    row = np.full((1,) * most, 7, np.uint8)
    kept.write(fl.from_items([row]), str(tmp_path / "rows"))
    assert identical(kept.read(str(tmp_path / "rows"), np.ndarray).collect(), [row])
    with pytest.raises(SpecMismatch, match=rf"row 0: element(\.x)?: an array of .*{most + 1} axes"):
        kept.write(fl.from_items([row[None]]), str(tmp_path / "more"))


# -- numbers of ml_dtypes --------------------------------------------------------------------------

HALVES: Any = np.array([[1.5, -2.0, np.nan]], ml_dtypes.bfloat16)


class Columns(TypedDict):
    y: np.int64
    x: NDArray[ml_dtypes.bfloat16]


class Halves(NamedTuple):
    x: NDArray[ml_dtypes.bfloat16]
    y: ml_dtypes.float8_e4m3fn


@pytest.mark.parametrize("name", ["lmdb", "tfrecord", "arrayrecord", "npz"])
def test_small_numbers_come_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows"
    rows = [Halves(HALVES + ml_dtypes.bfloat16(i), ml_dtypes.float8_e4m3fn(i)) for i in range(6)]
    getattr(fl.from_items(rows), f"write_{name}")(path)
    flow: fl.Flow[Halves, fl.Exact] = getattr(fl, f"from_{name}")(path, Halves)
    assert str(flow.spec).startswith("Halves(x: bfloat16[")
    for got in (flow.collect(), flow.prefetch(procs=2).collect(), [flow.at(i) for i in range(6)]):
        assert all(map(identical, got, rows))
    assert flow.batch(6).at(0)[0].dtype == ml_dtypes.bfloat16


def test_small_numbers_of_other_programs_are_read_as_declared(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", HALVES.T)
    declared = fl.from_npy(tmp_path / "a.npy", NDArray[ml_dtypes.bfloat16])
    assert identical(declared.collect(), list(HALVES.T))
    assert identical(declared.prefetch(procs=2).collect(), list(HALVES.T))
    with pytest.raises(SourceError, match=r"holds \|V2; .* declare them, such as NDArray\[ml_dty"):
        fl.from_npy(tmp_path / "a.npy")
    with pytest.raises(SourceError, match=r"holds \|V2; "):
        fl.from_npy(tmp_path / "a.npy", NDArray[ml_dtypes.int4])
    np.savez(tmp_path / "named.npz", x=HALVES, y=np.arange(1))
    assert identical(
        fl.from_npz(tmp_path / "named.npz", Columns).collect(), [{"x": HALVES[0], "y": np.int64(0)}]
    )
    np.savez(tmp_path / "pair.npz", HALVES, np.arange(1))
    pair = fl.from_npz(tmp_path / "pair.npz", tuple[NDArray[ml_dtypes.bfloat16], np.int64])
    assert identical(pair.prefetch(procs=1).collect(), [(HALVES[0], np.int64(0))])


@pytest.mark.parametrize("dtype", SMALL_DTYPES, ids=str)
def test_a_small_dtype_is_spelled_by_its_name(dtype: np.dtype[Any]) -> None:
    assert spelling_of(dtype) == dtype.name
    assert dtype_of(dtype.name) == dtype


@pytest.mark.parametrize("spelling", ["finfo", "numpy", "float64", "_bfloat16", "bfloat16 "])
def test_other_names_of_that_package_spell_no_dtype(spelling: str) -> None:
    with pytest.raises(ValueError, match=f"{spelling!r} is not a supported dtype"):
        dtype_of(spelling)


@pytest.mark.parametrize("name", ["lmdb", "tfrecord", "arrayrecord", "npz"])
def test_without_ml_dtypes_the_error_names_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KEPT[name]
    kept.write(fl.from_items([HALVES]), str(tmp_path / "rows"))
    dtype_of.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises((MissingLibrary, ElementError)) as caught:
        kept.read(str(tmp_path / "rows"), object).collect()
    error = caught.value if isinstance(caught.value, MissingLibrary) else caught.value.__cause__
    assert isinstance(error, MissingLibrary)
    assert str(error) == (
        "elements of 'bfloat16', a dtype of ml_dtypes, cannot be read: ml_dtypes is not installed: "
        "pip install ml_dtypes"
    )


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.str_("ab\0"), np.bytes_(b"ab\0\0"), np.str_(""), np.bytes_()])
@pytest.mark.parametrize("name", ["lmdb", "tfrecord", "arrayrecord"])
def test_zeros_at_the_end_of_numpys_text_come_back(tmp_path: Path, name: str, value: Any) -> None:
    kept = KEPT[name]
    kept.write(fl.from_items([value]), str(tmp_path / "rows"))
    assert identical(kept.read(str(tmp_path / "rows"), object).collect(), [value])


HEAP = "text with GCOL\1 and a number" + "\1" * 8 + "x" * 40


@pytest.mark.parametrize(
    "options",
    [{}, {"chunks": (4,)}, {"chunks": (4,), "compression": "gzip"}, {"userblock_size": 512}],
    ids=str,
)
def test_text_that_looks_like_a_heap_is_read(tmp_path: Path, options: dict[str, Any]) -> None:
    fl.from_items([HEAP] * 3).write_hdf5(tmp_path / "ours.h5", "x")
    assert fl.from_hdf5(tmp_path / "ours.h5", "x").collect() == [HEAP] * 3
    options, block = dict(options), options.get("userblock_size", 0)
    options.pop("userblock_size", None)
    with h5py.File(tmp_path / "theirs.h5", "w", userblock_size=block) as file:
        file.create_dataset("x", data=[HEAP] * 9, dtype=h5py.string_dtype(), **options)
    assert fl.from_hdf5(tmp_path / "theirs.h5", "x").collect() == [HEAP] * 9


def test_bytes_beside_text_may_look_like_a_heap(tmp_path: Path) -> None:
    rows = [(np.bytes_(b"GCOL\1" + bytes([i]) * 11), f"text {i}") for i in range(1, 4)]
    fl.from_items(rows).write_hdf5(tmp_path / "a.h5", ["bytes", "text"])
    assert identical(fl.from_hdf5(tmp_path / "a.h5", ["bytes", "text"]).collect(), rows)


@pytest.mark.parametrize("block", [0, 512])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_damaged_heap_is_an_error(tmp_path: Path, compression: str | None, block: int) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", userblock_size=block) as file:
        file.create_dataset("x", data=["a", "b"], chunks=(2,), compression=compression)
    content = path.read_bytes()
    at = content.index(b"GCOL\1")
    path.write_bytes(content[: at + 24] + b"\xff" * 8 + content[at + 32 :])
    with pytest.raises(SourceError, match=f"the heap at byte {at} is damaged"):
        fl.from_hdf5(path, "x")


def test_a_dtype_that_numpy_cannot_spell_has_no_spelling() -> None:
    class OfAnotherPackage:
        str = "<f1"
        type = int

    unknown: Any = OfAnotherPackage()
    assert spelling_of(unknown) is None
