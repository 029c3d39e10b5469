"""JPEG images of any sampling, which no library's encoder writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

Factors = Sequence[tuple[int, int]]
"""The samples of each component in a unit of the image, across and down."""


def sampled_jpeg(height: int, width: int, factors: Factors, seed: int = 0) -> bytes:
    """Return a JPEG of blocks of 8 x 8 samples, each of one random value.

    Its Huffman codes have one length: four bits for the size of a value, and one bit for the end of
    a block, since no block has details.
    """
    rng = np.random.default_rng(seed)
    most_across, most_down = (max(side) for side in zip(*factors, strict=True))
    units = -(-height // (8 * most_down)) * -(-width // (8 * most_across))
    bits, before = [], [0] * len(factors)
    for _ in range(units):
        for k, (across, down) in enumerate(factors):
            for _ in range(across * down):
                value = int(rng.integers(-60, 60)) * 8
                bits.append(_coded(value - before[k]) + "0")
                before[k] = value
    frame = struct.pack(">BHHB", 8, height, width, len(factors))
    frame += b"".join(bytes([k + 1, a << 4 | d, 0]) for k, (a, d) in enumerate(factors))
    scan = bytes([len(factors), *(b for k in range(len(factors)) for b in (k + 1, 0)), 0, 63, 0])
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, b"\0" + b"\x01" * 64),
            _segment(0xC0, frame),
            _segment(0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12))),
            _segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"),
            _segment(0xDA, scan),
            _packed("".join(bits)),
            b"\xff\xd9",
        ]
    )


def _segment(code: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, 2 + len(content)) + content


def _coded(difference: int) -> str:
    size = abs(difference).bit_length()
    value = difference if difference > 0 else difference + (1 << size) - 1
    return f"{size:04b}" + (f"{value:0{size}b}" if size else "")


def _packed(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
