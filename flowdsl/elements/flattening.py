"""Flattening: the components of elements in a fixed order, for consumers without names.

Examples of these consumers are a queue, a training step and a message. The components of dicts and
records are found by name, whatever their order in an element; the components of tuples by position.
A NamedTuple must have the names of the spec, if the spec has names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from flowdsl.elements.specs import Spec, StructSpec, leaf_specs, spec_of
from flowdsl.elements.structure import arguments_of
from flowdsl.errors import SpecMismatch

Flatten: TypeAlias = Callable[[Any], list[Any]]
"""Returns the flattened components of an element; ``SpecMismatch`` if it has other components."""


class InSpecOrder:
    """Returns the components of a value in the order of a spec.

    >>> in_order = InSpecOrder(StructSpec(dict, (("image", spec_of(1)), ("label", spec_of(2)))))
    >>> in_order({"label": 4, "image": 3})
    [3, 4]
    """

    def __init__(self, spec: StructSpec, at: str = "", fixed: bool = False) -> None:
        """``at`` names the value in messages; ``fixed`` refuses a dict in another order."""
        self.names = tuple(name for name, _ in spec.fields)
        self._spec, self._at, self._fixed = spec, at, fixed
        self._by_position = issubclass(spec.form, tuple)
        self._of_record = spec.form if arguments_of(spec.form) is not None else None

    def __call__(self, value: Any, /) -> list[Any]:
        """Return the components.

        Raises:
            SpecMismatch: The value has other components; the message has both specs.
        """
        kind = type(value)
        if self._by_position:
            fits = isinstance(value, tuple) and len(value) == len(self.names)
            if fits and (kind is tuple or self._agrees(value)):
                return list(value)
        elif isinstance(value, dict):
            if tuple(value) == self.names:
                return list(value.values())
            if value.keys() == {*self.names}:
                if self._fixed:
                    raise self._reordered(value)
                return [value[name] for name in self.names]
        elif kind is self._of_record or (arguments_of(kind) or {}).keys() == {*self.names}:
            return [getattr(value, name) for name in self.names]
        raise SpecMismatch(f"{self._where}it is {spec_of(value)}, expected is {self._spec}")

    def _agrees(self, value: tuple[Any, ...]) -> bool:
        names = getattr(value, "_fields", None)
        return names is None or not self._spec.has_names or names == self.names

    def _reordered(self, value: dict[Any, Any]) -> SpecMismatch:
        return SpecMismatch(
            f"{self._where}its keys are {', '.join(map(str, value))}, the keys of the first "
            f"element were {', '.join(map(str, self.names))}: their order is ambiguous"
        )

    @property
    def has_names(self) -> bool:
        """True if the components have names, and not only numbers."""
        return self._spec.has_names

    @property
    def _where(self) -> str:
        return f"in {self._at!r} " if self._at else ""


def flattener(spec: Spec, names: Sequence[str] | None = None) -> Flatten:
    """Return a function that flattens elements in the order of their spec, or of ``names``.

    >>> flatten = flattener(spec_of({"image": 1, "box": (2, 3)}))
    >>> flatten({"box": (5, 6), "image": 4})
    [4, 5, 6]

    Raises:
        SpecMismatch: The names differ from the spec's; the message has both.
    """
    flatten = _flattener(spec, at="", fixed=False)
    order = range(len(leaf_specs(spec))) if names is None else order_of(spec, names)
    if [*order] == sorted(order):
        return flatten

    def reordered(element: Any) -> list[Any]:
        values = flatten(element)
        return [values[k] for k in order]

    return reordered


def _flattener(spec: Spec, at: str, fixed: bool) -> Flatten:
    if not isinstance(spec, StructSpec):
        return _as_leaf
    in_order = InSpecOrder(spec, at, fixed)
    dot = f"{at}." if at else ""
    parts = [_flattener(part, f"{dot}{name}", fixed) for name, part in spec.fields]
    if all(part is _as_leaf for part in parts):
        return in_order

    def flatten(element: Any) -> list[Any]:
        pairs = zip(parts, in_order(element), strict=True)
        return [leaf for flat, value in pairs for leaf in flat(value)]

    return flatten


def _as_leaf(element: Any) -> list[Any]:
    return [element]


def flattener_of_first(names: Sequence[str] | None = None) -> Flatten:
    """Return a function that flattens elements of unknown spec.

    The order is ``names``, or the order of the first element. Without ``names``, a dict in another
    order than in the first element is an error: a resumed pass starts with another element, and
    would use another order.
    """
    from_first: Flatten | None = None

    def flatten(element: Any) -> list[Any]:
        nonlocal from_first
        if from_first is None:
            spec = spec_of(element)
            by_position = names is None or not _has_names(spec)
            from_first = (
                _flattener(spec, at="", fixed=True) if by_position else flattener(spec, names)
            )
        return from_first(element)

    return flatten


def order_of(spec: Spec, names: Sequence[str]) -> Sequence[int]:
    """The indices of the components with these names; for elements without names, their order.

    >>> order_of(spec_of({"image": 1, "label": 2}), ["label", "image"])
    [1, 0]

    Raises:
        SpecMismatch: The names differ from the spec's; the message has both.
    """
    own = [name for name, _ in leaf_specs(spec)]
    if not _has_names(spec):
        return range(len(own))
    if sorted(own) != sorted(names):
        raise SpecMismatch(
            f"an element has the components {', '.join(own)}, and the expected names are "
            f"{', '.join(names)}"
        )
    return [own.index(name) for name in names]


def _has_names(spec: Spec) -> bool:
    if not isinstance(spec, StructSpec):
        return False
    by_name = spec.has_names or not issubclass(spec.form, tuple)
    return by_name or any(_has_names(part) for _, part in spec.fields)
