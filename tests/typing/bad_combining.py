"""Mistakes with several flows, as in ``bad``."""

from __future__ import annotations

import numpy as np

import flowdsl as fl
from tests.typing.good import (
    Sample,
    dicts,
    is_even,
    numbers,
    points,
    samples,
    stream,
    texts,
)
from tests.typing.good_combining import Loose

loose = numbers.map(lambda i: Loose(np.zeros(i), i))

# -- zipping a reordered flow ----------------------------------------------------------------------
numbers.shuffle().zip(texts)  # E: misc
numbers.zip(texts.shuffle())  # E: arg-type, type-var
numbers.zip(texts.shuffle(4))  # E: arg-type, type-var
numbers.choose(numbers).zip(texts)  # E: misc
numbers.interleave(numbers).zip(texts)  # E: misc
samples.shuffle().zip(samples)  # E: misc
samples.zip(samples.shuffle())  # E: arg-type, type-var
dicts.shuffle().zip(dicts)  # E: misc
dicts.zip(dicts.shuffle())  # E: type-var
numbers.shuffle().take(3).zip(texts.take(3))  # E: misc
numbers.zip(texts).zip(texts.shuffle())  # E: arg-type, type-var

# -- mixing element types --------------------------------------------------------------------------
numbers.concat(texts)  # E: arg-type
numbers.interleave(texts)  # E: arg-type
numbers.choose(texts)  # E: arg-type
numbers.choose(texts, stop="first")  # E: call-overload
numbers.mix(texts)  # E: arg-type
samples.concat(points)  # E: arg-type
samples.mix(samples.batch(2))  # E: arg-type

# -- arguments -------------------------------------------------------------------------------------
numbers.zip()  # E: call-overload
numbers.zip([1, 2])  # E: call-overload
numbers.zip(texts, 7)  # E: call-overload
fl.zip(numbers, texts.shuffle())  # E: arg-type, type-var
fl.zip()  # E: call-overload
numbers.interleave_map(abs)  # E: arg-type
numbers.interleave_map(range, cycle="4")  # E: arg-type
numbers.interleave_map(range).zip(texts)  # E: misc
fl.concat(numbers)  # E: arg-type
fl.concat([1, 2])  # E: arg-type
fl.concat([numbers], with_names=True)  # E: call-overload
fl.choose([numbers], weights=["1"])  # E: list-item
fl.mix([numbers.repeat()])  # E: type-var
numbers.concat([1, 2])  # E: arg-type
numbers.choose(numbers, weights=3)  # E: call-overload
numbers.choose(numbers, weights=["1", "2"])  # E: list-item
numbers.choose(numbers, stop="never")  # E: call-overload
numbers.interleave(numbers, stop="never")  # E: call-overload
numbers.interleave(numbers, weights=2)  # E: call-overload
numbers.choose(numbers, 7)  # E: call-overload
numbers.mix(numbers, seed="7")  # E: arg-type

# -- what they make --------------------------------------------------------------------------------
samples.zip(texts.map(lambda s: {s})).batch(4)  # E: call-overload
samples.zip(samples).starmap(Sample)  # E: arg-type
numbers.zip(texts).starmap(lambda i: i)  # E: arg-type, misc
numbers.zip(texts).map(lambda p: p[2])  # E: misc
numbers.concat(numbers).map(str.upper)  # E: arg-type
loose.zip(loose).map(lambda t: t[7])  # E: misc
numbers.zip(loose).starmap(lambda i, image: i)  # E: arg-type, misc
loose.zip(numbers).map(str.upper)  # E: arg-type

# -- their length ----------------------------------------------------------------------------------
numbers.mix(numbers.repeat())  # E: type-var
numbers.filter(is_even).mix(numbers)  # E: misc
numbers.mix(numbers.filter(is_even))  # E: type-var
stream.mix(stream)  # E: misc, type-var
numbers.choose(numbers, stop="first").size()  # E: misc
numbers.choose(numbers, stop="all").size()  # E: misc
numbers.choose(numbers.filter(is_even)).size()  # E: misc
numbers.concat(numbers.repeat()).collect()  # E: misc
numbers.interleave(numbers.repeat()).size()  # E: misc
