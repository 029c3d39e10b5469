"""Checks a declared element against a file's stored spec and against its rows."""

from __future__ import annotations

from typing import Any

from flowdsl.elements.declared_specs import (
    as_declared,
    names_classes,
    restore_classes,
    spec_declared,
)
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import UNKNOWN, Spec, spec_of
from flowdsl.errors import SpecMismatch


def checked_against(
    reader: str, path: str, element: Any, stored: Spec, optional_parts: bool = False
) -> Spec:
    """Return the spec of a file's rows as ``element`` declares them, with its classes.

    With ``optional_parts``, the reader restores the classes of components that may be None.

    Raises:
        SpecMismatch: The rows do not match the declaration; the message has both sides.
    """
    declared = spec_declared(f"{reader}: rows", element, optional_parts)
    try:
        return meet(declared, as_declared(stored, declared), "row")
    except SpecMismatch as error:
        raise SpecMismatch(
            f"{reader}: {path!r}: {error}; declared {declared}, stored {stored}"
        ) from error


class SchemaRows:
    """Converts the rows of a file to the declared classes, and checks them.

    A row is checked only if the stored spec does not already guarantee what was declared.
    """

    def __init__(self, reader: str, path: str, declared: Spec, stored: Spec = UNKNOWN) -> None:
        """``declared`` is the result of ``checked_against``; ``stored`` is the spec in the file."""
        self._reader, self._path, self._declared = reader, path, declared
        self.checks = as_declared(stored, declared) != declared
        self._classes = names_classes(declared)
        self._latest: tuple[Spec | None, Spec] = (None, declared)  # together: threads may share it

    @property
    def changes(self) -> bool:
        """True if rows need to be checked or converted."""
        return self.checks or self._classes

    def row(self, i: int, x: Any) -> Any:
        """Return row ``i``, read as ``x``, in the declared classes.

        Raises:
            SpecMismatch: The row does not match the declaration; the message has both sides.
        """
        if not self.checks:
            return restore_classes(x, self._declared)
        seen, spec = self._latest
        own = spec_of(x)
        if own != seen:  # most rows have equal specs
            try:
                spec = meet(self._declared, as_declared(own, self._declared), "row")
            except SpecMismatch as error:
                raise SpecMismatch(
                    f"{self._reader}: {self._path!r}: row {i}: {error}; declared "
                    f"{self._declared}, the row is {own}"
                ) from error
            self._latest = own, spec
        return restore_classes(x, spec) if self._classes else x
