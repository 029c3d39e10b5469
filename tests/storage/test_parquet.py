"""Parquet files: other programs' tables keep their dtypes, and other programs read ours."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements.specs import UNKNOWN, ArraySpec, StructSpec
from flowdsl.errors import (
    ElementError,
    FlowError,
    InvalidFlow,
    MissingLibrary,
    SourceError,
    SpecMismatch,
)
from flowdsl.storage import libraries
from flowdsl.storage.parquet import files as parquet_files
from flowdsl.storage.parquet.columns import spec_of_column
from flowdsl.storage.parquet.files import ParquetFile
from flowdsl.storage.parquet.folders import keys_of
from flowdsl.storage.parquet.footer import _chunk
from flowdsl.testing.elements import same
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.parquet"


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


class Named(TypedDict):
    name: str | None
    size: np.int32


@attrs.frozen
class PointBatch:
    x: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: float


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def tensors(array: NDArray[Any]) -> Any:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array)


# -- tables of other programs ----------------------------------------------------------------------

COLUMNS: dict[str, tuple[Any, list[object], str]] = {
    "bool": (pa.array([True, False]), [np.True_, np.False_], "bool[]"),
    "int8": (pa.array([1, -2], pa.int8()), [np.int8(1), np.int8(-2)], "int8[]"),
    "uint64": (pa.array([2**64 - 1, 0], pa.uint64()), [np.uint64(2**64 - 1), np.uint64(0)], ""),
    "half": (pa.array(np.array([0.5, 1], "f2")), [np.float16(0.5), np.float16(1)], "float16[]"),
    "float": (pa.array([0.1, 2], pa.float32()), [np.float32(0.1), np.float32(2)], "float32[]"),
    "text": (pa.array(["é", ""]), ["é", ""], "str"),
    "large text": (pa.array(["a", "b"], pa.large_string()), ["a", "b"], "str"),
    "categories": (pa.array(["a", "a"]).dictionary_encode(), ["a", "a"], "str"),
    "categories with nulls": (
        pa.array([None, b"b"]).dictionary_encode(),
        [None, b"b"],
        "?",
    ),
    "few numbers": (
        pa.array([5, 5], pa.int16()).dictionary_encode(),
        [np.int16(5), np.int16(5)],
        "int16[]",
    ),
    "bytes": (pa.array([b"\xff", b""]), [b"\xff", b""], "bytes"),
    "instant": (
        pa.array([1, 2], pa.timestamp("us", "UTC")),
        [np.datetime64(1, "us"), np.datetime64(2, "us")],
        "datetime64[us][]",
    ),
    "day": (
        pa.array([0, 31], pa.date32()),
        [np.datetime64("1970-01-01"), np.datetime64("1970-02-01")],
        "datetime64[D][]",
    ),
    "duration": (
        pa.array([5, 6], pa.duration("ms")),
        [np.timedelta64(5, "ms"), np.timedelta64(6, "ms")],
        "timedelta64[ms][]",
    ),
    "tokens": (
        pa.array([[1, 2], []], pa.list_(pa.int32())),
        [np.array([1, 2], np.int32), np.array([], np.int32)],
        "",
    ),
    "pair": (
        pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        [np.array([1, 2], np.float32), np.array([3, 4], np.float32)],
        "",
    ),
    "tensor": (
        tensors(np.arange(8, dtype=np.int16).reshape(2, 2, 2)),
        list(np.arange(8, dtype=np.int16).reshape(2, 2, 2)),
        "",
    ),
    "words": (pa.array([["a", None], []]), [["a", None], []], ""),
    "struct": (pa.array([{"x": 1}, {"x": 2}]), [{"x": 1}, {"x": 2}], ""),
    "decimal": (pa.array([Decimal("1.5"), Decimal("2.5")]), [Decimal("1.5"), Decimal("2.5")], ""),
    "time": (pa.array([time(1), time(2)]), [time(1), time(2)], "time"),
    "nothing": (pa.array([None, None]), [None, None], ""),
    "with nulls": (pa.array([None, 3], pa.int16()), [None, np.int16(3)], "?"),
    "tokens with nulls": (
        pa.array([None, [7]], pa.list_(pa.int64())),
        [None, np.array([7])],
        "?",
    ),
    "pairs with nulls": (
        pa.array([None, [1, 2]], pa.list_(pa.int64(), 2)),
        [None, np.array([1, 2])],
        "?",
    ),
    "days with nulls": (pa.array([None, 1], pa.date32()), [None, np.datetime64(1, "D")], "?"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_keeps_its_dtype(path: Path, name: str) -> None:
    column, values, spec = COLUMNS[name]
    pq.write_table(table(x=column), path)
    source = fl.from_parquet(path)
    got = source.collect()
    assert same(got, [{"x": value} for value in values]), got
    if spec:
        assert str(source.node.spec(probe=False)) == f"{{x: {spec}}}"


@settings(max_examples=examples(100))
@given(
    st.lists(st.none() | st.integers(-5, 5), max_size=20),
    st.integers(1, 8),
    st.lists(st.integers(0, 19), max_size=30),
)
def test_rows_of_all_row_groups_are_read(
    tmp_path: Path, values: list[int | None], group: int, order: list[int]
) -> None:
    path = tmp_path / "rows.parquet"
    lists = pa.array([[i] * i for i in range(len(values))], pa.list_(pa.int64()))
    columns = table(x=pa.array(values, pa.int64()), y=lists)
    pq.write_table(columns, path, row_group_size=group)
    row = fl.from_parquet(path).node.open()  # type: ignore[attr-defined]  # an IndexedSource
    for i in order:
        if i < len(values):
            got = row(i)
            assert got["x"] == values[i]
            assert got["y"].tolist() == [i] * i


def test_declaration_selects_python_or_numpy_values(path: Path) -> None:
    pq.write_table(table(name=["a", None], size=pa.array([1, 2], pa.int32())), path)
    rows = fl.from_parquet(path, Named).collect()
    assert rows == [{"name": "a", "size": 1}, {"name": None, "size": 2}]
    assert type(rows[0]["size"]) is np.int32

    class Plain(NamedTuple):
        size: int
        name: str | None

    plain = fl.from_parquet(path, Plain).collect()
    assert plain == [Plain(1, "a"), Plain(2, None)]
    assert type(plain[0].size) is int
    pq.write_table(table(x=[[1, 2], []]), path)

    class Listed(TypedDict):
        x: list[int]

    assert fl.from_parquet(path, Listed).collect() == [{"x": [1, 2]}, {"x": []}]


@pytest.mark.parametrize(
    ("columns", "element", "message"),
    [
        ({"name": ["a"], "size": [1]}, Named, "row.size: declared int32"),
        ({"name": [1], "size": pa.array([1], pa.int32())}, Named, "name: declared str"),
        ({"size": [1]}, Named, "declared {name"),
        ({"x": ["a"]}, Point, "row.x: declared float, got str"),
        ({"x": [1.0, None]}, Point, "column 'x' has a value that is null"),
    ],
)
def test_mismatch_with_the_declaration_is_refused_at_once(
    path: Path, columns: dict[str, Any], element: Any, message: str
) -> None:
    pq.write_table(table(**columns), path)
    with pytest.raises(SpecMismatch, match=message.replace("{", r"\{")):
        fl.from_parquet(path, element)


def test_null_missing_from_statistics_fails_at_its_row(path: Path) -> None:
    pq.write_table(table(x=[1.0, 2.0, None]), path, write_statistics=False)
    rows = iter(fl.from_parquet(path, Point))
    assert [next(rows), next(rows)] == [Point(1.0), Point(2.0)]
    with pytest.raises(ElementError, match="row 2 of") as raised:
        next(rows)
    assert "null" in str(raised.value.__cause__)


def test_row_refused_by_its_class_fails_at_its_position(path: Path) -> None:
    @attrs.frozen
    class Positive:
        x: float = attrs.field(validator=attrs.validators.gt(0))

    pq.write_table(table(x=[1.0, 2.0, 3.0, -4.0, 5.0]), path)
    row = fl.from_parquet(path, Positive).node.open()  # type: ignore[attr-defined]  # an IndexedSource
    assert [row(i).x for i in range(3)] == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="must be > 0"):
        row(3)
    assert row(4) == Positive(5.0)


class WithoutPandas:
    """An Arrow type without pandas, which older versions of Arrow need."""

    def __init__(self, form: pa.DataType) -> None:
        self.id, self.bit_width = form.id, form.bit_width

    def to_pandas_dtype(self) -> type:
        raise ModuleNotFoundError("No module named 'pandas'")


@pytest.mark.parametrize("code", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f8"])
def test_columns_of_numbers_are_read_without_pandas(code: str) -> None:
    spec = spec_of_column(WithoutPandas(pa.from_numpy_dtype(np.dtype(code))), UNKNOWN)
    assert spec == ArraySpec(np.dtype(code), ())


def test_columns_are_chosen_by_name(path: Path) -> None:
    pq.write_table(table(a=[1, 2], b=["x", "y"], c=[0.5, 1.5]), path)
    assert fl.from_parquet(path, columns=["c", "b"]).collect()[1] == {"c": 1.5, "b": "y"}
    with pytest.raises(InvalidFlow, match="no column 'd', it has 'a', 'b', 'c'"):
        fl.from_parquet(path, columns=["d"])
    wrong: list[Any] = ["a", [], ["a", "a"]]
    for columns in wrong:
        with pytest.raises(InvalidFlow, match="columns must be a list of names"):
            fl.from_parquet(path, columns=columns)


class Sizes(NamedTuple):
    size: np.int64
    name: str


class Half(TypedDict):
    size: int


def test_only_declared_columns_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table(a=[[1], [2]], name=["x", "y"], size=[1, 2]), path)
    read = list[Any]()
    decoded = ParquetFile.table

    def table_of(self: ParquetFile, group: int, names: list[str]) -> Any:
        read.append(names)
        return decoded(self, group, names)

    monkeypatch.setattr(ParquetFile, "table", table_of)
    assert fl.from_parquet(path, Sizes).collect() == [Sizes(np.int64(1), "x"), (2, "y")]
    assert fl.from_parquet(path, Half).collect() == [{"size": 1}, {"size": 2}]
    assert read == [["size", "name"], ["size"]]


def test_only_declared_columns_of_written_rows_are_read(path: Path) -> None:
    class Whole(NamedTuple):
        a: float
        name: str
        size: np.int64

    fl.from_items([Whole(0.5, "x", np.int64(1))]).write_parquet(path)
    assert fl.from_parquet(path, Sizes).collect() == [Sizes(np.int64(1), "x")]


def test_only_declared_columns_have_to_be_in_all_files(tmp_path: Path) -> None:
    pq.write_table(table(size=[1], name=["x"]), tmp_path / "a.parquet")
    pq.write_table(table(name=["y"], b=[1.5], size=[2]), tmp_path / "b.parquet")
    rows = fl.from_parquet(f"{tmp_path}/*.parquet", Sizes).collect()
    assert [name for _, name in rows] == ["x", "y"]


def test_a_declared_column_that_the_file_lacks_names_its_columns(path: Path) -> None:
    pq.write_table(table(Size=[1], name=["x"]), path)
    with pytest.raises(SpecMismatch) as caught:
        fl.from_parquet(path, Sizes)
    assert str(caught.value) == (
        f"from_parquet: {str(path)!r} has no column 'size', it has 'Size', 'name'; declared "
        f"Sizes(size: int64[], name: str)"
    )


def test_files_are_read_in_the_listed_order(tmp_path: Path) -> None:
    for i in range(3):
        pq.write_table(table(x=[i, i + 10]), tmp_path / f"{i}.parquet")
    values = [row["x"] for row in fl.from_parquet(tmp_path / "*.parquet").collect()]
    assert values == [0, 10, 1, 11, 2, 12]
    order = [tmp_path / "2.parquet", tmp_path / "0.parquet"]
    assert fl.from_parquet(order).collect() == [{"x": 2}, {"x": 12}, {"x": 0}, {"x": 10}]
    pq.write_table(table(x=["a"]), tmp_path / "3.parquet")
    with pytest.raises(SourceError, match=r"3\.parquet' has other columns .* 'x' is string"):
        fl.from_parquet(tmp_path / "*.parquet")


def test_remote_files_are_read_too(path: Path) -> None:
    fl.from_range(10).write_parquet(path, row_group=3)
    MemoryFileSystem().pipe_file("/bucket/rows.parquet", path.read_bytes())
    assert fl.from_parquet("memory://bucket/*.parquet", int).collect() == list(range(10))


def test_two_columns_of_one_name_are_refused(path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]), path)
    with pytest.raises(SourceError, match="two columns 'x'"):
        fl.from_parquet(path)


def test_array_with_a_null_is_refused(path: Path) -> None:
    pq.write_table(table(x=[[1, None]]), path)
    with pytest.raises(ElementError) as raised:
        fl.from_parquet(path).collect()
    assert (
        "rows.parquet': column 'x' cannot be read: it has an array with an item that is null"
        in str(raised.value.__cause__)
    )


def test_a_tensor_with_permuted_axes_is_refused(path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.int8(), [2, 3], permutation=[1, 0])
    storage = pa.array([list(range(6))], pa.list_(pa.int8(), 6))
    pq.write_table(table(x=pa.ExtensionArray.from_storage(kind, storage)), path)
    with pytest.raises(SourceError, match=r"rows\.parquet': column 'x' cannot be read: a tensor"):
        fl.from_parquet(path)


@pytest.mark.parametrize(
    ("kind", "column", "about", "advice"),
    [
        ("period", [648, 649], b'{"freq": "M"}', r"frame\[name\]\.dt\.to_timestamp\(\)"),
        (
            "interval",
            [{"left": 0, "right": 1}, {"left": 1, "right": 2}],
            b'{"subtype": "int64", "closed": "left"}',
            r"frame\[name\]\.array\.left",
        ),
    ],
)
def test_columns_of_pandas_whose_meaning_would_be_lost_are_refused(
    path: Path, kind: str, column: list[Any], about: bytes, advice: str
) -> None:
    # As pandas writes them.
    metadata = {
        b"ARROW:extension:name": f"pandas.{kind}".encode(),
        b"ARROW:extension:metadata": about,
    }
    columns = [pa.array(column), pa.array([1, 2])]
    fields = [pa.field("x", columns[0].type, metadata=metadata), pa.field("y", pa.int64())]
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), path)
    message = rf"rows\.parquet': column 'x' cannot be read: it has {kind}s of pandas, .*{advice}"
    with pytest.raises(SourceError, match=message):
        fl.from_parquet(path)
    assert fl.from_parquet(path, columns=["y"]).collect() == [{"y": 1}, {"y": 2}]


def test_text_that_is_not_utf8_is_named_with_its_column(path: Path) -> None:
    text = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    pq.write_table(table(x=[1, 2, 3], s=text), path, use_dictionary=False)
    source = fl.from_parquet(path)
    assert [source.at(i)["s"] for i in (0, 2)] == ["a", "c"]
    with pytest.raises(
        ElementError, match=r"row 1 of .*rows\.parquet': column 's' cannot be read: 'utf-8'"
    ):
        source.collect()


def test_row_group_that_claims_to_be_huge_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(x=[0] * 100_000), path)
    assert len(fl.from_parquet(path).take(3).collect()) == 3
    monkeypatch.setattr(parquet_files, "_MAX_BYTES", 1000)
    with pytest.raises(ElementError) as raised:
        fl.from_parquet(path).collect()
    message = "its column 'x' claims to be 800,000 bytes"
    assert message in str(raised.value.__cause__)
    assert "raise the limit with max_bytes=" in str(raised.value.__cause__)
    assert len(fl.from_parquet(path, max_bytes=800_000).collect()) == 100_000


def test_a_row_group_of_many_small_columns_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table(**{f"c{k}": [0] * 100_000 for k in range(5)}), path)
    monkeypatch.setattr(parquet_files, "_MAX_BYTES", 1_000_000)
    assert len(fl.from_parquet(path).take(3).collect()) == 3


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1"])
def test_max_bytes_is_a_positive_int(path: Path, limit: Any) -> None:
    with pytest.raises(InvalidFlow, match="max_bytes must be an int >= 1, got "):
        fl.from_parquet(path, max_bytes=limit)


@pytest.mark.parametrize("in_arrow", [True, False], ids=["categories", "text"])
def test_a_long_text_in_many_rows_does_not_fill_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, in_arrow: bool
) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["x" * 10_000])
    pq.write_table(table(s=text), path, store_schema=in_arrow)
    monkeypatch.setattr(parquet_files, "_MAX_BYTES", 10_000_000)
    first, first_row = fl.from_parquet(path).take(1), [{"s": "x" * 10_000}]
    if in_arrow:  # the rows share one object
        assert first.collect() == first_row
    else:
        with pytest.raises(ElementError) as raised:
            first.collect()
        assert "it decodes to over " in str(raised.value.__cause__)
        assert fl.from_parquet(path, max_bytes=100_000_000).take(1).collect() == first_row


def test_dictionary_code_out_of_range_is_refused(path: Path) -> None:
    codes = pa.array([2] * 100, pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, ["a", "b", "c"])
    pq.write_table(table(s=column), path, compression="none")
    content = path.read_bytes()
    run_of_twos = b"\x02\xc8\x01\x02"  # codes of 2 bits, 100 times, the code 2
    assert content.count(run_of_twos) == 1
    path.write_bytes(content.replace(run_of_twos, b"\x02\xc8\x01\x03"))
    with pytest.raises(ElementError) as raised:
        fl.from_parquet(path).collect()
    assert "has a row group 0 that cannot be read" in str(raised.value.__cause__)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_damaged_file_of_another_program_raises_an_error_or_yields_rows(
    path: Path, version: str
) -> None:
    """Pyarrow aborts the process on some damaged footers."""
    columns = table(a=list(range(20)), b=["x"] * 20, c=[[1.5]] * 20, d=[None, 2] * 10)
    pq.write_table(columns, path, data_page_version=version, row_group_size=10)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    draw, outcomes = random.Random(7), Counter[str]()
    for _ in range(300):
        changed = bytearray(content)
        first = footer if draw.random() < 0.7 else 0
        changed[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            fl.from_parquet(path).collect()
            outcomes["rows"] += 1
        except FlowError as error:
            outcomes["error"] += 1
            outcomes["named"] += str(path) in f"{error} {error.__cause__}"
    assert outcomes["named"] == outcomes["error"]
    assert min(outcomes["rows"], outcomes["error"]) > 10


# -- what we write ---------------------------------------------------------------------------------


def test_other_programs_read_written_files(path: Path) -> None:
    images = [np.full((2, 3), i, np.uint8) for i in range(4)]
    rows = [{"image": images[i], "at": np.datetime64(i, "ms"), "tokens": [i]} for i in range(4)]
    assert fl.from_items(rows).write_parquet(path, row_group=3) == 4
    got = pq.read_table(path, page_checksum_verification=True)
    assert got.column("image").combine_chunks().to_numpy_ndarray().tolist() == [
        image.tolist() for image in images
    ]
    assert got.column("at").type == pa.timestamp("ms")
    assert got.column("tokens").to_pylist() == [[0], [1], [2], [3]]
    assert pq.read_metadata(path).num_row_groups == 2


def test_rows_are_read_back_in_their_classes(path: Path) -> None:
    samples = [Sample(np.full((2, 2), i, np.uint8), i) for i in range(5)]
    fl.from_items(samples).write_parquet(path, row_group=2)
    source = fl.from_parquet(path, Sample)
    got = source.collect()
    assert same(got, samples)
    assert not got[0].image.flags.writeable
    assert str(source.node.spec(probe=False)) == "Sample(image: uint8[2, 2], label: int)"
    shaped = tuple[Annotated[NDArray[np.uint8], fl.Shape(2, None)], np.int64]
    assert type(fl.from_parquet(path, shaped).collect()[0][1]) is np.int64
    fl.from_items([Point(0.5), Point(1.5)]).write_parquet(path, overwrite=True)
    assert fl.from_parquet(path, Point).batch(2).collect()[0].x.tolist() == [0.5, 1.5]


def test_nat_is_stored_as_a_time_and_none_as_null(path: Path) -> None:
    rows = [(np.datetime64("NaT", "ns"), None), (np.datetime64(1, "ns"), np.int8(3))]
    fl.from_items(rows).write_parquet(path)
    got = fl.from_parquet(path).collect()
    assert same(got, rows), got


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1,), ("a",)], "row 1: element.0: str, and int in earlier rows"),
        ([{"x": 1}, {"y": 1}], "row 1: element: row has columns 'y', earlier rows have 'x'"),
        ([(np.zeros((2, 2)),), (np.zeros((2, 3)),)], r"row 1: element.0: np.float64\[2, 3\]"),
        ([(np.zeros((0, 2)),)], "row 0: element.0: an array of shape"),
        ([(np.float32(1),), (np.float64(1),)], "element.0: np.float64, and np.float32 in earlier"),
        ([(np.datetime64("NaT", "D"),)], "row 0: element.0: NaT"),
        ([np.array([0, 2**31], "M8[D]")], "row 0: element: .* cannot be written as days"),
        ([1, np.int64(1)], "row 1: element: np.int64, and int in earlier rows"),
        ([np.bool_(True), False], "row 1: element: bool, and np.bool in earlier rows"),
        ([{"x": {"y": 1}}], "row 0: element.x: dict cannot be written"),
        ([([1, 2.0],)], "row 0: element.0: list"),
        ([(np.zeros(2, ">i4"),)], "row 0: element.0: >i4 cannot be written"),
        ([np.zeros(2, "U3")], "row 0: element: <U3 cannot be written"),
        ([np.ma.masked_array([1], [True])], "row 0: element: MaskedArray cannot be written"),
        ([()], "row 0: element: it has no components"),
    ],
)
def test_value_a_column_cannot_hold_is_refused(path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(SpecMismatch, match=message):
        fl.from_items(rows).write_parquet(path, row_group=2)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    "value",
    [True, 3, 2.5, "x", b"y", np.int16(3), np.float16(1.5), np.datetime64("2020-01-01", "ns")],
    ids=repr,
)
def test_a_column_may_begin_with_row_groups_of_none(path: Path, value: object) -> None:
    begins_with_none(path, value)


@pytest.mark.parametrize("value", [np.arange(3), [1, 2], ["a"], []], ids=repr)
def test_a_column_of_lists_may_begin_with_row_groups_of_none(path: Path, value: object) -> None:
    begins_with_none(path, value)


def begins_with_none(path: Path, value: object) -> None:
    image = np.ones((2, 2), np.float32)
    rows = [(i, value if i == 7 else None, i * image) for i in range(9)]
    fl.from_items(rows).write_parquet(path, row_group=3)
    assert same(fl.from_parquet(path).collect(), rows)
    assert list(path.parent.iterdir()) == [path]


def test_a_column_may_begin_with_row_groups_of_empty_lists(path: Path) -> None:
    rows = [(i, [i] if i > 6 else []) for i in range(9)]
    fl.from_items(rows).write_parquet(path, row_group=3)
    assert fl.from_parquet(path).collect() == rows


def test_refused_row_after_row_groups_of_none_leaves_no_file(path: Path) -> None:
    rows: list[Any] = [(None,)] * 5 + [(1,), ("x",)]
    with pytest.raises(SpecMismatch, match=r"row 6: element\.0: str, and int in earlier rows"):
        fl.from_items(rows).write_parquet(path, row_group=2)
    assert not list(path.parent.iterdir())


def test_bytes_of_read_columns_are_verified(path: Path) -> None:
    fl.from_items([{"a": i, "b": float(i)} for i in range(8)]).write_parquet(path)
    at = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    content[at + 1] ^= 1
    path.write_bytes(content)
    assert len(fl.from_parquet(path, columns=["a"]).collect()) == 8
    with pytest.raises(ElementError) as raised:
        fl.from_parquet(path, columns=["b"]).collect()
    assert "its bytes are not those that were written" in str(raised.value.__cause__)


def test_arrays_do_not_keep_their_row_group_in_memory(path: Path) -> None:
    rows = [(np.full((4, 4), i), np.arange(i)) for i in range(300)]
    fl.from_items(rows).write_parquet(path)
    for image, tokens in fl.from_parquet(path, tuple[NDArray[np.int64], NDArray[np.int64]]):
        for array in (image, tokens):
            base = array.base
            assert base is None or base.nbytes <= 1 << 16


def test_alternating_between_two_groups_decodes_each_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl.from_range(40).write_parquet(path, row_group=10)
    decoded: list[int] = []
    read: Callable[..., Any] = ParquetFile.table

    def counted(file: ParquetFile, group: int, columns: Any) -> Any:
        decoded.append(group)
        return read(file, group, columns)

    monkeypatch.setattr(ParquetFile, "table", counted)
    row = fl.from_parquet(path).node.open()  # type: ignore[attr-defined]  # an IndexedSource
    assert [row(i) for i in (5, 15, 7, 16, 8, 17)] == [5, 15, 7, 16, 8, 17]
    assert decoded == [0, 1]


def test_rewritten_file_is_an_error(path: Path) -> None:
    fl.from_range(4).write_parquet(path)
    source = fl.from_parquet(path)
    fl.from_range(5).write_parquet(path, overwrite=True)
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        source.collect()


def test_missing_pyarrow_error_has_the_install_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(libraries, "import_module", missing)
    message = r'needs pyarrow, which is not installed: pip install "flowdsl\[parquet\]"'
    with pytest.raises(MissingLibrary, match=f"from_parquet {message}"):
        fl.from_parquet(path)
    with pytest.raises(MissingLibrary, match=f"write_parquet {message}"):
        fl.from_range(3).write_parquet(path)


def test_bad_arguments_are_named(path: Path) -> None:
    with pytest.raises(InvalidFlow, match="row_group must be an int >= 1, got 0"):
        fl.from_range(3).write_parquet(path, row_group=0)
    path.write_bytes(b"PAR1 and nothing of a table PAR1")
    with pytest.raises(SourceError, match="is not a Parquet file, or is cut off"):
        fl.from_parquet(path)
    path.write_bytes(b"PAR1 encrypted PARE")
    with pytest.raises(SourceError, match="is encrypted"):
        fl.from_parquet(path)


@pytest.mark.parametrize("nulls", [b"", False, 0.0, -1])
def test_a_number_of_nulls_is_a_number(nulls: object) -> None:
    metadata = {1: 1, 3: [b"a"], 5: 3, 6: 24, 7: 24, 9: 4, 12: {3: nulls}}
    with pytest.raises(ValueError, match="column 'a' is inconsistent"):
        _chunk({3: metadata}, {1: 1})
    assert _chunk({3: metadata | {12: {}}}, {1: 1}).nulls is None
    assert _chunk({3: metadata | {12: {3: 0}}}, {1: 1}).nulls == 0


def test_footer_with_both_keys_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    fl.from_items([(1, 2.0)]).write_parquet(path)
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"flowdsl.parquet", b"flowdsl.parqugt").replace(
            b"flowdsl.seal", b"flo7dsl.seal"
        )
    )
    with pytest.raises(fl.SourceError, match="is damaged: its footer has no seal"):
        fl.from_parquet(path)


def test_column_only_in_a_later_file_is_an_error(tmp_path: Path) -> None:
    first, later = tmp_path / "1.parquet", tmp_path / "2.parquet"
    pq.write_table(table(x=[1]), first)
    pq.write_table(table(x=[2], y=["b"]), later)
    for paths, message in (
        ([first, later], "more columns than .*: 'y'"),
        ([later, first], "is missing"),
    ):
        with pytest.raises(SourceError, match=message):
            fl.from_parquet(paths)
    rows = fl.from_parquet([first, later], columns=["x"]).collect()
    assert rows == [{"x": 1}, {"x": 2}]


# -- files whose columns are stored differently ----------------------------------------------------


class Texts(TypedDict):
    x: str


class Sized(NamedTuple):
    name: str | None
    size: float


def written(folder: Path, **columns: Any) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(table(**columns), path)
    return path


@pytest.mark.parametrize("nulls_first", [False, True])
def test_a_file_with_a_column_of_nulls_only_joins_the_others(
    tmp_path: Path, nulls_first: bool
) -> None:
    paths = [written(tmp_path, x=["a", "b"]), written(tmp_path, x=pa.nulls(1))]
    rows = [{"x": "a"}, {"x": "b"}, {"x": None}]
    if nulls_first:
        paths.reverse()
        rows = [rows[2], *rows[:2]]
    source = fl.from_parquet(paths)
    assert source.collect() == rows
    assert source.node.spec(False) == StructSpec(dict, (("x", UNKNOWN),))
    with pytest.raises(SpecMismatch, match=r"1\.parquet': column 'x' has a value that is null"):
        fl.from_parquet(paths, Texts)


def test_text_and_numbers_stored_in_other_widths_are_read_as_declared(tmp_path: Path) -> None:
    small = written(tmp_path, name=["a"], size=pa.array([1.5], pa.float32()))
    large = written(tmp_path, name=pa.array(["b"], pa.large_string()), size=[0.1])
    viewed = written(tmp_path, name=pa.array(["c"], pa.string_view()), size=[0.2])
    coded = written(tmp_path, name=pa.array(["d"]).dictionary_encode(), size=[0.3])
    rows = fl.from_parquet([small, large, viewed, coded], Sized).collect()
    assert rows == [Sized("a", 1.5), Sized("b", 0.1), Sized("c", 0.2), Sized("d", 0.3)]
    names = fl.from_parquet([viewed, large, coded], columns=["name"]).collect()
    assert [row["name"] for row in names] == ["c", "b", "d"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1], pa.array([1], pa.int8()), "is int8, there it is int64; declare int to read both"),
        (pa.array([1.5], pa.float32()), [2.5], "there it is float; declare float to read both"),
        ([1], [1.5], r"is double, there it is int64$"),
        (
            pa.array([1], pa.timestamp("us", "UTC")),
            pa.array([1], pa.timestamp("us")),
            r"is timestamp\[us\], there it is timestamp\[us, tz=UTC\]$",
        ),
        ([{"x": 1}], [{"y": 1}], r"is struct<y: int64>, there it is struct<x: int64>$"),
    ],
)
def test_columns_whose_values_would_differ_are_refused(
    tmp_path: Path, first: Any, second: Any, message: str
) -> None:
    paths = [written(tmp_path, x=first), written(tmp_path, x=second)]
    with pytest.raises(SourceError, match=rf"1\.parquet' has other columns .*{message}"):
        fl.from_parquet(paths)


# -- columns in the names of folders ---------------------------------------------------------------


class Numbers(TypedDict):
    n: int


class TextKey(Numbers):
    k: str


class SmallKey(Numbers):
    k: np.int8


class Visit(NamedTuple):
    city: str
    year: int
    n: int


def in_folders(folder: Path, name: str, *folders: str, **columns: Any) -> str:
    for part in folders:
        at = folder / name.format(part)
        at.mkdir(parents=True)
        pq.write_table(table(n=[1, 2], **columns), at / "0.parquet")
    return str(folder / "**" / "*.parquet")


def test_names_of_folders_are_columns(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "year=2024/city={}", "Rome", "New%20York")
    rows = [{"n": n, "year": 2024, "city": city} for city in ("New York", "Rome") for n in (1, 2)]
    source = fl.from_parquet(paths)
    assert source.collect() == rows
    assert type(source.at(3)["year"]) is np.int64
    assert str(source.node.spec(False)) == "{n: int64[], year: int64[], city: str}"
    declared = fl.from_parquet(paths, Visit)
    assert (
        declared.shuffle(seed=1).prefetch(threads=1).map(lambda v: v.city).collect().count("Rome")
        == 2
    )
    assert declared.at(0) == Visit("New York", 2024, 1)
    assert type(declared.at(0).year) is int


def test_where_a_table_is_does_not_change_its_rows(tmp_path: Path) -> None:
    in_folders(tmp_path, "lr=0.1/year={}", "2023", "2024")
    run = tmp_path / "lr=0.1"
    one = fl.from_parquet(run / "year=2024" / "0.parquet")
    assert one.at(0) == fl.from_parquet(run / "year=2024" / "*.parquet").at(0) == {"n": 1}
    both = [run / f"year={year}" / "0.parquet" for year in (2023, 2024)]
    for named in (run / "year=*" / "*", both, run / "year={2023,2024}" / "*.parquet"):
        assert fl.from_parquet(named).at(2) == {"n": 1, "year": 2024}
    assert fl.from_parquet(run / "*=2024" / "*").at(0) == {"n": 1, "year": 2024}


@pytest.mark.parametrize(
    "pattern",
    [
        "https://me:k=secret@h.org/a=1/{}/x.parquet?s=/k=secret/0",
        "https://k=secret@h.org/a=1/{}/x.parquet#k=secret/0",
        "zip://a=1/{}/x.parquet::https://me:k=secret@h.org/k=secret/x.zip?k=secret/0",
        "s3://bucket/a=1/{}/x.parquet",
    ],
)
def test_only_the_path_of_a_url_has_keys(pattern: str) -> None:
    one, two = pattern.format("b=1"), pattern.format("b=2")
    assert keys_of([one], [pattern.format("*")]) == [{"b": "1"}]
    assert keys_of([one, two], [one, two]) == [{"b": "1"}, {"b": "2"}]
    assert keys_of([one], [one]) == [{}]
    other = one.replace("secret", "other")
    assert keys_of([one, other], [one, other]) == [{}, {}]


def test_keys_of_urls_are_columns(tmp_path: Path) -> None:
    in_folders(tmp_path, "a=1/b={}", "2", "3")
    assert fl.from_parquet(f"file://{tmp_path}/a=1/*/*.parquet").at(2) == {"n": 1, "b": 3}


def test_names_of_folders_may_be_left_out(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "year={}", "2023", "2024")
    assert fl.from_parquet(paths, columns=["n"]).at(2) == {"n": 1}
    assert fl.from_parquet(paths, columns=["year"]).at(2) == {"year": 2024}
    assert fl.from_parquet(paths, Numbers).at(2) == {"n": 1}


def test_a_column_in_the_file_takes_precedence_over_the_folder(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "year={}", "24", year=[2024, 2024])
    assert fl.from_parquet(paths).at(0) == {"n": 1, "year": 2024}


def test_a_null_in_the_name_of_a_folder_is_none(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "k={}", "a", "__HIVE_DEFAULT_PARTITION__")
    assert [row["k"] for row in fl.from_parquet(paths).collect()] == [None, None, "a", "a"]
    with pytest.raises(SpecMismatch, match="the value of 'k' in its folder's name is null"):
        fl.from_parquet(paths, TextKey)


def test_a_folder_whose_name_is_not_of_the_declared_type_is_refused(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "k={}", "1", "300")
    with pytest.raises(SpecMismatch, match=r"value '300' of 'k' .* not of the declared type, int8"):
        fl.from_parquet(paths, SmallKey)
    assert fl.from_parquet(paths, TextKey).at(0)["k"] == "1"


def test_files_in_folders_with_other_keys_are_refused(tmp_path: Path) -> None:
    one, other = (in_folders(tmp_path / k, f"{k}={{}}", "1") for k in "ab")
    with pytest.raises(SourceError, match="'a' is missing, there it is in the name of a folder"):
        fl.from_parquet([one, other])
    assert len(fl.from_parquet([one, other], columns=["n"])) == 4


def test_the_fingerprint_contains_values_of_folders(tmp_path: Path) -> None:
    paths = in_folders(tmp_path, "k={}", "1", "2")
    files = [str(tmp_path / f"k={k}/0.parquet") for k in "12"]
    nodes = [fl.from_parquet(listed).node for listed in (paths, files, files[::-1])]
    first, same_files, reversed_files = [node.fingerprint for node in nodes]
    assert first == same_files != reversed_files


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "9223372036854775808 cannot be written: ints must fit into 64 bits"),
        ("\ud800", "text that is not Unicode cannot be written"),
    ],
)
def test_values_that_parquet_cannot_store_are_refused(
    value: Any, message: str, tmp_path: Path
) -> None:
    for element in ({"x": value}, {"x": [value]}):
        with pytest.raises(FlowError, match=message):
            fl.from_items([element]).write_parquet(tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())


class Inner(NamedTuple):
    a: int


class InnerOrNone(NamedTuple):
    a: int | None


NESTED: dict[str, tuple[Any, Any, list[Any] | str]] = {
    "a null in a list": ([[1], [2, None]], list[int], r"row 1 of .*x\[1\] is null"),
    "a declared null in a list": ([[1], [2, None]], list[int | None], [[1], [2, None]]),
    "a null in a list of lists": ([[[1], [None]]], list[list[int]], r"row 0 .*x\[1\]\[0\] is null"),
    "a null list in a list": ([[[1], None]], list[list[int]], r"row 0 .*x\[1\] is null"),
    "a null in a struct": ([{"a": 1}, {"a": None}], Inner, r"row 1 .*x\.a is null"),
    "a declared null in a struct": ([{"a": None}], InnerOrNone, [InnerOrNone(None)]),
    "a null in structs in a list": ([[{"a": 1}, {"a": None}]], list[Inner], r"x\[1\]\.a is null"),
    "a null struct, declared": ([None, {"a": 1}], Inner | None, [None, Inner(1)]),
    "whole numbers as truth values": ([[1, 0]], list[bool], r"x\[\]: declared bool, got int"),
    "whole numbers in a struct": ([{"a": True}], Inner, [Inner(True)]),
    "a list as a tuple": ([[1, 0]], tuple[int, ...], "x: declared tuple.*; declare a list"),
    "a list as a set": ([["a"]], set[str], "x: declared set.*; declare a list"),
}


@pytest.mark.parametrize("case", NESTED)
def test_values_within_lists_and_structs_are_as_declared(case: str, tmp_path: Path) -> None:
    values, hint, expected = NESTED[case]
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet")
    make: Any = TypedDict  # which type checkers accept only with annotations that they know
    element = make("element", {"x": hint})
    if isinstance(expected, list):
        flow = fl.from_parquet(tmp_path / "x.parquet", element)
        assert [row["x"] for row in flow.collect()] == expected
    else:
        with pytest.raises(FlowError, match=expected):
            fl.from_parquet(tmp_path / "x.parquet", element).collect()


def test_a_null_in_a_list_spares_the_other_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1, 2], [3, None], None, [5]]}), tmp_path / "x.parquet")
    flow = fl.from_parquet(tmp_path / "x.parquet")
    rows = flow.prefetch(on_error="skip").collect()
    assert [None if row["x"] is None else row["x"].tolist() for row in rows] == [[1, 2], None, [5]]
    with pytest.raises(ElementError, match=r"row 1 of .*null; declare list\[int \| None\]"):
        flow.collect()
    column = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, None, 4.0]), 2)
    pq.write_table(pa.table({"x": column}), tmp_path / "y.parquet")
    with pytest.raises(ElementError, match=r"row 1 of .*null; declare list\[float \| None\]"):
        fl.from_parquet(tmp_path / "y.parquet").collect()


class OfMap(NamedTuple):
    sizes: dict[str, int]


def test_a_map_is_a_list_of_pairs_or_a_declared_dict(tmp_path: Path) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    twice = [[("a", 1), ("b", 2)], [("a", 1), ("a", 2)]]
    pq.write_table(pa.table({"sizes": pa.array(twice, kind)}), tmp_path / "x.parquet")
    assert [row["sizes"] for row in fl.from_parquet(tmp_path / "x.parquet")] == twice
    flow = fl.from_parquet(tmp_path / "x.parquet", OfMap)
    assert flow[0] == OfMap({"a": 1, "b": 2})
    with pytest.raises(ElementError, match=r"row 1 of .*two entries of one key"):
        flow.collect()


def test_times_in_nanoseconds_are_not_rounded(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1_000], pa.time64("ns"))}), tmp_path / "x.parquet")
    assert fl.from_parquet(tmp_path / "x.parquet").collect() == [{"x": time(0, 0, 0, 1)}]
    pq.write_table(pa.table({"x": pa.array([1_001], pa.time64("ns"))}), tmp_path / "x.parquet")
    with pytest.raises(FlowError, match=r"column 'x' cannot be read: .*lose data"):
        fl.from_parquet(tmp_path / "x.parquet").collect()


def test_a_file_of_an_empty_flow_without_columns_is_read_beside_others(tmp_path: Path) -> None:
    rows = fl.from_items([("a", 1), ("b", 2)])
    paths = [tmp_path / f"{k}.parquet" for k in range(3)]
    for path, flow in zip(paths, [rows.take(0), rows, rows.take(0)], strict=True):
        flow.write_parquet(path)
    assert fl.from_parquet(paths).collect() == rows.collect()
    assert fl.from_parquet(paths[::2]).collect() == []


_COMPONENTS: st.SearchStrategy[object] = st.one_of(
    st.sampled_from([True, 1, 0.5, "a", b"a", date(2020, 1, 1), None, [1], ["a"], []]),
    st.sampled_from(["i1", "f4", "M8[ns]", "M8[D]", "m8[us]"]).map(lambda t: np.zeros((), t)[()]),
    st.sampled_from([(3,), (2, 3), (1, 2, 3)]).map(lambda shape: np.zeros(shape, np.float32)),
)


@settings(max_examples=examples(60))
@given(row=st.lists(_COMPONENTS, min_size=1, max_size=3), is_tuple=st.booleans())
def test_a_file_without_rows_has_the_columns_of_one_with_rows(
    row: list[object], is_tuple: bool
) -> None:
    element = tuple(row) if is_tuple else {f"c{k}": part for k, part in enumerate(row)}
    flow = fl.from_items([element])
    with tempfile.TemporaryDirectory() as folder:
        some, none, filtered = (f"{folder}/{k}.parquet" for k in range(3))
        flow.write_parquet(some)
        flow.take(0).write_parquet(none)
        flow.filter(lambda row: False).write_parquet(filtered)
        schema = pq.read_schema(some)
        assert pq.read_schema(none).equals(schema)
        assert pq.read_schema(filtered).equals(schema)
        assert fl.from_parquet(none).collect() == []
        assert len(fl.from_parquet([none, some, filtered])) == 1


@pytest.mark.parametrize("element", [{0: 1}, {"\ud800": 1}, {}, ()])
def test_a_flow_without_rows_is_written_without_columns_that_no_row_could_have(
    path: Path, element: Any
) -> None:
    fl.from_items([element]).take(0).write_parquet(path)
    assert pq.read_schema(path).names == []
    assert fl.from_parquet(path).collect() == []


def test_a_file_without_rows_does_not_determine_the_columns_of_others(tmp_path: Path) -> None:
    images = fl.from_items([{"x": np.zeros((2, 3))}, {"x": np.ones((4, 5))}])
    none, some = tmp_path / "none.parquet", tmp_path / "some.parquet"
    images.take(0).write_parquet(none)
    images.skip(1).write_parquet(some)
    assert fl.from_parquet([none, some]).at(0)["x"].shape == (4, 5)


def test_a_table_without_columns_has_no_rows(path: Path) -> None:
    pq.write_table(pa.table({}), path)
    flow = fl.from_parquet(path)
    assert flow.collect() == []
    assert flow.spec == StructSpec(dict, ())
    with pytest.raises(SpecMismatch, match="has no column 'x', it has none, as a file of no rows"):
        fl.from_parquet(path, Point)
    other = path.with_name("other.parquet")
    pq.write_table(table(x=[0.5]), other)
    assert fl.from_parquet([path, other], Point).collect() == [Point(0.5)]


def test_rows_of_tuples_and_of_other_programs_are_read_by_declared_names(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.parquet" for k in range(2)]
    fl.from_items([InnerAndText(1, "x")]).write_parquet(paths[0])
    pq.write_table(pa.table({"b": ["y"], "a": [2]}), paths[1])
    expected = [InnerAndText(1, "x"), InnerAndText(2, "y")]
    assert fl.from_parquet(paths, InnerAndText).collect() == expected
    assert fl.from_parquet(paths[::-1], InnerAndText).collect() == expected[::-1]
    with pytest.raises(SourceError, match=r"1\.parquet' were written as a dict, .* as a tuple"):
        fl.from_parquet(paths)


class InnerAndText(NamedTuple):
    a: int
    b: str


def test_text_of_numpy_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(SpecMismatch, match=r"<U1 cannot be written.*; map text of NumPy to str"):
        fl.from_items([np.str_("a")]).write_parquet(tmp_path / "a.parquet")
