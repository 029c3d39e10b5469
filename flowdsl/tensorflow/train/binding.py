"""Binding of an element's components to the arguments of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import TypeVar

import attrs
import tensorflow as tf

from flowdsl.errors import InvalidArgument
from flowdsl.tensorflow.inputs import InputSource

R = TypeVar("R")

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@attrs.frozen
class Binding:
    """The way in which components are passed: by these names, or by position if None."""

    names: tuple[str, ...] | None

    def call(self, function: Callable[..., R], components: Sequence[tf.Tensor]) -> R:
        """Call the function with an element's components."""
        if self.names is None:
            return function(*components)
        return function(**dict(zip(self.names, components, strict=True)))


def binding_of(function: Callable[..., object], label: str, source: InputSource) -> Binding:
    """Return how the function takes the elements of a source.

    The components of a dict or record are passed by name. The components of a tuple are passed by
    position, and so are those of a NamedTuple, unless the function has arguments of all of its
    names.

    Raises:
        InvalidArgument: The function does not take them; the message begins with ``label``.
    """
    names = [str(spec.name) for spec in source.specs]
    return binding_of_names(function, label, names, source.by_position)


def binding_of_names(
    function: Callable[..., object], label: str, names: Sequence[str], by_position: bool
) -> Binding:
    """Return how the function takes components of these names; see ``binding_of``."""
    taken = signature(function)
    explicit = [p.name for p in taken.parameters.values() if p.kind in _BY_NAME]
    takes_any_name = any(p.kind is Parameter.VAR_KEYWORD for p in taken.parameters.values())
    if not by_position:
        _require(
            taken, label, names, [n for n in names if n not in explicit and not takes_any_name]
        )
        return Binding(tuple(names))
    if all(name in explicit for name in names):
        _require(taken, label, names, [])
        return Binding(tuple(names))
    order = list(taken.parameters)
    moved = [n for k, n in enumerate(names) if n in explicit and order[k : k + 1] != [n]]
    if moved:
        raise InvalidArgument(
            f"{label}{taken} has {', '.join(moved)} at another position than an element, whose "
            f"components are ({', '.join(names)}): use all of these names, or none"
        )
    try:
        taken.bind(*names)
    except TypeError as error:
        raise _refused(taken, label, names, str(error)) from None
    return Binding(None)


def _require(taken: Signature, label: str, names: Sequence[str], unknown: Sequence[str]) -> None:
    if unknown:
        raise _refused(
            taken, label, names, f"it has no argument {' nor '.join(map(repr, unknown))}"
        )
    try:
        taken.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise _refused(taken, label, names, str(error)) from None


def _refused(taken: Signature, label: str, names: Sequence[str], why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{label}{taken} does not take an element, whose components are ({', '.join(names)}): {why}"
    )
