"""The index of a file is damaged, or older than the file.

It is created again. Rows are never read with a wrong index.
"""

from __future__ import annotations

import os
from pathlib import Path

import flowdsl as fl

fl.from_items([b"one", b"two"]).write_tfrecord("rows.tfrecord")
os.utime("rows.tfrecord", (0, 0))  # an old file: its index is kept
fl.from_tfrecord("rows.tfrecord")
index = Path(".rows.tfrecord.index")
good = index.read_bytes()
index.write_bytes(good[:-20] + b"?" * 20)
print(fl.from_tfrecord("rows.tfrecord").collect(), index.read_bytes() == good)
fl.from_items([b"three", b"four", b"five"]).write_tfrecord("rows.tfrecord", overwrite=True)
print(fl.from_tfrecord("rows.tfrecord").collect())

# Seen:
# [b'one', b'two'] True
# [b'three', b'four', b'five']
