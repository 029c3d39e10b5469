"""Tables in memory: the rows of data frames and of tables of Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, MissingLibrary
from flowdsl.testing import check_source
from flowdsl.testing.elements import same
from tests.sampling import examples

pd: Any = pytest.importorskip("pandas")

X = np.arange(6, dtype=np.int16)
TEXTS = [f"row {i}" for i in range(6)]
ROWS = [{"x": x, "name": text} for x, text in zip(X, TEXTS, strict=True)]


class Older:
    """A table that offers only the older protocol, as pandas did before 2.2."""

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        names: list[str] = self._table.column_names
        return names

    def __dataframe__(self, *args: Any, **kw: Any) -> Any:
        return self._table.__dataframe__(*args, **kw)


TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a data frame of pandas": lambda columns: pd.DataFrame(columns, index=range(9, 3, -1)),
    "a table of Arrow": pa.table,
    "a table of Arrow in chunks": lambda columns: pa.concat_tables(
        [pa.table(columns).slice(0, 2), pa.table(columns).slice(2)]
    ),
    "a batch of Arrow": pa.RecordBatch.from_pydict,
    "an older data frame": lambda columns: Older(pa.table(columns)),
}


def polars(columns: dict[str, Any]) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


TABLES["a data frame of Polars"] = polars

PERIODS = pd.DataFrame({"a": pd.period_range("2024-01", periods=2, freq="M")})
STORED_PERIODS = pa.Table.from_arrays(
    [pa.array([648, 649])],
    schema=pa.schema(
        [
            pa.field(
                "a",
                pa.int64(),
                metadata={
                    b"ARROW:extension:name": b"pandas.period",
                    b"ARROW:extension:metadata": b'{"freq": "M"}',
                },
            )
        ]
    ),
)
"""Periods as a program reads them from a file if pandas is not imported."""


@pytest.mark.parametrize("kind", TABLES)
def test_rows_are_dicts_of_the_values_of_columns(kind: str) -> None:
    flow = fl.from_items(TABLES[kind]({"x": X, "name": TEXTS}))
    assert str(flow.spec) == "{x: int16[], name: str}"
    assert flow.effects == set()
    assert len(flow) == 6
    assert all(map(same, flow.collect(), ROWS))
    assert same(flow.at(3), ROWS[3])
    assert all(map(same, flow.prefetch(procs=1).collect(), ROWS))


def test_a_table_keeps_the_laws() -> None:
    table = pa.table({"x": X, "name": TEXTS})
    check_source(lambda: fl.from_items(table), ROWS, examples=15)


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=examples(100))
@given(st.integers(1, 7), st.integers(1, 7))
def test_batches_are_slices_of_the_columns(kind: str, size: int, stride: int) -> None:
    flow = fl.from_items(TABLES[kind]({"x": X, "name": TEXTS}))
    above: Any
    for above in (
        flow.batch(size),
        flow.batch(size, drop_remainder=True),
        flow.window(size, stride, stack=True),
        flow.batch(size).shuffle(seed=1),
    ):
        assert all(map(same, [*above], [x for _, x in above.node.reference(0)]))


def test_columns_of_pandas_are_not_copied() -> None:
    frame = pd.DataFrame({"x": np.arange(9.0)})
    window: Any = next(iter(fl.from_items(frame).window(3, stack=True)))
    assert np.shares_memory(window["x"], frame["x"].to_numpy())
    assert not window["x"].flags.writeable
    batch: Any = next(iter(fl.from_items(frame).batch(3)))
    assert batch["x"].flags.writeable
    assert not np.shares_memory(batch["x"], frame["x"].to_numpy())


def test_a_nan_of_pandas_stays_a_number_and_a_null_is_none() -> None:
    columns = {"x": [0.5, np.nan], "name": ["a", None]}
    flow = fl.from_items(pd.DataFrame(columns))
    assert str(flow.spec) == "{x: float64[], name: ?}"
    second = flow.at(1)
    assert np.isnan(second["x"])
    assert second["name"] is None
    with pytest.raises(
        ElementError, match=r"element\.name: row 0 of the batch is str, row 1 is None"
    ):
        flow.batch(2).collect()
    assert fl.from_items(pa.table({"x": [0.5, None]})).at(1) == {"x": None}


def test_lists_and_structs_are_values_of_python() -> None:
    table = pa.table({"tags": [["a"], []], "place": [{"x": 1}, {"x": 2}], "v": [[1, 2], [3, 4]]})
    flow = fl.from_items(table)
    assert str(flow.spec) == "{tags: list[str], place: {x: int}, v: int64[?]}"
    assert flow.at(1)["place"] == {"x": 2}
    assert flow.batch(2).collect()[0]["v"].tolist() == [[1, 2], [3, 4]]


def test_numbers_of_pandas_need_no_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert fl.from_items(pd.DataFrame({"x": [1, 2]})).collect() == [{"x": 1}, {"x": 2}]
    with pytest.raises(MissingLibrary, match="from_items"):
        fl.from_items(pd.DataFrame({"x": ["a", "b"]}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the table has two columns 'a'"),
        (pd.DataFrame([[1, 2]]), "columns of a table must be named by text, got 0"),
        (pd.DataFrame(index=[1, 2]), "the table has no columns"),
        (pd.DataFrame({"a": [object()]}), "a DataFrame cannot be read as a table of Arrow: "),
        (pa.table({"a": [[1, None]]}), "column 'a' cannot be read: it has an array with an item"),
        (PERIODS, "column 'a' cannot be read: it has periods of pandas, "),
        (pa.table(PERIODS), "column 'a' cannot be read: it has periods of pandas, "),
        (STORED_PERIODS, "column 'a' cannot be read: it has periods of pandas, "),
        (
            pd.DataFrame({"a": pd.interval_range(0, 2, closed="left")}),
            "column 'a' cannot be read: it has intervals of pandas, ",
        ),
    ],
)
def test_tables_that_have_no_rows_of_dicts_are_refused(table: Any, message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_items(table)
    assert str(caught.value).startswith(f"from_items: {message}")


def test_periods_are_read_as_the_advice_converts_them() -> None:
    with pytest.raises(InvalidFlow, match=r"such as frame\[name\]\.dt\.to_timestamp\(\), or"):
        fl.from_items(PERIODS)
    (row, _) = fl.from_items(pd.DataFrame({"a": PERIODS["a"].dt.to_timestamp()})).collect()
    assert row["a"] == np.datetime64("2024-01-01")
    (row, _) = fl.from_items(pd.DataFrame({"a": PERIODS["a"].astype(str)})).collect()
    assert row["a"] == "2024-01"
    intervals = pd.DataFrame({"a": pd.interval_range(0, 2)})
    ends = {"left": intervals["a"].array.left, "right": intervals["a"].array.right}
    assert fl.from_items(pd.DataFrame(ends)).at(1) == {"left": 1, "right": 2}


def test_a_table_elsewhere_is_refused_with_what_to_write() -> None:
    table: Any = pa.table({"x": X})
    refused: list[Callable[[], object]] = [
        lambda: fl.from_items((table, table)),
        lambda: fl.from_iterable(table),
        lambda: fl.from_dataset(table),
    ]
    for make in refused:
        with pytest.raises(InvalidFlow, match=r"must not be a table.* got Table; from_items\(x\)"):
            make()
    with pytest.raises(ElementError, match="must not be a table"):
        fl.from_range(1).flat_map(lambda _: table).collect()


def test_a_lazy_frame_is_refused_with_advice() -> None:
    class LazyFrame:
        """Stands for the class of Polars."""

    with pytest.raises(InvalidFlow, match=r"got LazyFrame; write from_items\(frame.collect\(\)\)"):
        fl.from_items(LazyFrame())  # type: ignore[call-overload]
