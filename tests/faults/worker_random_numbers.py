"""The program seeds `random`, and a function draws from it in workers.

Each worker has its own generator, so these numbers differ from the program's, and between workers.
The generator that `random_map` passes belongs to the element, and is the same everywhere.
"""

from __future__ import annotations

import random

import numpy as np

import flowdsl as fl


def from_random(_: int) -> float:
    return random.random()


def from_its_own(_: int, rng: np.random.Generator) -> float:
    return rng.random()


random.seed(7)
rows = fl.from_range(4)
drawn = [rows.map(from_random).prefetch(procs=n).collect() for n in (1, 2)]
print(drawn[0] == drawn[1])
drawn = [rows.random_map(from_its_own, seed=7).prefetch(procs=n).collect() for n in (0, 1, 2)]
print(drawn[0] == drawn[1] == drawn[2])

# Seen:
# False
# True
