"""Mistakes with operators on single elements, as in ``bad``."""

from __future__ import annotations

import flowdsl as fl
from tests.typing.good import (
    Sample,
    SampleBatch,
    arrays,
    dicts,
    features,
    is_even,
    numbers,
    pairs,
    points,
    samples,
    scale,
    texts,
)
from tests.typing.good_mapping import Label, Shift, halved, noisy, wide

# -- a wrong component -----------------------------------------------------------------------------
samples.map(lambda s: s.imgae)  # E: attr-defined
points.map(lambda p: p.x)  # E: attr-defined
pairs.map(lambda p: p.image)  # E: attr-defined
pairs.map(lambda p: p[2])  # E: misc
samples.map(features).map(lambda f: f["lable"])  # E: typeddict-item
samples.map(fl.c2)  # E: arg-type
points.map(fl.c0)  # E: arg-type
arrays.map(fl.c0)  # E: arg-type
numbers.map_component(str)  # E: misc
points.map_component(scale, 0)  # E: arg-type
arrays.map_component(scale, "at")  # E: misc
pairs.map_component(scale, 1)  # E: call-overload
pairs.map_component(str, 2)  # E: call-overload
pairs.map_component(str, "label")  # E: call-overload
pairs.map_component(str, True)  # E: call-overload
wide.map_component(len, 3)  # E: call-overload
samples.map_component(scale).map(lambda s: s.image)  # E: attr-defined
samples.map_component(scale).starmap(Sample)  # E: arg-type
pairs.map_component(lambda y: {y}, 1).batch(4)  # E: call-overload
dicts.map_component(scale, 0)  # E: arg-type
dicts.map_component(is_even, "left")  # E: arg-type
samples.map(features).map_component(scale, 0)  # E: arg-type
samples.select()  # E: call-overload
arrays.select("image")  # E: call-overload
samples.select("image").map(lambda d: d.image)  # E: attr-defined
pairs.select(fl.c2)  # E: arg-type
samples.select(fl.c0, "label")  # E: call-overload
dicts.select(fl.c0)  # E: arg-type
points.select(fl.c0)  # E: arg-type
samples.select(fl.c1, fl.c0).starmap(Sample)  # E: arg-type
pairs.select(fl.c0, fl.c1, fl.c0, fl.c1, fl.c0, fl.c1, fl.c0, fl.c1, fl.c0)  # E: call-overload

# -- a wrong lambda, or another function -----------------------------------------------------------
samples.map(lambda s, rng: s)  # E: arg-type, misc
samples.map(lambda: 0)  # E: arg-type, misc
arrays.map(lambda x: x.upper())  # E: attr-defined
samples.map(scale)  # E: arg-type
arrays.map(scale).map(scale)  # E: arg-type
arrays.map(is_even)  # E: arg-type
arrays.map(scale(3))  # E: arg-type
arrays.map(Label())  # E: arg-type
arrays.map()  # E: call-arg
arrays.map(scale, procs=4)  # E: call-arg
pairs.starmap(scale)  # E: arg-type
pairs.starmap(lambda x: x)  # E: arg-type, misc
pairs.starmap(lambda x, label, weight: x)  # E: arg-type, misc
pairs.starmap(SampleBatch)  # E: arg-type
points.starmap(lambda at, weight: at)  # E: misc
numbers.starmap(lambda i: i)  # E: misc
numbers.random_map(lambda i: i)  # E: arg-type, misc
numbers.random_map(noisy)  # E: arg-type
arrays.random_map(noisy, seed="7")  # E: arg-type

# -- images, and the masks and points in them ------------------------------------------------------
samples.augment()  # E: call-arg
samples.augment(7)  # E: arg-type
samples.augment([Shift(), 7])  # E: list-item
samples.augment(Shift(), 0)  # E: call-arg
samples.augment(Shift(), images=1.5)  # E: arg-type
samples.augment(Shift(), images=fl.c2)  # E: arg-type
samples.augment(Shift(), seed="7")  # E: arg-type
samples.augment(Shift(), copy=None)  # E: arg-type
samples.augment(Shift(), index=0)  # E: call-arg
samples.augment(Shift()).map(lambda s: s.imgae)  # E: attr-defined

# -- some, or more than one, of each ---------------------------------------------------------------
numbers.filter(lambda i: i.is_even)  # E: attr-defined
numbers.filter(lambda i: i)  # E: arg-type, return-value
numbers.filter(lambda i: (i, i))  # E: arg-type, return-value
samples.filter(lambda s: s.image)  # E: arg-type, return-value
samples.filter(lambda s: {"label": s.label}.get("label"))  # E: arg-type, return-value
numbers.filter(is_even).size()  # E: misc
numbers.filter(is_even).shuffle()  # E: call-overload
numbers.filter_map(scale)  # E: arg-type
numbers.filter_map(halved).map(str.upper)  # E: arg-type
numbers.filter_map(lambda i: i.odd)  # E: attr-defined
numbers.filter_map(halved).size()  # E: misc
numbers.flat_map(is_even)  # E: arg-type
numbers.flat_map(lambda i: i)  # E: arg-type, return-value
texts.flat_map(str.split).map(is_even)  # E: arg-type
texts.flat_map(str.split).shuffle()  # E: call-overload

# -- numbers, and looking --------------------------------------------------------------------------
texts.enumerate("1")  # E: arg-type
texts.enumerate().map(str.upper)  # E: arg-type
texts.map(set).enumerate().batch(4)  # E: call-overload
samples.inspect("samples")  # E: arg-type
samples.inspect(1, "samples")  # E: call-arg
samples.inspect(depth=2)  # E: call-arg
samples.inspect().map(lambda s: s.imgae)  # E: attr-defined

# -- in order --------------------------------------------------------------------------------------
numbers.scan(0, is_even)  # E: call-overload
numbers.take_while(1)  # E: call-overload
numbers.take_while(is_even).size()  # E: misc
numbers.skip_while()  # E: call-overload
