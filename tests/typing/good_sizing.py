"""Length, order and placement: chains of exactly these types, as in ``good``."""

from __future__ import annotations

from typing import assert_type

import numpy as np

from flowdsl import ElementError, Endless, Exact, Finite, Flow, Reordered, Resampled, Unsized
from flowdsl.effects import Counted
from flowdsl.ops.attempting import OnError
from tests.typing.good import (
    I64,
    U8,
    Sample,
    SampleBatch,
    batches,
    is_even,
    numbers,
    predict,
    samples,
    stream,
)

some = samples.filter(lambda s: s.label > 2)
noted: list[ElementError] = []
handler: OnError = "skip"

# -- a part ----------------------------------------------------------------------------------------

assert_type(samples.take(4), Flow[Sample, Exact])
assert_type(some.take(4), Flow[Sample, Unsized])
assert_type(stream.take(1), Flow[str, Unsized])
assert_type(samples.repeat().take(4), Flow[Sample, Resampled])
assert_type(samples.repeat(2).take(4), Flow[Sample, Resampled])
assert_type(some.repeat(2).take(4), Flow[Sample, Resampled | Unsized])
assert_type(stream.repeat().take(4), Flow[str, Resampled | Unsized])
assert_type(samples.shuffle().take(4), Flow[Sample, Counted])
assert_type(samples.shuffle().repeat().take(4), Flow[Sample, Counted])
assert_type(samples.shuffle().filter(lambda s: s.label > 2).take(4), Flow[Sample, Finite])
assert_type(samples.skip(4), Flow[Sample, Exact])
assert_type(stream.skip(1), Flow[str, Unsized])
assert_type(samples.repeat().skip(4), Flow[Sample, Exact | Resampled | Endless])
assert_type(samples.shuffle().skip(4), Flow[Sample, Exact | Reordered | Resampled])
assert_type(samples.shard(4, 0), Flow[Sample, Exact])
assert_type(numbers.filter(is_even).shard(2, 1), Flow[int, Exact | Unsized])
assert_type(samples.shuffle().shard(4, 0), Flow[Sample, Exact | Reordered | Resampled])
predict(batches.cache().shard(2, 0))
shares: list[float] = [0.2, 0.2]
train, held_out = samples.split(0.8, seed=1)
assert_type(train, Flow[Sample, Exact])
predict(held_out.batch(4).starmap(SampleBatch))
assert_type(samples.split(0.5), tuple[Flow[Sample, Exact], Flow[Sample, Exact]])
assert_type(
    samples.split(0.5, 1), tuple[Flow[Sample, Exact], Flow[Sample, Exact], Flow[Sample, Exact]]
)
assert_type(
    numbers.split(0.25, 1, 0.25, seed=3),
    tuple[Flow[int, Exact], Flow[int, Exact], Flow[int, Exact], Flow[int, Exact]],
)
assert_type(numbers.split(*shares), tuple[Flow[int, Exact], ...])
assert_type(samples.take(4).split(0.5)[1].shuffle(), Flow[Sample, Exact | Reordered])

# -- by number -------------------------------------------------------------------------------------

picked: list[int] = [3, 1]
assert_type(samples[0], Sample)
assert_type(samples[1:], Flow[Sample, Exact])
assert_type(samples[:-1], Flow[Sample, Exact])
assert_type(samples[1:4], Flow[Sample, Exact])
assert_type(stream[:4], Flow[str, Unsized])
assert_type(samples.repeat()[:4], Flow[Sample, Resampled])
assert_type(samples.shuffle()[:4], Flow[Sample, Counted])
assert_type(samples.shuffle()[4:], Flow[Sample, Exact | Reordered | Resampled])
assert_type(samples[::2], Flow[Sample, Exact | Reordered])
assert_type(samples[::-1], Flow[Sample, Exact | Reordered])
assert_type(samples.select_rows(picked), Flow[Sample, Exact | Reordered | Resampled])
assert_type(samples.select_rows(range(3)).size(), int)
assert_type(samples[np.argsort([3, 1])], Flow[Sample, Exact | Reordered | Resampled])
assert_type(samples.sample(9), Flow[Sample, Exact | Reordered | Resampled])
assert_type(samples.sample(9, [0.5] * len(samples), seed=1).size(), int)
assert_type(numbers.sample(2, np.ones(len(numbers)), replacement=False).collect(), list[int])
predict(batches[1:].take(1))

