"""Mistakes with how much there is of a flow, and in what order, as in ``bad``."""

from __future__ import annotations

from flowdsl import Exact, Flow, Reordered
from tests.typing.good import is_even, numbers, stream

# -- the size of an endless flow, or of an unknown number of elements ------------------------------
numbers.repeat().size()  # E: misc
numbers.repeat().collect()  # E: misc
numbers.repeat().skip(2).collect()  # E: misc
numbers.repeat().shard(2, 0).collect()  # E: misc
numbers.repeat().repeat_each(2).size()  # E: misc
numbers.repeat().prefetch().size()  # E: misc
numbers.filter(is_even).size()  # E: misc
numbers.filter(is_even).skip(2).size()  # E: misc
numbers.filter(is_even).repeat_each(2).size()  # E: misc
stream.take(2).size()  # E: misc
stream.cache().size()  # E: misc
numbers.repeat().shuffle()  # E: call-arg
numbers.repeat().cache()  # E: misc
numbers.filter(is_even).shuffle()  # E: call-arg
stream.shuffle(seed=7)  # E: call-arg

# -- `take` claiming a permutation -----------------------------------------------------------------
taken: Flow[int, Reordered] = numbers.shuffle().take(3)  # E: assignment
windowed: Flow[int, Reordered] = numbers.shuffle(4).take(3)  # E: assignment
skipped: Flow[int, Reordered] = numbers.shuffle().skip(3)  # E: assignment
sharded: Flow[int, Reordered] = numbers.shuffle().shard(2, 0)  # E: assignment
again: Flow[int, Exact] = numbers.repeat().take(10)  # E: assignment

# -- arguments -------------------------------------------------------------------------------------
numbers.take()  # E: call-overload
numbers.take("3")  # E: call-overload
numbers.take(2.5)  # E: call-overload
numbers.skip("3")  # E: call-overload
numbers.shard(2)  # E: call-overload
numbers.shard(2, i="0")  # E: call-overload
numbers.repeat("3")  # E: call-overload
numbers.repeat_each()  # E: call-arg
numbers.repeat_each("2")  # E: arg-type
numbers.fixed_size("4")  # E: call-overload
numbers.fixed_size(4, keep_state="no")  # E: call-overload
numbers.shuffle("4")  # E: call-overload
numbers.shuffle(4, 7)  # E: call-overload
numbers.shuffle(sed=7)  # E: call-overload
numbers.shuffle(buffer=4, seed=None)  # E: call-overload
numbers.cache(True)  # E: call-arg
numbers.cache().map(str.upper)  # E: arg-type
numbers.prefetch(procs="4")  # E: arg-type
numbers.prefetch(workers=4)  # E: call-arg
