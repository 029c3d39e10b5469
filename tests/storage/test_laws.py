"""Every storage format through every law; a new one is one more entry."""

from __future__ import annotations

from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.testing.formats import FORMAT_LAWS, Format, FormatLaw

FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), 2**64, {1: 2}, 1j, "\ud800", [0, (1, object())]],
    ),
    "tfrecord": Format(
        lambda flow, path: flow.write_tfrecord(path),
        lambda path: fl.from_tfrecord(path, object),
        suffix=".tfrecord",
        refused=[object(), 2**64, {1: 2}, 1j, b"bytes", [0, (1, object())]],
    ),
    "tfrecord, gzip": Format(
        lambda flow, path: flow.write_tfrecord(path, compression="gzip"),
        lambda path: fl.from_tfrecord(path, object, compression="gzip"),
        suffix=".tfrecord.gz",
        refused=[object(), 2**64, b"bytes"],
    ),
}


@pytest.mark.hypothesis
@pytest.mark.parametrize("law", FORMAT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", FORMATS)
def test_format(name: str, law: FormatLaw, tmp_path: Path) -> None:
    law(FORMATS[name], tmp_path)
