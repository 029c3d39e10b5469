"""A declared element beside what a file says of its rows."""

from __future__ import annotations

from typing import Any

from flowdsl.errors import SpecMismatch
from flowdsl.specs import Spec, as_declared, meet, spec_declared


def held_to(reader: str, path: str, element: Any, stored: Spec) -> Spec:
    """The spec of a file's rows as ``element`` declares them, with its classes.

    Raises:
        SpecMismatch: The rows are not what was declared; the message has both sides.
    """
    declared = spec_declared(f"{reader}: rows", element)
    try:
        return meet(declared, as_declared(stored, declared), "row")
    except SpecMismatch as error:
        raise SpecMismatch(
            f"{reader}: {path!r}: {error}; declared {declared}, stored {stored}"
        ) from error
