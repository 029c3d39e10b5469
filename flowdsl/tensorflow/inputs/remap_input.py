"""remap_input_source: renames the components of a source, and adds components that are fed."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument, SpecMismatch
from flowdsl.nodes import ListOf, checked_list
from flowdsl.tensorflow.inputs.placeholder_input import PlaceholderInput
from flowdsl.tensorflow.inputs.source import InputOver, InputSource


def remap_input_source(
    input: InputSource,  # noqa: A002  # tensorpack's name
    names: ListOf[str],
    signature: Sequence[tf.TensorSpec] | None = None,
) -> RemapInput:
    """Rename the components of a source's elements.

    ``names`` has a name for each component, in order. Components are then identified by name: a
    trainer passes each to the argument of its name, in any order.

    ``signature`` lists what the step takes, if that is more: it has the renamed components and
    others, which are set with ``source.feed(score=...)`` before each step. The tensors are returned
    in its order.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import QueueInput, remap_input_source
    >>> source = QueueInput(fl.from_items([(1.5, 7), (2.5, 8)]))
    >>> wanted = [tf.TensorSpec((), dtype, name) for dtype, name in (
    ...     (tf.int32, "score"), (tf.int64, "label"), (tf.float64, "image"))]
    >>> source = remap_input_source(source, ["image", "label"], wanted)
    >>> step = tf.function(input_signature=source.signature)(source.tensors)
    >>> with source:
    ...     source.reset()
    ...     source.feed(score=3)
    ...     [tensor.numpy().item() for tensor in step(*source.next_args())]
    [3, 7, 1.5]

    Raises:
        InvalidArgument: There are not as many names as components, or a name is repeated.
        SpecMismatch: ``signature`` has no component of a name, or another type for it.

    Source: ``remap_input_source`` in tensorpack.
    """
    return RemapInput(input, names, signature)


class RemapInput(InputOver):
    """The input source that ``remap_input_source`` returns."""

    def __init__(
        self, source: InputSource, names: ListOf[str], signature: Sequence[tf.TensorSpec] | None
    ) -> None:
        if not isinstance(source, InputSource):
            raise InvalidArgument(
                f"remap_input_source: input must be an InputSource, got {type(source).__name__}"
            )
        own = source.specs
        names = checked_list("remap_input_source: names", names, str, "names")
        if len({*names}) != len(names) or len(names) != len(own):
            raise InvalidArgument(
                f"remap_input_source: names must have a name for each of the {len(own)} "
                f"component(s) ({', '.join(str(spec.name) for spec in own)}), each once, got "
                f"{names!r}"
            )
        super().__init__(source)
        named = {
            name: tf.TensorSpec(spec.shape, spec.dtype, name)
            for name, spec in zip(names, own, strict=True)
        }
        wanted = (
            list(named.values())
            if signature is None
            else list(
                checked_list(
                    "remap_input_source: signature", signature, tf.TensorSpec, "tf.TensorSpec"
                )
            )
        )
        for name, spec in named.items():
            _require(name, spec, wanted)
        self._names = tuple(names)
        self._specs = tuple(named.get(str(spec.name), spec) for spec in wanted)
        others = [spec for spec in wanted if spec.name not in named]
        self._others = PlaceholderInput(others) if others else None

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return self._specs

    @property
    def by_position(self) -> bool:
        return False

    @property
    def most_a_step(self) -> int | None:
        return self.source.most_a_step if self._others is None else 1

    @property
    def allows_loops(self) -> bool:
        return self.most_a_step is None and self.source.allows_loops

    @property
    def signature(self) -> tuple[tf.TypeSpec, ...]:
        others = () if self._others is None else self._others.signature
        return (*self.source.signature, *others)

    def feed(self, **components: object) -> None:
        """Set the components of the next element that are not in the source."""
        if self._others is None:
            raise InvalidArgument(
                "remap_input_source: nothing to feed: the source has all components"
            )
        names = [str(spec.name) for spec in self._others.specs]
        if {*components} != {*names}:
            raise InvalidArgument(
                f"remap_input_source: feed takes {', '.join(names)}, got {', '.join(components)}"
            )
        self._others.feed(*(components[name] for name in names))

    def next_args(self, elements: int = 1) -> tuple[tf.Tensor, ...]:
        if self._others is None:
            return self.source.next_args(elements)
        if not self._others.fill:
            raise FlowError(
                f"remap_input_source: pass {', '.join(str(s.name) for s in self._others.specs)} "
                f"to feed(...) before each step"
            )
        args = self.source.next_args(elements)
        return (*args, *self._others.next_args())

    def tensors(self, *args: tf.Tensor) -> list[tf.Tensor]:
        n = len(self.source.signature)
        values = dict(zip(self._names, self.source.tensors(*args[:n]), strict=True))
        if self._others is not None:
            names = [str(spec.name) for spec in self._others.specs]
            values |= zip(names, args[n:], strict=True)
        return [values[str(spec.name)] for spec in self._specs]


def _require(name: str, spec: tf.TensorSpec, wanted: Sequence[tf.TensorSpec]) -> None:
    own = next((other for other in wanted if other.name == name), None)
    if own is None:
        raise SpecMismatch(
            f"remap_input_source: signature has {', '.join(str(s.name) for s in wanted)}, but no "
            f"{name!r}"
        )
    if own.dtype != spec.dtype or not own.shape.is_compatible_with(spec.shape):
        raise SpecMismatch(
            f"remap_input_source: {name!r} is {own} in signature, but {spec} in the source"
        )
