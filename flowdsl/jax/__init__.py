"""JAX: the elements of a flow as arrays on their devices.

methods.py  flow.to_jax
loader.py   JaxLoader

JAX is imported where a loader is created, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.storage.libraries import imports_later

if TYPE_CHECKING:
    from flowdsl.jax.loader import JaxLoader

__all__ = ["JaxLoader"]

__getattr__ = imports_later(__name__, "JaxLoader", "loader", "jax")


def __dir__() -> list[str]:
    return __all__
