"""A pattern is passed to a source that reads one file.

The error says so, instead of reporting only that no file has the name of the pattern.
"""

from __future__ import annotations

import numpy as np

import flowdsl as fl

np.save("part-0.npy", np.zeros(3))
fl.from_npy("part-*.npy")

# Seen:
# flowdsl.errors.SourceError: from_npy: ...part-*.npy' cannot be opened: No such file or directory;
# from_npy reads one file and expands no pattern
