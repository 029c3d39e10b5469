"""Random numbers that depend on an element's position, never on a worker or on earlier elements.

Problem: draws must be the same for any number of workers, and after a resume. A generator that
draws once per element, in order, fails: its state depends on all earlier elements, so a worker or a
resumed pass would have to replay them. Here the position is the counter of a counter-based
generator, and an order is a keyed permutation, so that any element's draws are computed alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flowdsl.nodes.base import Positions


def generator(seed: int, salt: int | str, epoch: int, position: int) -> np.random.Generator:
    """The random generator of one element; depends only on its seed, salt, epoch and position.

    The position is in the counter of a counter-based generator (Salmon et al., "Parallel Random
    Numbers: As Easy as 1, 2, 3", SC 2011). Each position has 2**192 blocks of random numbers.
    """
    key = _digest(f"{seed}/{salt}/{epoch}", 16)
    counter = np.array([0, 0, 0, position], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def permute(position: Positions, n: int, key: str) -> Positions:
    """Map each position by a keyed pseudo-random permutation of ``range(n)``.

    Each position is computed alone, in constant memory: a Feistel network whose halves differ by at
    most one bit permutes the next power of two, and results outside ``range(n)`` are permuted
    again until they are inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
    CT-RSA 2002). Small ranges are permuted as a whole, with all permutations equally likely.

    Shapes: as ``position``. Raises ``IndexError`` for positions outside ``range(n)``.

    >>> sorted(permute(np.arange(5), 5, "key").tolist())
    [0, 1, 2, 3, 4]
    """
    if len(position) and not 0 <= position.min() <= position.max() < n:
        raise IndexError(
            f"positions must be in range({n}), got {position.min()} to {position.max()}"
        )
    keys = _digest(key, 8 * _ROUNDS)
    if n <= _SMALL:
        # Raw numbers are stable; numbers that NumPy derives from them may change between versions.
        order: Positions = np.argsort(np.random.Philox(key=keys[:2]).random_raw(n), kind="stable")
        return order[position]
    bits = (n - 1).bit_length()
    moved = _feistel(position.astype(np.uint64), bits, keys)
    outside = np.flatnonzero(moved >= n)
    while len(outside):
        moved[outside] = _feistel(moved[outside], bits, keys)
        outside = outside[moved[outside] >= n]
    return moved.astype(np.int64)


def random_numbers(position: Positions, key: str) -> NDArray[np.uint64]:
    """A random number of 64 bits for each position, which depends only on position and key.

    This is SplitMix64, whose state after any number of draws is arithmetic (Steele, Lea and Flood,
    "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014). For few draws of many elements
    it takes a hundredth of the time of a ``generator`` for each.

    >>> both, one = random_numbers(np.array([7, 8]), "key"), random_numbers(np.array([8]), "key")
    >>> bool(both[1] == one[0])
    True
    """
    drawn = (position.astype(np.uint64) + np.uint64(1)) * _GOLDEN + _digest(key, 8)
    _mix(drawn)
    return drawn


def uniform(position: Positions, key: str) -> NDArray[np.float64]:
    """A random float for each position, at least 0 and below 1."""
    return (random_numbers(position, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(position: Positions, n: int, key: str) -> Positions:
    """A random int below ``n`` for each position, all of them equally likely.

    A draw has the number of bits that ``n - 1`` has. If it is not below ``n``, another draw is
    computed from it.
    """
    if n < 1 and len(position):
        raise ValueError(f"no int is at least 0 and below {n}")
    mask = np.uint64((1 << (n - 1).bit_length()) - 1)
    drawn = random_numbers(position, key)
    outside = np.flatnonzero(drawn & mask >= n)
    while len(outside):
        again = drawn[outside] + _GOLDEN
        _mix(again)
        drawn[outside] = again
        outside = outside[again & mask >= n]
    return (drawn & mask).astype(np.int64)


_ROUNDS = 6
"""At least four rounds are needed for a pseudo-random permutation (Luby and Rackoff, 1988)."""

_SMALL = 1024
"""Up to this size, sorting the whole range costs no more than one pass through the network."""


def _feistel(block: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute the numbers of ``bits`` bits by a keyed Feistel network.

    The halves of a number change places in each round, and are in their own places after all
    rounds, whose number is even.
    """
    low_bits = np.uint64(bits // 2)
    masks = [np.uint64((1 << bits // 2) - 1), np.uint64((1 << (bits - bits // 2)) - 1)]
    changed, other = block & masks[0], block >> low_bits
    for k, key in enumerate(keys):
        mixed = other ^ key
        _mix(mixed)
        mixed &= masks[k % 2]
        changed ^= mixed
        changed, other = other, changed
    other <<= low_bits
    other |= changed
    return other


def _digest(key: str, nbytes: int) -> NDArray[np.uint64]:
    from hashlib import blake2b  # here: it loads OpenSSL, which flows without draws do not need

    return np.frombuffer(blake2b(key.encode(), digest_size=nbytes).digest(), np.uint64)


def _mix(x: NDArray[np.uint64]) -> None:
    """SplitMix64's finalizer, in place: every input bit reaches every output bit."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)


def epoch_of_pass(epoch: Positions, passes: Positions) -> Positions:
    """The epoch of a flow below ``repeat``, in a pass of an epoch of ``repeat``.

    In epoch 0 it is the number of the pass. In other epochs it is a 62-bit hash of the epoch and
    the pass: two (epoch, pass) pairs have the same hash only with a probability of 2**-62.

    >>> epoch_of_pass(np.array([0, 0, 7]), np.array([0, 5, 5])).tolist()
    [0, 5, 4545109523256510152]
    """
    mixed = epoch.astype(np.uint64) * _GOLDEN + passes.astype(np.uint64)
    _mix(mixed)
    return np.where(epoch == 0, passes, (mixed >> np.uint64(2)).astype(np.int64))


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
