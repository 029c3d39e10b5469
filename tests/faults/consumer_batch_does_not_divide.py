"""The last batch of an epoch does not divide among the devices of a sharding.

The error names the element and suggests a correction. The batches before it are delivered.
"""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import flowdsl as fl

jax.config.update("jax_num_cpu_devices", 2)
halves = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
for batch in fl.from_range(7).batch(4).to_jax(halves):
    print([shard.data.tolist() for shard in batch.addressable_shards])

# Seen:
# [[0, 1], [2, 3]]
# flowdsl.errors.SpecMismatch: to_jax: element 1, an array of int64 of shape (3,), cannot be
# placed: its sharding does not divide it evenly; give all batches as many rows, which the number
# of devices divides: .batch(n, drop_remainder=True)
