"""Another program truncates a file while it is read.

An error names the file. No format maps its files into memory, where a missing page would end the
program by a `SIGBUS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

import flowdsl as fl

rows = [np.full(1000, i) for i in range(500)]
np.save("rows.npy", np.stack(rows))
fl.from_items(rows).write_lmdb("rows.lmdb")
fl.from_items([(x,) for x in rows]).write_hdf5("rows.h5", ["x"])
sources: dict[str, Callable[[str], fl.Flow[Any, Any]]] = {
    "rows.npy": fl.from_npy,
    "rows.lmdb": fl.from_lmdb,
    "rows.h5": lambda path: fl.from_hdf5(path, "x"),
}
for name, source in sources.items():
    read = iter(source(name))
    next(read)
    os.truncate(name, os.path.getsize(name) // 2)
    try:
        list(read)
    except fl.FlowError as error:
        print(name in str(error))

# Seen:
# True
# True
# True
