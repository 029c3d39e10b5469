"""Every storage format through every law; a new one is one more entry."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.testing.formats import FORMAT_LAWS, Format, FormatLaw

FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), 2**64, {1: 2}, Decimal(1), "\ud800", [0, (1, object())]],
    ),
    "lmdb, appended": Format(
        lambda flow, path: flow.write_lmdb(path, append=not path.exists(), overwrite=path.exists()),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), [0, (1, object())]],
    ),
    "lmdb folder": Format(
        lambda flow, path: flow.write_lmdb(f"{path}/"),
        lambda path: fl.from_lmdb(path),
        refused=[object(), [0, (1, object())]],
    ),
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("law", FORMAT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, law: FormatLaw, tmp_path: Path) -> None:
    law(FORMATS[name], tmp_path)
