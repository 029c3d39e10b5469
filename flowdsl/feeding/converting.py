"""Conversion of elements for a framework: converts each array, and keeps the structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.rebuilding import replaced
from flowdsl.elements.structure import components, is_masked

ArrayConverter = Callable[[NDArray[Any], str], Any]
"""Converts an array, or refuses a masked one; the string is the name of its component."""

_NON_NUMERIC_KINDS = "SUOT"
"""The kinds of dtypes that frameworks do not compute with: bytes, text and objects."""


def convert_arrays(element: object, convert_array: ArrayConverter, name: str = "") -> Any:
    """Convert each array and NumPy scalar of an element with ``convert_array``.

    Tuples, NamedTuples, dicts, lists, attrs classes and dataclasses keep their type. Values that
    are not numeric arrays are unchanged: Python numbers, text, bytes, None, arrays of text or
    objects that are not masked, and arrays of other libraries.

    >>> convert_arrays({"x": np.arange(2), "at": ("a", [np.float32(1)])}, lambda x, k: (k, x.ndim))
    {'x': ('x', 1), 'at': ('a', [('at.1[0]', 0)])}

    Source: ``default_convert`` of PyTorch's ``DataLoader``.
    """
    if isinstance(element, (np.ndarray, np.generic)):
        masked = is_masked(element)
        array: Any = element if masked else np.asarray(element)
        is_kept = array.dtype.kind in _NON_NUMERIC_KINDS and not masked
        return element if is_kept else convert_array(array, name)
    if isinstance(element, list):
        return [
            convert_arrays(item, convert_array, f"{name}[{i}]") for i, item in enumerate(element)
        ]
    parts = components(element)
    if parts is None:
        return element
    new = {
        key: convert_arrays(value, convert_array, f"{name}.{key}" if name else key)
        for key, value in parts
    }
    return replaced(element, new)


def leaves_of(element: object) -> Iterator[object]:
    """Yield the leaves of an element: its values without the containers."""
    if isinstance(element, list):
        for item in element:
            yield from leaves_of(item)
        return
    parts = components(element)
    if parts is None:
        yield element
    else:
        for _, value in parts:
            yield from leaves_of(value)


def describe_component(component: str, position: int) -> str:
    """Describe a component of the element at ``position``, for messages.

    >>> describe_component("x", 3), describe_component("", 3)
    ("component 'x' of element 3", 'element 3')
    """
    element = f"element {position}"
    return f"component {component!r} of {element}" if component else element
