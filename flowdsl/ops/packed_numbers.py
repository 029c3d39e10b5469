"""Several numbers in one, for the offset of a restart."""

from __future__ import annotations

from collections.abc import Iterable


def packed(numbers: Iterable[int]) -> int:
    """Return one number for several: seven bits in each byte, the last byte of each below 128.

    >>> unpacked(packed([0, 3, 300]))
    [0, 3, 300]
    """
    found = bytearray(b"\1")  # so that leading zeros count
    for number in numbers:
        while number >= 128:
            found.append(128 | number & 127)
            number >>= 7
        found.append(number)
    return int.from_bytes(found)


def unpacked(whole: int) -> list[int]:
    """Return the numbers that ``packed`` has packed."""
    numbers, number, shift = list[int](), 0, 0
    for byte in whole.to_bytes((whole.bit_length() + 7) // 8)[1:]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    return numbers
