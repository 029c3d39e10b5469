"""Grouping elements: chains of exactly these types, as in ``good``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias, TypedDict, assert_type

import attrs
import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Endless, Exact, Finite, Flow, Packed, Reordered, Resampled, Unsized
from tests.typing.good import (
    F32,
    I64,
    U8,
    Features,
    Point,
    PointBatch,
    Sample,
    SampleBatch,
    arrays,
    batches,
    dicts,
    features,
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

Full: TypeAlias = Exact | Resampled
Mask: TypeAlias = NDArray[np.bool_]
Shaped: TypeAlias = Exact | Reordered | Unsized
Five: TypeAlias = tuple[U8, U8, U8, U8, U8]
FullShaped: TypeAlias = Exact | Reordered | Resampled | Unsized


def joined(rows: Sequence[str]) -> str:
    return "".join(rows)


def dicts_of(rows: Sequence[Features]) -> dict[str, list[F32]]:
    return {"image": [row["image"] for row in rows]}


class Tensor:
    """A tensor of another library."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, *, stream: int | None = -1) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def tensor(i: int) -> Tensor:
    return Tensor(np.zeros(2))


one = arrays.map(lambda x: (x,))
three = pairs.map(lambda p: (*p, scale(p[0])))
four = pairs.map(lambda p: (*p, *p))
five = arrays.map(lambda x: (x, x, x, x, x))
labelled = samples.map(lambda s: (s.image, str(s.label)))

# -- batch -----------------------------------------------------------------------------------------

assert_type(numbers.batch(4), Flow[I64, Exact])
assert_type(numbers.map(is_even).batch(4), Flow[NDArray[np.bool_], Exact])
assert_type(numbers.map(lambda i: i / 2).batch(4), Flow[NDArray[np.float64], Exact])
assert_type(numbers.map(np.float32).batch(4), Flow[F32, Exact])
assert_type(numbers.filter(is_even).batch(2), Flow[I64, Exact | Unsized])
assert_type(arrays.batch(4), Flow[U8, Exact])
assert_type(arrays.batch(4).batch(1), Flow[U8, Exact])
assert_type(dicts.batch(4), Flow[dict[str, U8], Exact])
assert_type(numbers.map(lambda i: {"n": np.int64(i)}).batch(4), Flow[dict[str, I64], Exact])
assert_type(one.batch(4), Flow[tuple[U8], Exact])
assert_type(samples.batch(4), Flow[tuple[U8, I64], Exact])
assert_type(samples.batch(4).starmap(SampleBatch), Flow[SampleBatch, Exact])
assert_type(three.batch(4), Flow[tuple[U8, I64, F32], Exact])
assert_type(four.batch(4), Flow[tuple[U8, I64, U8, I64], Exact])
assert_type(five.batch(4), Flow[Five, Exact])
assert_type(points.batch(4), Flow[PointBatch, Exact])

assert_type(samples.batch(4, drop_remainder=False), Flow[tuple[U8, I64], Exact])
assert_type(points.batch(4, drop_remainder=True), Flow[PointBatch, Full])
assert_type(numbers.map(is_even).batch(4, drop_remainder=True), Flow[NDArray[np.bool_], Full])
assert_type(numbers.batch(4, drop_remainder=True), Flow[I64, Full])
assert_type(numbers.batch(4, drop_remainder=is_even(1)), Flow[I64, Full])
assert_type(numbers.map(float).batch(4, drop_remainder=True), Flow[NDArray[np.float64], Full])
assert_type(arrays.batch(4, drop_remainder=True), Flow[U8, Full])
assert_type(dicts.batch(4, drop_remainder=True), Flow[dict[str, U8], Full])
assert_type(one.batch(4, drop_remainder=True), Flow[tuple[U8], Full])
assert_type(samples.batch(4, drop_remainder=True), Flow[tuple[U8, I64], Full])
assert_type(three.batch(4, drop_remainder=True), Flow[tuple[U8, I64, F32], Full])
assert_type(four.batch(4, drop_remainder=True), Flow[tuple[U8, I64, U8, I64], Full])
assert_type(five.batch(4, drop_remainder=True), Flow[Five, Full])

