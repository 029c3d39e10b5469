"""The table of formats agrees with the public names, the extras and the page on storage."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.storage.formats import FORMATS, StorageFormat

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "storage.md").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

each_format = pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)


def row_of(one: StorageFormat) -> list[str]:
    """The row of the table in the page that lists the reader."""
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if f"`{one.reader}`" in row]
    return [cell.strip() for cell in row.strip("|").split("|")]


def names_in(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


@each_format
def test_reader_is_a_public_function(one: StorageFormat) -> None:
    assert one.reader in fl.__all__
    assert callable(getattr(fl, one.reader))


@each_format
def test_writer_is_a_method_of_flow(one: StorageFormat) -> None:
    assert one.writer is None or callable(getattr(fl.Flow, one.writer))


@each_format
def test_page_lists_readers_writers_and_extras(one: StorageFormat) -> None:
    _, readers, writers, *_, extras = row_of(one)
    listed = [other for other in FORMATS if other.reader in names_in(readers)]
    assert names_in(readers) == {other.reader for other in listed}
    assert names_in(writers) == {other.writer for other in listed if other.writer}
    assert names_in(extras) == {other.extra for other in listed if other.extra}


@each_format
def test_extra_exists_and_is_part_of_all(one: StorageFormat) -> None:
    if one.extra is not None:
        assert one.extra in EXTRAS
        assert one.extra in re.findall(r"\w+", EXTRAS["all"][0])


def test_every_reader_and_writer_of_files_is_in_the_table() -> None:
    writers = {name for name in dir(fl.Flow) if name.startswith("write_")}
    assert writers == {one.writer for one in FORMATS if one.writer}
    elsewhere = {
        "from_files",
        "from_items",
        "from_iterable",
        "from_range",
        "from_queue",
        "from_zmq",
    }
    datasets = {"from_dataset", "from_ray", "from_tfdata"}
    readers = {name for name in fl.__all__ if name.startswith("from_")}
    assert readers - elsewhere - datasets == {one.reader for one in FORMATS}
