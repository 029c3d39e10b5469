"""Checks each received element against its declaration."""

from __future__ import annotations

from typing import Any

import attrs

from flowdsl.elements.declared_specs import (
    as_declared,
    names_classes,
    restore_classes,
    spec_declared,
)
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import UNKNOWN, Spec, spec_of
from flowdsl.errors import SpecMismatch

_MAX_KNOWN = 1000


@attrs.define(eq=False)
class SchemaCheck:
    """Checks elements, and converts them to their declared classes."""

    spec: Spec
    _has_classes: bool
    _known: set[Spec] = attrs.field(factory=set[Spec])
    """The specs that passed the check, since most elements of a stream have equal specs."""

    @classmethod
    def of(cls, who: str, element: Any) -> SchemaCheck:
        """Create the check for an annotation; ``object`` accepts everything.

        Raises:
            InvalidFlow: Elements cannot be checked against the annotation.
        """
        spec = spec_declared(f"{who}: elements", element)
        return cls(spec, names_classes(spec))

    def __call__(self, element: Any) -> Any:
        """Check an element, and convert it to its declared class.

        Raises:
            SpecMismatch: The element does not match; the message names the component.
        """
        if self.spec == UNKNOWN:
            return element
        received = spec_of(element)
        if received not in self._known:
            try:
                # ``meet`` raises if the specs differ. A message has tuples and dicts in place of
                # the declared classes, so the received spec gets these classes first.
                meet(self.spec, as_declared(received, self.spec))
            except SpecMismatch as error:
                raise SpecMismatch(f"{error}; declared {self.spec}, received {received}") from error
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known.add(received)
        return restore_classes(element, self.spec) if self._has_classes else element
