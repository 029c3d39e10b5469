"""Models of operators in plain Python and NumPy, which the laws compare with the operators.

Models do not use nodes of flowdsl. They use only its random numbers: generators, permutations and
sequences of draws, and the classes that it makes for batches.

These models cover the parts of random chains (``sources``, ``operators``, ``combining``). A model
of your own operator takes a few lines with ``Model.then`` or ``Model.then_renumbered``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from itertools import count, islice
from typing import Any, TypeAlias, cast

import attrs
import numpy as np

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.elements.structure import named_tuple_of
from flowdsl.nodes import epoch_of_pass, generator, permute
from flowdsl.testing.elements import Row, RowBatch, is_text, parts_of
from flowdsl.testing.model import BAD, Failed, Model, Rows

# -- sources ---------------------------------------------------------------------------------------


def rows(elements: Sequence[Any]) -> Model:
    """Create a source of numbered rows."""
    numbers = range(len(elements))
    return Model(
        lambda epoch: ((i, elements[i]) for i in numbers),
        len(elements),
        read=lambda epoch: ((i, result_or_bad(elements.__getitem__, i)) for i in numbers),
    )


def stream(elements: Sequence[Any]) -> Model:
    """Create a source that can be read from its beginning any number of times."""
    return Model(lambda epoch: enumerate(elements), None, frozenset({Unsized}))


def one_pass(elements: Sequence[Any]) -> Model:
    """Create a source that supports only one pass, which begins when its first row is read."""
    spent: list[int] = []

    def once(epoch: int) -> Rows:
        if spent:
            raise Failed
        spent.append(epoch)
        yield from enumerate(elements)

    return Model(once, None, frozenset({Unsized}))


# -- each element by itself ------------------------------------------------------------------------


def result_or_bad(func: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function; ``BAD`` if it fails or its argument is ``BAD``."""
    if args[0] is BAD:
        return BAD
    try:
        return func(*args)
    except Exception:
        return BAD


def each(source: Model, func: Callable[[Any, int, int], Any]) -> Model:
    """Apply a function to every element, its epoch and its position."""

    def changed(x: Any, epoch: int, i: int) -> Any:
        return result_or_bad(func, x, epoch, i) if source.failures_as_bad else func(x, epoch, i)

    return source.then(
        lambda epoch: ((i, changed(x, epoch, i)) for i, x in source.rows(epoch)), source.length
    ).may_fail()


def map_(source: Model, func: Callable[[Any], Any]) -> Model:
    """The model of ``map``."""
    return each(source, lambda x, epoch, i: func(x))


def random_map(source: Model, func: Callable[[Any, np.random.Generator], Any], seed: int) -> Model:
    """The model of ``random_map``."""
    salt = source.depth
    return each(source, lambda x, epoch, i: func(x, generator(seed, salt, epoch, i)))


_LEFT_OUT = object()


def filter_(source: Model, keep: Callable[[Any], bool]) -> Model:
    """The model of ``filter``."""
    return filter_map(source, lambda x: x if keep(x) else _LEFT_OUT, _LEFT_OUT)


def filter_map(source: Model, func: Callable[[Any], Any], nothing: Any = None) -> Model:
    """The model of ``filter_map``."""
    mapped = map_(source, func)
    return mapped.then(
        lambda epoch: (row for row in mapped.rows(epoch) if row[1] is not nothing), None, Unsized
    ).at_depth(mapped.depth)


def flat_map(source: Model, func: Callable[[Any], Iterable[Any]]) -> Model:
    """The model of ``flat_map``."""
    source = source.without_bad()
    return source.then_renumbered(
        lambda epoch: (y for x in source.elements(epoch) for y in func(x)), None, Unsized
    )


def interleave_map(
    source: Model, func: Callable[[Any], Iterable[Any]], cycle: int, block: int
) -> Model:
    """The model of ``interleave_map``."""
    source = source.without_bad()

    def results(epoch: int) -> Iterator[Any]:
        return in_slots((iter(func(x)) for x in source.elements(epoch)), cycle, block)

    return source.then_renumbered(results, None, Reordered, Unsized)


def in_slots(waiting: Iterator[Iterator[Any]], cycle: int, block: int) -> Iterator[Any]:
    """Take ``block`` elements of each of ``cycle`` iterators in turn; others follow these."""
    slots: list[Iterator[Any] | None] = [None] * cycle
    while slots:
        kept: list[Iterator[Any] | None] = []
        for slot in slots:
            for current in islice(waiting, 1) if slot is None else [slot]:
                size = 0
                for y in islice(current, block):
                    size += 1
                    yield y
                kept.append(current if size == block else None)
        slots = kept


