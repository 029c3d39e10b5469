"""Randomness as a function of where an element stands: never of a worker, or of what came before.

All of it can be computed for any element by itself, so that a resume replays nothing.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from flowdsl.node import Positions


def generator(seed: int, salt: int | str, epoch: int, position: int) -> np.random.Generator:
    """The random generator of one element: a function of where it stands, not of who asks.

    The position is the counter of a counter-based generator, so that any element's draws are
    reached without making those before it (Salmon et al., "Parallel Random Numbers: As Easy as
    1, 2, 3", SC 2011). Each position owns 2**192 blocks of the stream.
    """
    name = f"{seed}/{salt}/{epoch}".encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), np.uint64)
    counter = np.array([0, 0, 0, position], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def permute(position: Positions, n: int, key: str) -> Positions:
    """Where a keyed pseudo-random permutation of ``range(n)`` sends each position.

    Computed for a position by itself, in constant memory: a Feistel network permutes the next
    power of four, and positions that land outside ``range(n)`` are sent on until they land inside
    (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).

    Shapes: as ``position``. Raises ``IndexError`` for positions outside ``range(n)``.

    >>> sorted(permute(np.arange(5), 5, "key").tolist())
    [0, 1, 2, 3, 4]
    """
    if len(position) and not 0 <= position.min() <= position.max() < n:
        raise IndexError(f"positions {position.min()} to {position.max()} of a permutation of {n}")
    half = np.uint64(max((n - 1).bit_length() + 1, 2) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest(), np.uint64)
    moved = position.astype(np.uint64)
    outside = np.arange(len(moved))
    while len(outside):
        block = moved[outside]
        left, right = block >> half, block & mask
        for k in keys:
            left, right = right, left ^ (_mix(right ^ k) & mask)
        moved[outside] = (left << half) | right
        outside = outside[moved[outside] >= n]
    return moved.astype(np.int64)


_ROUNDS = 6
"""Four rounds are the least for a network that looks random (Luby and Rackoff, 1988); two more
cost 30 ns an element and make up for a small domain."""


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def epoch_of_pass(epoch: Positions, passes: Positions) -> Positions:
    """The epoch that a repeated flow is in, in its ``passes``-th pass within an ``epoch``.

    In epoch 0 it is the number of the pass. In others it is a number that no two (epoch, pass)
    pairs share but by a chance of one in 2**62.

    >>> epoch_of_pass(np.array([0, 0, 7]), np.array([0, 5, 5])).tolist()
    [0, 5, 4545109523256510152]
    """
    mixed = _mix(epoch.astype(np.uint64) * _GOLDEN + passes.astype(np.uint64)) >> np.uint64(2)
    return np.where(epoch == 0, passes, mixed.astype(np.int64))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
