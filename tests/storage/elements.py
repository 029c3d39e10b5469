"""Random elements that the codec supports: every dtype, byte order, axis order and nesting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

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
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), TEXT, st.binary()),
    st.complex_numbers(),
    *(ARRAYS, hnp.arrays(DTYPES, ()).map(lambda array: array[()])),
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
