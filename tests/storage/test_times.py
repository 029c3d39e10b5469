"""Days and times in CSV and Parquet files, in the classes that an element declares."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, SpecMismatch


class Event(NamedTuple):
    day: date
    time: datetime
    end: np.datetime64
    seen: datetime | None


class Times(TypedDict):
    time: datetime


def unfolded(time: datetime) -> datetime:
    """Return a time that a cell can hold."""
    return time if time.tzinfo else time.replace(fold=0)


EVENTS = st.builds(
    Event,
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, timezone(timedelta(hours=2))])).map(unfolded),
    st.datetimes().map(lambda t: np.datetime64(t, "us")),
    st.none() | st.datetimes().map(unfolded),
)


@given(st.lists(EVENTS, min_size=1, max_size=5))
def test_times_are_read_from_csv_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event]
) -> None:
    path = tmp_path_factory.mktemp("times") / "a.csv"
    fl.from_items(events).write_csv(path)
    flow = fl.from_csv(path, Event)
    rows = flow.collect()
    assert rows == events
    assert [row.time.utcoffset() for row in rows] == [event.time.utcoffset() for event in events]
    assert str(flow.spec) == "Event(day: date, time: datetime, end: datetime64[us][], seen: ?)"
    ends = flow.map(lambda event: event.end).batch(5).collect()[0]
    assert ends.tolist() == [event.end.item() for event in events]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("31.1.2024,2024-01-31,2024-01-31,", "column 'day': '31.1.2024' is not of .*2024-01-31$"),
        ("2024-01-31T10:00,2024-01-31,2024-01-31,", "column 'day'"),
        (",2024-01-31,2024-01-31,", "column 'day': '' is not .*; declare date | None, or fill"),
        ("2024-01-31,25:00,2024-01-31,", "column 'time': '25:00' is not of the declared type, d"),
        ("2024-01-31,2024-01-31T10:00:00.1234567,2024-01-31,", "column 'time'"),
        ("2024-01-31,2024-01-31,2024-01-31T10:00Z,", "column 'end'.*without a time zone"),
        ("2024-01-31,2024-01-31,2024-01-31,now", "column 'seen': 'now'"),
    ],
)
def test_a_cell_that_is_not_a_time_is_named(tmp_path: Path, cell: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"day,time,end,seen\n2024-01-31,2024-01-31,2024-01-31,\n{cell}\n")
    with pytest.raises(ElementError) as caught:
        fl.from_csv(path, Event).collect()
    with pytest.raises(SpecMismatch, match=rf"a.csv', line 3 .*{reason}"):
        raise caught.value.__cause__ or caught.value


def test_an_empty_cell_of_a_time_is_filled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("day,time,end,seen\n,,,\n")
    days = date(2024, 1, 31), datetime(2024, 1, 31), np.datetime64("2024-01-31"), datetime.min
    fill = dict(zip(Event._fields, days, strict=True))
    assert fl.from_csv(path, Event, fill=fill).collect() == [Event(*days)]
    with pytest.raises(InvalidFlow, match="fill of 'day' must be of the class date"):
        fl.from_csv(path, Event, fill={"day": datetime.min})


def test_a_time_of_another_unit_is_not_written_to_csv(tmp_path: Path) -> None:
    flow = fl.from_items([{"x": np.datetime64("2024-01-31")}])
    with pytest.raises(SpecMismatch, match=r"got datetime64\[D\] \(np.datetime64\(x, 'us'\) can"):
        flow.write_csv(tmp_path / "a.csv")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_times_are_read_from_parquet_as_declared(tmp_path: Path, unit: str, tz: str | None) -> None:
    times = pa.array([0, 10**9, None], pa.timestamp("ns", tz)).cast(pa.timestamp(unit, tz))
    days = pa.array([date(1970, 1, 1), date(2024, 1, 31), None])
    table = {"day": days, "time": times, "end": times, "seen": times}
    pq.write_table(pa.table(table).slice(0, 2), tmp_path / "a.parquet")
    pq.write_table(pa.table(table), tmp_path / "b.parquet")
    row = fl.from_parquet(tmp_path / "a.parquet", Event).at(1)
    assert row.day == date(2024, 1, 31)
    wanted = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC if tz else None)
    assert (row.time, row.seen) == (wanted, wanted)
    assert (row.time.tzinfo is not None) is (tz is not None)
    assert row.end == np.datetime64("1970-01-01T00:00:01")
    with pytest.raises(SpecMismatch, match="column 'time' has a value that is null"):
        fl.from_parquet(tmp_path / "b.parquet", Times)
    fill = {"time": wanted}
    rows = fl.from_parquet(tmp_path / "b.parquet", Times, fill=fill).collect()
    assert rows[2] == {"time": wanted}
    other: Any = {"time": wanted.replace(tzinfo=None if tz else UTC)}
    with pytest.raises(InvalidFlow, match="must have a time zone if the column has one"):
        fl.from_parquet(tmp_path / "b.parquet", Times, fill=other)


def test_nanoseconds_that_python_lacks_are_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    with pytest.raises(ElementError, match=r"column 'time' cannot be read: .*would lose data"):
        fl.from_parquet(tmp_path / "a.parquet", Times).collect()


def test_a_day_is_not_a_time(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": [date(2024, 1, 31)]}), tmp_path / "a.parquet")
    with pytest.raises(SpecMismatch, match=r"time: declared datetime, got datetime64\[D\]"):
        fl.from_parquet(tmp_path / "a.parquet", Times)


class Visit(NamedTuple):
    user: int
    day: date | None


@given(st.lists(st.builds(Visit, st.integers(0, 9), st.none() | st.dates()), min_size=1))
def test_parquet_days_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Visit]
) -> None:
    path = tmp_path_factory.mktemp("days") / "a.parquet"
    fl.from_items(rows).write_parquet(path, row_group=2)
    assert fl.from_parquet(path, Visit).collect() == rows
    undeclared = fl.from_parquet(path).collect()
    assert undeclared == [tuple(row) for row in rows]
    assert all(type(day) in (date, type(None)) for _, day in undeclared)
    assert pq.read_table(path).to_pylist() == [row._asdict() for row in rows]


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (datetime(2024, 1, 31, 12), r"np\.datetime64\(value, 'us'\)"),
        (timedelta(1), r"np\.timedelta64\(value, 'us'\)"),
    ],
)
def test_parquet_names_the_times_that_can_be_written(
    tmp_path: Path, value: Any, instead: str
) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(SpecMismatch, match=f"cannot be written; .*; map it to {instead}"):
        fl.from_items([{"t": value}]).write_parquet(path)
    with pytest.raises(SpecMismatch, match="list items must be all"):
        fl.from_items([{"t": [date(2024, 1, 31)]}]).write_parquet(path)
