"""Every storage format, as the laws, the fuzzer and the killer know it; a new one is one entry."""

from __future__ import annotations

import flowdsl as fl
from flowdsl.testing.formats import Format

FORMATS = {
    "lmdb": Format(
        lambda flow, path: flow.write_lmdb(path, overwrite=True),
        lambda path: fl.from_lmdb(path),
        suffix=".lmdb",
        refused=[object(), 2**64, {1: 2}, 1j, "\ud800", [0, (1, object())]],
    ),
}
