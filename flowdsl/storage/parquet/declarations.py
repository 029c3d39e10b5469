"""Checks of a column against the type that an element declares for it.

The specs of a column and of its declaration are compared when a flow is built. What they cannot
show is checked here: nulls within lists and structs, which Arrow counts for a whole row group;
a declared class that is narrower than the values' class, such as ``bool`` for ``int``; and types
without a spec, such as ``dict[str, int]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, get_origin

import attrs

from flowdsl.elements.declared_specs import restore_classes, spec_of_type
from flowdsl.elements.hints import without_none
from flowdsl.elements.specs import (
    UNKNOWN,
    ArraySpec,
    ListSpec,
    Spec,
    StructSpec,
    ValueSpec,
    class_of,
)
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.storage.libraries import library
from flowdsl.storage.parquet.columns import Values, is_list

_OF_PYTHON = (dict, tuple, set, frozenset)
"""Classes that may be declared without a spec; no column has values of most of them."""


@attrs.frozen
class Declaration:
    """The declared type of a column's values."""

    spec: Spec = UNKNOWN
    optional: bool = True
    """True if values may be None."""
    hint: Any = object
    """The annotation, without None."""

    @classmethod
    def of(cls, hint: Any) -> Declaration:
        """Return the declaration of an annotation."""
        inner, optional = without_none(hint)
        spec = spec_of_type(inner)
        return cls(spec, optional or spec == UNKNOWN, inner)

    @property
    def is_mapping(self) -> bool:
        """True if the entries of a map are read as a dict."""
        return self._kind in (dict, Mapping, MutableMapping)

    @property
    def _kind(self) -> Any:
        return get_origin(self.hint) or self.hint

    def check(self, stored: Spec, path: str) -> None:
        """Check that values with a spec can have this type.

        Raises:
            SpecMismatch: They cannot; the message has the path, and both sides.
        """
        _check_classes(self.spec, stored, path)
        is_unchecked = self.spec == UNKNOWN != stored and self._kind in _OF_PYTHON
        if is_unchecked and not issubclass(class_of(stored), self._kind):
            advice = "; declare a list" if _is_list_of_values(stored) else ""
            raise SpecMismatch(f"{path}: declared {self.hint}, got {stored}{advice}")


def _is_list_of_values(stored: Spec) -> bool:
    if isinstance(stored, ArraySpec):
        return stored.shape is not None and len(stored.shape) == 1
    return isinstance(stored, ListSpec)


def _check_classes(declared: Spec, stored: Spec, path: str) -> None:
    """Check that values are not declared as a subclass of theirs, such as ``bool`` for ``int``."""
    if isinstance(declared, ListSpec) and isinstance(stored, ListSpec):
        _check_classes(declared.item, stored.item, f"{path}[]")
    elif isinstance(declared, StructSpec) and isinstance(stored, StructSpec):
        specs = dict(stored.fields)
        for name, spec in declared.fields:
            if name in specs:
                _check_classes(spec, specs[name], f"{path}.{name}")
    elif isinstance(declared, ValueSpec) and isinstance(stored, ValueSpec):
        is_narrower = declared != stored and issubclass(declared.type, stored.type)
        if stored != UNKNOWN and is_narrower:
            raise SpecMismatch(f"{path}: declared {declared}, got {stored}")


def may_have_nulls_within(array: Any, declared: Spec) -> bool:
    """Return True if lists or structs may contain a null where the spec declares none."""
    types = library("pyarrow.types", "from_parquet", "parquet")
    parts: list[tuple[Any, Spec]] = []
    if isinstance(declared, ListSpec) and is_list(array.type):
        parts = [(array.flatten(), declared.item)]
    elif isinstance(declared, StructSpec) and types.is_struct(array.type):
        stored = {array.type.field(i).name for i in range(array.type.num_fields)}
        parts = [(array.field(name), spec) for name, spec in declared.fields if name in stored]
    return any(
        (spec != UNKNOWN and part.null_count > 0) or may_have_nulls_within(part, spec)
        for part, spec in parts
    )


def without_nulls_within(values: Values, declared: Spec, name: str) -> Values:
    """Refuse values of a column that contain a null where the spec declares none."""

    def checked(start: int, end: int) -> list[Any]:
        some = values(start, end)
        for value in some:
            if value is not None and (path := _null_within(value, declared, name)) is not None:
                raise SpecMismatch(
                    f"{path} is null; declare that it may be None, as with int | None"
                )
        return some

    return checked


def _null_within(value: Any, declared: Spec, path: str) -> str | None:
    """Return the path of the first null that the spec does not declare; None without one."""
    if value is None:
        return None if declared == UNKNOWN else path
    parts: Iterable[tuple[Any, Spec, str]] = ()
    if isinstance(declared, ListSpec):
        parts = ((item, declared.item, f"{path}[{k}]") for k, item in enumerate(value))
    elif isinstance(declared, StructSpec) and isinstance(value, dict):
        parts = ((value.get(name), spec, f"{path}.{name}") for name, spec in declared.fields)
    return next((found for part in parts if (found := _null_within(*part)) is not None), None)


def in_classes(values: Values, declared: Spec) -> Values:
    """Return values in the declared classes; None stays None."""
    return lambda start, end: [restore_classes(value, declared) for value in values(start, end)]


def as_dicts(values: Values) -> Values:
    """Return the entries of maps as dicts, and refuse maps with an entry twice."""

    def dicts(start: int, end: int) -> list[Any]:
        return [None if entries is None else _as_dict(entries) for entries in values(start, end)]

    return dicts


def _as_dict(entries: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(entries)
    if len(found) < len(entries):
        raise SourceError("a map has two entries of one key; declare no dict to read both")
    return found
