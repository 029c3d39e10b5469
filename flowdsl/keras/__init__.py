"""Keras 3: the batches of a flow for ``fit``, ``evaluate`` and ``predict``, on any backend.

methods.py  flow.to_keras
fit.py      Fit, the data that Keras takes

Keras is imported when ``Fit`` is used, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    from flowdsl.keras.fit import Fit

__all__ = ["Fit"]


def __getattr__(name: str) -> object:
    if name != "Fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    library("keras", "keras.Fit", "keras")
    from flowdsl.keras.fit import Fit

    return Fit


def __dir__() -> list[str]:
    return __all__
