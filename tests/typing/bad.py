"""Mistakes: mypy and pyright reject every marked line, on that line; mypy with these codes."""

from __future__ import annotations

import flowdsl as fl
from flowdsl import Exact, Finite, Flow, Reordered, Unsized
from flowdsl.effects import Counted
from tests.typing.good import (
    PointBatch,
    Sample,
    SampleBatch,
    Windows,
    arrays,
    batches,
    evaluate,
    every,
    is_even,
    log,
    named,
    noisy,
    numbers,
    pairs,
    points,
    predict,
    samples,
    scale,
    texts,
    train,
)

# -- sources ---------------------------------------------------------------------------------------
fl.from_items(3)  # E: arg-type
fl.from_items({"a": 1})  # E: arg-type
fl.from_items(i for i in range(3))  # E: arg-type
fl.from_items([1, 2]).map(str.upper)  # E: arg-type
fl.from_range("3")  # E: arg-type
fl.from_range()  # E: call-arg
fl.from_iterable(3)  # E: arg-type
fl.from_iterable(lambda path: [path])  # E: arg-type, misc
fl.from_lmdb(3)  # E: call-overload
fl.from_lmdb("digits.lmdb", 3)  # E: call-overload
fl.from_lmdb("digits.lmdb", Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_lmdb("digits.lmdb").map(lambda s: s.label)  # E: attr-defined
fl.from_lmdb("digits.lmdb").batch(32)  # E: call-overload

# -- each element by itself ------------------------------------------------------------------------
samples.map(lambda s: s.imgae)  # E: attr-defined
points.map(lambda p: p.x)  # E: attr-defined
pairs.map(lambda p: p.image)  # E: attr-defined
pairs.map(lambda p: p[2])  # E: misc
samples.map(lambda s, rng: s)  # E: arg-type, misc
samples.map(lambda: 0)  # E: arg-type, misc
samples.map(scale)  # E: arg-type
arrays.map(scale).map(scale)  # E: arg-type
arrays.map(is_even)  # E: arg-type
arrays.map(scale(3))  # E: arg-type
arrays.map()  # E: call-arg
arrays.map(scale, procs=4)  # E: call-arg
samples.map(fl.c2)  # E: arg-type
points.map(fl.c0)  # E: arg-type
arrays.map(fl.c0)  # E: arg-type
pairs.starmap(scale)  # E: arg-type
pairs.starmap(lambda x: x)  # E: arg-type, misc
pairs.starmap(lambda x, label, weight: x)  # E: arg-type, misc
pairs.starmap(SampleBatch)  # E: arg-type
points.starmap(lambda at, weight: at)  # E: arg-type, misc
numbers.starmap(lambda i: i)  # E: arg-type, misc
numbers.random_map(lambda i: i)  # E: arg-type, misc
numbers.random_map(noisy)  # E: arg-type
arrays.random_map(noisy, seed="7")  # E: arg-type
numbers.filter(lambda i: i.is_even)  # E: attr-defined
numbers.filter(str)  # E: arg-type
numbers.filter(lambda i: None)  # E: arg-type, return-value

# -- batches ---------------------------------------------------------------------------------------
texts.batch(4)  # E: call-overload
named.batch(4)  # E: call-overload
numbers.map(lambda i: object()).batch(4)  # E: call-overload
numbers.map(lambda i: None).batch(4)  # E: call-overload
numbers.map(lambda i: [i]).batch(4)  # E: call-overload
samples.batch("3")  # E: call-overload
samples.batch(3.0)  # E: call-overload
samples.batch()  # E: call-overload
samples.batch(3, True)  # E: call-overload
samples.batch(3, drop_last=True)  # E: call-overload
named.batch(4, collate=sum)  # E: arg-type
numbers.batch(4, collate=fl.lists)  # E: arg-type
samples.batch(4).map(lambda b: b.image)  # E: attr-defined
points.batch(4).map(lambda b: b.wieght)  # E: attr-defined
samples.batch(4).starmap(Sample)  # E: arg-type

# -- the length of a flow --------------------------------------------------------------------------
numbers.repeat().collect()  # E: misc
numbers.repeat().size()  # E: misc
numbers.filter(is_even).size()  # E: misc
fl.from_iterable([1, 2]).size()  # E: misc
numbers.repeat().shuffle()  # E: call-arg
numbers.filter(is_even).shuffle()  # E: call-arg
fl.from_iterable([1, 2]).shuffle(seed=7)  # E: call-arg
numbers.repeat().write_lmdb("numbers.lmdb")  # E: misc
numbers.take()  # E: call-overload
numbers.take("3")  # E: call-overload
numbers.repeat("3")  # E: call-overload
numbers.shuffle("4")  # E: call-overload
numbers.shuffle(4, 7)  # E: call-overload
numbers.shuffle(sed=7)  # E: call-overload
numbers.prefetch(procs="4")  # E: arg-type
numbers.prefetch(workers=4)  # E: call-arg
numbers.write_lmdb(3)  # E: arg-type

# -- what a function of flows asks for -------------------------------------------------------------
evaluate(batches.repeat())  # E: arg-type
evaluate(batches.repeat(2))  # E: arg-type
evaluate(batches.filter(lambda b: len(b.label) > 1))  # E: arg-type
evaluate(batches.shuffle().take(2))  # E: arg-type
evaluate(samples.batch(4, drop_remainder=True))  # E: arg-type
evaluate(samples.shuffle().repeat().take(4))  # E: arg-type
predict(batches.shuffle())  # E: arg-type
predict(batches.shuffle(2))  # E: arg-type
predict(batches.repeat().take(2))  # E: arg-type
log(batches.repeat())  # E: arg-type
log(batches.shuffle().repeat().prefetch(4))  # E: arg-type
train(samples.batch(4))  # E: arg-type
train(points.batch(4))  # E: arg-type
exact: Flow[int, Exact] = numbers.shuffle()  # E: assignment
ordered: Flow[int, Unsized] = numbers.shuffle()  # E: assignment
once: Flow[int, Reordered] = numbers.repeat(2)  # E: assignment
counted: Flow[int, Counted] = numbers.filter(is_even)  # E: assignment
ends: Flow[int, Finite] = numbers.pipe(lambda flow: flow.repeat())  # E: arg-type, return-value
floats: Flow[bool] = numbers  # E: assignment

# -- functions of flows, and operators of one's own ------------------------------------------------
predict(numbers.pipe(every))  # E: arg-type
numbers.pipe(every, "2")  # E: arg-type
numbers.pipe(every, stride=2)  # E: arg-type
numbers.apply(Windows)  # E: arg-type
numbers.apply(Windows, "3")  # E: arg-type
numbers.apply(Windows, 3).size()  # E: misc
numbers.apply(Windows, 3).map(is_even)  # E: arg-type
numbers.apply(is_even)  # E: arg-type

# -- running ---------------------------------------------------------------------------------------
numbers.epoch("1")  # E: arg-type
numbers.epochs()  # E: call-arg
numbers.resume(3)  # E: arg-type
numbers.explain(3)  # E: arg-type
next(iter(samples)).lable  # E: attr-defined
first: PointBatch = next(iter(points))  # E: assignment
names: list[str] = list(numbers)  # E: arg-type
numbers.node = samples.node  # E: assignment, misc
numbers[0]  # E: index
