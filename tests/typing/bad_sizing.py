"""Mistakes with the length and the order of a flow, as in ``bad``."""

from __future__ import annotations

from flowdsl import Exact, Flow, Reordered
from tests.typing.good import batches, is_even, numbers, predict, stream

# -- the size of an endless flow, or of an unknown number of elements ------------------------------
numbers.repeat().size()  # E: misc
numbers.repeat().collect()  # E: misc
numbers.repeat().skip(2).collect()  # E: misc
numbers.repeat().shard(2, 0).collect()  # E: misc
numbers.repeat().repeat_each(2).size()  # E: misc
numbers.repeat().prefetch().size()  # E: misc
numbers.prefetch(actors="many")  # E: call-overload
numbers.repeat().to_ray()  # E: misc
numbers.filter(is_even).size()  # E: misc
numbers.filter(is_even).skip(2).size()  # E: misc
numbers.filter(is_even).repeat_each(2).size()  # E: misc
stream.take(2).size()  # E: misc
stream.cache().size()  # E: misc
numbers.repeat().shuffle()  # E: call-overload
numbers.repeat().cache()  # E: misc
numbers.filter(is_even).shuffle()  # E: call-overload
stream.shuffle(seed=7)  # E: call-overload

# -- `take` claiming a permutation -----------------------------------------------------------------
taken: Flow[int, Reordered] = numbers.shuffle().take(3)  # E: assignment
windowed: Flow[int, Reordered] = numbers.shuffle(4).take(3)  # E: assignment
skipped: Flow[int, Reordered] = numbers.shuffle().skip(3)  # E: assignment
sharded: Flow[int, Reordered] = numbers.shuffle().shard(2, 0)  # E: assignment
again: Flow[int, Exact] = numbers.repeat().take(10)  # E: assignment

# -- a part of what is moved, or of an unknown length ----------------------------------------------
numbers.shuffle().split(0.8)  # E: misc
numbers.interleave(numbers).split(0.8)  # E: misc
numbers.repeat(2).split(0.8)  # E: misc
numbers.window(2).split(0.8)  # E: misc
numbers.shuffle().take(3).split(0.8)  # E: misc
numbers.filter(is_even).split(0.8)  # E: misc
numbers.prefetch(on_error="skip").split(0.8)  # E: misc
stream.split(2)  # E: misc
one, two = numbers.split(0.8, 0.1)  # E: misc

# -- by number -------------------------------------------------------------------------------------
numbers.repeat().select_rows([1])  # E: misc
stream.select_rows([1])  # E: misc
numbers.filter(is_even).sample(2)  # E: misc
numbers.repeat().sample(2)  # E: misc
backwards: Flow[int, Exact] = numbers[::-1]  # E: assignment
drawn: Flow[int, Reordered] = numbers.sample(3)  # E: assignment
numbers["a"]  # E: index
numbers[1.5]  # E: call-overload
numbers.repeat()[[1]]  # E: call-overload
numbers.select_rows(1)  # E: arg-type
numbers.select_rows("12")  # E: arg-type
numbers.sample("2")  # E: arg-type
numbers.sample(2, "ab")  # E: arg-type
numbers.sample(2, replacement=None)  # E: arg-type
numbers.sample(2, None, False)  # E: call-arg

# -- arguments -------------------------------------------------------------------------------------
numbers.take()  # E: call-overload
numbers.take("3")  # E: call-overload
numbers.take(2.5)  # E: call-overload
numbers.skip("3")  # E: call-overload
numbers.shard(2)  # E: call-overload
numbers.shard(2, i="0")  # E: call-overload
numbers.split()  # E: call-overload
numbers.split("0.8")  # E: call-overload
numbers.split([0.8, 0.1])  # E: call-overload
numbers.split(0.8, seed=None)  # E: call-overload
numbers.split(part=0.8)  # E: call-overload
numbers.repeat("3")  # E: call-overload
numbers.repeat_each()  # E: call-arg
numbers.repeat_each("2")  # E: arg-type
numbers.fixed_size("4")  # E: call-overload
numbers.fixed_size(4, keep_state="no")  # E: call-overload
numbers.shuffle("4")  # E: call-overload
numbers.shuffle(4, 7)  # E: call-overload
numbers.shuffle(4, block=7)  # E: call-overload
numbers.shuffle(sed=7)  # E: call-overload
numbers.shuffle(reshuffle=None)  # E: call-overload
numbers.shuffle(buffer=4, seed=None)  # E: call-overload
numbers.cache(True)  # E: arg-type
numbers.cache().map(str.upper)  # E: arg-type
numbers.prefetch(procs="4")  # E: call-overload
numbers.prefetch(procs="all")  # E: call-overload
numbers.prefetch(workers=4)  # E: call-overload
numbers.prefetch(threads="4")  # E: call-overload
numbers.prefetch(2, 0, False)  # E: call-overload
numbers.prefetch(memory=1e9)  # E: call-overload
numbers.prefetch(deaths=None)  # E: call-overload
numbers.prefetch(timeout="1")  # E: call-overload
numbers.prefetch(ordered=None)  # E: call-overload
numbers.prefetch(on_error="ignore")  # E: call-overload
numbers.prefetch(on_error=None)  # E: call-overload
numbers.prefetch(on_error=lambda: None)  # E: arg-type, misc
numbers.prefetch(on_error=is_even)  # E: arg-type
numbers.prefetch(on_error="skip").size()  # E: misc
numbers.prefetch(on_error="skip").shuffle()  # E: call-overload
predict(batches.prefetch(on_error="skip"))  # E: arg-type
predict(batches.prefetch(ordered=False))  # E: arg-type
numbers.map(lambda i: (i,)).prefetch(ordered=False).zip(numbers)  # E: misc
numbers.replicate()  # E: call-overload
numbers.replicate("2")  # E: call-overload
predict(batches.replicate(2))  # E: arg-type
in_order: Flow[int, Exact] = numbers.prefetch(ordered=bool(len(numbers)))  # E: assignment
all_of_them: Flow[int, Reordered] = numbers.prefetch(on_error=print)  # E: assignment
