"""Values of other libraries as arrays of NumPy, in whatever they are packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowdsl.datasets.foreign import is_a
from flowdsl.elements.structure import assemble, components, is_tensor
from flowdsl.errors import SpecMismatch

_AS_THEY_ARE = frozenset({bool, int, float, complex, str, bytes, type(None), np.ndarray})


def as_arrays(x: Any, at: str = "") -> Any:
    """The value with its tensors and PIL images as arrays; all else stays what it is.

    They are looked for in tuples, dicts, lists, attrs classes and dataclasses, which keep their
    class; another mapping becomes a dict. An array shares the memory of its tensor.

    >>> from PIL import Image
    >>> as_arrays({"image": Image.new("RGB", (4, 2)), "label": 3})["image"].shape
    (2, 4, 3)

    Raises:
        SpecMismatch: NumPy cannot read a tensor; the message names the component.
    """
    kind = type(x)
    if kind in _AS_THEY_ARE or isinstance(x, np.generic):
        return x
    if is_tensor(kind):
        return _array_of(x, at)
    if is_a(x, "PIL.Image", "Image"):
        return np.asarray(x)
    if isinstance(x, list):
        made = [as_arrays(one, f"{at}[{i}]") for i, one in enumerate(x)]
        return x if all(map(_same, made, x)) else made
    if isinstance(x, Mapping) and not isinstance(x, dict):
        x = dict(x)
    parts = components(x)
    if parts is None:
        return x
    new = {name: as_arrays(part, f"{at}.{name}" if at else str(name)) for name, part in parts}
    if all(new[name] is part for name, part in parts):
        return x
    if isinstance(x, dict):
        return new
    named = not isinstance(x, tuple) or hasattr(x, "_fields")
    return assemble(type(x) if named else tuple, new)


def _same(a: object, b: object) -> bool:
    return a is b


def _array_of(tensor: Any, at: str) -> NDArray[Any]:
    try:
        if getattr(tensor, "requires_grad", False):
            tensor = tensor.detach()
        array: NDArray[Any] = np.from_dlpack(tensor)
    except Exception as error:  # each library has errors of its own
        what = f"component {at!r}" if at else "the item"
        about = [str(getattr(tensor, name, "")) for name in ("dtype", "device")]
        told = ", ".join(filter(None, about))
        raise SpecMismatch(
            f"{what} is a {type(tensor).__name__} ({told}) that NumPy cannot read: {error}; let "
            f"the dataset give it in the memory of the CPU, dense, of a dtype that NumPy has"
        ) from error
    return array
