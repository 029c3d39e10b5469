"""inspect: describe elements as they pass through a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.specs import Spec
from flowdsl.elements.structure import components
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    A,
    AnyNode,
    E,
    FlowBase,
    IndexedMap,
    SkippedByProbe,
    T,
    at_least,
    cached_per_node,
    flow,
    format_call,
    frozen_node,
    keyword_unless_default,
    plain_int,
)
from flowdsl.resources.streams import write_to_standard_error

if TYPE_CHECKING:
    from flowdsl.flow import Flow


def _validate_name(node: AnyNode, field: attrs.Attribute[str | None], value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidFlow(f"inspect: {field.name} must be a string or None, got {value!r}")


@frozen_node
class Inspect(IndexedMap[A, A, E], SkippedByProbe[A, E], Generic[A, E]):
    """The elements unchanged; the first ``num`` are described on standard error."""

    num: int = attrs.field(converter=plain_int, validator=at_least(0))
    name: str | None = attrs.field(validator=_validate_name)
    max_depth: int = attrs.field(converter=plain_int, validator=at_least(0))
    max_list: int = attrs.field(converter=plain_int, validator=at_least(0))

    @property
    def title(self) -> str:
        num = "" if self.num == 1 else str(self.num)
        return format_call("inspect", num, keyword_unless_default("name", self.name, None))

    @property
    def fingerprint(self) -> str:
        return ""

    def apply(self, x: A, epoch: int, position: int) -> A:
        if epoch == 0 and position < self.num:
            described = describe_element(x, self.max_depth, self.max_list)
            # One write, so that the lines of several processes do not mix.
            write_to_standard_error(
                f"{self.name or 'inspect'}: element {position} (of {self.num} shown): {described}\n"
            )
        return x

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def depth(self) -> int:
        return self.source.depth  # inspecting does not change the draws of seeded operators


def describe_element(element: object, max_depth: int = 3, max_list: int = 3) -> str:
    """Describe an element: the type of each component, its shape and range, or its value.

    Nested components are described down to ``max_depth`` levels. All components of the element
    itself are described; of lists, and of nested components, only the first ``max_list``.

    >>> import numpy as np
    >>> print(describe_element((np.arange(6.0).reshape(2, 3), {"label": 7}, [1, 2, 3]), max_list=2))
    tuple with 3 components
       0: ndarray:float64 of shape (2, 3) in range [0, 5]
       1: dict with 1 component
          label: int with value 7
       2: list of len 3
          0: int with value 1
          1: int with value 2
          ...
    """
    limit = max_list if isinstance(element, list) else None
    return "\n".join(_lines(element, max_depth, limit, max_list))


_INDENT = "   "


def _lines(value: object, depth: int, limit: int | None, max_list: int) -> Iterator[str]:
    """One line for a value, and lines for its first ``limit`` entries, or for all if None.

    ``max_list`` is the limit for nested values.
    """
    entries = list(enumerate(value)) if isinstance(value, list) else components(value)
    yield _headline(value, entries)
    if depth == 0 or entries is None:
        return
    for name, entry in entries[:limit]:
        first, *others = _lines(entry, depth - 1, limit=max_list, max_list=max_list)
        yield f"{_INDENT}{name}: {first}"
        yield from (_INDENT + line for line in others)
    if limit is not None and len(entries) > limit:
        yield f"{_INDENT}..."


def _headline(value: object, entries: list[Any] | None) -> str:
    """One line that describes a value, without its entries."""
    name = type(value).__name__
    if isinstance(value, np.ndarray):
        return f"{name}:{value.dtype} of shape {value.shape}{_range(np.asarray(value))}"
    if isinstance(value, list):
        return f"{name} of len {len(value)}"
    if entries is not None:
        return f"{name} with {len(entries)} component{'' if len(entries) == 1 else 's'}"
    if isinstance(value, np.generic):
        return f"{name} with value {_brief(str, value)}"
    if isinstance(value, (str, bytes)):
        return f"{name} of len {len(value)} with value {_brief(repr, value[:_WIDTH])}"
    return f"{name} with value {_brief(repr, value)}"


def _range(values: NDArray[Any]) -> str:
    """The least and the greatest number, if there are any, and the number of NaNs."""
    kind, size = values.dtype.kind, values.size
    if kind not in "biufmM":
        return ""
    if kind in "fmM":
        values = values[~np.isnan(values)]
    nans = f", {size - values.size} NaN" if values.size < size else ""
    if not values.size:
        return nans
    least, greatest = (f"{x:.5g}" if kind == "f" else str(x) for x in (values.min(), values.max()))
    return f" in range [{least}, {greatest}]{nans}"


_WIDTH = 60


def _brief(to_text: Callable[[object], str], value: object) -> str:
    """The text of a value, cut if it is long."""
    try:
        text = to_text(value)
    except Exception as error:  # inspecting an element must not fail
        return f"unknown: {to_text.__name__} raised {type(error).__name__}"
    text = " ".join(text.splitlines())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


class Inspecting(FlowBase[T, E]):
    """Operators that describe a flow's elements without changing them."""

    def inspect(
        self, num: int = 1, *, name: str | None = None, max_depth: int = 3, max_list: int = 3
    ) -> Flow[T, E]:
        """Describe the first ``num`` elements of epoch 0 on standard error, as they pass by.

        Each component has one line: its type, with dtype, shape and range for an array, or its
        value. Nested components are described down to ``max_depth`` levels, with ``max_list``
        entries of each list, tuple, dict or record; all components of the element itself are
        described. ``name`` distinguishes several of these operators.

        It may be put anywhere in a chain: it changes neither elements nor the draws of seeded
        operators. A description is written when its element is made, by the process that makes it;
        below a shuffle or a ``take``, elements are made in another order, or never.

        Length: the source's.

        Effects: none.

        Errors: ``InvalidFlow`` for a negative number, or a name that is not a string.

        >>> import contextlib, sys
        >>> import flowdsl as fl
        >>> flow = fl.from_items([("a", 0.5), ("b", 1.5)]).inspect(name="letters")
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     elements = flow.collect()
        letters: element 0 (of 1 shown): tuple with 2 components
           0: str of len 1 with value 'a'
           1: float with value 0.5

        Source: ``PrintData`` in tensorpack.

        Elsewhere: tensorpack ``PrintData``; tf.data none; Grain none; torchdata none.
        """
        return flow(Inspect(self.node, num, name, max_depth, max_list))