assert_type(texts.batch(4, collate=list), Flow[list[str], Exact])
assert_type(texts.batch(4, collate=joined), Flow[str, Exact])
assert_type(texts.batch(4, collate=joined, drop_remainder=True), Flow[str, Full])
assert_type(samples.map(features).batch(4, collate=dicts_of), Flow[dict[str, list[F32]], Exact])
assert_type(texts.map(lambda s: (s,)).batch(4, collate=fl.lists), Flow[tuple[list[str]], Exact])
assert_type(named.batch(4, collate=fl.lists), Flow[tuple[list[str], list[int]], Exact])
assert_type(
    named.map(lambda p: (*p, p[0])).batch(4, collate=fl.lists),
    Flow[tuple[list[str], list[int], list[str]], Exact],
)
assert_type(
    named.map(lambda p: (*p, *p)).batch(4, collate=fl.lists),
    Flow[tuple[list[str], list[int], list[str], list[int]], Exact],
)

# -- what people make: an image and an int, text, lists, dicts, classes of their own ---------------


class Digit(IntEnum):
    ZERO = 0


class Labelled(NamedTuple):
    image: U8
    label: int
    name: str


class Entry(TypedDict):
    tokens: list[int]
    label: int


@dataclass(frozen=True)
class Reading:
    at: float
    value: NDArray[np.float32]


@attrs.frozen
class Note:
    text: str


def load(i: int) -> tuple[U8, int]:
    return np.zeros((2, 2), np.uint8), i


def read(i: int) -> Labelled:
    return Labelled(np.zeros(2, np.uint8), i, str(i))


def entry(i: int) -> Entry:
    return {"tokens": [i], "label": i}


def scored(i: int) -> tuple[U8, int, float, bool, complex, str, bytes, list[float]]:
    return np.zeros(2, np.uint8), i, 0.5, True, 1j, "a", b"a", [0.5]


def nested(i: int) -> tuple[tuple[U8, U8], tuple[int, str], dict[str, int], int]:
    return (np.zeros(2, np.uint8), np.ones(2, np.uint8)), (i, "a"), {"n": i}, i


def anything(i: int) -> dict[str, object]:
    return {"i": i, "s": str(i)}


def vague(i: int) -> Any:
    return i


F64: TypeAlias = NDArray[np.float64]
Scored: TypeAlias = tuple[
    U8, I64, F64, NDArray[np.bool_], NDArray[np.complex128], list[str], list[bytes], F64
]

assert_type(numbers.map(load).batch(4), Flow[tuple[U8, I64], Exact])
assert_type(numbers.map(load).batch(4, drop_remainder=True), Flow[tuple[U8, I64], Full])
assert_type(numbers.map(load).padded_batch(4), Flow[tuple[U8, I64], Exact])
assert_type(numbers.map(load).batch_by_shape(4, fl.c0), Flow[tuple[U8, I64], Shaped])
assert_type(numbers.map(lambda i: (i, i / 2)).batch(4), Flow[tuple[I64, F64], Exact])
assert_type(numbers.map(scored).batch(4), Flow[Scored, Exact])
assert_type(numbers.map(scored).map(lambda t: t[:2]).batch(4), Flow[tuple[U8, I64], Exact])
assert_type(
    numbers.map(nested).batch(4),
    Flow[tuple[tuple[U8, U8], tuple[Any, ...], dict[str, Any], I64], Exact],
)
assert_type(numbers.map(lambda i: 1j * i).batch(4), Flow[NDArray[np.complex128], Exact])
assert_type(numbers.map(lambda _: Digit.ZERO).batch(4), Flow[I64, Exact])
assert_type(texts.batch(4), Flow[list[str], Exact])
assert_type(texts.padded_batch(4), Flow[list[str], Exact])
assert_type(texts.map(str.encode).batch(4), Flow[list[bytes], Exact])
assert_type(named.batch(4), Flow[tuple[list[str], I64], Exact])
assert_type(texts.map(str.split).batch(4), Flow[list[list[str]], Exact])
assert_type(numbers.map(lambda i: [i]).batch(4), Flow[I64, Exact])
assert_type(numbers.map(lambda i: [[i / 2]]).batch(4), Flow[F64, Exact])
assert_type(numbers.map(read).batch(4), Flow[tuple[U8, I64, list[str]], Exact])
assert_type(numbers.map(entry).batch(4), Flow[dict[str, Any], Exact])
assert_type(numbers.map(anything).batch(4), Flow[dict[str, Any], Exact])
assert_type(numbers.map(lambda i: {"a": i, "b": i}).batch(4), Flow[dict[str, I64], Exact])
assert_type(texts.map(lambda s: {"text": s}).batch(4), Flow[dict[str, list[str]], Exact])
assert_type(
    numbers.map(lambda i: Reading(i, np.zeros(2, np.float32))).batch(4),
    Flow[tuple[Any, ...], Exact],
)
assert_type(texts.map(Note).batch(4), Flow[tuple[Any, ...], Exact])
assert_type(numbers.map(vague).batch(4), Flow[Any, Exact])
assert_type(numbers.map(lambda i: (i, vague(i))).batch(4), Flow[tuple[I64, Any], Exact])
assert_type(numbers.map(anything).batch(4, collate={"s": "".join}), Flow[dict[str, Any], Exact])
assert_type(named.batch(4, collate=("".join, None)), Flow[tuple[Any, ...], Exact])
assert_type(
    named.batch(4, collate=("".join, None), drop_remainder=True), Flow[tuple[Any, ...], Full]
)