# -- more ------------------------------------------------------------------------------------------

assert_type(samples.repeat(), Flow[Sample, Exact | Resampled | Endless])
assert_type(samples.repeat(None), Flow[Sample, Exact | Resampled | Endless])
assert_type(samples.repeat(2), Flow[Sample, Exact | Resampled])
assert_type(samples.repeat(n=len(samples)), Flow[Sample, Exact | Resampled])
assert_type(samples.repeat_each(3), Flow[Sample, Exact | Resampled])
assert_type(samples.repeat_each(3).shuffle(9), Flow[Sample, Exact | Resampled | Reordered])
assert_type(stream.repeat_each(2), Flow[str, Unsized | Resampled])
assert_type(samples.fixed_size(4), Flow[Sample, Resampled])
assert_type(stream.fixed_size(4, keep_state=False), Flow[str, Resampled])
assert_type(stream.repeat().fixed_size(4), Flow[str, Resampled])
assert_type(samples.shuffle().fixed_size(4), Flow[Sample, Counted])
assert_type(stream.fixed_size(4).size(), int)
assert_type(
    samples.shuffle().batch(4).repeat(),
    Flow[tuple[U8, I64], Exact | Reordered | Resampled | Endless],
)

# -- in another order, or kept ---------------------------------------------------------------------

assert_type(samples.shuffle(), Flow[Sample, Exact | Reordered])
assert_type(samples.shuffle(None, seed=7), Flow[Sample, Exact | Reordered])
assert_type(samples.shuffle(4, seed=7), Flow[Sample, Exact | Reordered])
assert_type(stream.shuffle(2), Flow[str, Unsized | Reordered])
assert_type(samples.repeat(2).shuffle(), Flow[Sample, Exact | Resampled | Reordered])
assert_type(samples.repeat().shuffle(2), Flow[Sample, Exact | Resampled | Endless | Reordered])
assert_type(samples.cache(), Flow[Sample, Exact])
assert_type(stream.cache(), Flow[str, Unsized])
assert_type(samples.shuffle().cache(), Flow[Sample, Exact | Reordered])

# -- where -----------------------------------------------------------------------------------------

assert_type(samples.prefetch(), Flow[Sample, Exact])
assert_type(samples.shuffle().prefetch(procs=0), Flow[Sample, Exact | Reordered])
assert_type(stream.repeat().prefetch(0), Flow[str, Unsized | Resampled | Endless])
assert_type(samples.prefetch(threads=0, ordered=True, on_error="raise"), Flow[Sample, Exact])
assert_type(samples.prefetch(0, 0, memory=10**9, deaths=1, timeout=0.5), Flow[Sample, Exact])
assert_type(samples.prefetch(ordered=False), Flow[Sample, Exact | Reordered])
assert_type(samples.prefetch(actors=0, ordered=False), Flow[Sample, Exact | Reordered])
assert_type(samples.prefetch(ordered=bool(len(samples))), Flow[Sample, Exact | Reordered])
assert_type(samples.prefetch(on_error="skip"), Flow[Sample, Exact | Resampled | Unsized])
assert_type(samples.prefetch(on_error=noted.append), Flow[Sample, Exact | Resampled | Unsized])
assert_type(stream.prefetch(on_error=lambda error: error.position), Flow[str, Unsized | Resampled])
assert_type(
    samples.shuffle().repeat().prefetch(on_error="skip", timeout=2),
    Flow[Sample, Exact | Reordered | Resampled | Unsized | Endless],
)
assert_type(
    samples.prefetch(ordered=False, on_error="skip"),
    Flow[Sample, Exact | Reordered | Resampled | Unsized],
)
assert_type(samples.prefetch(on_error="skip").take(3), Flow[Sample, Resampled | Unsized])
assert_type(samples.replicate(2), Flow[Sample, Exact | Resampled])
assert_type(samples.shuffle().replicate(procs=2).size(), int)
assert_type(some.prefetch(on_error=handler).replicate(2), Flow[Sample, Exact | Unsized | Resampled])
