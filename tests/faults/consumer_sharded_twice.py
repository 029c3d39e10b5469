"""Ranks of `torch.distributed` divide a flow that the program has already divided.

This is refused when the loader is created: each rank would get a quarter, and nobody the rest.
"""

from __future__ import annotations

import os

import torch.distributed as dist

import flowdsl as fl

rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/ranks", rank=rank, world_size=2)
halves = fl.from_range(8).shard(2, rank)
try:
    halves.to_torch()
except fl.InvalidFlow as error:
    if rank == 0:
        print(error)
of_ranks: list[object] = [None, None]
dist.all_gather_object(of_ranks, list(halves.to_torch(shard=(1, 0))))
if rank == 0:
    print(of_ranks)
    os.wait()

# Seen:
# to_torch: the flow contains shard(2, 0), and to_torch divides it among the same 2 processes once
# more, so together they would get one element in 2; leave .shard out, or pass to_torch(shard=(1,
# 0)), which does not divide
# [[0, 2, 4, 6], [1, 3, 5, 7]]
