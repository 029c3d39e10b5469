"""The working folder of a program has been removed, for example with a job's temporary files.

An error says so before a worker starts. In the program itself, and in threads, the flow runs.
"""

from __future__ import annotations

import os
import tempfile

import flowdsl as fl

folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
flow = fl.from_range(3).map(abs)
print(flow.prefetch(threads=1).collect())
flow.prefetch(procs=1).collect()

# Seen:
# [0, 1, 2]
# flowdsl.errors.FlowError: prefetch: the working folder of this process has been removed, and
# worker processes begin in it: change to another by os.chdir
