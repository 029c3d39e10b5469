"""Chains of exactly these types in both checkers; run, their elements are of these types.

This file has the elements that all good and bad files use, consumers and functions of flows, and
running; the operators are in the files of their families.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypedDict, TypeVar, assert_type

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Exact, Finite, Flow, Origin, Reordered, Run, Speed, Unsized
from flowdsl.effects import Counted, Effect, Tag
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.nodes import E, Node, PassFactory, Row, T
from flowdsl.statistics.run import RunStatistics

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


def features(s: Sample) -> Features:
    return {"image": scale(s.image), "label": s.label}


def lines() -> Iterator[str]:
    yield from ("a", "b", "c")


# -- elements --------------------------------------------------------------------------------------

numbers = fl.from_range(10)
pairs = numbers.map(lambda i: (image(i), np.int64(i)))
samples = fl.from_items([Sample(image(i), np.int64(i)) for i in range(10)])
points = fl.from_items([Point(np.zeros(2, np.float32), float(i)) for i in range(10)])
arrays = samples.map(lambda s: s.image)
dicts = arrays.map(lambda x: {"left": x, "right": x})
texts = numbers.map(str)
named = numbers.map(lambda i: (str(i), i))
stream = fl.from_iterable(lines)
batches = samples.batch(4).starmap(SampleBatch)

assert_type(numbers, Flow[int, Exact])
assert_type(pairs, Flow[tuple[U8, np.int64], Exact])
assert_type(samples, Flow[Sample, Exact])
assert_type(points, Flow[Point, Exact])
assert_type(arrays, Flow[U8, Exact])
assert_type(dicts, Flow[dict[str, U8], Exact])
assert_type(texts, Flow[str, Exact])
assert_type(named, Flow[tuple[str, int], Exact])
assert_type(stream, Flow[str, Unsized])
assert_type(batches, Flow[SampleBatch, Exact])
assert_type(samples.map(features), Flow[Features, Exact])

# -- what a function of flows asks for -------------------------------------------------------------


def train(batches: Flow[SampleBatch]) -> None:
    """Accepts any flow."""


def evaluate(batches: Flow[object, Reordered]) -> None:
    """Accepts flows with each row exactly once, in any order."""


def predict(batches: Flow[object, Exact]) -> None:
    """Accepts flows with each row exactly once, in order."""


def log(batches: Flow[object, Finite]) -> None:
    """Accepts flows that end."""


def progress(batches: Flow[object, Counted]) -> int:
    """Accepts flows of known length."""
    return batches.size()


predict(batches)
predict(batches.prefetch().map(lambda b: b.image).enumerate())
evaluate(batches)
evaluate(batches.shuffle().map(lambda b: b.label))
evaluate(samples.shuffle().padded_batch(4))
evaluate(samples.cache().shuffle().batch(4))
train(batches)
train(batches.shuffle(2).repeat().prefetch())
train(batches.shuffle(2).repeat().prefetch(procs="auto", ordered=False))
predict(batches.prefetch(threads="auto"))
train(samples.batch_by_shape(4, fl.c0).starmap(SampleBatch))
log(batches)
log(batches.shuffle().repeat().take(4))
log(batches.filter(lambda b: len(b.label) > 1))
log(stream.fixed_size(4))
progress(batches.shuffle().repeat(2))
progress(batches.shuffle().repeat().take(4))
looser: Flow[object, Reordered | Unsized] = batches.shuffle()
anything: Flow[Sample] = samples.shuffle().repeat()
either: Flow[Sample, Counted] = samples.shuffle() if len(samples) > 3 else samples.repeat(2)

# -- functions of flows, and operators of one's own ------------------------------------------------


def every(flow: Flow[A, F], step: int = 2) -> Flow[A, F | Unsized]:
    return flow.enumerate().filter(lambda p: p[0] % step == 0).map(lambda p: p[1])


def first(flow: Flow[A], n: int) -> list[A]:
    return flow.take(n).collect()


assert_type(numbers.pipe(every, step=3), Flow[int, Exact | Unsized])
assert_type(numbers.shuffle().pipe(every, 3), Flow[int, Exact | Reordered | Unsized])
assert_type(samples.repeat().pipe(first, 2), list[Sample])
assert_type(samples.pipe(len), int)


@attrs.frozen
class Windows(Node[tuple[T, ...], E | Unsized], Generic[T, E]):
    """All windows of ``size`` consecutive elements."""

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

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[tuple[T, ...]]]:
        elements = [x for _, x in sources[0](epoch)]
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
assert_type(samples.shuffle().repeat().take(2).collect(), list[Sample])
assert_type(samples.size(), int)
assert_type(samples.shuffle().repeat(2).size(), int)
assert_type(len(samples), int)
assert_type(samples.epoch(1), Run[Sample])
assert_type(samples.effects, frozenset[Tag])
assert_type(samples.spec, Spec)
assert_type(samples.explain(), str)
assert_type(samples.explain(stage="rules"), str)
assert_type(samples.at(0), Sample)
assert_type(samples.origins(-1), list[Origin])
assert_type(numbers.measure(size=3), Speed)
assert_type(numbers.repeat().measure(3, warmup=1).rate, float)
for run in samples.shuffle().epochs(2):
    assert_type(run, Run[Sample])
    assert_type([s.label for s in run], list[np.int64])
with samples.epoch(0) as run:
    assert_type(next(run), Sample)
    assert_type(run.position, int)
    assert_type(run.statistics(), RunStatistics)
    assert_type(run.origins(), list[Origin])
    assert_type(samples.resume(run.state_dict()), Run[Sample])