# -- padded_batch ----------------------------------------------------------------------------------

assert_type(points.padded_batch(4), Flow[PointBatch, Exact])
assert_type(arrays.padded_batch(4, padding=np.uint8(7)), Flow[U8, Exact])
assert_type(dicts.padded_batch(4, padding={"left": 0, "right": None}), Flow[dict[str, U8], Exact])
assert_type(one.padded_batch(4), Flow[tuple[U8], Exact])
assert_type(samples.padded_batch(4, padding=(255, None)), Flow[tuple[U8, I64], Exact])
assert_type(three.padded_batch(4, padding=0), Flow[tuple[U8, I64, F32], Exact])
assert_type(four.padded_batch(4), Flow[tuple[U8, I64, U8, I64], Exact])
assert_type(five.padded_batch(4), Flow[Five, Exact])
assert_type(points.padded_batch(4, drop_remainder=True), Flow[PointBatch, Full])
assert_type(arrays.padded_batch(4, drop_remainder=is_even(1)), Flow[U8, Full])
assert_type(dicts.padded_batch(4, drop_remainder=True), Flow[dict[str, U8], Full])
assert_type(one.padded_batch(4, drop_remainder=True), Flow[tuple[U8], Full])
assert_type(samples.padded_batch(4, drop_remainder=True), Flow[tuple[U8, I64], Full])
assert_type(three.padded_batch(4, drop_remainder=True), Flow[tuple[U8, I64, F32], Full])
assert_type(four.padded_batch(4, drop_remainder=True), Flow[tuple[U8, I64, U8, I64], Full])
assert_type(five.padded_batch(4, drop_remainder=True), Flow[Five, Full])
assert_type(samples.shuffle().padded_batch(4), Flow[tuple[U8, I64], Exact | Reordered])

# -- batch_by_shape --------------------------------------------------------------------------------

assert_type(points.batch_by_shape(4, lambda p: p.at), Flow[PointBatch, Shaped])
assert_type(arrays.batch_by_shape(4, lambda x: x), Flow[U8, Shaped])
assert_type(dicts.batch_by_shape(4, lambda d: d["left"]), Flow[dict[str, U8], Shaped])
assert_type(one.batch_by_shape(4, fl.c0), Flow[tuple[U8], Shaped])
assert_type(samples.batch_by_shape(4, fl.c0), Flow[tuple[U8, I64], Shaped])
assert_type(samples.batch_by_shape(4, lambda s: s.image), Flow[tuple[U8, I64], Shaped])
assert_type(three.batch_by_shape(4, fl.c2), Flow[tuple[U8, I64, F32], Shaped])
assert_type(four.batch_by_shape(4, fl.c2), Flow[tuple[U8, I64, U8, I64], Shaped])
assert_type(five.batch_by_shape(4, fl.c2), Flow[Five, Shaped])
assert_type(
    labelled.batch_by_shape(4, fl.c0, collate=fl.lists), Flow[tuple[list[U8], list[str]], Shaped]
)
assert_type(
    points.batch_by_shape(4, lambda p: p.at, drop_remainder=True), Flow[PointBatch, FullShaped]
)
assert_type(arrays.batch_by_shape(4, lambda x: x, drop_remainder=True), Flow[U8, FullShaped])
assert_type(
    dicts.batch_by_shape(4, lambda d: d["left"], drop_remainder=True),
    Flow[dict[str, U8], FullShaped],
)
assert_type(one.batch_by_shape(4, fl.c0, drop_remainder=True), Flow[tuple[U8], FullShaped])
assert_type(
    samples.batch_by_shape(4, fl.c0, drop_remainder=is_even(2)), Flow[tuple[U8, I64], FullShaped]
)
assert_type(
    three.batch_by_shape(4, fl.c2, drop_remainder=True), Flow[tuple[U8, I64, F32], FullShaped]
)
assert_type(
    four.batch_by_shape(4, fl.c2, drop_remainder=True), Flow[tuple[U8, I64, U8, I64], FullShaped]
)
assert_type(five.batch_by_shape(4, fl.c2, drop_remainder=True), Flow[Five, FullShaped])
assert_type(
    labelled.batch_by_shape(4, fl.c0, drop_remainder=True, collate=list),
    Flow[list[tuple[U8, str]], FullShaped],
)
assert_type(samples.repeat().batch_by_shape(4, fl.c0).take(2), Flow[tuple[U8, I64], Finite])

