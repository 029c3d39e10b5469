"""from_tfdata: a tf.data dataset as a flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.datasets.streams import ENDLESS, stream
from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import components, form_of
from flowdsl.errors import InvalidFlow

if TYPE_CHECKING:
    import tensorflow as tf

    from flowdsl.flow import Flow

_UNKNOWN_CARDINALITY = -2
_INFINITE_CARDINALITY = -1


def from_tfdata(dataset: tf.data.Dataset) -> Flow[Any, Any]:
    """The elements of a ``tf.data.Dataset``, in its order, as NumPy arrays.

    Elements keep their structure: tuples, NamedTuples and dicts of arrays. A tensor without axes
    becomes a NumPy scalar, a text becomes ``bytes``, and a text array becomes an object array of
    ``bytes``. Nothing is copied: an array views the memory of its tensor, which is read-only in
    TensorFlow. The spec is read from ``element_spec``, without computing an element. A ragged or
    sparse component is refused; convert it to a dense one with
    ``dataset.map(lambda x: x.to_tensor())`` or ``tf.sparse.to_dense``.

    Each pass begins a new iteration of the dataset in the consumer's process: TensorFlow computes
    the elements there, in its own threads; operators above the source may run in workers. The
    effects are known only at run time, so type checkers allow all operators, and an operator that
    does not fit is refused when the chain is built.

    A resume reads the delivered elements again and drops them. This is correct if the dataset
    yields the same elements in each iteration. That is not the case after ``dataset.shuffle(n)``,
    unless it has a ``seed`` and ``reshuffle_each_iteration=False``, nor with a random ``map``, or a
    ``map`` with ``deterministic=False``. Random choices of the flow itself are reproducible: use
    ``.shuffle(seed=7)`` and ``.random_map(f)`` of the flow instead.

    Length: the dataset's ``cardinality()``, if TensorFlow knows it.

    Effects: none for a dataset of known length; otherwise ``Unsized`` or ``Endless``.

    Errors: ``InvalidFlow`` for an object that is not a ``tf.data.Dataset``, and for components that
    are not plain tensors; an error of the dataset is the cause of an ``ElementError`` at its
    position; ``SourceError`` if the number of elements differs from the cardinality.

    >>> import flowdsl as fl, tensorflow as tf
    >>> dataset = tf.data.Dataset.range(5).map(lambda i: {"n": i, "square": i * i}).batch(2)
    >>> flow = fl.from_tfdata(dataset)
    >>> len(flow), str(flow.spec)
    (3, '{n: int64[?], square: int64[?]}')
    >>> [batch["square"].tolist() for batch in flow]
    [[0, 1], [4, 9], [16]]

    Source: ``as_numpy_iterator`` of tf.data; the reverse of ``dataflow_to_dataset``.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
    """
    if not is_a(dataset, "tensorflow", "data.Dataset"):
        raise InvalidFlow(
            f"from_tfdata: dataset must be a tf.data.Dataset, got {name_of_class(dataset)}; "
            f"for any other iterable use from_iterable"
        )
    known = _spec_of(dataset.element_spec, at="")
    n = int(dataset.cardinality())
    count = {_UNKNOWN_CARDINALITY: None, _INFINITE_CARDINALITY: ENDLESS}.get(n, n)
    return stream("from_tfdata", dataset, _iterate, known, count)


def _iterate(dataset: Any) -> Iterator[Any]:
    elements: Iterator[Any] = dataset.as_numpy_iterator()
    return elements


def _spec_of(tf_spec: Any, at: str) -> Spec:
    """Convert an ``element_spec`` to the spec of the arrays."""
    name = type(tf_spec).__name__
    if name == "TensorSpec" and tf_spec.dtype.name not in ("variant", "resource"):
        return _spec_of_tensor(tf_spec)
    if name == "NoneTensorSpec" or tf_spec is None:
        return ValueSpec(type(None))
    parts = components(tf_spec)
    if parts is None:
        what = f"component {at!r}" if at else "the element"
        raise InvalidFlow(
            f"from_tfdata: {what} must be a plain tensor, and it is {tf_spec}; make it one in "
            f"the dataset: {_ADVICE.get(name, 'dataset.map(f)')}"
        )
    below = [(str(key), _spec_of(part, f"{at}.{key}" if at else str(key))) for key, part in parts]
    return StructSpec(form_of(tf_spec), tuple(below))


_ADVICE = {
    "RaggedTensorSpec": "dataset.map(f), where f calls x.to_tensor()",
    "SparseTensorSpec": "dataset.map(f), where f calls tf.sparse.to_dense(x)",
    "DatasetSpec": "dataset.flat_map(f), where f calls x.batch(n)",
    "OptionalSpec": "dataset.map(f), where f calls x.get_value()",
    "TensorArraySpec": "dataset.map(f), where f calls x.stack()",
}


def _spec_of_tensor(tf_spec: Any) -> Spec:
    rank = tf_spec.shape.rank
    if tf_spec.dtype.name == "string" and not rank:
        return UNKNOWN if rank is None else ValueSpec(bytes)
    dims = None if rank is None else tuple(tf_spec.shape.as_list())
    return ArraySpec(np.dtype(tf_spec.dtype.as_numpy_dtype), dims)
