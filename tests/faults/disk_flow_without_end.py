"""An endless flow is written.

This is refused before any row is computed.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_range(3).repeat().write_lmdb("rows.lmdb")  # type: ignore[misc]  # mypy refuses it too

# Seen:
# flowdsl.errors.EndlessFlow: write_lmdb: repeat() never ends, so no disk can hold it; put .take(n)
# before it
