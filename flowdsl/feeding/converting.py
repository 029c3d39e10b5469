"""Conversion of elements for a framework: converts each array, and keeps the structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import assemble, components

Leaf = Callable[[NDArray[Any], str], Any]
"""Converts an array; the text is the name of its component, for messages."""

_WITHOUT_NUMBERS = "SUOT"
"""The kinds of dtypes that frameworks do not compute with: bytes, text and objects."""


def converted(element: object, leaf: Leaf, name: str = "") -> Any:
    """Convert each array and NumPy scalar of an element by ``leaf``.

    Tuples, NamedTuples, dicts, lists, attrs classes and dataclasses keep their type. Values that
    are not numeric arrays are unchanged: Python numbers, text, bytes, None, arrays of text or
    objects, and arrays of other libraries.

    >>> converted({"x": np.arange(2), "at": ("a", [np.float32(1)])}, lambda x, name: (name, x.ndim))
    {'x': ('x', 1), 'at': ('a', [('at.1[0]', 0)])}

    Source: ``default_convert`` of PyTorch's ``DataLoader``.
    """
    if isinstance(element, (np.ndarray, np.generic)):
        array = np.asarray(element)
        return element if array.dtype.kind in _WITHOUT_NUMBERS else leaf(array, name)
    if isinstance(element, list):
        return [converted(item, leaf, f"{name}[{i}]") for i, item in enumerate(element)]
    parts = components(element)
    if parts is None:
        return element
    new = {key: converted(value, leaf, f"{name}.{key}" if name else key) for key, value in parts}
    return assemble(type(element), new)


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


def called(component: str, position: int) -> str:
    """Return the name of a component of an element of the pass, for messages.

    >>> called("x", 3), called("", 3)
    ("component 'x' of element 3", 'element 3')
    """
    element = f"element {position}"
    return f"component {component!r} of {element}" if component else element
