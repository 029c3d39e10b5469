"""Elements for a framework: their arrays converted, in whatever they are packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import assemble, components

Leaf = Callable[[NDArray[Any], str], Any]
"""Converts an array; the text says which component it is, for messages."""

_WITHOUT_NUMBERS = "SUOT"
"""The kinds of dtypes that no framework computes with: bytes, text and objects."""


def converted(element: object, leaf: Leaf, name: str = "") -> Any:
    """The element with each of its arrays and NumPy scalars converted by ``leaf``.

    Tuples, NamedTuples, dicts, lists, attrs classes and dataclasses stay what they are, and so does
    all that is no array of numbers: Python's numbers, text, bytes, None, arrays of text and of
    objects, arrays of other libraries.

    >>> converted({"x": np.arange(2), "at": ("a", [np.float32(1)])}, lambda x, name: (name, x.ndim))
    {'x': ('x', 1), 'at': ('a', [('at.1[0]', 0)])}

    Source: ``default_convert`` of PyTorch's ``DataLoader``.
    """
    if isinstance(element, (np.ndarray, np.generic)):
        array = np.asarray(element)
        return element if array.dtype.kind in _WITHOUT_NUMBERS else leaf(array, name)
    if isinstance(element, list):
        return [converted(one, leaf, f"{name}[{i}]") for i, one in enumerate(element)]
    parts = components(element)
    if parts is None:
        return element
    made = {key: converted(value, leaf, f"{name}.{key}" if name else key) for key, value in parts}
    return assemble(type(element), made)


def leaves_of(element: object) -> Iterator[object]:
    """All that is in an element, out of what it is packed in."""
    if isinstance(element, list):
        for one in element:
            yield from leaves_of(one)
        return
    parts = components(element)
    if parts is None:
        yield element
    else:
        for _, value in parts:
            yield from leaves_of(value)


def called(component: str, position: int) -> str:
    """How a message calls a component of an element of the pass.

    >>> called("x", 3), called("", 3)
    ("component 'x' of element 3", 'element 3')
    """
    element = f"element {position}"
    return f"component {component!r} of {element}" if component else element
