"""What input pipelines of TensorFlow 1 do, case by case: written once, and run by both.

A case makes tensors with the functions of an ``Api``, which has the names of ``tf.train``. What it
gives is compared: shapes, every batch up to the end, and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import numpy as np
import tensorflow as tf

MAX_EVALUATIONS = 40
"""Evaluations of a case that has no end."""


class Api(Protocol):
    """The queue functions, of TensorFlow 1 or ours."""

    def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def apply(self, function: Callable[..., Any], *tensors: Any) -> Any:
        """A function of tensors."""


Order: TypeAlias = Literal["same", "any", "epochs"]
"""The order of elements: fixed, arbitrary, or arbitrary within each epoch."""


Make: TypeAlias = Callable[[Api], Any]


@attrs.frozen
class Case:
    name: str
    make: Make = attrs.field(repr=False)
    order: Order = "same"
    about: str = ""
    """Text that the error message must contain."""


def numbers(api: Api, n: int, start: int = 0) -> Any:
    """The numbers from ``start`` on, once."""
    queue = api.range_input_producer(n, num_epochs=1, shuffle=False)
    return api.apply(lambda: queue.dequeue() + start)


def row(i: Any) -> list[Any]:
    """An example: a number, a text, an array."""
    return [i, tf.strings.as_string(i), tf.fill([2, 3], tf.cast(i, tf.float32))]


def ragged(i: Any) -> list[Any]:
    """An example whose sizes differ."""
    return [tf.fill([i % 4], i), tf.fill([i % 3, 2], tf.strings.as_string(i))]


def many(i: Any) -> list[Any]:
    """Three examples."""
    return [i * 10 + tf.range(3), tf.fill([3, 2], tf.cast(i, tf.float32))]


def examples(api: Api, n: int, kind: Callable[[Any], list[Any]] = row, start: int = 0) -> list[Any]:
    made = api.apply(kind, numbers(api, n, start))
    return list(made)


def as_dict(tensors: list[Any]) -> dict[str, Any]:
    return dict(zip("cab", tensors, strict=False))


# -- producers -------------------------------------------------------------------------------------


def producers() -> Iterator[Case]:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    for epochs, shuffle in product([1, 2, 3], [False, True]):
        order: Order = "epochs" if shuffle else "same"

        def of_rows(api: Api, epochs: int = epochs, shuffle: bool = shuffle) -> Any:
            return api.input_producer(rows, num_epochs=epochs, shuffle=shuffle)

        def of_numbers(api: Api, epochs: int = epochs, shuffle: bool = shuffle) -> Any:
            return api.range_input_producer(5, num_epochs=epochs, shuffle=shuffle, seed=4)

        def of_names(api: Api, epochs: int = epochs, shuffle: bool = shuffle) -> Any:
            return api.string_input_producer(
                ["a", "bc", "", "a"], num_epochs=epochs, shuffle=shuffle, capacity=2
            )

        def of_slices(api: Api, epochs: int = epochs, shuffle: bool = shuffle) -> Any:
            return api.slice_input_producer(
                [rows, ["a", "b", "c", "d"]], num_epochs=epochs, shuffle=shuffle
            )

        label = f"{epochs} epochs{', shuffled' * shuffle}"
        yield Case(f"input_producer, {label}", of_rows, order)
        yield Case(f"range_input_producer, {label}", of_numbers, order)
        yield Case(f"string_input_producer, {label}", of_names, order)
        yield Case(f"slice_input_producer, {label}", of_slices, order)
    yield Case("input_producer for ever", lambda api: api.input_producer(rows, shuffle=False))
    yield Case(
        "range_input_producer for ever", lambda api: api.range_input_producer(3, shuffle=False)
    )
    yield Case(
        "element_shape",
        lambda api: api.input_producer(rows, element_shape=[3], num_epochs=1, shuffle=False),
    )
    yield Case(
        "a small capacity",
        lambda api: api.input_producer(rows, num_epochs=2, shuffle=False, capacity=1),
    )
    yield Case("no numbers", lambda api: api.range_input_producer(0, num_epochs=1))
    yield Case(
        "one slice", lambda api: api.slice_input_producer([rows], num_epochs=1, shuffle=False)
    )
    yield Case("a scalar", lambda api: api.input_producer(3.0), about="")
    for bad in (0, -1):

        def none(api: Api, bad: int = bad) -> Any:
            return api.input_producer(rows, num_epochs=bad)

        yield Case(f"num_epochs={bad}", none, about="num_epochs")
        yield Case(f"limit_epochs={bad}", _limited(bad), about="num_epochs")
    yield Case("no names", lambda api: api.string_input_producer([]), about="non-null")
    yield Case("no slices", lambda api: api.slice_input_producer([]), about="slice_input_producer")
    for n in (1, 3, None):
        yield Case(f"limit_epochs, {n}", _limited(n))


def _limited(n: int | None) -> Make:
    return lambda api: api.limit_epochs(api.apply(lambda: tf.constant(7)), n)


# -- batches ---------------------------------------------------------------------------------------


def batches() -> Iterator[Case]:
    for n, size, smaller in product([0, 1, 6, 7], [1, 3], [False, True]):

        def plain(api: Api, n: int = n, size: int = size, smaller: bool = smaller) -> Any:
            return api.batch(examples(api, n), size, allow_smaller_final_batch=smaller)

        yield Case(f"batch of {size} of {n}{', smaller' * smaller}", plain)
    for smaller in (False, True):
        o: dict[str, Any] = {"allow_smaller_final_batch": smaller}
        label = ", smaller" * smaller
        for name, make in _forms_of_batch(o).items():
            yield Case(f"batch, {name}{label}", make)
        for threads in (2, 4):
            yield Case(f"batch, {threads} threads{label}", _threaded(threads, o), "any")


def _threaded(threads: int, o: dict[str, Any]) -> Make:
    return lambda api: api.batch(examples(api, 20), 3, num_threads=threads, **o)


def _forms_of_batch(o: dict[str, Any]) -> dict[str, Make]:
    return {
        "dict": lambda api: api.batch(as_dict(examples(api, 8)), 3, **o),
        "one": lambda api: api.batch(examples(api, 8)[:1], 3, **o),
        "dict of one": lambda api: api.batch(as_dict(examples(api, 8)[:1]), 3, **o),
        "shapes": lambda api: api.batch(examples(api, 8), 3, shapes=[[], [], [2, 3]], **o),
        "many": lambda api: api.batch(examples(api, 5, many), 4, enqueue_many=True, **o),
        "many, a dict": lambda api: api.batch(
            as_dict(examples(api, 5, many)), 4, enqueue_many=True, **o
        ),
        "padded": lambda api: api.batch(
            examples(api, 8, ragged), 3, dynamic_pad=True, shapes=[[None], [None, 2]], **o
        ),
        "padded, by its tensors": lambda api: api.batch(
            examples(api, 8, ragged), 3, dynamic_pad=True, **o
        ),
        "padded where nothing is": lambda api: api.batch(
            examples(api, 8), 3, dynamic_pad=True, **o
        ),
        "large": lambda api: api.batch(examples(api, 50), 20, capacity=25, **o),
    }


def kept() -> Iterator[Case]:
    for n, size, smaller in product([1, 9], [2, 3], [False, True]):

        def scalar(api: Api, n: int = n, size: int = size, smaller: bool = smaller) -> Any:
            tensors = examples(api, n)
            keep = api.apply(lambda i: tf.not_equal(i % 3, 1), tensors[0])
            return api.maybe_batch(tensors, keep, size, allow_smaller_final_batch=smaller)

        def vector(api: Api, n: int = n, size: int = size, smaller: bool = smaller) -> Any:
            tensors = examples(api, n, many)
            keep = api.apply(lambda i: tf.not_equal(i % 4, 1), tensors[0])
            return api.maybe_batch(
                tensors, keep, size, enqueue_many=True, allow_smaller_final_batch=smaller
            )

        def one_for_many(api: Api, n: int = n, size: int = size, smaller: bool = smaller) -> Any:
            tensors = examples(api, n, many)
            keep = api.apply(lambda i: tf.equal(i[0] % 20, 0), tensors[0])
            return api.maybe_batch(
                as_dict(tensors), keep, size, enqueue_many=True, allow_smaller_final_batch=smaller
            )

        label = f"{size} of {n}{', smaller' * smaller}"
        yield Case(f"maybe_batch of all or none, {label}", one_for_many)
        yield Case(f"maybe_batch of {label}", scalar)
        yield Case(f"maybe_batch of many, {label}", vector)
    yield Case("maybe_batch, always", lambda api: api.maybe_batch(examples(api, 6), True, 2))
    yield Case(
        "maybe_batch, padded",
        lambda api: api.maybe_batch(
            examples(api, 6, ragged), True, 2, dynamic_pad=True, shapes=[[None], [None, 2]]
        ),
    )


def joined() -> Iterator[Case]:
    for smaller in (False, True):
        o: dict[str, Any] = {"allow_smaller_final_batch": smaller}
        label = ", smaller" * smaller
        for name, make in _forms_of_join(o).items():
            yield Case(f"{name}{label}", make, "any")
        for name, make in _joins_of_one(o).items():
            yield Case(f"{name}{label}", make)


def several(api: Api, kind: Callable[[Any], list[Any]] = row, k: int = 3) -> list[Any]:
    return [examples(api, 5 + i, kind, 100 * i) for i in range(k)]


def _joins_of_one(o: dict[str, Any]) -> dict[str, Make]:
    return {
        "batch_join of one": lambda api: api.batch_join(several(api, k=1), 4, **o),
        "batch_join, padded": lambda api: api.batch_join(
            several(api, ragged, 1), 4, dynamic_pad=True, shapes=[[None], [None, 2]], **o
        ),
    }


def _forms_of_join(o: dict[str, Any]) -> dict[str, Make]:
    return {
        "batch_join": lambda api: api.batch_join(several(api), 4, **o),
        "batch_join of dicts": lambda api: api.batch_join(
            [as_dict(one) for one in several(api)], 4, **o
        ),
        "batch_join of many": lambda api: api.batch_join(
            several(api, many), 4, enqueue_many=True, **o
        ),
        "batch_join of tuples": lambda api: api.batch_join(
            [tuple(one) for one in several(api)], 4, **o
        ),
        "maybe_batch_join": lambda api: api.maybe_batch_join(several(api), True, 4, **o),
        "shuffle_batch_join": lambda api: api.shuffle_batch_join(several(api), 4, 30, 5, **o),
        "shuffle_batch_join of many": lambda api: api.shuffle_batch_join(
            several(api, many), 4, 90, 5, enqueue_many=True, **o
        ),
        "maybe_shuffle_batch_join": lambda api: api.maybe_shuffle_batch_join(
            several(api), 4, 30, 5, True, **o
        ),
    }


def shuffled() -> Iterator[Case]:
    for n, size, least, smaller in product([1, 8, 23], [1, 4], [0, 3, 10], [False, True]):

        def plain(
            api: Api, n: int = n, size: int = size, least: int = least, smaller: bool = smaller
        ) -> Any:
            return api.shuffle_batch(
                examples(api, n), size, 30, least, seed=3, allow_smaller_final_batch=smaller
            )

        label = f"{size} of {n}, of {least} and more{', smaller' * smaller}"
        yield Case(f"shuffle_batch, {label}", plain, "any")
    yield Case(
        "shuffle_batch of a dict",
        lambda api: api.shuffle_batch(as_dict(examples(api, 9)), 3, 20, 2),
        "any",
    )
    yield Case(
        "shuffle_batch of one", lambda api: api.shuffle_batch(examples(api, 9)[:1], 3, 20, 2), "any"
    )
    yield Case(
        "shuffle_batch of many",
        lambda api: api.shuffle_batch(examples(api, 6, many), 3, 40, 2, enqueue_many=True),
        "any",
    )
    yield Case(
        "shuffle_batch, shapes",
        lambda api: api.shuffle_batch(examples(api, 9), 3, 20, 2, shapes=[[], [], [2, 3]]),
        "any",
    )
    yield Case(
        "shuffle_batch, threads",
        lambda api: api.shuffle_batch(examples(api, 30), 3, 20, 2, num_threads=3),
        "any",
    )

    def some(api: Api) -> Any:
        tensors = examples(api, 20)
        keep = api.apply(lambda i: tf.equal(i % 3, 0), tensors[0])
        return api.maybe_shuffle_batch(tensors, 2, 20, 2, keep, allow_smaller_final_batch=True)

    yield Case("maybe_shuffle_batch, smaller", some, "any")
    yield Case(
        "maybe_shuffle_batch",
        lambda api: api.maybe_shuffle_batch(examples(api, 9), 2, 20, 2, True),
        "any",
    )


# -- errors ----------------------------------------------------------------------------------------


def refused() -> Iterator[Case]:
    def of_any_size(api: Api) -> list[Any]:
        return examples(api, 5, ragged)

    def of_any_rank(api: Api) -> list[Any]:
        return [api.apply(lambda i: tf.reshape(i, tf.fill([i % 2], 1)), numbers(api, 5))]

    cases: dict[str, tuple[Callable[[Api], Any], str]] = {
        "batch of sizes that are not known": (lambda api: api.batch(of_any_size(api), 2), "hapes"),
        "batch of ranks that are not known": (lambda api: api.batch(of_any_rank(api), 2), "rank"),
        "padding of ranks that are not known": (
            lambda api: api.batch(of_any_rank(api), 2, dynamic_pad=True),
            "rank",
        ),
        "shuffling of sizes that are not known": (
            lambda api: api.shuffle_batch(of_any_size(api), 2, 10, 2),
            "hapes",
        ),
        "joining of sizes that are not known": (
            lambda api: api.batch_join([of_any_size(api)], 2),
            "hapes",
        ),
        "shapes that are not known": (
            lambda api: api.batch(examples(api, 5), 2, shapes=[[], [], [None, 3]]),
            "hapes",
        ),
        "no tensors": (lambda api: api.batch([], 2), "Expected at least one tensor"),
        "no tensors in a dict": (lambda api: api.batch({}, 2), "Expected at least one tensor"),
        "no tensors to shuffle": (
            lambda api: api.shuffle_batch([], 2, 10, 2),
            "Expected at least one tensor",
        ),
        "nothing to join": (lambda api: api.batch_join([], 2), "Expected at least one"),
        "nothing to shuffle and join": (
            lambda api: api.shuffle_batch_join([], 2, 10, 2),
            "Expected at least one",
        ),
        "no tensors to join": (lambda api: api.batch_join([[]], 2), ""),
        "other dtypes": (
            lambda api: api.batch_join([examples(api, 5), examples(api, 5)[::-1]], 2),
            "types to be consistent",
        ),
        "other dtypes to shuffle": (
            lambda api: api.shuffle_batch_join(
                [examples(api, 5), examples(api, 5)[::-1]], 2, 10, 2
            ),
            "types to be consistent",
        ),
        "other keys": (
            lambda api: api.batch_join([{"a": numbers(api, 5)}, {"b": numbers(api, 5)}], 2),
            "",
        ),
        "a vector that keeps one": (
            lambda api: api.maybe_batch(examples(api, 5), [True, False], 2),
            "keep_input",
        ),
        "a vector that keeps one of several": (
            lambda api: api.maybe_batch_join([examples(api, 5)], [True, False], 2),
            "keep_input",
        ),
        "a vector that keeps one to shuffle": (
            lambda api: api.maybe_shuffle_batch(examples(api, 5), 2, 10, 2, [True]),
            "keep_input",
        ),
        "a matrix that keeps": (
            lambda api: api.maybe_batch(examples(api, 5, many), [[True]], 2, enqueue_many=True),
            "keep_input",
        ),
        "a matrix that keeps what is joined": (
            lambda api: api.maybe_shuffle_batch_join(
                [examples(api, 5, many)], 2, 10, 2, [[True]], enqueue_many=True
            ),
            "keep_input",
        ),
    }
    for name, (make, about) in cases.items():
        yield Case(name, make, about=about)


CASES = [*producers(), *batches(), *kept(), *joined(), *shuffled(), *refused()]
