"""from_tf_dataset: a dataset of tf.data as a flow."""

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


def from_tf_dataset(dataset: tf.data.Dataset) -> Flow[Any, Any]:
    """The elements of a ``tf.data.Dataset``, in its order, as arrays of NumPy.

    They keep their form: tuples, NamedTuples and dicts of arrays, of NumPy scalars where a tensor
    has no axes, and of ``bytes`` for text; arrays of text hold ``bytes`` as objects. Nothing is
    copied: an array is the memory of its tensor, which TensorFlow does not let anybody write to.
    The spec is read from ``element_spec``, and no element is made for it. A ragged or sparse
    component is refused: ``dataset.map(lambda x: x.to_tensor())``, or ``tf.sparse.to_dense``, makes
    an array of it.

    Each pass begins an iteration of the dataset, in the consumer's process: TensorFlow makes the
    elements there, in its own threads, and what stands above it may run in workers. The row of
    effects is what the dataset says of itself, so checkers allow all operators, and one that does
    not fit is refused when the chain is built.

    A pass is resumed by reading what was delivered again. That is right if the dataset gives the
    same elements each time: after ``dataset.shuffle(n)`` it does not, unless it has a ``seed`` and
    ``reshuffle_each_iteration=False``, nor does a random ``map`` in it, or one with
    ``deterministic=False``. What is drawn by the flow is the same wherever it resumes: leave that
    to ``.shuffle(seed=7)`` and ``.random_map(f)``.

    Length: the dataset's ``cardinality()``; unknown where that is.

    Effects: none of a dataset that knows its length; else ``Unsized``, or ``Endless``.

    Errors: ``InvalidFlow`` for what is no ``tf.data.Dataset``, and for one with components that are
    no plain tensors; what the dataset raises is the cause of an ``ElementError`` at its place in
    the sequence; ``SourceError`` if it ends sooner or later than it said.

    >>> import flowdsl as fl, tensorflow as tf
    >>> dataset = tf.data.Dataset.range(5).map(lambda i: {"n": i, "square": i * i}).batch(2)
    >>> flow = fl.from_tf_dataset(dataset)
    >>> len(flow), str(flow.spec)
    (3, '{n: int64[?], square: int64[?]}')
    >>> [batch["square"].tolist() for batch in flow]
    [[0, 1], [4, 9], [16]]

    Source: ``as_numpy_iterator`` of tf.data; the other way of ``dataflow_to_dataset``.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
    """
    if not is_a(dataset, "tensorflow", "data.Dataset"):
        raise InvalidFlow(
            f"from_tf_dataset: dataset must be a tf.data.Dataset, got {name_of_class(dataset)}; "
            f"for any other iterable use from_iterable"
        )
    known = _spec_of(dataset.element_spec, "")
    n = int(dataset.cardinality())
    count = {_UNKNOWN_CARDINALITY: None, _INFINITE_CARDINALITY: ENDLESS}.get(n, n)
    return stream("from_tf_dataset", dataset, _begun, known, count)


def _begun(dataset: Any) -> Iterator[Any]:
    elements: Iterator[Any] = dataset.as_numpy_iterator()
    return elements


def _spec_of(given: Any, at: str) -> Spec:
    """What an ``element_spec`` says of the arrays."""
    name = type(given).__name__
    if name == "TensorSpec" and given.dtype.name not in ("variant", "resource"):
        return _spec_of_tensor(given)
    if name == "NoneTensorSpec" or given is None:
        return ValueSpec(type(None))
    parts = components(given)
    if parts is None:
        what = f"component {at!r}" if at else "the element"
        raise InvalidFlow(
            f"from_tf_dataset: {what} must be a plain tensor, and it is {given}; make it one in "
            f"the dataset: {_ADVICE.get(name, 'dataset.map(f)')}"
        )
    below = [(str(key), _spec_of(part, f"{at}.{key}" if at else str(key))) for key, part in parts]
    return StructSpec(form_of(given), tuple(below))


_ADVICE = {
    "RaggedTensorSpec": "dataset.map(f), where f calls x.to_tensor()",
    "SparseTensorSpec": "dataset.map(f), where f calls tf.sparse.to_dense(x)",
    "DatasetSpec": "dataset.flat_map(f), where f calls x.batch(n)",
    "OptionalSpec": "dataset.map(f), where f calls x.get_value()",
    "TensorArraySpec": "dataset.map(f), where f calls x.stack()",
}


def _spec_of_tensor(given: Any) -> Spec:
    rank = given.shape.rank
    if given.dtype.name == "string" and not rank:
        return UNKNOWN if rank is None else ValueSpec(bytes)
    dims = None if rank is None else tuple(given.shape.as_list())
    return ArraySpec(np.dtype(given.dtype.as_numpy_dtype), dims)
