"""Nulls that are filled where they are read, and batches of tables that are slices of columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError, FlowError, InvalidFlow, SpecMismatch
from flowdsl.nodes import Windowed
from flowdsl.testing.elements import same
from tests.sampling import examples

FORMS: dict[str, tuple[Any, st.SearchStrategy[Any], Any]] = {
    "int32": (pa.int32(), st.integers(-9, 9), 7),
    "float64": (pa.float64(), st.floats(-9, 9), 0.5),
    "float16": (pa.float16(), st.sampled_from([0.5, 1.0]), 2),
    "bool": (pa.bool_(), st.booleans(), True),
    "text": (pa.string(), st.sampled_from(["a", "bb"]), ""),
    "words": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb"]), "c"),
    "codes": (pa.dictionary(pa.int8(), pa.int64()), st.sampled_from([1, 2]), 3),
    "bytes": (pa.binary(), st.sampled_from([b"a", b"bb"]), b"?"),
    "days": (pa.date32(), st.sampled_from([date(2020, 1, 2), date(1969, 5, 6)]), date(2000, 1, 1)),
    "times": (pa.timestamp("us"), st.sampled_from([1, 2]), np.datetime64("2020-01-01T00:00")),
}
"""Types of columns, values of each, and a value that fills it."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=3, unique=True))
    n = draw(st.integers(1, 12))
    with_nulls = draw(st.lists(st.sampled_from(names), unique=True))
    columns, fill = dict[str, Any](), dict[str, Any]()
    for name in names:
        form, values, value = FORMS[name]
        if name in with_nulls:
            values = st.none() | values
            fill[name] = value
        columns[name] = pa.array(draw(st.lists(values, min_size=n, max_size=n)), form)
    return pa.table(columns), fill


def filled_by_hand(table: Any, fill: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {name: fill[name] if value is None else value for name, value in row.items()}
        for row in table.to_pylist()
    ]


def equal(one: Any, other: Any) -> None:
    assert str(fl.from_items([one]).spec) == str(fl.from_items([other]).spec)
    assert same(one, other)


@settings(max_examples=examples(200))
@given(tables(), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_batches_of_columns_equal_batches_of_rows(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[Any, dict[str, Any]],
    group: int,
    size: int,
    stride: int,
) -> None:
    table, fill = drawn
    path = tmp_path_factory.mktemp("table") / "a.parquet"
    pq.write_table(table, path, row_group_size=group)
    rows = fl.from_parquet(path, fill=fill)
    assert len([*rows]) == table.num_rows
    for flow in (
        rows.batch(size),
        rows.batch(size, drop_remainder=True),
        rows.batch(size).shuffle(seed=1),
        rows.window(size, stride, stack=True),
        rows.window(size, stride, stack=True).batch(2),
    ):
        node: Any = flow.node
        for x, y in zip([*flow], [y for _, y in node.reference(0)], strict=True):
            equal(x, y)


@settings(max_examples=examples(200))
@given(tables())
def test_nulls_are_filled_and_other_values_are_kept(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Any, dict[str, Any]]
) -> None:
    table, fill = drawn
    path = tmp_path_factory.mktemp("table") / "a.parquet"
    pq.write_table(table, path)
    flow = fl.from_parquet(path, fill=fill)
    times = [name for name in table.column_names if name in ("days", "times")]
    for row, by_hand in zip(flow, filled_by_hand(table, fill), strict=True):
        assert {n: x for n, x in row.items() if n not in times} == {
            n: x for n, x in by_hand.items() if n not in times
        }
        for name in times:
            assert row[name] == np.datetime64(by_hand[name])


class Person(NamedTuple):
    age: float
    city: str


@pytest.fixture
def people(tmp_path: Path) -> Path:
    columns = {"age": [1.5, None, 3.0], "city": ["a", "b", None]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_a_filled_column_has_a_known_spec(people: Path) -> None:
    flow = fl.from_parquet(people, fill={"age": 0, "city": ""})
    assert str(flow.spec) == "{age: float64[], city: str}"
    batch = flow.batch(3).collect()[0]
    assert batch["age"].tolist() == [1.5, 0.0, 3.0]
    assert batch["city"] == ["a", "b", ""]


def test_a_declared_row_is_filled(people: Path) -> None:
    flow = fl.from_parquet(people, Person, fill={"age": 0.5, "city": "?"})
    assert flow.collect() == [Person(1.5, "a"), Person(0.5, "b"), Person(3.0, "?")]
    batch: Any = flow.batch(3).collect()[0]
    assert type(batch) is Person
    assert list(batch.city) == ["a", "b", "?"]


def test_an_undeclared_null_names_fill(people: Path) -> None:
    with pytest.raises(SpecMismatch, match=r"column 'age' has a value that is null.*fill=\{'age'"):
        fl.from_parquet(people, Person)
    with pytest.raises(ElementError) as caught:
        fl.from_parquet(people).batch(3).collect()
    assert "fill={...}" in str(caught.value.__cause__)


def test_a_null_in_a_batch_is_the_error_of_rows(people: Path) -> None:
    flow = fl.from_parquet(people, fill={"city": ""}).batch(2)
    with pytest.raises(FlowError) as caught:
        flow.collect()
    with pytest.raises(FlowError) as other:
        [x for _, x in flow.node.reference(0)]
    assert str(caught.value) == str(other.value)
    assert "element.age" in str(caught.value.__cause__)


def test_a_row_that_is_refused_is_the_error_of_rows(people: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([[1.0], [2.0], [None]])}), people, row_group_size=2)
    flow = fl.from_parquet(people).batch(2)
    batches = iter(flow)
    assert next(batches)["x"].tolist() == [[1.0], [2.0]]
    with pytest.raises(FlowError, match="row 2 of from_parquet"):
        next(batches)


