"""Keywords of other libraries raise an error that names flowdsl's."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import rejects_keywords

ROWS: Any = fl.from_range(100)
PROCS = "set the number of workers once, with prefetch(procs={}) after these operators"
ENDLESS = "or repeat() to repeat without end"
FROM_ITERABLE: Any = fl.from_iterable
FROM_ITEMS: Any = fl.from_items

CASES: dict[str, Any] = {
    "batch: there is no batch_size=; write batch(4)": lambda: ROWS.batch(batch_size=4),
    "batch: there is no drop_last=; write drop_remainder=True": lambda: ROWS.batch(
        4, drop_last=True
    ),
    f"batch: there is no num_parallel_calls=; {PROCS.format(4)}": lambda: ROWS.batch(
        4, num_parallel_calls=4
    ),
    "batch: there is no collate_fn=; write collate=": lambda: ROWS.batch(4, collate_fn=list),
    "padded_batch: there is no batch_size=; write padded_batch(4)": lambda: ROWS.padded_batch(
        batch_size=4
    ),
    "padded_batch: there is no padding_values=; write padding=-1": lambda: ROWS.padded_batch(
        4, padding_values=-1
    ),
    "padded_batch: there is no padded_shapes=; arrays are padded to the largest of a batch; write "
    "length=n to fix the size of their first axis": lambda: ROWS.padded_batch(4, padded_shapes=[3]),
    "batch_by_shape: there is no batch_size=; write batch_by_shape(4, selector)": lambda: (
        ROWS.batch_by_shape(batch_size=4, selector=fl.c0)
    ),
    "window: there is no shift=; write window(size, stride=2)": lambda: ROWS.window(3, shift=2),
    "shuffle: there is no buffer_size=; write shuffle(buffer=100)": lambda: ROWS.shuffle(
        buffer_size=100
    ),
    "shuffle: there is no reshuffle_each_iteration=; each epoch has its own order; "
    "shuffle().cache() keeps the first": lambda: ROWS.shuffle(10, reshuffle_each_iteration=False),
    f"map: there is no num_parallel_calls=; {PROCS.format(4)}": lambda: ROWS.map(
        str, num_parallel_calls=4
    ),
    f"map: there is no num_parallel_calls=; {PROCS.format('n')}": (
        lambda: ROWS.map(str, num_parallel_calls=-1)
    ),
    "map: there is no map_func=; write map(f)": lambda: ROWS.map(map_func=str),
    f"filter: there is no num_workers=; {PROCS.format(4)}": lambda: ROWS.filter(
        bool, num_workers=4
    ),
    "augment: there is no augmentors=; write augment(t, ...)": lambda: ROWS.augment(augmentors=[]),
    "augment: there is no index=; write images=...": lambda: ROWS.augment(max, index=1),
    "augment: there is no img_index=; write images=...": lambda: ROWS.augment(max, img_index=1),
    "augment: there is no coords_index=; write points=...": lambda: ROWS.augment(
        max, coords_index=(2,)
    ),
    "augment: there is no catch_exceptions=; leave out elements that fail with "
    'prefetch(on_error="skip") after it': lambda: ROWS.augment(max, catch_exceptions=True),
    "filter: there is no predicate=; write filter(f)": lambda: ROWS.filter(predicate=bool),
    "prefetch: there is no buffer_size=; elements made ahead are limited in bytes, as in "
    "prefetch(memory=2**30)": lambda: ROWS.prefetch(buffer_size=2),
    "prefetch: there is no num_workers=; write prefetch(procs=4)": lambda: ROWS.prefetch(
        num_workers=4
    ),
    "prefetch: there is no deterministic=; write ordered=False": lambda: ROWS.prefetch(
        2, deterministic=False
    ),
    "replicate: there is no num_workers=; write replicate(procs=4)": lambda: ROWS.replicate(
        num_workers=4
    ),
    f"repeat: there is no count=; write repeat(2), {ENDLESS}": lambda: ROWS.repeat(count=2),
    f"repeat: there is no count=; write repeat(n), {ENDLESS}": lambda: ROWS.repeat(count=-1),
    "take: there is no count=; write take(2)": lambda: ROWS.take(count=2),
    "skip: there is no count=; write skip(2)": lambda: ROWS.skip(count=2),
    "shard: there is no num_shards=; write shard(2, i)": lambda: ROWS.shard(num_shards=2, index=0),
    "shard: there is no index=; write shard(n, 0)": lambda: ROWS.shard(2, index=0),
    "from_iterable: there is no generator=; write from_iterable(f)": lambda: FROM_ITERABLE(
        generator=iter
    ),
    "from_items: there is no tensors=; write from_items(items)": lambda: FROM_ITEMS(tensors=[1]),
}


@pytest.mark.parametrize("said", CASES)
def test_keywords_of_other_libraries_raise_advice(said: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        CASES[said]()
    assert str(caught.value) == said


@pytest.mark.parametrize("operator", ["batch", "map", "take", "shuffle", "prefetch"])
def test_other_unknown_keywords_raise_a_type_error(operator: str) -> None:
    with pytest.raises(TypeError, match=f"{operator}.*got an unexpected keyword argument 'sise'"):
        getattr(ROWS, operator)(sise=3)


def test_advice_is_only_for_arguments_that_do_not_exist() -> None:
    """Such advice would never be shown, or shown for valid arguments."""
    for name, method in inspect.getmembers(fl.Flow, inspect.isfunction):
        wrapped = getattr(method, "__wrapped__", None)
        if wrapped is None or name.startswith("_"):
            continue
        cells = inspect.getclosurevars(method).nonlocals
        assert not cells["advice"].keys() & inspect.signature(wrapped).parameters.keys(), name


def test_decorated_operators_keep_their_signature() -> None:
    assert str(inspect.signature(fl.Flow.window)).startswith(
        "(self: 'FlowBase[Any, Any]', size: 'int', stride: 'int' ="
    )
    assert "drop_remainder: 'bool' = False" in str(inspect.signature(fl.Flow.batch))
    assert "Group ``n`` consecutive elements" in pydoc.render_doc(fl.Flow.batch)
    assert fl.from_range(4).batch(n=3, drop_remainder=True).collect()[0].tolist() == [0, 1, 2]


def test_a_long_value_in_the_advice_is_cut() -> None:
    @rejects_keywords(values="write xs={}")
    def operator(xs: list[int]) -> None: ...

    given: Any = operator
    with pytest.raises(InvalidFlow) as caught:
        given(values=list(range(1000)))
    assert str(caught.value) == (
        "operator: there is no values=; write xs=[0, 1, 2, 3, 4, 5, 6, 7, ...]"
    )
