"""What elements are declared to be, held against each that comes."""

from __future__ import annotations

from typing import Any, get_origin

import attrs

from flowdsl.elements import assemble
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.specs import UNKNOWN, Spec, StructSpec, ValueSpec, meet, spec_of, spec_of_type
from flowdsl.storage.lmdb import _as_declared

_MOST_KNOWN = 1000


@attrs.define(eq=False)
class Declared:
    """Checks elements, and puts them in the classes that were declared for them."""

    spec: Spec
    _names_classes: bool
    _known: set[Spec] = attrs.field(factory=set[Spec])
    """What was checked already: elements of a stream are mostly alike."""

    @classmethod
    def of(cls, who: str, element: Any) -> Declared:
        """What an annotation declares; ``object`` is nothing.

        Raises:
            InvalidFlow: Elements can not be checked against it.
        """
        spec = spec_of_type(element)
        if spec == UNKNOWN and element is not object:
            kind = get_origin(element) or element
            if kind not in (dict, list, tuple):
                raise InvalidFlow(
                    f"{who}: elements can not be checked against {element!r}; declare a "
                    f"NamedTuple, a record, a TypedDict, tuple[A, B], or the type of a single value"
                )
            spec = ValueSpec(kind)
        return cls(spec, _names_classes(spec))

    def __call__(self, element: Any) -> Any:
        """The element as it was declared.

        Raises:
            SpecMismatch: It is something else; the message names the component.
        """
        if self.spec == UNKNOWN:
            return element
        seen = spec_of(element)
        if seen not in self._known:
            try:
                meet(self.spec, _as_declared(seen, self.spec))
            except SpecMismatch as error:
                raise SpecMismatch(f"{error}; declared {self.spec}, received {seen}") from error
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            self._known.add(seen)
        return _in_classes(element, self.spec) if self._names_classes else element


def _names_classes(spec: Spec) -> bool:
    """An element of this spec is sent without its classes."""
    if not isinstance(spec, StructSpec):
        return False
    return spec.form not in (tuple, dict) or any(_names_classes(part) for _, part in spec.fields)


def _in_classes(x: Any, spec: Spec) -> Any:
    """A value in the classes that its spec names; one that was pickled is in them already."""
    if not isinstance(spec, StructSpec) or (type(x) is spec.form not in (tuple, dict)):
        return x
    values = x if isinstance(x, tuple) else [x[name] for name, _ in spec.fields]
    pairs = zip(spec.fields, values, strict=True)
    return assemble(spec.form, {name: _in_classes(value, part) for (name, part), value in pairs})
