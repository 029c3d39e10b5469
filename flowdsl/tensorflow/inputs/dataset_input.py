"""tf.data: datasets as input sources, and flows as datasets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs
import tensorflow as tf

from flowdsl.effects import Endless
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec
from flowdsl.elements.structure import remade
from flowdsl.errors import EndlessFlow, InvalidArgument, NotResumable, SpecMismatch, UnknownLength
from flowdsl.feeding.loader import refuse_second_shard
from flowdsl.flow import Flow
from flowdsl.ops.iterables import from_iterable
from flowdsl.tensorflow.inputs.queue_input import QueuedInput, checked_flow
from flowdsl.tensorflow.inputs.signature import Signature, signature_of, signature_of_tensors
from flowdsl.tensorflow.inputs.source import LeftOver

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run


class TFDatasetInput(QueuedInput):
    """Feeds a step from a ``tf.data.Dataset``, or from a flow.

    A thread moves the dataset's elements, as tensors, into a queue of size ``capacity``. So a step
    that takes several elements gets all of them or does not run, and an error is raised when its
    element is due. A flow goes into the queue directly, without a dataset in between.

    A dataset cannot be resumed: ``restore`` restarts its pass, and ``state_dict`` logs a warning.
    Each pass is one iteration over the dataset; whether passes differ depends on the dataset.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import TFDatasetInput
    >>> source = TFDatasetInput(tf.data.Dataset.range(7).batch(3))
    >>> step = tf.function(input_signature=source.signature)(source.tensors)
    >>> with source:
    ...     source.reset()
    ...     [step(*source.next_args())[0].numpy().tolist() for _ in range(source.size())]
    [[0, 1, 2], [3, 4, 5], [6]]

    Raises:
        InvalidArgument: ``dataset`` is neither a dataset nor a flow.
        SpecMismatch: A component is not a plain tensor, e.g. a ragged one.

    Source: ``TFDatasetInput`` in tensorpack, which needs an endless dataset for training.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset | Flow[object],
        *,
        capacity: int = 50,
        spec: Sequence[tf.TensorSpec] | None = None,
    ) -> None:
        signature: Signature
        if isinstance(dataset, Flow):
            self._flow, self._dataset = dataset, None
            signature = signature_of("TFDatasetInput", dataset.spec, spec)
        elif isinstance(dataset, tf.data.Dataset):
            self._flow, self._dataset = _elements_of(dataset), dataset
            if spec is not None:
                raise InvalidArgument(
                    "TFDatasetInput: spec can be set only for a flow: a tf.data.Dataset has its own"
                )
            signature = signature_of_tensors("TFDatasetInput", dataset.element_spec)
        else:
            raise InvalidArgument(
                f"TFDatasetInput: dataset must be a tf.data.Dataset or a Flow, got "
                f"{type(dataset).__name__}"
            )
        super().__init__(signature, queue=None, capacity=capacity)

    def size(self) -> int:
        if self._dataset is None:
            return len(self._flow)
        n = int(self._dataset.cardinality())
        if n == tf.data.INFINITE_CARDINALITY:
            raise EndlessFlow("TFDatasetInput: the dataset never ends")
        if n == tf.data.UNKNOWN_CARDINALITY:
            raise UnknownLength(
                "TFDatasetInput: the length of the dataset is unknown; set it with "
                "dataset.apply(tf.data.experimental.assert_cardinality(n))"
            )
        return n

    def close(self) -> None:
        super().close()
        self._flow.end_workers()

    def _begin(self, epoch: int) -> Run[object]:
        return self._flow.epoch(epoch)

    def _resume(self, state: Mapping[str, object]) -> Run[object]:
        return self._flow.resume(state)

    def _position(self, behind: int) -> dict[str, object]:
        if self._dataset is not None:
            self._current_pass()  # raises if no pass has begun
            raise NotResumable("TFDatasetInput: a tf.data.Dataset does not report its position")
        return super()._position(behind)


def _elements_of(source: tf.data.Dataset) -> Flow[Any, Any]:
    def dataset() -> Iterator[Any]:  # error messages contain this name
        yield from source

    return from_iterable(dataset)


