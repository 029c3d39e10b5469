"""Checks each received element against its declaration."""

from __future__ import annotations

from typing import Any

import attrs

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

_MOST_KNOWN = 1000


@attrs.define(eq=False)
class SchemaCheck:
    """Checks elements, and converts them to the classes that were declared for them."""

    spec: Spec
    _names_classes: bool
    _known: set[Spec] = attrs.field(factory=set[Spec])
    """The specs that passed the check: elements of a stream are mostly alike."""

    @classmethod
    def of(cls, who: str, element: Any) -> SchemaCheck:
        """The check for an annotation; ``object`` accepts everything.

        Raises:
            InvalidFlow: Elements cannot be checked against it.
        """
        spec = spec_declared(f"{who}: elements", element)
        return cls(spec, names_classes(spec))

    def __call__(self, element: Any) -> Any:
        """Check an element, and convert it to its declared class.

        Raises:
            SpecMismatch: It is something else; the message names the component.
        """
        if self.spec == UNKNOWN:
            return element
        seen = spec_of(element)
        if seen not in self._known:
            try:
                meet(self.spec, as_declared(seen, self.spec))
            except SpecMismatch as error:
                raise SpecMismatch(f"{error}; declared {self.spec}, received {seen}") from error
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known.add(seen)
        return in_classes(element, self.spec) if self._names_classes else element
