"""A fork of the program continues a pass that the program has begun.

The fork gets an error, since both would take the same elements. The program itself continues.
"""

from __future__ import annotations

import os

import flowdsl as fl

elements = iter(fl.from_range(3).to_torch())
print(next(elements))
child = os.fork()
if not child:
    try:
        next(elements)
    except fl.FlowError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(list(elements))

# Seen:
# 0
# to_torch: this pass belongs to the process that began it, and this process is a fork of that one;
# begin a new pass here
# [1, 2]
