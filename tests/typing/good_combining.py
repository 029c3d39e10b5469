"""Several flows: chains of exactly these types, as in ``good``."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias, assert_type

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Endless, Exact, Flow, Reordered, Resampled, Unsized
from tests.typing.good import (
    F32,
    I64,
    U8,
    Point,
    arrays,
    dicts,
    evaluate,
    is_even,
    named,
    numbers,
    pairs,
    points,
    predict,
    samples,
    stream,
    texts,
)

AnyArray = NDArray[Any]
fakes = fl.fake([(2, 3), ()], 10)
some = numbers.filter(is_even)

# -- side by side ----------------------------------------------------------------------------------

assert_type(numbers.zip(texts), Flow[tuple[int, str], Exact])
assert_type(samples.zip(numbers), Flow[tuple[U8, np.int64, int], Exact])
assert_type(numbers.zip(samples), Flow[tuple[int, U8, np.int64], Exact])
assert_type(samples.zip(samples), Flow[tuple[U8, np.int64, U8, np.int64], Exact])
assert_type(numbers.zip(texts).zip(arrays), Flow[tuple[int, str, U8], Exact])
assert_type(numbers.zip(arrays.map(lambda x: (x,))), Flow[tuple[int, U8], Exact])
assert_type(numbers.zip(named.map(lambda p: (*p, 1.5))), Flow[tuple[int, str, int, float], Exact])
assert_type(numbers.zip(named.map(lambda p: (*p, *p))), Flow[tuple[int, str, int, str, int], Exact])
assert_type(points.zip(points), Flow[tuple[Point, Point], Exact])
assert_type(points.zip(samples), Flow[tuple[Point, U8, np.int64], Exact])
assert_type(fakes.zip(fakes), Flow[tuple[F32, ...], Exact])
assert_type(fakes.zip(fakes).batch(4), Flow[tuple[F32, ...], Exact])
assert_type(stream.zip(stream), Flow[tuple[str, str], Unsized])
assert_type(samples.zip(dicts), Flow[tuple[U8, np.int64, dict[str, U8]], Exact])
assert_type(dicts.zip(numbers.map(lambda i: {"n": i})), Flow[dict[str, U8 | int], Exact])
assert_type(numbers.zip(texts.repeat()), Flow[tuple[int, str], Exact | Resampled | Endless])
assert_type(samples.zip(samples).batch(4), Flow[tuple[U8, I64, U8, I64], Exact])
assert_type(some.zip(some), Flow[tuple[int, int], Exact | Unsized])
assert_type(stream.repeat().take(3).zip(stream), Flow[tuple[str, str], Resampled | Unsized])
predict(samples.zip(texts).starmap(lambda x, label, text: (x, text)))

# -- where an ``Any`` is in the elements -----------------------------------------------------------


class Loose(NamedTuple):
    image: AnyArray
    label: int


def loosely(i: int) -> Loose:
    return Loose(np.zeros(i), i)


def triple(i: int) -> tuple[Any, int, str]:
    return i, i, str(i)


def several(i: int) -> tuple[AnyArray, ...]:
    return np.zeros(i), np.zeros(i)


def keyed(i: int) -> dict[str, Any]:
    return {"number": i}


def keyed_otherwise(i: int) -> dict[str, Any]:
    return {"text": str(i)}


def listed(i: int) -> list[Any]:
    return [i]


loose = numbers.map(loosely)
assert_type(numbers.zip(loose), Flow[tuple[int, AnyArray, int], Exact])
assert_type(loose.zip(numbers), Flow[tuple[AnyArray, int, int], Exact])
assert_type(loose.zip(loose), Flow[tuple[AnyArray, int, AnyArray, int], Exact])
assert_type(loose.zip(numbers.map(triple)), Flow[tuple[AnyArray, int, Any, int, str], Exact])
assert_type(numbers.zip(numbers.map(listed)), Flow[tuple[int, list[Any]], Exact])
assert_type(numbers.map(listed).zip(loose), Flow[tuple[list[Any], AnyArray, int], Exact])
assert_type(numbers.map(several).zip(numbers.map(several)), Flow[tuple[AnyArray, ...], Exact])
assert_type(numbers.map(keyed).zip(numbers.map(keyed_otherwise)), Flow[dict[str, Any], Exact])
assert_type(loose.zip(numbers.map(keyed)), Flow[tuple[AnyArray, int, dict[str, Any]], Exact])
assert_type(numbers.map(keyed).zip(numbers), Flow[tuple[dict[str, Any], int], Exact])

# -- one after another, in turn, at random ---------------------------------------------------------

assert_type(numbers.concat(numbers, numbers), Flow[int, Exact])
assert_type(numbers.concat(*[numbers, numbers]), Flow[int, Exact])
assert_type(pairs.concat(samples), Flow[tuple[U8, np.int64], Exact])
assert_type(numbers.concat(numbers.shuffle()), Flow[int, Exact | Reordered])
assert_type(numbers.concat(numbers.repeat()), Flow[int, Exact | Resampled | Endless])
assert_type(numbers.interleave(numbers), Flow[int, Exact | Reordered])
assert_type(numbers.interleave(some, some), Flow[int, Exact | Unsized | Reordered])
assert_type(stream.interleave(stream), Flow[str, Unsized | Reordered])
assert_type(numbers.choose(numbers.repeat()), Flow[int, Exact | Resampled | Endless | Reordered])
assert_type(numbers.choose(numbers, weights=[1, 2]), Flow[int, Exact | Reordered])
assert_type(
    numbers.choose(numbers, stop="first"), Flow[int, Exact | Reordered | Resampled | Unsized]
)
assert_type(numbers.choose(numbers, stop="all"), Flow[int, Exact | Reordered | Resampled | Unsized])
assert_type(numbers.interleave(numbers, weights=[0.5, 0.5]), Flow[int, Exact | Reordered])
assert_type(numbers.interleave(some, stop="last"), Flow[int, Exact | Unsized | Reordered])
assert_type(numbers.interleave(numbers, stop="all"), Flow[int, Exact | Reordered | Resampled])
assert_type(
    numbers.interleave(texts.map(len).repeat(), stop="first"),
    Flow[int, Exact | Resampled | Endless | Reordered],
)
numbers.interleave(numbers, weights=(2, 1), stop="all").size()
assert_type(numbers.mix(numbers, numbers, seed=3), Flow[int, Exact | Reordered])
assert_type(numbers.mix(numbers.repeat(2)), Flow[int, Exact | Resampled | Reordered])
assert_type(numbers.choose(some, stop="last", seed=3), Flow[int, Exact | Unsized | Reordered])
evaluate(samples.mix(samples).batch(4))

# -- results of a function, in turn ----------------------------------------------------------------

assert_type(
    numbers.interleave_map(fl.from_range, cycle=4, block=2), Flow[int, Exact | Reordered | Unsized]
)
assert_type(texts.interleave_map(list), Flow[str, Exact | Reordered | Unsized])
assert_type(texts.interleave_map(lambda s: [len(s)]), Flow[int, Exact | Reordered | Unsized])

# -- lists and dicts of flows ----------------------------------------------------------------------

three = [numbers, numbers, numbers]
by_name = {"web": numbers, "books": numbers}
assert_type(fl.concat(three), Flow[int, Exact])
assert_type(fl.concat(fl.from_range(n) for n in range(3)), Flow[int, Exact])
assert_type(fl.concat(by_name), Flow[int, Exact])
assert_type(fl.concat(by_name, with_names=True), Flow[tuple[str, int], Exact])
assert_type(fl.interleave(three), Flow[int, Exact | Reordered])
assert_type(fl.interleave(three, stop="all"), Flow[int, Exact | Reordered | Resampled])
assert_type(
    fl.interleave(by_name, weights={"web": 2, "books": 1}, with_names=True),
    Flow[tuple[str, int], Exact | Reordered],
)
assert_type(fl.choose([some, some], weights=[0.5, 0.5]), Flow[int, Exact | Unsized | Reordered])
assert_type(
    fl.choose(by_name, weights={"web": 0.7, "books": 0.3}, stop="all", with_names=True),
    Flow[tuple[str, int], Exact | Reordered | Resampled | Unsized],
)
assert_type(fl.mix(three, seed=3), Flow[int, Exact | Reordered])
assert_type(fl.mix(by_name, with_names=True), Flow[tuple[str, int], Exact | Reordered])
assert_type(fl.zip(numbers, texts), Flow[tuple[int, str], Exact])
assert_type(fl.zip(numbers, texts, arrays), Flow[tuple[int, str, U8], Exact])
assert_type(fl.zip(texts, numbers), Flow[tuple[str, int], Exact])
assert_type(fl.zip(samples, numbers, texts), Flow[tuple[Any, ...], Exact])
assert_type(fl.zip(by_name), Flow[dict[str, int], Exact])
assert_type(numbers.zip(texts, arrays), Flow[tuple[int, str, U8], Exact])
assert_type(numbers.zip(texts, samples), Flow[tuple[Any, ...], Exact])
flag = is_even(2)
Either: TypeAlias = int | tuple[str, int]
assert_type(fl.concat(by_name, with_names=flag), Flow[Either, Exact])
assert_type(fl.interleave(by_name, with_names=flag), Flow[Either, Exact | Reordered])
assert_type(
    fl.interleave(by_name, stop="all", with_names=flag), Flow[Either, Exact | Reordered | Resampled]
)
assert_type(fl.choose(by_name, with_names=flag), Flow[Either, Exact | Reordered])
assert_type(
    fl.choose(by_name, stop="all", with_names=flag),
    Flow[Either, Exact | Reordered | Resampled | Unsized],
)
assert_type(fl.mix(by_name, with_names=flag), Flow[Either, Exact | Reordered])
assert_type(fl.merge(by_name, with_names=flag), Flow[Either, Exact | Reordered])
for source, number in fl.interleave(by_name, with_names=True):
    print(source.upper(), number + 1)
