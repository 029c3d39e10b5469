"""Conversion of other libraries' values to NumPy arrays, within any structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.datasets.foreign import is_a
from flowdsl.elements.rebuilding import replaced
from flowdsl.elements.structure import assemble, components, is_tensor
from flowdsl.errors import SpecMismatch

_UNCHANGED_TYPES = frozenset({bool, int, float, complex, str, bytes, type(None), np.ndarray})


def as_arrays(x: Any, path: str = "") -> Any:
    """Convert the tensors and PIL images of a value to arrays; keep everything else unchanged.

    Tuples, dicts, lists, attrs classes and dataclasses keep their class; any other mapping becomes
    a dict. An array shares the memory of its tensor.

    >>> from PIL import Image
    >>> as_arrays({"image": Image.new("RGB", (4, 2)), "label": 3})["image"].shape
    (2, 4, 3)

    Raises:
        SpecMismatch: NumPy cannot read a tensor; the message names the component.
    """
    kind = type(x)
    if kind in _UNCHANGED_TYPES or isinstance(x, np.generic):
        return x
    if is_tensor(kind):
        return _array_of(x, path)
    if is_a(x, "PIL.Image", "Image"):
        return np.asarray(x)
    if isinstance(x, list):
        items = [as_arrays(item, f"{path}[{i}]") for i, item in enumerate(x)]
        return x if all(map(_same, items, x)) else items
    if isinstance(x, Mapping) and not isinstance(x, dict):
        x = dict(x)
    parts = components(x)
    if parts is None:
        return x
    new = {name: as_arrays(part, f"{path}.{name}" if path else str(name)) for name, part in parts}
    if all(new[name] is part for name, part in parts):
        return x
    if isinstance(x, dict):
        return new
    if isinstance(x, tuple) and not hasattr(x, "_fields"):
        return assemble(tuple, new)
    return replaced(x, new)


def _same(a: object, b: object) -> bool:
    return a is b


def _array_of(tensor: Any, path: str) -> NDArray[Any]:
    try:
        if getattr(tensor, "requires_grad", False):
            tensor = tensor.detach()
        array: NDArray[Any] = np.from_dlpack(tensor)
    except Exception as error:  # each library raises different errors
        what = f"component {path!r}" if path else "the item"
        properties = [str(getattr(tensor, name, "")) for name in ("dtype", "device")]
        description = ", ".join(filter(None, properties))
        raise SpecMismatch(
            f"{what} is a {type(tensor).__name__} ({description}) that NumPy cannot read: {error}; "
            "make the dataset return a dense tensor in CPU memory, with a dtype that NumPy supports"
        ) from error
    return array
