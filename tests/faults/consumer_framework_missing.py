"""PyTorch is not installed.

The error names the library that `to_torch` needs, and how to install it.
"""

from __future__ import annotations

import sys

import flowdsl as fl

sys.modules["torch"] = None  # type: ignore[assignment]  # as if it were not there
fl.from_range(3).to_torch()

# Seen:
# flowdsl.errors.MissingLibrary: to_torch needs torch, which is not installed: pip install
# "flowdsl[torch]"
