"""A store that has to be on this machine is given by a URL.

It is refused when the flow is built, and the error says how to copy it.
"""

from __future__ import annotations

import flowdsl as fl

fl.from_lmdb("https://example.org/rows.lmdb")

# Seen:
# flowdsl.errors.InvalidFlow: from_lmdb: 'https://example.org/rows.lmdb' must be a file on this
# machine's disk; copy it first: fl.fetch('https://example.org/rows.lmdb', folder)
