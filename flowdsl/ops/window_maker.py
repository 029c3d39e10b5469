"""Makes windows of elements, and checks the arguments of ``window``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np

from flowdsl.elements.batch_specs import spec_of_batch
from flowdsl.elements.preallocated import Allocate
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec
from flowdsl.elements.stacking import collated
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode, at_least, format_call, keyword_unless_default

Remainder: TypeAlias = Literal["drop", "keep", "fill"]
"""The treatment of windows at the end of a pass that have fewer than ``size`` elements."""

MOST_IN_SPEC = 1000
"""The spec of a window of more elements does not list each of them."""


def validate_size(node: AnyNode, field: attrs.Attribute[int], value: object) -> None:
    """An attrs validator: the argument ``size`` must be an int >= 1."""
    at_least(1)(node, field.evolve(name="size"), value)  # the method calls it size


def validate_window_remainder(
    node: AnyNode, field: attrs.Attribute[Remainder], value: object
) -> None:
    """An attrs validator: the argument ``remainder`` must be one of the three texts."""
    if value not in ("drop", "keep", "fill"):
        raise InvalidFlow(
            f"window: remainder must be 'drop', 'keep' or 'fill', got {value!r}: shorter windows "
            f"at the end are left out, kept, or filled with their last elements"
        )


def window_title(
    n: int, stride: int, dilation: int, remainder: Remainder, stack: bool, key: str
) -> str:
    """Return the call of ``window`` with these arguments, without the default ones."""
    return format_call(
        "window",
        str(n),
        keyword_unless_default("stride", stride, 1),
        keyword_unless_default("dilation", dilation, 1),
        keyword_unless_default("remainder", remainder, "drop"),
        keyword_unless_default("stack", stack, False),
        key,
    )


@attrs.frozen(eq=False, repr=False)
class WindowMaker:
    """Makes windows of ``n`` elements, or of fewer at the end of a pass."""

    n: int
    remainder: Remainder
    stacks: bool
    shares: bool
    """True if an element may be in several windows."""

    def made(self, group: Iterable[Any], allocate: Allocate | None = None) -> Any:
        """Return the window of these elements."""
        rows = list(group)
        size = len(rows)
        fills = self.remainder == "fill"
        if fills:
            rows += rows[-1:] * (self.n - size)
        if self.stacks:
            window = read_only(collated(rows, collate=None, allocate=allocate))
        else:
            window = tuple(map(read_only, rows) if self.shares or fills else rows)
        return (window, np.arange(self.n) < size) if fills else window

    def spec(self, element: Spec) -> Spec:
        """The spec of windows of elements with the spec ``element``."""
        window: Spec
        if self.stacks:
            window = spec_of_batch(element, None if self.remainder == "keep" else self.n)
        elif self.remainder == "keep" or self.n > MOST_IN_SPEC:
            window = UNKNOWN  # a tuple that may be shorter, or is too long to describe
        else:
            window = StructSpec(tuple, tuple((str(i), element) for i in range(self.n)))
        if self.remainder != "fill":
            return window
        mask = ArraySpec(np.dtype(np.bool_), (self.n,))
        return StructSpec(tuple, (("0", window), ("1", mask)))
