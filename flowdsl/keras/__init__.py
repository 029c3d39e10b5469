"""Keras 3: the batches of a flow for ``fit``, ``evaluate`` and ``predict``, on any backend.

methods.py  flow.to_keras
fit.py      Fit, the data that Keras takes

Keras is imported when ``Fit`` is used, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.storage.libraries import imports_later

if TYPE_CHECKING:
    from flowdsl.keras.fit import Fit

__all__ = ["Fit"]

__getattr__ = imports_later(__name__, "Fit", "fit", "keras")


def __dir__() -> list[str]:
    return __all__
