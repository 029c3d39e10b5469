"""A library that a format needs is not installed.

The error names it, and how to install it.
"""

from __future__ import annotations

import sys

import flowdsl as fl

sys.modules["pyarrow"] = None  # type: ignore[assignment]  # as if it were not installed
fl.from_range(3).write_parquet("rows.parquet")

# Seen:
# flowdsl.errors.MissingLibrary: write_parquet needs pyarrow, which is not installed: pip install
# "flowdsl[parquet]"
