"""A declared element beside what a file says of its rows."""

from __future__ import annotations

from typing import Any

from flowdsl.elements.specs import (
    UNKNOWN,
    Spec,
    as_declared,
    in_classes,
    meet,
    names_classes,
    spec_declared,
    spec_of,
)
from flowdsl.errors import SpecMismatch


def checked_against(reader: str, path: str, element: Any, stored: Spec) -> Spec:
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


class SchemaRows:
    """Makes of each row of a file what it was declared to be, in its classes.

    Where what the file says of its rows leaves something open that was declared, each row is held
    to it; the file's own header says the rest.
    """

    def __init__(self, reader: str, path: str, held: Spec, stored: Spec = UNKNOWN) -> None:
        """``held`` is what ``checked_against`` gave, ``stored`` what the file says of its rows."""
        self._reader, self._path, self._held = reader, path, held
        self._checks = as_declared(stored, held) != held
        self._classes = names_classes(held)
        self._latest: tuple[Spec | None, Spec] = (None, held)  # together: threads may share it

    @property
    def changes(self) -> bool:
        """Whether rows have to go through this at all."""
        return self._checks or self._classes

    def row(self, i: int, x: Any) -> Any:
        """The row of this number, which holds ``x``.

        Raises:
            SpecMismatch: It is not what was declared; the message has both sides.
        """
        if not self._checks:
            return in_classes(x, self._held)
        seen, spec = self._latest
        own = spec_of(x)
        if own != seen:  # most are alike
            try:
                spec = meet(self._held, as_declared(own, self._held), "row")
            except SpecMismatch as error:
                raise SpecMismatch(
                    f"{self._reader}: {self._path!r}: row {i}: {error}; declared {self._held}, "
                    f"the row is {own}"
                ) from error
            self._latest = own, spec
        return in_classes(x, spec) if self._classes else x
