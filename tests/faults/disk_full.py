"""The disk is full while a file is written; here, files are limited to 1,000,000 bytes.

The error names the reason. Existing files are unchanged, and no partial file is left.
"""

from __future__ import annotations

import os
import resource

import numpy as np

import flowdsl as fl

fl.from_range(2).write_lmdb("rows.lmdb")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    fl.from_range(100).map(lambda i: np.full(100_000, i)).write_lmdb("rows.lmdb", overwrite=True)
finally:
    print(fl.from_lmdb("rows.lmdb").collect(), os.listdir())

# Seen:
# [0, 1] ['rows.lmdb']
# flowdsl.errors.SourceError: write_lmdb: 'rows.lmdb' cannot be written: Input/output error;
# 1,000,000 bytes were written, about 80,000,000 are needed for 100 rows, and
# ... are free
