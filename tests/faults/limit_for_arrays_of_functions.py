"""A function refers to an array that does not fit into the shared memory that a process may have.

An error says so before a worker starts, and names the limit.
"""

from __future__ import annotations

import resource

import numpy as np

import flowdsl as fl

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
table = np.arange(1_000_000)
fl.from_range(9).map(lambda i: table[i]).prefetch(procs=1).collect()

# Seen:
# flowdsl.errors.FlowError: prefetch: the large arrays that functions refer to cannot be copied into
# shared memory: File too large: ulimit -f limits files, and shared memory with them
