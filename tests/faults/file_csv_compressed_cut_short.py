"""A compressed CSV file ends too early, as after a download that was cut off.

The flow is not built: its rows are counted first, and the end of the file is missing.
"""

from __future__ import annotations

from pathlib import Path

import flowdsl as fl

fl.from_items([{"x": i} for i in range(1000)]).write_csv("rows.csv.gz")
whole = Path("rows.csv.gz").read_bytes()
Path("rows.csv.gz").write_bytes(whole[: len(whole) // 2])
fl.from_csv("rows.csv.gz")

# Seen:
# flowdsl.errors.SourceError: from_csv: 'rows.csv.gz' is damaged, near byte ...: it is cut short
