"""Mistakes with operators that group elements, as in ``bad``."""

from __future__ import annotations

import numpy as np

import flowdsl as fl
from tests.typing.good import (
    Sample,
    arrays,
    is_even,
    named,
    numbers,
    pairs,
    points,
    samples,
    texts,
)

hashes = texts.map(lambda s: {hash(s)})
marked = arrays.map(lambda x: (x, {x.size}))
tokens = fl.from_items([[1, 2], [3]])

# -- batching what does not stack ------------------------------------------------------------------
hashes.batch(4)  # E: call-overload
marked.batch(4)  # E: call-overload
numbers.map(lambda i: object()).batch(4)  # E: call-overload
numbers.map(lambda i: None).batch(4)  # E: call-overload
numbers.map(lambda i: (i, None)).batch(4)  # E: call-overload
texts.map(lambda s: (s, s, {s}, s, s)).batch(4)  # E: call-overload
numbers.map(lambda i: ((i, i), open)).batch(4)  # E: call-overload
hashes.batch(4, drop_remainder=True)  # E: call-overload
hashes.padded_batch(4)  # E: misc
marked.padded_batch(4)  # E: misc
hashes.batch_by_shape(4, lambda s: np.zeros(len(s)))  # E: call-overload
marked.batch_by_shape(4, fl.c0)  # E: call-overload
hashes.window(3).batch(2)  # E: call-overload
marked.batch(4, collate=fl.lists).unbatch().batch(4)  # E: call-overload

# -- arguments -------------------------------------------------------------------------------------
samples.batch("3")  # E: call-overload
samples.batch(3.0)  # E: call-overload
samples.batch()  # E: call-overload
samples.batch(3, True)  # E: call-overload
samples.batch(3, drop_last=True)  # E: call-overload
samples.padded_batch("4")  # E: call-overload
samples.padded_batch(4, padding=[0, 0])  # E: call-overload
samples.padded_batch(4, 0)  # E: call-overload
samples.padded_batch(4, collate=list)  # E: call-overload
arrays.padded_batch(4, padding=np.zeros(2))  # E: call-overload
samples.batch_by_shape(4)  # E: call-overload
samples.batch_by_shape(4, 0)  # E: call-overload
samples.batch_by_shape(4, fl.c0, True)  # E: call-overload
numbers.window()  # E: call-overload
numbers.window("3")  # E: call-overload
numbers.window(3, stride=1.5)  # E: call-overload
numbers.window(3, step=2)  # E: call-overload
numbers.window(3, dilation="2")  # E: call-overload
numbers.window(3, remainder="pad")  # E: call-overload
numbers.window(3, drop_remainder=True)  # E: call-overload
numbers.window(3, key=lambda i: [i])  # E: arg-type, return-value
samples.batch(4).unbatch(into=3)  # E: call-overload
samples.batch(4).unbatch("Sample")  # E: call-overload

# -- wrong functions -------------------------------------------------------------------------------
named.batch(4, collate=sum)  # E: arg-type
numbers.batch(4, collate=fl.lists)  # E: arg-type
samples.batch_by_shape(4, fl.c0, collate=sum)  # E: arg-type
samples.batch_by_shape(4, fl.c2)  # E: arg-type
samples.batch_by_shape(4, fl.c1)  # E: arg-type
samples.batch_by_shape(4, lambda s: s.label)  # E: arg-type, return-value
samples.batch_by_shape(4, lambda s: s.imgae)  # E: attr-defined
points.batch_by_shape(4, fl.c0)  # E: arg-type

# -- what a batch is -------------------------------------------------------------------------------
samples.batch(4).map(lambda b: b.image)  # E: attr-defined
points.batch(4).map(lambda b: b.wieght)  # E: attr-defined
samples.batch(4).starmap(Sample)  # E: arg-type
arrays.batch(4).map(is_even)  # E: arg-type
samples.padded_batch(4).map(lambda b: b.image)  # E: attr-defined
numbers.window(3).map(is_even)  # E: arg-type
numbers.window(3).starmap(lambda a, b: a + b)  # E: arg-type, misc
samples.batch_by_shape(4, fl.c0).size()  # E: misc
samples.batch_by_shape(4, fl.c0).shuffle()  # E: call-overload

# -- taking batches apart --------------------------------------------------------------------------
numbers.unbatch()  # E: call-arg
texts.unbatch()  # E: call-arg
points.batch(4).unbatch()  # E: call-arg
samples.unbatch()  # E: call-arg
named.unbatch()  # E: call-arg
samples.batch(4).unbatch().map(lambda s: s.image)  # E: attr-defined
samples.batch(4).unbatch().size()  # E: misc
samples.batch(4).unbatch(Sample).map(lambda s: s.lable)  # E: attr-defined
pairs.batch(4).unbatch().map(fl.c2)  # E: arg-type
numbers.batch(2, remainder="drop")  # E: call-overload

# -- packing ---------------------------------------------------------------------------------------
tokens.pack("8")  # E: call-overload
tokens.pack(8, "worst_fit")  # E: call-overload
tokens.pack(8, bins=3)  # E: call-overload
tokens.pack(8, "best_fit", too_long="cut")  # E: call-overload
hashes.pack(8)  # E: misc
tokens.pack(8).shuffle()  # E: call-overload
tokens.pack(8).map(lambda row: row.token)  # E: attr-defined

# -- groups by a key, buckets ----------------------------------------------------------------------
numbers.bucket_by_length(len, [8], 4)  # E: arg-type
tokens.bucket_by_length(len, 8, 4)  # E: call-overload
tokens.bucket_by_length(len, [8], 4, max_tokens="64")  # E: call-overload
tokens.bucket_by_length(str, [8], 4)  # E: arg-type
tokens.batch_by_key("4", len)  # E: call-overload
samples.batch_by_key(4, 1)  # E: call-overload
samples.batch_by_key(4, lambda s: s.lable)  # E: attr-defined
hashes.batch_by_key(4, len)  # E: call-overload
tokens.batch_by_key(4, len).size()  # E: misc
