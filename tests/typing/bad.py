"""Mistakes: mypy and pyright reject every marked line, on that line; mypy with these codes.

This file has consumers, functions of flows, and running; the operators are in the files of
their families.
"""

from __future__ import annotations

import flowdsl as fl
from flowdsl import Exact, Finite, Flow, Reordered, Unsized
from flowdsl.effects import Counted
from flowdsl.ops.ordering import Shuffle
from tests.typing.good import (
    Point,
    PointBatch,
    SampleBatch,
    Windows,
    batches,
    evaluate,
    every,
    is_even,
    log,
    numbers,
    points,
    predict,
    progress,
    samples,
    stream,
    texts,
    train,
)

# -- evaluation on a repeated or resampled flow ----------------------------------------------------
evaluate(batches.repeat())  # E: arg-type
evaluate(batches.repeat(2))  # E: arg-type
evaluate(batches.repeat_each(2))  # E: arg-type
evaluate(batches.fixed_size(4))  # E: arg-type
evaluate(batches.window(3))  # E: arg-type
evaluate(batches.shuffle().take(2))  # E: arg-type
evaluate(batches.shuffle().skip(2))  # E: arg-type
evaluate(batches.shuffle().shard(2, 0))  # E: arg-type
evaluate(batches.choose(batches, stop="first"))  # E: arg-type
evaluate(samples.batch(4, drop_remainder=True))  # E: arg-type
evaluate(samples.padded_batch(4, drop_remainder=True))  # E: arg-type
evaluate(samples.shuffle().repeat().take(4))  # E: arg-type

# -- what else a function of flows refuses ---------------------------------------------------------
evaluate(batches.filter(lambda b: len(b.label) > 1))  # E: arg-type
evaluate(batches.filter_map(lambda b: b))  # E: arg-type
evaluate(samples.batch_by_shape(4, fl.c0))  # E: arg-type
evaluate(stream)  # E: arg-type
predict(batches.shuffle())  # E: arg-type
predict(batches.shuffle(2))  # E: arg-type
predict(batches.shuffle().cache())  # E: arg-type
predict(batches.shuffle().enumerate())  # E: arg-type
predict(batches.interleave(batches))  # E: arg-type
predict(batches.mix(batches))  # E: arg-type
predict(batches.repeat().take(2))  # E: arg-type
predict(batches.flat_map(lambda b: [b]))  # E: arg-type
predict(batches.fixed_size(4, keep_state=False))  # E: arg-type
predict(numbers.pipe(every))  # E: arg-type
predict(samples.batch(4).unbatch())  # E: arg-type
log(batches.repeat())  # E: arg-type
log(batches.shuffle().repeat().prefetch(4))  # E: arg-type
progress(batches.filter(lambda b: len(b.label) > 1))  # E: arg-type
progress(batches.repeat())  # E: arg-type
train(samples.batch(4))  # E: arg-type
train(points.batch(4))  # E: arg-type
train(batches.map(lambda b: b.image))  # E: arg-type, return-value
evaluate(batches.collect())  # E: arg-type

# -- what a flow is declared to be -----------------------------------------------------------------
exact: Flow[int, Exact] = numbers.shuffle()  # E: assignment
ordered: Flow[int, Unsized] = numbers.shuffle()  # E: assignment
once: Flow[int, Reordered] = numbers.repeat(2)  # E: assignment
counted: Flow[int, Counted] = numbers.filter(is_even)  # E: assignment
ends: Flow[int, Finite] = numbers.pipe(lambda flow: flow.repeat())  # E: arg-type, return-value
kept: Flow[int, Exact] = numbers.filter_map(lambda i: i)  # E: assignment
merged: Flow[int, Exact] = numbers.concat(numbers.repeat(2))  # E: arg-type
flags: Flow[bool] = numbers  # E: assignment
rows: Flow[Point, Exact] = samples  # E: assignment
unknown: Flow[SampleBatch, Exact] = batches.pipe(train)  # E: arg-type

# -- functions of flows, and operators of one's own ------------------------------------------------
numbers.pipe(every, "2")  # E: arg-type
numbers.pipe(every, stride=2)  # E: arg-type
numbers.pipe(progress, 2)  # E: call-arg
numbers.repeat().pipe(log)  # E: arg-type
numbers.apply(Windows)  # E: arg-type
numbers.apply(Windows, "3")  # E: arg-type
numbers.apply(Windows, 3).size()  # E: misc
numbers.apply(Windows, 3).map(is_even)  # E: arg-type
numbers.apply(is_even)  # E: arg-type
numbers.apply(Shuffle, seed=3)  # E: arg-type

# -- running ---------------------------------------------------------------------------------------
numbers.epoch("1")  # E: arg-type
numbers.epochs()  # E: call-arg
numbers.resume(3)  # E: arg-type
numbers.resume(numbers.epoch(0))  # E: arg-type
numbers.explain(3)  # E: arg-type
numbers.measure("3")  # E: arg-type
numbers.measure().speed  # E: attr-defined
next(iter(samples)).lable  # E: attr-defined
first: PointBatch = next(iter(points))  # E: assignment
second: list[str] = list(numbers)  # E: arg-type
third: int = texts.collect()  # E: assignment
numbers.node = samples.node  # E: assignment, misc