# -- window ----------------------------------------------------------------------------------------

assert_type(numbers.window(3), Flow[tuple[int, int, int], Full])
assert_type(samples.window(2, stride=3), Flow[tuple[Sample, Sample], Full])
assert_type(
    samples.shuffle().window(2, 2), Flow[tuple[Sample, Sample], Exact | Reordered | Resampled]
)
assert_type(numbers.repeat().window(2), Flow[tuple[int, int], Exact | Resampled | Endless])
assert_type(arrays.window(2).batch(3), Flow[tuple[U8, U8], Full])
assert_type(arrays.window(2, stack=True), Flow[U8, Full])
assert_type(arrays.window(2, stack=True).batch(3), Flow[U8, Full])
assert_type(numbers.window(2, 3, stack=True), Flow[I64, Full])
assert_type(numbers.window(3, dilation=2), Flow[tuple[int, int, int], Full])
assert_type(numbers.window(3, remainder="keep"), Flow[tuple[int, ...], Full])
assert_type(numbers.window(3, remainder="fill"), Flow[tuple[tuple[int, ...], Mask], Full])
assert_type(arrays.window(3, remainder="fill", stack=True), Flow[tuple[U8, Mask], Full])
assert_type(samples.window(2, key=lambda s: s[1] % 2), Flow[tuple[Sample, ...], FullShaped])

# -- unbatch ---------------------------------------------------------------------------------------

assert_type(arrays.batch(4).unbatch(), Flow[Any, Exact | Unsized])
assert_type(dicts.batch(4).unbatch(), Flow[dict[str, Any], Exact | Unsized])
assert_type(one.batch(4).unbatch(), Flow[tuple[Any], Exact | Unsized])
assert_type(batches.unbatch(), Flow[tuple[Any, Any], Exact | Unsized])
assert_type(
    three.batch(4).unbatch(),
    Flow[tuple[Any, Any, Any], Exact | Unsized],
)
assert_type(
    four.batch(4).unbatch(),
    Flow[tuple[Any, Any, Any, Any], Exact | Unsized],
)
assert_type(five.batch(4).unbatch(), Flow[tuple[Any, Any, Any, Any, Any], Exact | Unsized])
assert_type(texts.batch(4, collate=list).unbatch(), Flow[str, Exact | Unsized])
assert_type(stream.batch(2, collate=list).unbatch(), Flow[str, Unsized])
assert_type(
    texts.map(lambda s: (s,)).batch(4, collate=fl.lists).unbatch(),
    Flow[tuple[str], Exact | Unsized],
)
assert_type(named.batch(4, collate=fl.lists).unbatch(), Flow[tuple[str, int], Exact | Unsized])
assert_type(
    named.map(lambda p: (*p, p[0])).batch(4, collate=fl.lists).unbatch(),
    Flow[tuple[str, int, str], Exact | Unsized],
)
assert_type(
    named.map(lambda p: (*p, *p)).batch(4, collate=fl.lists).unbatch(),
    Flow[tuple[str, int, str, int], Exact | Unsized],
)
assert_type(
    samples.map(features).batch(4, collate=dicts_of).unbatch(),
    Flow[dict[str, F32], Exact | Unsized],
)
assert_type(samples.batch(4).unbatch().batch(2), Flow[tuple[Any, ...], Exact | Unsized])
assert_type(samples.batch(4).unbatch(Sample), Flow[Sample, Exact | Unsized])
assert_type(points.batch(4).unbatch(Point), Flow[Point, Exact | Unsized])
assert_type(numbers.batch(4).unbatch(int), Flow[int, Exact | Unsized])
assert_type(numbers.repeat(2).batch(2).unbatch(int), Flow[int, Full | Unsized])

