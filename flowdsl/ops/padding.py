"""padded_batch: batches of arrays that differ in shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import attrs
import numpy as np

from flowdsl.effects import Resampled
from flowdsl.elements.batch_specs import spec_of_padded_batch
from flowdsl.elements.preallocated import Allocate
from flowdsl.elements.specs import Spec, with_sizes
from flowdsl.elements.stacking import Length, Padding, pad
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    BATCH_KEYWORD_ADVICE,
    PARALLEL_KEYWORD_ADVICE,
    A,
    AnyNode,
    E,
    FlowBase,
    T,
    U,
    cached_per_node,
    deep_copied,
    flow,
    frozen_node,
    is_int,
    method_name,
    plain_int,
    rejects_keywords,
)
from flowdsl.ops.batching import Stacking

if TYPE_CHECKING:
    from flowdsl.elements.batch_types import Batchable
    from flowdsl.flow import Flow

B = TypeVar("B")


def validate_padding(node: AnyNode, field: attrs.Attribute[Padding], value: object) -> None:
    """An attrs validator: a padding value, or a tuple or dict with one for each component."""
    if isinstance(value, (tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            validate_padding(node, field, part)
    elif value is not None and not isinstance(value, (complex, float, int, str, bytes, np.generic)):
        raise InvalidFlow(
            f"{method_name(node)}: padding must be a number, text, a NumPy scalar, None, or a "
            f"tuple or dict of them, got {value!r}"
        )


def plain_sizes(length: Any) -> Any:
    """An attrs converter: NumPy ints become Python ints, also in a (copied) tuple or dict."""
    if isinstance(length, tuple):
        return tuple(map(plain_sizes, length))
    if isinstance(length, dict):
        return {name: plain_sizes(size) for name, size in length.items()}
    return plain_int(length)


def _validate_length(node: AnyNode, field: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, (tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            _validate_length(node, field, part)
    elif value is not None and not is_int(value, 0):
        raise InvalidFlow(
            f"padded_batch: length must be an int >= 0, None, or a tuple or dict of them, got "
            f"{value!r}"
        )


@frozen_node
class PaddedBatch(Stacking[A, U, E], Generic[A, U, E]):
    """Groups of ``n`` consecutive elements, their arrays padded to one shape and stacked."""

    padding: Padding = attrs.field(converter=deep_copied, validator=validate_padding)
    length_of_rows: Length = attrs.field(
        default=None, converter=plain_sizes, validator=_validate_length
    )

    @property
    def title(self) -> str:
        remainder = ", drop_remainder=True" if self.drop_remainder else ""
        padding = "" if repr(self.padding) == "0" else f", padding={self.padding!r}"
        size = self.length_of_rows
        length = "" if size is None else f", length={size!r}"
        return f"padded_batch({self.n}{remainder}{padding}{length})"

    def gather(self, group: Sequence[A], allocate: Allocate | None = None) -> U:
        allocate = allocate or np.empty
        padded: U = pad(group, self.padding, allocate, length=self.length_of_rows)
        return padded

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        rows = self.source.spec(False)
        if probe:  # sizes are not taken from a probe, which sees only one element
            rows = with_sizes(self.source.spec(True), rows)
        return spec_of_padded_batch(
            rows, self.size_of_each, self.padding, length=self.length_of_rows
        )


class PaddedBatching(FlowBase[T, E]):
    """Operators that group elements of different shapes, and pad them."""

    @overload
    def padded_batch(
        self: Batchable[B],
        n: int,
        *,
        drop_remainder: Literal[False] = False,
        padding: Padding = 0,
        length: Length = None,
    ) -> Flow[B, E]: ...
    @overload
    def padded_batch(
        self: Batchable[B],
        n: int,
        *,
        drop_remainder: bool,
        padding: Padding = 0,
        length: Length = None,
    ) -> Flow[B, E | Resampled]: ...
    @rejects_keywords(
        **BATCH_KEYWORD_ADVICE,
        padded_shapes="arrays are padded to the largest of a batch; write length=n to fix the size "
        "of their first axis",
        padding_values="write padding={}",
        **PARALLEL_KEYWORD_ADVICE,
    )
    def padded_batch(
        self: Any,
        n: int,
        *,
        drop_remainder: bool = False,
        padding: Padding = 0,
        length: Length = None,
    ) -> Flow[Any, Any]:
        """Group ``n`` consecutive elements and stack their arrays, padded to the largest of them.

        Shapes: every axis of an array is padded at its end, to the largest size that it has in the
        batch; ranks and dtypes must agree. Lists of numbers are arrays. All else is as in
        ``batch``.

        ``padding`` is one value for all arrays; or a tuple or, for dicts, a dict with one value for
        each component. ``None`` forbids the padding of an array. The dtype must be able to
        represent the value: 300 for uint8 or 0.5 for int64 is an error. By default, arrays of text
        are padded with ``""``.

        With ``length``, the first axis of each array has this size in every batch, for compilers
        that want fixed shapes. It is one size for all arrays, or a tuple or dict with one for each
        component, and None for a component that keeps its size. A longer array is an error.

        Length: the source's divided by ``n``, rounded up, or down with ``drop_remainder``.

        Effects: none: a batch is its rows. With ``drop_remainder``, ``Resampled``.

        Errors: ``InvalidFlow`` for ``n < 1``, a ``length`` that is not a size, elements known not
        to stack, or a padding or length known not to fit them; an ``ElementError`` caused by a
        ``SpecMismatch`` for rows that do not stack or are too long.

        >>> import flowdsl as fl, numpy as np
        >>> words = fl.from_items([np.array([1, 2, 3]), np.array([4])])
        >>> words.padded_batch(2, padding=-1).collect()
        [array([[ 1,  2,  3],
               [ 4, -1, -1]])]
        >>> words.padded_batch(2, length=4).collect()
        [array([[1, 2, 3, 0],
               [4, 0, 0, 0]])]

        Source: ``dynamic_pad`` in ``tf.train.batch``; ``padded_batch`` in tf.data.

        Elsewhere: tensorpack none; tf.data ``padded_batch``; Grain none; torchdata none.
        """
        return flow(PaddedBatch(self.node, n, drop_remainder, padding, length))
