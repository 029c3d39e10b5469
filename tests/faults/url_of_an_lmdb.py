"""A store that must be a local file is opened by a URL.

This is refused when the flow is built, and the error explains how to copy the store.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_lmdb("https://example.org/rows.lmdb")

# Seen:
# flowdsl.errors.InvalidFlow: from_lmdb: 'https://example.org/rows.lmdb' must be a file on this
# machine's disk; copy it first: fl.fetch('https://example.org/rows.lmdb', folder)
