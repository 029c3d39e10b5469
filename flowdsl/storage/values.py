"""Values that files can store: the containers and dtypes that are read back unchanged."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeIs

from flowdsl.elements.structure import components, is_named_tuple
from flowdsl.errors import MissingLibrary, SpecMismatch

_DTYPE = re.compile(r"[<>|][biufcSUVmM]\d{1,9}(\[\d*[a-zA-Z]+\])?")
"""NumPy's spelling of a dtype without fields or objects; NumPy would accept many others."""
_ML_DTYPES = "ml_dtypes"
"""The package that defines bfloat16 and smaller floats."""
_ML_DTYPE_NAME = re.compile(r"[a-z]\w{1,30}")


def components_to_store(x: object, at: str) -> list[tuple[str, Any]] | None:
    """Return the components of a value, or None for a single value.

    A file stores the components of a record or NamedTuple, and a reader restores the class that is
    declared. Subclasses of dict and tuple have more than their components, such as the default of
    a defaultdict.

    Raises:
        SpecMismatch: The value is of another subclass of dict or tuple.
    """
    kind = type(x)
    base = dict if isinstance(x, dict) else tuple
    if isinstance(x, dict | tuple) and kind is not base and not is_named_tuple(kind):
        name = base.__name__
        raise SpecMismatch(
            f"{at}: {kind.__name__} cannot be written: it would be read as a {name}; make it one "
            f"with .map({name})"
        )
    return components(x)


def is_array(x: object) -> TypeIs[NDArray[Any]]:
    """Return True for an array, also in a mapped file; False for subclasses with other methods.

    >>> is_array(np.zeros(2)), is_array(np.ma.array([1.0])), is_array(np.float32(1))
    (True, False, False)
    """
    return type(x) in (np.ndarray, np.memmap)


def is_scalar(x: object) -> TypeIs[np.generic]:
    """Return True for a scalar of NumPy's own class, or of the package that its dtype is from."""
    return isinstance(x, np.generic) and type(x) is x.dtype.type


@lru_cache(256)
def spelling_of(dtype: np.dtype[Any]) -> str | None:
    """Return the text that defines a dtype in a file; None for objects, fields and other packages.

    >>> spelling_of(np.dtype("f4")), spelling_of(np.dtype("O"))
    ('<f4', None)
    >>> import ml_dtypes
    >>> spelling_of(np.dtype(ml_dtypes.bfloat16))
    'bfloat16'
    """
    if is_ml_dtype(dtype):
        return dtype.name if dtype.isnative else None
    if _DTYPE.fullmatch(dtype.str) is None:
        return None
    try:
        return dtype.str if np.dtype(dtype.str) == dtype else None
    except TypeError:  # of another package, such as an 8-bit float
        return None


def takes_any_bytes(dtype: np.dtype[Any]) -> bool:
    """Return True if any bytes are valid for a dtype: not for bool or characters.

    >>> [takes_any_bytes(np.dtype(each)) for each in ("f4", "?", "U3")]
    [True, False, False]
    """
    return dtype.kind in "iufcmM"


def is_ml_dtype(dtype: np.dtype[Any]) -> bool:
    """Return True for a dtype of ml_dtypes, which NumPy spells like a dtype of its own."""
    return dtype.type.__module__ == _ML_DTYPES


@lru_cache(256)
def dtype_of(spelling: str) -> np.dtype[Any]:
    """Return the dtype that ``spelling_of`` spelled.

    Raises:
        ValueError, TypeError: The text spells no dtype that files may contain.
        MissingLibrary: It spells a dtype of ml_dtypes, which is not installed.
    """
    if _DTYPE.fullmatch(spelling) is not None:
        return np.dtype(spelling)
    if _ML_DTYPE_NAME.fullmatch(spelling) is not None:
        scalar = getattr(_ml_dtypes(spelling), spelling, None)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return np.dtype(scalar)
    raise ValueError(f"{spelling!r} is not a supported dtype")


def _ml_dtypes(spelling: str) -> Any:
    try:
        import ml_dtypes  # few programs need it
    except ImportError as error:
        raise MissingLibrary(
            f"elements of {spelling!r}, a dtype of ml_dtypes, cannot be read: ml_dtypes is not "
            f"installed: pip install ml_dtypes"
        ) from error
    return ml_dtypes