def dataflow_to_dataset(
    flow: Flow[Any, Any], types: Sequence[tf.DType] | None = None
) -> tf.data.Dataset:
    """Convert a flow to a ``tf.data.Dataset``, to continue with TensorFlow's own operations.

    Elements keep their form: tuples, NamedTuples and dicts of tensors; a record becomes a dict.
    Dtypes and shapes are taken from the flow's spec. For a flow with an unknown spec, ``types``
    lists the dtypes of its components, and their shapes are unknown. A flow of known length becomes
    a dataset of known length; for training add ``.repeat()`` to the flow or to the dataset. Each
    iteration of the dataset is the next epoch of the flow, starting at 0.

    The elements are computed by the flow, in Python: add ``prefetch`` to the flow, and keep the
    work in TensorFlow small. TensorFlow may keep an iteration alive after the dataset is gone; the
    flow's run then ends with the program.

    >>> import flowdsl as fl
    >>> from flowdsl.tensorflow.inputs import dataflow_to_dataset
    >>> dataset = dataflow_to_dataset(fl.from_range(5).map(lambda i: {"n": i}).batch(2))
    >>> [batch["n"].numpy().tolist() for batch in dataset]
    [[0, 1], [2, 3], [4]]

    Raises:
        SpecMismatch: A component has no dtype, or is not an array, or the keys of a dict do not
            compare; raised at once if the spec is known.

    Source: ``TFDatasetInput.dataflow_to_dataset`` in tensorpack.
    """
    checked_flow("dataflow_to_dataset", flow)
    declared = None if types is None else [tf.TensorSpec(None, dtype) for dtype in types]
    signature = signature_of("dataflow_to_dataset", flow.spec, declared)
    _refuse_unsorted_keys(flow.spec)
    formed = _Formed(flow.spec)
    epochs = count()

    def elements() -> Iterator[Any]:
        with flow.epoch(next(epochs)) as run:
            for position, element in enumerate(run):
                yield formed.of(signature.arrays(element, position))

    dataset = tf.data.Dataset.from_generator(elements, output_signature=formed.of(signature.specs))
    length = flow.node.length
    if length is None and Endless in flow.effects:
        length = tf.data.INFINITE_CARDINALITY
    if length is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(length))


def distributed_dataset(
    flow: Flow[Any, Any],
    strategy: tf.distribute.Strategy,
    types: Sequence[tf.DType] | None = None,
) -> tf.distribute.DistributedDataset:
    """Convert a flow to a dataset of a strategy, where each replica takes one element per step.

    If a strategy has several input workers, each computes only its own shard of the flow. All
    shards have equal lengths, so that no worker waits for others at the end: the last elements are
    left out, with a warning, if there are not enough for all replicas. ``types`` works as in
    ``dataflow_to_dataset``.

    >>> import flowdsl as fl, tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import distributed_dataset
    >>> strategy = tf.distribute.get_strategy()
    >>> dataset = distributed_dataset(fl.from_range(4).batch(2), strategy)
    >>> [batch.numpy().tolist() for batch in dataset]
    [[0, 1], [2, 3]]

    Raises:
        InvalidArgument: The length of the flow is unknown, or too small for one step.
        SpecMismatch: As for ``dataflow_to_dataset``.

    Source: ``Strategy.distribute_datasets_from_function`` of TensorFlow.
    """
    checked_flow("distributed_dataset", flow)
    replicas = strategy.num_replicas_in_sync
    rows = flow.node.length
    if rows is None and Endless not in flow.effects:
        raise InvalidArgument(
            "distributed_dataset: the flow must have a known length or be endless, so that input "
            "workers end together: set it with .fixed_size(n), or make it endless with .repeat()"
        )
    if rows is not None and rows < replicas:
        raise InvalidArgument(
            f"distributed_dataset: a step takes {replicas} element(s), one per replica, but the "
            f"flow has {rows}"
        )
    if rows is not None and rows % replicas:
        warnings.warn(
            f"the last {rows % replicas} element(s) of a pass are left out: they do not fill "
            f"{replicas} replicas; make the length a multiple of {replicas}, or .repeat() the flow",
            LeftOver,
            stacklevel=2,
        )
    return strategy.distribute_datasets_from_function(
        lambda context: dataflow_to_dataset(_part(flow, context), types)
    )


def _part(flow: Flow[Any, Any], context: tf.distribute.InputContext) -> Flow[Any, Any]:
    """Return an input worker's shard of a flow; all shards have equal lengths."""
    if (rows := flow.node.length) is not None:
        flow = flow.take(rows - rows % context.num_replicas_in_sync)
    processes = context.num_input_pipelines, context.input_pipeline_id
    refuse_second_shard("distributed_dataset", flow.node, processes, accepts_shard=False)
    return flow.shard(*processes)


@attrs.frozen
class _Formed:
    """The form of a flow's elements, which the dataset keeps."""

    spec: Spec

    def of(self, leaves: Iterable[Any]) -> Any:
        """Put components into this form."""
        if self.spec == UNKNOWN:
            first, *others = leaves
            return (first, *others) if others else first
        return _in_form(self.spec, iter(leaves))


def _refuse_unsorted_keys(spec: Spec) -> None:
    """Refuse dicts that tf.data cannot take: it sorts their keys."""
    if not isinstance(spec, StructSpec):
        return
    keys: list[Any] = [key for key, _ in spec.fields]
    try:
        sorted(keys)
    except TypeError:
        other = next((key for key in keys if not isinstance(key, str)), keys[0])
        raise SpecMismatch(
            f"dataflow_to_dataset: the keys of a dict must be sortable, since tf.data sorts them, "
            f"got {', '.join(map(repr, keys))}; make all of them text with .map, such as "
            f"{str(other)!r} for {other!r}"
        ) from None
    for _, part in spec.fields:
        _refuse_unsorted_keys(part)


def _in_form(spec: Spec, leaves: Iterator[Any]) -> Any:
    if not isinstance(spec, StructSpec):
        return next(leaves)
    parts = {name: _in_form(part, leaves) for name, part in spec.fields}
    is_tuple = issubclass(spec.form, tuple)
    return remade(spec.form, parts) if is_tuple else parts
