"""Every operator again, in plain Python and NumPy: what the laws hold the operators to.

A model is a function from an epoch to positions and elements. None of it uses a node of flowdsl;
randomness is given: a model is told which generator, permutation or sequence of draws is meant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Any, TypeAlias

import attrs
import numpy as np

from flowdsl.effects import Endless, Reordered, Resampled, Tag, Unsized
from flowdsl.numbers.draws import Independent, Mixed
from flowdsl.numbers.randomness import epoch_of_pass, generator, permute
from tests.elements import Row, RowBatch, is_text, parts_of

Rows: TypeAlias = Iterator[tuple[int, Any]]


class Failed(Exception):
    """The flow raises an error of its own here."""


class Bad:
    """In the place of an element that can not be made."""


BAD = Bad()


@attrs.frozen
class Model:
    """What a flow means, and what is known of it beforehand."""

    rows: Callable[[int], Rows]
    length: int | None
    tags: frozenset[Tag] = frozenset()
    depth: int = 1
    """The number of operators, which seeds those that draw; what changes no element is none."""
    careful: bool = False
    """What fails is ``BAD``, and no error."""
    may_be_bad: bool = False
    """Some of its elements may be."""
    leaves_out: bool = False
    """Somewhere in it what is bad was left out."""
    read: Callable[[int], Rows] | None = None
    """Of a source that can go on after a row that can not be read: its rows, carefully."""

    @property
    def endless(self) -> bool:
        return Endless in self.tags

    def elements(self, epoch: int) -> Iterator[Any]:
        return (x for _, x in self.rows(epoch))

    def then(self, rows: Callable[[int], Rows], length: int | None, *tags: Tag) -> Model:
        """Another operator, which keeps positions or gives its own, and adds tags."""
        return attrs.evolve(
            self,
            rows=rows,
            length=length,
            tags=self.tags | set(tags),
            depth=self.depth + 1,
            read=None,
        )

    def then_anew(
        self, elements: Callable[[int], Iterable[Any]], length: int | None, *tags: Tag
    ) -> Model:
        """Another operator, whose elements are numbered from 0."""
        return self.then(lambda epoch: enumerate(elements(epoch)), length, *tags)

    def carefully(self) -> Model:
        """The same source, where what can not be read is bad."""
        tries = not self.leaves_out and (self.read is not None or self.depth > 1)
        return attrs.evolve(self, rows=self.read or self.rows, careful=True, may_be_bad=tries)

    def tried(self) -> Model:
        """An operator that was called on each element."""
        return attrs.evolve(self, may_be_bad=self.careful or self.may_be_bad)

    def good(self) -> Model:
        """The elements that could be made."""
        return self.left_out() if self.may_be_bad else self

    def left_out(self) -> Model:
        """The same, where it must be said that there may be fewer."""
        return attrs.evolve(
            self,
            rows=lambda epoch: (row for row in self.rows(epoch) if row[1] is not BAD),
            length=None,
            tags=self.tags | {Resampled, Unsized},
            may_be_bad=False,
            leaves_out=True,
            read=None,
        )

    def bounded(self) -> Model:
        """It ends, at a length that is known beforehand if it would never have ended."""
        ends = self.tags - {Endless, Unsized} if self.endless else self.tags
        return attrs.evolve(self, tags=ends)

    def by_place(self) -> Model:
        """Which rows it has is chance, if their order is."""
        return attrs.evolve(
            self, tags=self.tags | ({Resampled} if Reordered in self.tags else set())
        )

    def at_depth(self, depth: int) -> Model:
        return attrs.evolve(self, depth=depth)

    def times(self, n: int) -> int | None:
        return None if self.length is None else n * self.length


# -- sources ---------------------------------------------------------------------------------------


def rows(elements: Sequence[Any]) -> Model:
    places = range(len(elements))
    return Model(
        lambda epoch: ((i, elements[i]) for i in places),
        len(elements),
        read=lambda epoch: ((i, _made(elements.__getitem__, i)) for i in places),
    )


def stream(elements: Sequence[Any]) -> Model:
    return Model(lambda epoch: enumerate(elements), None, frozenset({Unsized}))


def one_pass(elements: Sequence[Any]) -> Model:
    spent: list[int] = []

    def once(epoch: int) -> Rows:
        if spent:
            raise Failed
        spent.append(epoch)
        return enumerate(elements)

    return Model(once, None, frozenset({Unsized}))


def fake(
    shapes: Sequence[tuple[int, ...]],
    size: int,
    random: bool,
    dtypes: Sequence[str],
    domains: Sequence[tuple[int, int]],
    seed: int,
) -> Model:
    def draw(i: int) -> tuple[Any, ...]:
        rng = generator(seed, 0, 0, i)
        arrays = []
        for shape, dtype, (low, high) in zip(shapes, dtypes, domains, strict=True):
            if dtype == "float32":
                part = rng.random(shape, np.float32)
                arrays.append(np.asarray(low + part * (high - low), dtype))
            else:
                arrays.append(np.asarray(rng.integers(low, high, shape, dtype), dtype))
        return tuple(arrays)

    return rows([draw(i if random else 0) for i in range(size)])


# -- each element by itself ------------------------------------------------------------------------


def _made(func: Callable[..., Any], *args: Any) -> Any:
    if args[0] is BAD:
        return BAD
    try:
        return func(*args)
    except Exception:
        return BAD


def each(source: Model, func: Callable[[Any, int, int], Any]) -> Model:
    """A function of every element, of the epoch and of its position."""

    def made(x: Any, epoch: int, i: int) -> Any:
        return _made(func, x, epoch, i) if source.careful else func(x, epoch, i)

    return source.then(
        lambda epoch: ((i, made(x, epoch, i)) for i, x in source.rows(epoch)), source.length
    ).tried()


def map_(source: Model, func: Callable[[Any], Any]) -> Model:
    return each(source, lambda x, epoch, i: func(x))


def starmap(source: Model, func: Callable[..., Any]) -> Model:
    return map_(source, lambda x: func(*x))


def random_map(source: Model, func: Callable[[Any, np.random.Generator], Any], seed: int) -> Model:
    salt = source.depth
    return each(source, lambda x, epoch, i: func(x, generator(seed, salt, epoch, i)))


_LEFT_OUT = object()


def filter_(source: Model, keep: Callable[[Any], bool]) -> Model:
    return filter_map(source, lambda x: x if keep(x) else _LEFT_OUT, _LEFT_OUT)


def filter_map(source: Model, func: Callable[[Any], Any], nothing: Any = None) -> Model:
    mapped = map_(source, func)
    return mapped.then(
        lambda epoch: (row for row in mapped.rows(epoch) if row[1] is not nothing), None, Unsized
    ).at_depth(mapped.depth)


def flat_map(source: Model, func: Callable[[Any], Iterable[Any]]) -> Model:
    source = source.good()
    return source.then_anew(
        lambda epoch: (y for x in source.elements(epoch) for y in func(x)), None, Unsized
    )


def map_component(source: Model, func: Callable[[Any], Any], index: Any) -> Model:
    def change(x: Any) -> Any:
        parts = dict(x) if isinstance(x, dict) else list(x)
        parts[index] = func(parts[index])
        return parts if isinstance(x, dict) else tuple(parts)

    return map_(source, change)


def select(source: Model, *picks: Any) -> Model:
    if isinstance(picks[0], str):
        return map_(source, lambda x: {key: x[key] for key in picks})
    return map_(source, lambda x: tuple([pick(x) for pick in picks]))


def enumerate_(source: Model, start: int) -> Model:
    return source.then(
        lambda epoch: (
            (i, x if x is BAD else (number, x))
            for number, (i, x) in enumerate(source.rows(epoch), start)
        ),
        source.length,
    ).tried()


# -- groups ----------------------------------------------------------------------------------------

Gather: TypeAlias = Callable[[list[Any]], Any]


def groups(source: Model, n: int, drop: bool, gather: Gather) -> Model:
    source = source.good()

    def gathered(epoch: int) -> Iterator[Any]:
        elements = source.elements(epoch)
        while group := list(islice(elements, n)):
            if len(group) == n or not drop:
                yield gather(group)

    length = source.length
    if length is not None:
        length = length // n if drop else (length + n - 1) // n
    loses = drop and not source.endless and (not source.length or source.length % n > 0)
    return source.then_anew(gathered, length, *([Resampled] if loses else []))


def stacked(group: list[Any]) -> Any:
    return _column_by_column(group, np.stack)


def padded(padding: Any) -> Gather:
    """``padding`` is one for all components, or one for each, in the form of the element."""
    return lambda group: _padded(group, padding)


def _padded(group: list[Any], padding: Any) -> Any:
    parts = parts_of(group[0])
    if parts is not None:
        names = [name for name, _ in parts]
        columns = [[dict(parts_of(x) or ())[name] for x in group] for name in names]
        each = [padding] * len(names)
        if isinstance(padding, tuple):
            each = list(padding)
        elif isinstance(padding, dict):
            each = [padding[str(name)] for name in names]
        return _batch_of(group[0], [_padded(c, p) for c, p in zip(columns, each, strict=True)])
    if is_text(group[0]):
        return list(group)
    rows = [np.asarray(x) for x in group]
    if padding is not None and rows[0].ndim:
        largest = np.max([row.shape for row in rows], axis=0)
        rows = [
            np.pad(
                row,
                [(0, most - size) for most, size in zip(largest, row.shape, strict=True)],
                constant_values=padding,
            )
            for row in rows
        ]
    return _same_dtype(rows, np.stack)


def _column_by_column(group: list[Any], gather: Callable[[list[Any]], Any]) -> Any:
    parts = parts_of(group[0])
    if parts is None and is_text(group[0]):
        return list(group)
    if parts is None:
        return _same_dtype([np.asarray(x) for x in group], gather)
    names = [name for name, _ in parts]
    if any([name for name, _ in parts_of(x) or ()] != names for x in group):
        raise Failed
    columns = zip(*([part for _, part in parts_of(x) or ()] for x in group), strict=True)
    return _batch_of(group[0], [_column_by_column(list(column), gather) for column in columns])


def _same_dtype(rows: list[Any], gather: Callable[[list[Any]], Any]) -> Any:
    if len({row.dtype for row in rows}) > 1 or rows[0].dtype == object:
        raise Failed
    return gather(rows)


def _batch_of(row: Any, values: list[Any]) -> Any:
    if isinstance(row, dict):
        return dict(zip(row, values, strict=True))
    if isinstance(row, list):
        raise Failed  # lists do not stack
    return RowBatch(*values) if isinstance(row, Row) else tuple(values)


def batch_by_shape(
    source: Model, n: int, selector: Callable[[Any], Any], drop: bool, gather: Gather
) -> Model:
    source = source.good()

    def gathered(epoch: int) -> Iterator[Any]:
        waiting: list[tuple[Any, list[Any]]] = []
        for x in source.elements(epoch):
            shape = np.shape(selector(x))
            group = next((group for other, group in waiting if other == shape), None)
            if group is None:
                group = []
                waiting.append((shape, group))
            group.append(x)
            if len(group) == n:
                waiting = [pair for pair in waiting if pair[1] is not group]
                yield gather(group)
        if not drop:
            for _, group in waiting:
                yield gather(group)

    return source.then_anew(gathered, None, Reordered, Unsized, *([Resampled] if drop else []))


def unbatch(source: Model, into: Callable[..., Any] | None = None) -> Model:
    source = source.good()

    def build(batch: Any, row: Any) -> Any:
        if into is None:
            return row
        if isinstance(batch, dict):
            return into(**row)
        if parts_of(batch) is None or isinstance(batch, list):
            return into(row)
        if isinstance(batch, tuple):
            return into(*row)
        return into(**dict(zip(attrs.asdict(batch, recurse=False), row, strict=True)))

    return source.then_anew(
        lambda epoch: (build(x, row) for x in source.elements(epoch) for row in unstacked(x)),
        None,
        Unsized,
    )


def unstacked(batch: Any) -> list[Any]:
    parts = parts_of(batch)
    if parts is None or isinstance(batch, list):
        return list(batch)
    columns = [unstacked(part) for _, part in parts]
    if len({len(column) for column in columns}) != 1:
        raise Failed
    if isinstance(batch, dict):
        return [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(zip(*columns, strict=True))


def window(source: Model, size: int, stride: int) -> Model:
    source = source.good()

    def windows(epoch: int) -> Iterator[Any]:
        seen: list[Any] = []
        for x in source.elements(epoch):
            seen.append(x)
            before = len(seen) - size
            if before >= 0 and before % stride == 0:
                yield tuple(seen[before:])

    whole = None if source.length is None else len(range(0, source.length - size + 1, stride))
    return source.then_anew(windows, whole, Resampled)


# -- how many --------------------------------------------------------------------------------------


def take(source: Model, n: int) -> Model:
    length = n if source.endless else None if source.length is None else min(n, source.length)
    return source.then(lambda epoch: islice(source.rows(epoch), n), length).bounded().by_place()


def skip(source: Model, n: int) -> Model:
    left = None if source.length is None else max(source.length - n, 0)
    return source.then_anew(lambda epoch: islice(source.elements(epoch), n, None), left).by_place()


def shard(source: Model, n: int, i: int) -> Model:
    length = None if source.length is None else len(range(i, source.length, n))
    return source.then_anew(
        lambda epoch: (x for k, x in enumerate(source.elements(epoch)) if k % n == i), length
    ).by_place()


def repeat(source: Model, n: int | None = None) -> Model:
    def passes(epoch: int) -> Iterator[Any]:
        for k in count() if n is None else range(n):
            yield from _some(source, _inner(epoch, k), may_be_empty=n is not None)

    if n is None:
        return source.then_anew(passes, None, Resampled, Endless)
    return source.then_anew(passes, source.times(n), Resampled)


def repeat_each(source: Model, n: int) -> Model:
    return source.then_anew(
        lambda epoch: (x for x in source.elements(epoch) for _ in range(n)),
        source.times(n),
        Resampled,
    )


def fixed_size(source: Model, n: int, keep_state: bool) -> Model:
    def elements(epoch: int) -> Iterator[Any]:
        if keep_state and epoch * n <= 2**40:  # more than any epoch but one that was drawn
            # What lies before is not read where it can be counted: a queue could give it once.
            first, start = divmod(epoch * n, source.length) if source.length else (0, epoch * n)
            passes = (_some(source, k) for k in count(first))
            return islice(chain.from_iterable(passes), start, start + n)
        passes = (_some(source, _inner(epoch, k)) for k in count())
        return islice(chain.from_iterable(passes), n)

    sized = attrs.evolve(source, tags=source.tags - {Unsized, Endless})
    return sized.then_anew(elements, n, Resampled)


def _some(source: Model, epoch: int, may_be_empty: bool = False) -> Iterator[Any]:
    k = -1
    for k, x in enumerate(source.elements(epoch)):  # noqa: B007  # whether there was one
        yield x
    if k < 0 and not may_be_empty:
        raise Failed


def _inner(epoch: int, k: int) -> int:
    return int(epoch_of_pass(np.array([epoch]), np.array([k]))[0])


def split(source: Model, counts: Sequence[int], seed: int, number: int) -> Model:
    def part(epoch: int) -> Iterator[Any]:
        order = Mixed(seed, "split", 0, tuple(counts)).parts()  # in every epoch, at any depth
        return (x for x, k in zip(source.elements(epoch), order, strict=False) if k == number)

    return source.then_anew(part, counts[number])


# -- order -----------------------------------------------------------------------------------------


def shuffle(source: Model, seed: int) -> Model:
    salt = source.depth

    def shuffled(epoch: int) -> Iterator[Any]:
        elements = list(source.elements(epoch))
        order = permute(np.arange(len(elements)), len(elements), f"{seed}/{salt}/{epoch}")
        yield from (elements[i] for i in order)

    return source.then_anew(shuffled, source.length, Reordered)


def window_shuffle(source: Model, buffer: int, seed: int) -> Model:
    source = source.good()
    salt = source.depth

    def shuffled(epoch: int) -> Iterator[Any]:
        rng = generator(seed, salt, epoch, 0)
        elements = source.elements(epoch)
        window = list(islice(elements, buffer))
        while window:
            i = rng.integers(len(window))
            drawn, window[i] = window[i], window[-1]  # the last fills the gap
            window.pop()
            yield drawn
            window += islice(elements, 1)

    return source.then_anew(shuffled, source.length, Reordered)


def cache(source: Model) -> Model:
    """Kept, since a source may have but one pass; where it has more, each would do."""
    source = source.good()
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


# -- several ---------------------------------------------------------------------------------------


def _of(
    parts: Sequence[Model],
    elements: Callable[[int], Iterable[Any]],
    length: int | None,
    *tags: Tag,
) -> Model:
    either = frozenset(tags).union(*(part.tags for part in parts))
    return Model(
        lambda epoch: enumerate(elements(epoch)),
        length,
        either,
        depth=1 + max(part.depth for part in parts),
        careful=parts[0].careful,
        may_be_bad=any(part.may_be_bad for part in parts),
        leaves_out=any(part.leaves_out for part in parts),
    )


def _total(parts: Sequence[Model]) -> int | None:
    lengths = [part.length for part in parts]
    return None if None in lengths else sum(length or 0 for length in lengths)


def skip_bad(source: Model, careful: bool) -> Model:
    """A flow that was built carefully, without what could not be made."""
    good = source.good()
    good = good if good.leaves_out else good.left_out()
    return attrs.evolve(good, careful=careful)


def unordered(source: Model) -> Model:
    """In order all the same, where there is but one to do it."""
    return attrs.evolve(source, tags=source.tags | {Reordered})


def replicate(source: Model, n: int) -> Model:
    def in_turn(epoch: int) -> Iterator[Any]:
        copies = deque(source.elements((epoch * n + k) % 2**62) for k in range(n))
        while copies:
            copy = copies.popleft()
            for x in islice(copy, 1):
                yield x
                copies.append(copy)

    return source.then_anew(in_turn, source.times(n), Resampled)


def _ending_with_any(model: Model, parts: Sequence[Model]) -> Model:
    """It never ends only if none of its parts does."""
    ends = not all(part.endless for part in parts)
    return attrs.evolve(model, tags=model.tags - {Endless}) if ends else model


def zip_(*parts: Model) -> Model:
    def joined(epoch: int) -> Iterator[Any]:
        streams = [part.elements(epoch) for part in parts]
        while True:
            found = [list(islice(stream, 1)) for stream in streams]
            if not all(found):
                if any(found) and not any(part.endless for part in parts):
                    raise Failed
                return
            yield _joined(*(x for one in found for x in one))

    zipped = _ending_with_any(_of(parts, joined, None), parts)
    known = [part.length for part in parts if part.length is not None]
    length = min(known, default=None) if Unsized not in zipped.tags else None
    return attrs.evolve(zipped, length=length)


def _joined(a: Any, b: Any) -> Any:
    if a is BAD or b is BAD:
        return BAD
    if isinstance(a, dict) and isinstance(b, dict):
        if set(a) & set(b):
            raise Failed
        return a | b
    return (*(a if isinstance(a, tuple) else [a]), *(b if isinstance(b, tuple) else [b]))


def concat(*parts: Model) -> Model:
    return _of(
        parts,
        lambda epoch: (x for part in parts for x in part.elements(epoch)),
        _total(parts),
    )


def interleave(*parts: Model) -> Model:
    def in_turn(epoch: int) -> Iterator[Any]:
        streams = deque(part.elements(epoch) for part in parts)
        while streams:
            stream = streams.popleft()
            for x in islice(stream, 1):
                yield x
                streams.append(stream)

    return _of(parts, in_turn, _total(parts), Reordered)


def choose(
    parts: Sequence[Model], weights: Sequence[float] | None, seed: int, first: bool
) -> Model:
    salt = max(part.depth for part in parts)
    weights = weights or [1.0] * len(parts)

    def chosen(epoch: int) -> Iterator[Any]:
        left = [(part.elements(epoch), w) for part, w in zip(parts, weights, strict=True)]
        while left:
            total = sum(w for _, w in left)
            share = tuple(float(w / total) for _, w in left)
            for i in Independent(seed, f"{salt}-{len(left)}", epoch, share).parts():
                found = list(islice(left[i][0], 1))
                if not found:
                    left = [] if first else [*left[:i], *left[i + 1 :]]
                    break
                yield found[0]

    if first:
        stopped = _of(parts, chosen, None, Reordered, Resampled, Unsized)
        return _ending_with_any(stopped, parts)
    return _of(parts, chosen, _total(parts), Reordered)


def mix(parts: Sequence[Model], lengths: Sequence[int], seed: int) -> Model:
    salt = max(part.depth for part in parts)

    def mixed(epoch: int) -> Iterator[Any]:
        streams = [part.elements(epoch) for part in parts]
        order = Mixed(seed, str(salt), epoch, tuple(lengths)).parts()
        for i in islice(order, sum(lengths)):
            yield from islice(streams[i], 1)

    return _of(parts, mixed, sum(lengths), Reordered)
