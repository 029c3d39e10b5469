"""Operators on single elements: chains of exactly these types, as in ``good``."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
from typing_extensions import TypeIs

import flowdsl as fl
from flowdsl import Endless, Exact, Flow, Reordered, Resampled, Unsized
from tests.typing.good import (
    F32,
    I64,
    U8,
    Point,
    Sample,
    arrays,
    dicts,
    is_even,
    named,
    numbers,
    pairs,
    points,
    samples,
    scale,
    stream,
    texts,
)


def noisy(x: U8, rng: np.random.Generator) -> F32:
    return scale(x) + rng.random(dtype=np.float32)


def counted(counts: dict[str, int], text: str) -> tuple[dict[str, int], int]:
    counts[text] = counts.get(text, 0) + 1
    return counts, counts[text]


def repeated(counts: Counter[str], text: str) -> tuple[Counter[str], bool]:
    return counts + Counter([text]), text in counts


def first_time(seen: set[str], text: str) -> tuple[set[str], bool]:
    return seen | {text}, text not in seen


def latest(texts: list[str], text: str) -> tuple[list[str], tuple[str, ...]]:
    return [*texts, text], tuple(texts)


def latest_of_three(texts: deque[str], text: str) -> tuple[deque[str], list[str]]:
    texts.append(text)
    return texts, list(texts)


def halved(i: int) -> float | None:
    return i / 2 if is_even(i) else None


def digits(i: int) -> Iterator[str]:
    yield from str(i)


def is_known(x: float | None) -> TypeIs[float]:
    return x is not None


class Label:
    """A callable object."""

    def __call__(self, s: Sample) -> np.int64:
        return s.label


wide = pairs.map(lambda p: (*p, str(p[1]), 1.5))
tagged = texts.map(lambda t: {"text": t})
counts = numbers.map(lambda i: {"n": i, "m": i})

# -- map and its kin -------------------------------------------------------------------------------

assert_type(arrays.map(scale), Flow[F32, Exact])
assert_type(arrays.map(len), Flow[int, Exact])
assert_type(samples.map(Label()), Flow[np.int64, Exact])
assert_type(samples.map(fl.c0), Flow[U8, Exact])
assert_type(samples.map(fl.c1), Flow[np.int64, Exact])
assert_type(wide, Flow[tuple[U8, np.int64, str, float], Exact])
assert_type(wide.map(fl.c2), Flow[str, Exact])
assert_type(wide.map(fl.c3), Flow[float, Exact])
assert_type(samples.repeat().map(fl.c1), Flow[np.int64, Exact | Resampled | Endless])
assert_type(samples.starmap(lambda x, label: (label, scale(x))), Flow[tuple[np.int64, F32], Exact])
assert_type(pairs.starmap(Sample), Flow[Sample, Exact])
assert_type(wide.starmap(lambda x, label, text, weight: text * int(weight)), Flow[str, Exact])
assert_type(arrays.random_map(noisy, seed=7), Flow[F32, Exact])
assert_type(numbers.random_map(lambda i, rng: i + rng.random()), Flow[float, Exact])

# -- some, or more than one, of each ---------------------------------------------------------------

assert_type(samples.filter(lambda s: s.label > 2), Flow[Sample, Exact | Unsized])
assert_type(numbers.filter(is_even), Flow[int, Exact | Unsized])
assert_type(texts.filter(lambda t: t.strip()), Flow[str, Exact | Unsized])
assert_type(texts.filter(lambda t: re.search("[0-4]", t)), Flow[str, Exact | Unsized])
assert_type(texts.filter(re.compile("[0-4]").match), Flow[str, Exact | Unsized])
assert_type(texts.filter(lambda t: t and t[0] != "#"), Flow[str, Exact | Unsized])
assert_type(texts.filter(lambda t: t.split()), Flow[str, Exact | Unsized])
assert_type(tagged.filter(lambda r: r.get("text")), Flow[dict[str, str], Exact | Unsized])
assert_type(numbers.map(halved).filter(is_known), Flow[float | None, Exact | Unsized])
assert_type(numbers.filter_map(halved), Flow[float, Exact | Unsized])
assert_type(samples.filter_map(lambda s: s.image if s.label else None), Flow[U8, Exact | Unsized])
assert_type(numbers.map(halved).filter_map(lambda x: x), Flow[float, Exact | Unsized])
assert_type(numbers.filter_map(str), Flow[str, Exact | Unsized])
assert_type(numbers.shuffle().filter_map(halved), Flow[float, Exact | Reordered | Unsized])
assert_type(numbers.flat_map(digits), Flow[str, Exact | Unsized])
assert_type(samples.flat_map(lambda s: [s.label, s.label]), Flow[np.int64, Exact | Unsized])
assert_type(numbers.flat_map(fl.from_range), Flow[int, Exact | Unsized])
assert_type(named.flat_map(lambda p: (p[1], p[1])), Flow[int, Exact | Unsized])
assert_type(stream.flat_map(str.split), Flow[str, Unsized])

# -- components ------------------------------------------------------------------------------------

assert_type(pairs.map_component(scale), Flow[tuple[F32, np.int64], Exact])
assert_type(samples.map_component(scale, 0), Flow[tuple[F32, np.int64], Exact])
assert_type(named.map_component(np.int64, 1), Flow[tuple[str, np.int64], Exact])
assert_type(wide.map_component(len, 2), Flow[tuple[U8, np.int64, int, float], Exact])
assert_type(wide.map_component(str, 3), Flow[tuple[U8, np.int64, str, str], Exact])
assert_type(wide.map_component(str, -1), Flow[tuple[U8, np.int64, str, str], Exact])
assert_type(wide.map_component(lambda y: y.item(), 1), Flow[tuple[U8, int, str, float], Exact])
assert_type(pairs.map_component(scale).starmap(lambda x, y: (x, y)).map(fl.c0), Flow[F32, Exact])
assert_type(dicts.map_component(lambda x: x[:1], "left"), Flow[dict[str, U8], Exact])
assert_type(counts.map_component(str, "n"), Flow[dict[str, int | str], Exact])
assert_type(samples.map_component(scale, "image"), Flow[Any, Exact])
assert_type(points.map_component(scale, "at"), Flow[Any, Exact])
assert_type(samples.select("label"), Flow[dict[str, Any], Exact])
assert_type(points.select("weight", "at"), Flow[dict[str, Any], Exact])
assert_type(samples.select(fl.c1), Flow[tuple[np.int64], Exact])
assert_type(samples.select(fl.c1, fl.c0), Flow[tuple[np.int64, U8], Exact])
assert_type(samples.select(lambda s: scale(s.image), fl.c1), Flow[tuple[F32, np.int64], Exact])
assert_type(wide.select(fl.c3, fl.c2, fl.c0), Flow[tuple[float, str, U8], Exact])
assert_type(wide.select(fl.c3, fl.c2, fl.c1, fl.c0), Flow[tuple[float, str, np.int64, U8], Exact])
assert_type(samples.select(fl.c1, fl.c0).batch(4), Flow[tuple[I64, U8], Exact])
assert_type(points.select(lambda p: p.weight), Flow[tuple[float], Exact])
assert_type(dicts.select("right", "left"), Flow[dict[str, U8], Exact])

# -- images, and the masks and points in them ------------------------------------------------------


class Shifted:
    """The drawn parameters of an ``Augmentation``."""

    def image(self, image: fl.Image) -> fl.Image:
        return image

    mask = points = image


class Shift:
    """An ``Augmentation``."""

    def draw(self, image: fl.Image, rng: np.random.Generator) -> Shifted:
        return Shifted()


assert_type(arrays.augment(Shift()), Flow[U8, Exact])
assert_type(pairs.augment(np.flip, images=fl.c0), Flow[tuple[U8, np.int64], Exact])
assert_type(samples.augment([Shift(), np.flip], images="image", seed=7), Flow[Sample, Exact])
assert_type(points.augment(np.flip, images="at", copy=False), Flow[Point, Exact])
assert_type(dicts.augment(Shift(), images=("left", "right")), Flow[dict[str, U8], Exact])
assert_type(pairs.zip(pairs).augment(Shift(), images=[fl.c0, 2]).map(fl.c2), Flow[U8, Exact])

# -- numbers, and looking --------------------------------------------------------------------------

assert_type(samples.enumerate(), Flow[tuple[int, Sample], Exact])
assert_type(texts.filter(str.isdigit).enumerate(start=1), Flow[tuple[int, str], Exact | Unsized])
assert_type(texts.enumerate().starmap(lambda i, s: s * i), Flow[str, Exact])
assert_type(samples.inspect(0), Flow[Sample, Exact])
assert_type(
    samples.shuffle().inspect(0, name="samples", max_depth=2, max_list=5),
    Flow[Sample, Exact | Reordered],
)

# -- in order --------------------------------------------------------------------------------------

assert_type(numbers.scan(lambda total, i: (total + i, str(total)), 0), Flow[str, Exact])
assert_type(stream.scan(lambda seen, t: (seen | {t}, len(seen)), set[str]()), Flow[int, Unsized])
assert_type(texts.scan(counted, {}), Flow[int, Exact])
assert_type(texts.scan(counted, {"a": 1}), Flow[int, Exact])
assert_type(texts.scan(repeated, Counter()), Flow[bool, Exact])
assert_type(texts.scan(first_time, set()), Flow[bool, Exact])
assert_type(texts.scan(latest, []), Flow[tuple[str, ...], Exact])
assert_type(texts.scan(latest_of_three, deque(maxlen=3)), Flow[list[str], Exact])
assert_type(numbers.take_while(is_even), Flow[int, Exact | Unsized])
assert_type(numbers.skip_while(lambda i: i < 3), Flow[int, Exact | Unsized])
assert_type(
    numbers.shuffle().take_while(is_even), Flow[int, Exact | Reordered | Resampled | Unsized]
)