def enumerate_(source: Model, start: int) -> Model:
    """The model of ``enumerate``."""
    return source.then(
        lambda epoch: (
            (i, x if x is BAD else (number, x))
            for number, (i, x) in enumerate(source.rows(epoch), start)
        ),
        source.length,
    ).may_fail()


# -- groups ----------------------------------------------------------------------------------------

Gather: TypeAlias = Callable[[list[Any]], Any]


def groups(source: Model, n: int, drop: bool, gather: Gather) -> Model:
    """The model of ``batch``, with any function that gathers a group."""
    source = source.without_bad()

    def gathered(epoch: int) -> Iterator[Any]:
        elements = source.elements(epoch)
        while group := list(islice(elements, n)):
            if len(group) == n or not drop:
                yield gather(group)

    length = source.length
    if length is not None:
        length = length // n if drop else (length + n - 1) // n
    loses = drop and not source.endless and (not source.length or source.length % n > 0)
    return source.then_renumbered(gathered, length, *([Resampled] if loses else []))


def stacked(group: list[Any]) -> Any:
    """Stack a batch, component by component."""
    return column_by_column(group, np.stack)


def column_by_column(group: list[Any], gather: Callable[[list[Any]], Any]) -> Any:
    """Create a batch of elements with components: a batch of each component."""
    parts = parts_of(group[0])
    if parts is None and is_text(group[0]):
        return list(group)
    if parts is None:
        return of_one_dtype([np.asarray(x) for x in group], gather)
    names = [name for name, _ in parts]
    if any([name for name, _ in parts_of(x) or ()] != names for x in group):
        raise Failed
    columns = zip(*([part for _, part in parts_of(x) or ()] for x in group), strict=True)
    return batch_of(group[0], [column_by_column(list(column), gather) for column in columns])


def of_one_dtype(rows: list[Any], gather: Callable[[list[Any]], Any]) -> Any:
    """Create a batch of arrays, which must have the same dtype."""
    if len({row.dtype for row in rows}) > 1 or rows[0].dtype == object:
        raise Failed
    return gather(rows)


def batch_of(row: Any, values: list[Any]) -> Any:
    """Create a batch of these columns, in the structure of a row."""
    if isinstance(row, dict):
        return dict(zip(row, values, strict=True))
    if isinstance(row, list):
        raise Failed  # lists do not stack
    if isinstance(row, Row):
        return RowBatch(*values)
    if attrs.has(type(row)) or is_dataclass(row):
        return named_tuple_of(cast("Any", type(row)))(*values)
    return type(row)(*values) if hasattr(row, "_fields") else tuple(values)


# -- number of elements ----------------------------------------------------------------------------


def take(source: Model, n: int) -> Model:
    """The model of ``take``."""
    length = n if source.endless else None if source.length is None else min(n, source.length)
    return (
        source.then(lambda epoch: islice(source.rows(epoch), n), length)
        .bounded()
        .selected_by_position()
    )


def skip(source: Model, n: int) -> Model:
    """The model of ``skip``."""
    left = None if source.length is None else max(source.length - n, 0)
    return source.then_renumbered(
        lambda epoch: islice(source.elements(epoch), n, None), left
    ).selected_by_position()


def repeat(source: Model, n: int | None = None) -> Model:
    """The model of ``repeat``."""

    def passes(epoch: int) -> Iterator[Any]:
        for k in count() if n is None else range(n):
            yield from one_pass_of(source, inner_epoch(epoch, k), may_be_empty=n is not None)

    if n == 0:
        return take(source, 0)
    if n is None:
        return source.then_renumbered(passes, None, Resampled, Endless)
    return source.then_renumbered(passes, source.times(n), Resampled)


def one_pass_of(source: Model, epoch: int, may_be_empty: bool = False) -> Iterator[Any]:
    """Yield one of many passes; an empty pass is an error, since the passes would never end."""
    k = -1
    for k, x in enumerate(source.elements(epoch)):  # noqa: B007  # k is used after the loop
        yield x
    if k < 0 and not may_be_empty:
        raise Failed


def inner_epoch(epoch: int, k: int) -> int:
    """Return the epoch of the ``k``-th pass within one."""
    return int(epoch_of_pass(np.array([epoch]), np.array([k]))[0])


# -- order -----------------------------------------------------------------------------------------


def shuffle(source: Model, seed: int, block: int = 1, reshuffle: bool = True) -> Model:
    """The model of ``shuffle`` over a whole pass, or over its blocks."""
    salt = source.depth

    def shuffled(epoch: int) -> Iterator[Any]:
        elements, key = list(source.elements(epoch)), f"{seed}/{salt}/{epoch * reshuffle}"
        if block > 1 and elements:
            start = int(permute(np.zeros(1, np.int64), len(elements), f"{key}/start")[0])
            elements = elements[start:] + elements[:start]
        n = len(elements) // block
        for i in permute(np.arange(n), n, key).tolist():
            yield from elements[i * block : (i + 1) * block]
        yield from elements[n * block :]

    return source.then_renumbered(shuffled, source.length, Reordered)


