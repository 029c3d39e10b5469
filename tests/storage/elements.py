"""Random elements that the codec supports: every dtype, byte order, axis order and nesting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from flowdsl.elements.structure import components

SMALL_DTYPES = [
    np.dtype(scalar)
    for scalar in vars(ml_dtypes).values()
    if isinstance(scalar, type) and issubclass(scalar, np.generic)
]
"""The numbers of ml_dtypes, such as bfloat16."""
DTYPES = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(endianness="?", max_len=3),
    hnp.unicode_string_dtypes(endianness="?", max_len=3),
)
ORDERS: list[Callable[[NDArray[Any]], NDArray[Any]]] = [
    np.asarray,
    np.asfortranarray,
    lambda array: array[::-1] if array.ndim else array,
    lambda array: array.T,
]
ARRAYS = st.builds(
    lambda order, array: order(array),
    st.sampled_from(ORDERS),
    hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)),
)
SMALL_ARRAYS = st.builds(
    lambda dtype, sides, content: np.ndarray(sides, dtype, content),
    st.sampled_from(SMALL_DTYPES),
    hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    st.binary(min_size=36, max_size=36),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), TEXT, st.binary()),
    st.complex_numbers(),
    *(ARRAYS, hnp.arrays(DTYPES, ()).map(lambda array: array[()])),
    *(SMALL_ARRAYS, st.sampled_from(SMALL_DTYPES).map(lambda dtype: np.ones((), dtype)[()])),
)
ELEMENTS = st.recursive(
    VALUES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(TEXT, parts, max_size=3),
    ),
    max_leaves=6,
)


def identical(a: Any, b: Any) -> bool:
    """Return True if form, dtype and shape are equal, and values are equal bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, complex):
        return identical(np.complex128(a), np.complex128(b))
    parts = components(a)
    if parts is None:
        return bool(a == b or (a != a and b != b))
    theirs = components(b) or []
    return [n for n, _ in parts] == [n for n, _ in theirs] and all(
        identical(x, y) for (_, x), (_, y) in zip(parts, theirs, strict=True)
    )
