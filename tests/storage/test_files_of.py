"""The files that a flow reads, which other machines need, are known for each format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.ray.files import files_of
from tests.storage.formats import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_a_format_are_known(name: str, tmp_path: Path) -> None:
    one = FORMATS[name]
    path = tmp_path / f"rows{one.suffix}"
    one.write(fl.from_items(list(one.some)), path)
    # the tests decode samples of WebDataset in a source of their own
    flow = fl.from_webdataset(path) if name == "webdataset" else one.read(path)
    assert files_of(flow.node) == (str(path),)


def test_files_that_are_elements_are_known(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.txt" for k in range(3)]
    for path in paths:
        path.touch()
    flow = fl.from_files(str(tmp_path / "*.txt")).map(os.path.getsize)
    assert files_of(flow.node) == tuple(map(str, paths))


def test_urls_and_rows_in_memory_are_not_files() -> None:
    assert files_of(fl.from_items(["/no/such/file"]).node) == ()