def window_shuffle(source: Model, buffer: int, seed: int, reshuffle: bool = True) -> Model:
    """The model of ``shuffle`` within a buffer."""
    source = source.without_bad()
    salt = source.depth

    def shuffled(epoch: int) -> Iterator[Any]:
        rng = generator(seed, salt, epoch * reshuffle, 0)
        elements = source.elements(epoch)
        window = list(islice(elements, buffer))
        while window:
            i = rng.integers(len(window))
            drawn, window[i] = window[i], window[-1]  # the last fills the gap
            window.pop()
            yield drawn
            window += islice(elements, 1)

    return source.then_renumbered(shuffled, source.length, Reordered)


def cache(source: Model) -> Model:
    """The model of ``cache``.

    It stores one pass, since a source may support only one; every pass is epoch 0.
    """
    source = source.without_bad()
    kept: list[list[Any]] = []

    def rows(epoch: int) -> Rows:
        if kept:
            yield from kept[0]
            return
        seen = []
        for row in source.rows(0):
            seen.append(row)
            yield row
        kept.append(seen)

    return source.then(rows, source.length)


# -- several flows ---------------------------------------------------------------------------------


def of_several(
    parts: Sequence[Model],
    elements: Callable[[int], Iterable[Any]],
    length: int | None,
    *tags: Tag,
) -> Model:
    """Create the model of an operator on several flows, with the tags of all flows."""
    all_tags = frozenset(tags).union(*(part.tags for part in parts))
    return Model(
        lambda epoch: enumerate(elements(epoch)),
        length,
        all_tags,
        depth=1 + max(part.depth for part in parts),
        failures_as_bad=parts[0].failures_as_bad,
        may_be_bad=any(part.may_be_bad for part in parts),
        skips_bad=any(part.skips_bad for part in parts),
    )


def total_length(parts: Sequence[Model]) -> int | None:
    """Return the total number of elements; None if the length of a part is unknown."""
    lengths = [part.length for part in parts]
    return None if None in lengths else sum(length or 0 for length in lengths)


def skip_bad(source: Model, failures_as_bad: bool) -> Model:
    """Return the model of a flow without the elements that fail."""
    good = source.without_bad()
    good = good if good.skips_bad else good.skipping_bad()
    return attrs.evolve(good, failures_as_bad=failures_as_bad)


def ending_with_any(model: Model, parts: Sequence[Model]) -> Model:
    """Adjust the model of an operator that is endless only if all of its parts are endless."""
    ends = not all(part.endless for part in parts)
    return attrs.evolve(model, tags=model.tags - {Endless}) if ends else model


def zip_(*parts: Model, join: Callable[..., Any] | None = None) -> Model:
    """The model of ``zip``, with any function that joins elements."""
    joined_of = join or _joined

    def joined(epoch: int) -> Iterator[Any]:
        streams = [part.elements(epoch) for part in parts]
        while True:
            heads = [list(islice(stream, 1)) for stream in streams]
            if not all(heads):
                if any(heads) and not any(part.endless for part in parts):
                    raise Failed
                return
            row = [x for head in heads for x in head]
            yield BAD if any(x is BAD for x in row) else joined_of(*row)

    zipped = ending_with_any(of_several(parts, joined, None), parts)
    known = [part.length for part in parts if part.length is not None]
    length = min(known, default=None) if Unsized not in zipped.tags else None
    return attrs.evolve(zipped, length=length)


def _joined(*row: Any) -> Any:
    if all(isinstance(x, dict) for x in row):
        if len({key for x in row for key in x}) < sum(map(len, row)):
            raise Failed
        return {key: value for x in row for key, value in x.items()}
    return tuple(part for x in row for part in (x if isinstance(x, tuple) else [x]))


def concat(*parts: Model) -> Model:
    """The model of ``concat``."""
    return of_several(
        parts,
        lambda epoch: (x for part in parts for x in part.elements(epoch)),
        total_length(parts),
    )


def interleave(*parts: Model) -> Model:
    """The model of ``interleave``."""

    def in_turn(epoch: int) -> Iterator[Any]:
        streams = deque(part.elements(epoch) for part in parts)
        while streams:
            stream = streams.popleft()
            for x in islice(stream, 1):
                yield x
                streams.append(stream)

    return of_several(parts, in_turn, total_length(parts), Reordered)
