"""JAX: the elements of a flow as arrays on their devices.

methods.py  flow.to_jax
loader.py   JaxLoader

JAX is imported where a loader is created, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowdsl.jax.loader import JaxLoader

__all__ = ["JaxLoader"]


def __getattr__(name: str) -> object:
    if name != "JaxLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowdsl.storage.libraries import library

    library("jax", "jax.JaxLoader", "jax")
    from flowdsl.jax.loader import JaxLoader

    return JaxLoader


def __dir__() -> list[str]:
    return __all__