def test_only_null_columns_have_the_spec_of_the_value(people: Path) -> None:
    pq.write_table(pa.table({"x": pa.nulls(2)}), people)
    flow = fl.from_parquet(people, fill={"x": np.float32(1)})
    assert str(flow.spec) == "{x: float32[]}"
    assert flow.batch(2).collect()[0]["x"].dtype == np.float32


def test_a_null_in_the_name_of_a_folder_is_filled(tmp_path: Path) -> None:
    for year in ("2024", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"year={year}" / "0.parquet")
    flow = fl.from_parquet(f"{tmp_path}/*/*.parquet", fill={"year": -1})
    assert str(flow.spec) == "{x: int64[], year: int64[]}"
    assert flow.batch(2).collect()[0]["year"].tolist() == [2024, -1]


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"agee": 0}, "fill has 'agee'; the columns that are read are 'age', 'city'"),
        ({"age": "a"}, "fill of 'age' must be a value of float64[], got 'a'"),
        ({"age": True}, "fill of 'age' must be a value of float64[], got True"),
        ({"age": None}, "fill of 'age' must be a value; leave 'age' out"),
        ({"city": 0}, "fill of 'city' must be of the class str, got 0"),
        ({"age": 0, "city": b""}, "fill of 'city' must be of the class str, got b''"),
        (0.0, "fill must be a dict of a value for each column with nulls, such as {'age': 0}"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_built(
    people: Path, fill: Any, message: str
) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_parquet(people, fill=fill)
    assert f"from_parquet: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (pa.int8(), 300),
        (pa.int64(), 0.5),
        (pa.float32(), 0.1),
        (pa.bool_(), 1),
        (pa.timestamp("ms"), np.datetime64("2020-01-01T00:00:00.0005")),
        (pa.timestamp("s"), 0),
        (pa.list_(pa.int64()), [1]),
    ],
)
def test_a_value_that_a_type_lacks_is_refused(people: Path, form: Any, value: Any) -> None:
    pq.write_table(pa.table({"x": pa.nulls(1, form)}), people)
    with pytest.raises(InvalidFlow, match=r"^from_parquet: fill of 'x'"):
        fl.from_parquet(people, fill={"x": value})


def test_a_state_belongs_to_the_values(people: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,rooms,city\n1.5,1,a\n,2,b\n")
    readers: list[Callable[[float], fl.Flow[Any, fl.Exact]]] = [
        lambda age: fl.from_parquet(people, fill={"age": age}),
        lambda age: fl.from_csv(path, Cells, fill={"age": age}),
    ]
    for read in readers:
        run = iter(read(0.5))
        next(run)
        (age, *_) = tuple(next(read(0.5).resume(run.state_dict())))
        assert age in ("age", 0.5)
        with pytest.raises(FlowError):
            read(1.5).resume(run.state_dict())


def test_rows_of_users_classes_are_made(people: Path) -> None:
    import attrs

    @attrs.frozen
    class Checked:
        age: float = attrs.field(validator=attrs.validators.lt(3))

    def is_sliced(flow: Any) -> bool:
        assert isinstance(flow.node, Windowed)
        return flow.node.open_views() is not None

    rows = fl.from_parquet(people, Checked, columns=["age"], fill={"age": 0})
    assert not is_sliced(rows.batch(2))
    assert is_sliced(fl.from_parquet(people, fill={"age": 0}).batch(2))
    with pytest.raises(ElementError):
        rows.batch(3).collect()


# -- cells of CSV files ----------------------------------------------------------------------------


class Cells(NamedTuple):
    age: float
    rooms: np.int16
    city: str


def test_empty_cells_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,rooms,city\n1.5,,a\n,2,\n,,\n")
    fill = {"age": 0.5, "rooms": -1, "city": "?"}
    rows = fl.from_csv(path, Cells, fill=fill).collect()
    assert rows == [Cells(1.5, np.int16(-1), "a"), Cells(0.5, np.int16(2), "?"), (0.5, -1, "?")]
    assert {type(x) for _, x, _ in rows} == {np.int16}
    texts = fl.from_csv(path, fill={"age": "0"}).collect()
    assert [row["age"] for row in texts] == ["1.5", "0", "0"]
    assert [row["city"] for row in texts] == ["a", "", ""]


def test_an_empty_cell_of_an_optional_number_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('1\n""\n')
    flow = fl.from_csv(path, tuple[int | None], header=False, fill={"0": 7})
    assert flow.collect() == [(1,), (7,)]


def test_an_empty_cell_of_a_number_names_fill(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,rooms,city\n1.5,1,a\n,2,b\n")
    with pytest.raises(ElementError) as caught:
        fl.from_csv(path, Cells).collect()
    assert "column 'age': '' is not of the declared type, float; " in str(caught.value.__cause__)
    assert "declare float | None, or fill empty cells with fill={...}" in str(caught.value)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"agee": 0}, "fill has 'agee'; the columns that are read are 'age', 'rooms', 'city'"),
        ({"age": "0"}, "fill of 'age' must be a value of float, got '0'"),
        ({"rooms": 2**15}, "fill of 'rooms' must be a value of int16[], got 32768"),
        ({"city": 1}, "fill of 'city' must be of the class str, got 1"),
    ],
)
def test_a_value_that_a_cell_cannot_have_is_refused(
    tmp_path: Path, fill: Any, message: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,rooms,city\n1.5,1,a\n")
    with pytest.raises(InvalidFlow) as caught:
        fl.from_csv(path, Cells, fill=fill)
    assert str(caught.value) == f"from_csv: {message}"
