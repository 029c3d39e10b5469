"""Functions that our own strategies chain beside those of ``flowdsl.testing``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flowdsl.testing.elements import formed, ids, leaves, make
from flowdsl.testing.functions import keep, scale


def make_of_name(form: str, name: str) -> Any:
    return make(form, int(Path(name).stem))


def make_of_pair(form: str, pair: tuple[bytes, bytes]) -> Any:
    return make(form, int(pair[1]))


def make_of_label(form: str, pair: tuple[Any, int]) -> Any:
    return make(form, pair[1])


def only(row: Any) -> Any:
    return row[0]


def make_of_fake(form: str, arrays: Any) -> Any:
    return formed(form, arrays[0][()], arrays[1])


def keep_scaled(modulus: int, rest: int, element: Any) -> Any:
    return scale(element) if keep(modulus, rest, element) else None


def unstar(*components: Any) -> Any:
    return tuple(components)


def itself(element: Any) -> Any:
    return element


def count(element: Any) -> int:
    return len(ids(element))


def first_array(element: Any) -> Any:
    arrays = (leaf for leaf in leaves(element) if isinstance(leaf, np.ndarray) and leaf.ndim)
    return next(arrays, np.zeros(len(ids(element))))


def dict_of(**components: Any) -> Any:
    return components
