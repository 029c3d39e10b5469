"""from_ray: a Ray Data dataset as a flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from flowdsl.datasets.foreign import is_a, name_of_class
from flowdsl.datasets.streams import stream
from flowdsl.effects import Reordered, Unsized
from flowdsl.errors import InvalidFlow

if TYPE_CHECKING:
    import ray.data

    from flowdsl.flow import Flow


@overload
def from_ray(
    dataset: ray.data.Dataset, *, ordered: Literal[True]
) -> Flow[dict[str, Any], Unsized]: ...
@overload
def from_ray(
    dataset: ray.data.Dataset, *, ordered: bool = False
) -> Flow[dict[str, Any], Reordered | Unsized]: ...
def from_ray(dataset: ray.data.Dataset, *, ordered: bool = False) -> Flow[dict[str, Any], Any]:
    """The rows of a ``ray.data.Dataset``, as dicts of Python values and NumPy arrays.

    Each pass executes the dataset on the cluster and reads its rows in the consumer's process;
    operators above the source may run in workers. Ray Data yields rows in the order in which its
    tasks end. With ``ordered=True`` the rows have the dataset's order, which Ray Data keeps if
    ``dataset.context.execution_options.preserve_order`` is True.

    Without order, a run has no state: the rows may come in another order in the next execution, so
    a position would not identify the rows that were delivered.

    Length: unknown.

    Effects: ``Unsized``, and without ``ordered=True`` ``Reordered``.

    Errors: ``InvalidFlow`` for an object that is not a ``ray.data.Dataset``, or with
    ``ordered=True`` if the dataset does not keep its order; an error of the dataset is the cause of
    an ``ElementError`` at its position; ``NotResumable`` for the state of a run without order.

    >>> import flowdsl as fl
    >>> fl.from_ray([1, 2, 3])
    Traceback (most recent call last):
        ...
    flowdsl.errors.InvalidFlow: from_ray: dataset must be a ray.data.Dataset, got list; for any \
other iterable use from_iterable

    Source: ``iter_rows`` of Ray Data; the reverse of ``to_ray``.

    Elsewhere: tensorpack none; tf.data none; Grain none; torchdata none.
    """
    if not is_a(dataset, "ray.data", "Dataset"):
        raise InvalidFlow(
            f"from_ray: dataset must be a ray.data.Dataset, got {name_of_class(dataset)}; for any "
            f"other iterable use from_iterable"
        )
    if not isinstance(ordered, bool):
        raise InvalidFlow(f"from_ray: ordered must be True or False, got {ordered!r}")
    if ordered and not dataset.context.execution_options.preserve_order:
        raise InvalidFlow(
            "from_ray: ordered=True needs a dataset that keeps its order: set "
            "dataset.context.execution_options.preserve_order = True before"
        )
    return stream("from_ray", dataset, _iterate, ordered=ordered)


def _iterate(dataset: Any) -> Iterator[dict[str, Any]]:
    rows: Iterator[dict[str, Any]] = iter(dataset.iter_rows())
    return rows
