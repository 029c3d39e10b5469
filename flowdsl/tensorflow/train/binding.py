"""Which component of an element is which argument of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import TypeVar

import attrs
import tensorflow as tf

from flowdsl.errors import InvalidFlow
from flowdsl.tensorflow.inputs import InputSource

R = TypeVar("R")

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@attrs.frozen
class Binding:
    """How the components of an element are passed: by these names, or by their places."""

    names: tuple[str, ...] | None

    def call(self, function: Callable[..., R], components: Sequence[tf.Tensor]) -> R:
        """What the function gives for an element of these components."""
        if self.names is None:
            return function(*components)
        return function(**dict(zip(self.names, components, strict=True)))


def binding_of(function: Callable[..., object], told: str, source: InputSource) -> Binding:
    """How the function takes the elements of a source.

    The components of a dict or record go by their names. Those of a tuple go by their places, and
    those of a NamedTuple too, unless the function has arguments of all of their names.

    Raises:
        InvalidFlow: It does not take them; the message begins with ``told``, and has both sides.
    """
    names = [str(spec.name) for spec in source.specs]
    return binding_of_names(function, told, names, source.by_place)


def binding_of_names(
    function: Callable[..., object], told: str, names: Sequence[str], by_place: bool
) -> Binding:
    """How the function takes components of these names, as ``binding_of`` has it."""
    taken = signature(function)
    explicit = [p.name for p in taken.parameters.values() if p.kind in _BY_NAME]
    anything = any(p.kind is Parameter.VAR_KEYWORD for p in taken.parameters.values())
    if not by_place:
        _require(taken, told, names, [n for n in names if n not in explicit and not anything])
        return Binding(tuple(names))
    if all(name in explicit for name in names):
        _require(taken, told, names, [])
        return Binding(tuple(names))
    places = list(taken.parameters)
    moved = [n for k, n in enumerate(names) if n in explicit and places[k : k + 1] != [n]]
    if moved:
        raise InvalidFlow(
            f"{told}{taken} has {', '.join(moved)} at another place than an element, whose "
            f"components are ({', '.join(names)}): name all of its arguments so, or none"
        )
    try:
        taken.bind(*names)
    except TypeError as error:
        raise _refused(taken, told, names, str(error)) from None
    return Binding(None)


def _require(taken: Signature, told: str, names: Sequence[str], unknown: Sequence[str]) -> None:
    if unknown:
        raise _refused(taken, told, names, f"it has no argument {' nor '.join(map(repr, unknown))}")
    try:
        taken.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise _refused(taken, told, names, str(error)) from None


def _refused(taken: Signature, told: str, names: Sequence[str], why: str) -> InvalidFlow:
    return InvalidFlow(
        f"{told}{taken} does not take an element, whose components are ({', '.join(names)}): {why}"
    )
