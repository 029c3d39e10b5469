"""A compressed file ends too early.

The rows before its end are delivered, and then an error is raised: the file never seems complete.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import flowdsl as fl

fl.from_items([b"one", b"two", b"three"]).write_tfrecord("rows.tfrecord")
data = gzip.compress(Path("rows.tfrecord").read_bytes())
Path("rows.tfrecord.gz").write_bytes(data[:-10])
for row in fl.from_tfrecord("rows.tfrecord.gz", compression="gzip"):
    print(row)

# Seen:
# b'one'
# b'two'
# flowdsl.errors.SourceError: from_tfrecord: 'rows.tfrecord.gz' is damaged, near byte 51: it is cut
# short
