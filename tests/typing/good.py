"""Chains of exactly these types in both checkers; run, their elements are of these types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypedDict, TypeVar, assert_type

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Endless, Exact, Finite, Flow, Reordered, Resampled, Run, Unsized
from flowdsl.effects import Counted, Effect, Tag
from flowdsl.node import E, Node, Row, T
from flowdsl.runtime.pool import PoolStatistics
from flowdsl.specs import UNKNOWN, Spec

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

A = TypeVar("A")
F = TypeVar("F", bound=Effect)


class Sample(NamedTuple):
    image: U8
    label: np.int64


class SampleBatch(NamedTuple):
    image: U8
    label: I64


@attrs.frozen
class PointBatch:
    at: F32
    weight: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    at: F32
    weight: float


class Features(TypedDict):
    image: F32
    label: np.int64


def image(i: int) -> U8:
    return np.full((2, 3), i, np.uint8)


def scale(x: U8) -> F32:
    return x.astype(np.float32) / np.float32(255)


def is_even(i: int) -> bool:
    return i % 2 == 0


# -- elements --------------------------------------------------------------------------------------

numbers = fl.from_range(10)
pairs = numbers.map(lambda i: (image(i), np.int64(i)))
samples = fl.from_items([Sample(image(i), np.int64(i)) for i in range(10)])
points = fl.from_items([Point(np.zeros(2, np.float32), float(i)) for i in range(10)])
arrays = samples.map(lambda s: s.image)
dicts = arrays.map(lambda x: {"left": x, "right": x})
texts = numbers.map(str)

assert_type(numbers, Flow[int, Exact])
assert_type(pairs, Flow[tuple[U8, np.int64], Exact])
assert_type(samples, Flow[Sample, Exact])
assert_type(points, Flow[Point, Exact])
assert_type(arrays, Flow[U8, Exact])
assert_type(dicts, Flow[dict[str, U8], Exact])
assert_type(texts, Flow[str, Exact])
assert_type(fl.from_items("ab"), Flow[str, Exact])
assert_type(fl.from_items((1.5, 2.5)), Flow[float, Exact])
assert_type(fl.from_items([{"a": 1}]).map(lambda d: d["a"]), Flow[int, Exact])


def features(s: Sample) -> Features:
    return {"image": scale(s.image), "label": s.label}


assert_type(samples.map(features), Flow[Features, Exact])
assert_type(samples.map(features).map(lambda f: f["label"]), Flow[np.int64, Exact])

# -- sources ---------------------------------------------------------------------------------------


def lines() -> Iterator[str]:
    yield from ("a", "b")


assert_type(fl.from_iterable([1, 2]), Flow[int, Unsized])
assert_type(fl.from_iterable(lines), Flow[str, Unsized])
assert_type(fl.from_iterable(lambda: (i / 2 for i in range(3))), Flow[float, Unsized])
assert_type(fl.from_iterable({"a": 1}.items()), Flow[tuple[str, int], Unsized])


def stored(folder: Path) -> None:
    path, dict_path = folder / "samples.lmdb", str(folder / "dicts.lmdb")
    assert_type(samples.write_lmdb(path), int)
    assert_type(samples.map(features).write_lmdb(dict_path, overwrite=True), int)

    assert_type(fl.from_lmdb(path), Flow[object, Exact])
    assert_type(fl.from_lmdb(path, Sample), Flow[Sample, Exact])
    assert_type(fl.from_lmdb(str(path), tuple[U8, np.int64]), Flow[tuple[U8, np.int64], Exact])
    shaped = fl.from_lmdb(path, tuple[Annotated[U8, fl.Shape(None, 3)], np.int64])
    assert_type(shaped, Flow[tuple[U8, np.int64], Exact])
    assert_type(fl.from_lmdb(dict_path, Features), Flow[Features, Exact])
    assert_type(fl.from_lmdb(path, Sample).batch(4), Flow[tuple[U8, I64], Exact])

    points_path, arrays_path = folder / "points.lmdb", folder / "arrays.lmdb"
    points.write_lmdb(points_path)
    arrays.write_lmdb(arrays_path)
    assert_type(fl.from_lmdb(points_path, Point).batch(4), Flow[PointBatch, Exact])
    assert_type(fl.from_lmdb(arrays_path, NDArray[np.uint8]).batch(4), Flow[U8, Exact])
    assert_type(fl.from_lmdb(arrays_path, Annotated[U8, fl.Shape(2, None)]), Flow[U8, Exact])


# -- each element by itself ------------------------------------------------------------------------

assert_type(arrays.map(scale), Flow[F32, Exact])
assert_type(samples.map(fl.c0), Flow[U8, Exact])
assert_type(samples.map(fl.c1), Flow[np.int64, Exact])
assert_type(pairs.map(lambda p: (*p, "x", 1.5)).map(fl.c2), Flow[str, Exact])
assert_type(pairs.map(lambda p: (*p, "x", 1.5)).map(fl.c3), Flow[float, Exact])
assert_type(samples.starmap(lambda x, label: (label, scale(x))), Flow[tuple[np.int64, F32], Exact])
assert_type(pairs.starmap(Sample), Flow[Sample, Exact])
assert_type(samples.filter(lambda s: s.label > 2), Flow[Sample, Exact | Unsized])
assert_type(numbers.filter(is_even), Flow[int, Exact | Unsized])


def noisy(x: U8, rng: np.random.Generator) -> F32:
    return scale(x) + rng.random(dtype=np.float32)


assert_type(arrays.random_map(noisy, seed=7), Flow[F32, Exact])
assert_type(numbers.random_map(lambda i, rng: i + rng.random()), Flow[float, Exact])

# -- batches ---------------------------------------------------------------------------------------

assert_type(numbers.batch(4), Flow[I64, Exact])
assert_type(numbers.map(is_even).batch(4), Flow[NDArray[np.bool_], Exact])
assert_type(numbers.map(lambda i: i / 2).batch(4), Flow[NDArray[np.float64], Exact])
assert_type(numbers.map(np.float32).batch(4), Flow[F32, Exact])
assert_type(arrays.batch(4), Flow[U8, Exact])
assert_type(arrays.batch(4).batch(1), Flow[U8, Exact])
assert_type(dicts.batch(4), Flow[dict[str, U8], Exact])
assert_type(numbers.map(lambda i: {"n": np.int64(i)}).batch(4), Flow[dict[str, I64], Exact])
assert_type(arrays.map(lambda x: (x,)).batch(4), Flow[tuple[U8], Exact])
assert_type(pairs.batch(4), Flow[tuple[U8, I64], Exact])
assert_type(samples.batch(4), Flow[tuple[U8, I64], Exact])
assert_type(samples.batch(4).starmap(SampleBatch), Flow[SampleBatch, Exact])
assert_type(pairs.map(lambda p: (*p, scale(p[0]))).batch(4), Flow[tuple[U8, I64, F32], Exact])
four = pairs.map(lambda p: (*p, *p))
assert_type(four.batch(4), Flow[tuple[U8, I64, U8, I64], Exact])
assert_type(points.batch(4), Flow[PointBatch, Exact])

assert_type(points.batch(4, drop_remainder=True), Flow[PointBatch, Exact | Resampled])
assert_type(numbers.batch(4, drop_remainder=True), Flow[I64, Exact | Resampled])
assert_type(numbers.batch(4, drop_remainder=is_even(1)), Flow[I64, Exact | Resampled])
assert_type(arrays.batch(4, drop_remainder=True), Flow[U8, Exact | Resampled])
assert_type(dicts.batch(4, drop_remainder=True), Flow[dict[str, U8], Exact | Resampled])
assert_type(samples.batch(4, drop_remainder=True), Flow[tuple[U8, I64], Exact | Resampled])
assert_type(four.batch(4, drop_remainder=True), Flow[tuple[U8, I64, U8, I64], Exact | Resampled])
assert_type(samples.batch(4, drop_remainder=False), Flow[tuple[U8, I64], Exact])


def joined(rows: Sequence[str]) -> str:
    return "".join(rows)


assert_type(texts.batch(4, collate=list), Flow[list[str], Exact])
assert_type(texts.batch(4, collate=joined), Flow[str, Exact])
assert_type(texts.batch(4, collate=joined, drop_remainder=True), Flow[str, Exact | Resampled])
named = numbers.map(lambda i: (str(i), i))
assert_type(named.batch(4, collate=fl.lists), Flow[tuple[list[str], list[int]], Exact])
assert_type(texts.map(lambda s: (s,)).batch(4, collate=fl.lists), Flow[tuple[list[str]], Exact])
assert_type(
    named.map(lambda p: (*p, *p)).batch(4, collate=fl.lists),
    Flow[tuple[list[str], list[int], list[str], list[int]], Exact],
)


def dicts_of(rows: Sequence[Features]) -> dict[str, list[F32]]:
    return {"image": [row["image"] for row in rows]}


assert_type(samples.map(features).batch(4, collate=dicts_of), Flow[dict[str, list[F32]], Exact])

# -- effects ---------------------------------------------------------------------------------------

assert_type(samples.shuffle(seed=7), Flow[Sample, Exact | Reordered])
assert_type(samples.shuffle(4, seed=7), Flow[Sample, Exact | Reordered])
assert_type(samples.repeat(), Flow[Sample, Exact | Resampled | Endless])
assert_type(samples.repeat(None), Flow[Sample, Exact | Resampled | Endless])
assert_type(samples.repeat(2), Flow[Sample, Exact | Resampled])
assert_type(samples.prefetch(), Flow[Sample, Exact])
assert_type(samples.shuffle().prefetch(procs=0), Flow[Sample, Exact | Reordered])

assert_type(samples.take(4), Flow[Sample, Exact])
assert_type(samples.filter(lambda s: s.label > 2).take(4), Flow[Sample, Unsized])
assert_type(fl.from_iterable(lines).take(1), Flow[str, Unsized])
assert_type(samples.repeat().take(4), Flow[Sample, Resampled])
assert_type(samples.repeat(2).take(4), Flow[Sample, Resampled])
assert_type(samples.shuffle().take(4), Flow[Sample, Counted])
assert_type(samples.shuffle().repeat().take(4), Flow[Sample, Counted])
assert_type(samples.shuffle().filter(lambda s: s.label > 2).take(4), Flow[Sample, Finite])

assert_type(fl.from_iterable(lines).shuffle(2), Flow[str, Unsized | Reordered])
assert_type(samples.repeat(2).shuffle(), Flow[Sample, Exact | Resampled | Reordered])
assert_type(
    samples.shuffle().batch(4).repeat(),
    Flow[tuple[U8, I64], Exact | Reordered | Resampled | Endless],
)
assert_type(numbers.filter(is_even).batch(2), Flow[I64, Exact | Unsized])

# -- what a function of flows asks for -------------------------------------------------------------


def train(batches: Flow[SampleBatch]) -> None:
    """Takes what comes."""


def evaluate(batches: Flow[object, Reordered]) -> None:
    """Each row exactly once, in any order."""


def predict(batches: Flow[object, Exact]) -> None:
    """Each row exactly once, in order."""


def log(batches: Flow[object, Finite]) -> None:
    """Anything that ends."""


batches = samples.batch(4).starmap(SampleBatch)
predict(batches)
evaluate(batches)
train(batches)
log(batches)
evaluate(batches.shuffle().map(lambda b: b.label))
train(batches.shuffle(2).repeat().prefetch())
log(batches.shuffle().repeat().take(4))
log(batches.filter(lambda b: len(b.label) > 1))
looser: Flow[object, Reordered | Unsized] = batches.shuffle()


# -- functions of flows, and operators of one's own ------------------------------------------------


def every(flow: Flow[A, F], step: int = 2) -> Flow[A, F | Unsized]:
    return flow.filter(lambda x: id(x) % step >= 0)


def first(flow: Flow[A], n: int) -> list[A]:
    return flow.take(n).collect()


assert_type(numbers.pipe(every, step=3), Flow[int, Exact | Unsized])
assert_type(numbers.shuffle().pipe(every, 3), Flow[int, Exact | Reordered | Unsized])
assert_type(samples.repeat().pipe(first, 2), list[Sample])


@attrs.frozen
class Windows(Node[tuple[T, ...], E | Unsized], Generic[T, E]):
    """All runs of ``size`` consecutive elements."""

    source: Node[T, E]
    size: int

    @property
    def title(self) -> str:
        return f"windows({self.size})"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int) -> Iterator[Row[tuple[T, ...]]]:
        elements = [x for _, x in self.source.rows(epoch)]
        stops = range(self.size, len(elements) + 1)
        return enumerate(tuple(elements[stop - self.size : stop]) for stop in stops)


assert_type(numbers.apply(Windows, 3), Flow[tuple[int, ...], Exact | Unsized])
assert_type(samples.apply(Windows, size=3), Flow[tuple[Sample, ...], Exact | Unsized])
assert_type(texts.shuffle().apply(Windows, 3).map(len), Flow[int, Exact | Reordered | Unsized])

# -- running ---------------------------------------------------------------------------------------

for sample in samples:
    assert_type(sample, Sample)
assert_type(iter(samples), Run[Sample])
assert_type(next(iter(batches.repeat())), SampleBatch)
assert_type(list(samples), list[Sample])
assert_type(samples.collect(), list[Sample])
assert_type(samples.filter(lambda s: s.label > 2).collect(), list[Sample])
assert_type(samples.size(), int)
assert_type(samples.shuffle().repeat(2).size(), int)
assert_type(len(samples), int)
assert_type(samples.epoch(1), Run[Sample])
assert_type(samples.effects, frozenset[Tag])
assert_type(samples.explain(), str)
for run in samples.shuffle().epochs(2):
    assert_type(run, Run[Sample])
    assert_type([s.label for s in run], list[np.int64])
with samples.epoch(0) as run:
    assert_type(next(run), Sample)
    assert_type(run.position, int)
    assert_type(run.statistics(), list[PoolStatistics])
    assert_type(samples.resume(run.state_dict()), Run[Sample])