# -- what other libraries give, and functions of components ----------------------------------------

tensors = numbers.map(tensor)
assert_type(tensors.batch(4), Flow[NDArray[Any], Exact])
assert_type(tensors.map(lambda t: (t, 1)).batch(4), Flow[tuple[NDArray[Any], I64], Exact])
assert_type(tensors.map(lambda t: {"x": t}).batch(4), Flow[dict[str, NDArray[Any]], Exact])
assert_type(points.batch(4, collate=(np.stack, None)), Flow[PointBatch, Exact])
assert_type(named.batch(4, collate=(len, None)), Flow[tuple[Any, ...], Exact])
assert_type(
    tensors.map(lambda t: {"x": t}).batch(4, collate={"x": len}), Flow[dict[str, Any], Exact]
)

# -- fixed shapes ----------------------------------------------------------------------------------

assert_type(samples.batch(4, remainder="fill"), Flow[tuple[tuple[U8, I64], Mask], Exact])
assert_type(numbers.batch(4, remainder="fill", collate=list), Flow[tuple[list[int], Mask], Exact])
assert_type(arrays.padded_batch(4, length=8), Flow[U8, Exact])
assert_type(samples.padded_batch(4, length=(8, None)), Flow[tuple[U8, I64], Exact])
assert_type(samples.shard(4, 0, even="drop"), Flow[Sample, Exact | Resampled])
assert_type(samples.shard(4, 0, even=None), Flow[Sample, Exact])

# -- pack ------------------------------------------------------------------------------------------

Packs: TypeAlias = Exact | Unsized
tokens = fl.from_items([[1, 2], [3]] * 8)
assert_type(tokens.pack(8), Flow[Packed[I64], Packs])
assert_type(arrays.pack(8, padding=1), Flow[Packed[U8], Packs])
assert_type(dicts.pack(8), Flow[Packed[dict[str, U8]], Packs])
assert_type(tokens.pack(8, drop_remainder=True), Flow[Packed[I64], Packs | Resampled])
assert_type(tokens.pack(8, "first_fit"), Flow[Packed[I64], Shaped])
assert_type(
    tokens.pack(8, "best_fit", bins=9, too_long="split", drop_remainder=is_even(1)),
    Flow[Packed[I64], FullShaped],
)
assert_type(tokens.pack(8).map(lambda row: row.tokens), Flow[I64, Packs])
assert_type(tokens.pack(8).batch(4).starmap(Packed), Flow[Packed[I64], Packs])

# -- groups by a key, buckets ----------------------------------------------------------------------

assert_type(tokens.bucket_by_length(len, [8, 16], [4, 2, 1]), Flow[I64, Shaped])
assert_type(tokens.bucket_by_length(len, [8], max_tokens=64), Flow[I64, Shaped])
assert_type(samples.bucket_by_length(lambda s: len(s.image), [8], 4), Flow[tuple[U8, I64], Shaped])
assert_type(tokens.bucket_by_length(len, [8], 4, drop_remainder=True), Flow[I64, FullShaped])
assert_type(tokens.bucket_by_length(len, [8], 4, collate=list), Flow[list[list[int]], Shaped])
assert_type(
    tokens.bucket_by_length(len, [8], 4, collate=len, drop_remainder=is_even(1)),
    Flow[int, FullShaped],
)
assert_type(texts.batch_by_key(4, len), Flow[list[str], Shaped])
assert_type(samples.batch_by_key(4, lambda s: s.image.shape), Flow[tuple[U8, I64], Shaped])
assert_type(points.batch_by_key(4, lambda p: str(p)), Flow[PointBatch, Shaped])
assert_type(samples.batch_by_key(1, fl.c1, drop_remainder=True), Flow[tuple[U8, I64], FullShaped])
assert_type(samples.batch_by_key(4, fl.c1, collate=list), Flow[list[Sample], Shaped])
