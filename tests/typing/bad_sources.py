"""Mistakes with sources, as in ``bad``."""

from __future__ import annotations

from collections import Counter

import numpy as np

import flowdsl as fl
from tests.typing.good import Sample, is_even, numbers, scale
from tests.typing.good_sources import jpeg, marked, x, xs, y

# -- in memory -------------------------------------------------------------------------------------
fl.from_items(3)  # E: call-overload
fl.from_items({"cat.jpg", "dog.jpg"})  # E: call-overload
fl.from_items(Counter("ab"))  # E: arg-type
fl.from_items((x, y)).map(lambda pair: pair[2])  # E: misc
fl.from_items((x, y)).map(fl.c2)  # E: arg-type
fl.from_items((x, y)).map(lambda row: row.x)  # E: attr-defined
fl.from_items(xs).batch(2).map(str.upper)  # E: arg-type
fl.from_items({1, 2})  # E: call-overload
fl.from_items(i for i in range(3))  # E: call-overload
fl.from_items([1, 2]).map(str.upper)  # E: arg-type
fl.from_items([np.zeros(3, np.uint8)]).map(str.upper)  # E: arg-type
fl.from_range("3")  # E: arg-type
fl.from_range()  # E: call-arg
fl.from_range(0, 3)  # E: call-arg

# -- made up ---------------------------------------------------------------------------------------
fl.fake(3)  # E: call-overload
fl.fake((28, 28))  # E: arg-type
fl.fake([(28, 28)], "10")  # E: call-overload
fl.fake([(28, 28)], dtype=3)  # E: call-overload
fl.fake([(28, 28)], dtype=str)  # E: type-var
fl.fake([(28, 28)], domain=1)  # E: call-overload
fl.fake([(28, 28)], 10, False)  # E: call-overload
fl.fake([(28, 28)]).starmap(is_even)  # E: arg-type

# -- streams ---------------------------------------------------------------------------------------
fl.from_iterable(3)  # E: arg-type
fl.from_iterable(lambda path: [path])  # E: arg-type, misc
fl.from_iterable(is_even)  # E: arg-type
fl.from_iterable([1, 2]).size()  # E: misc
fl.from_iterable([1, 2]).shuffle(seed=7)  # E: call-overload
fl.from_queue([1, 2])  # E: call-overload
fl.from_queue({"a": 1})  # E: call-overload
fl.from_queue(marked, "")  # E: call-overload
fl.from_queue(marked, timeout="3")  # E: call-overload
fl.from_queue(marked).map(scale)  # E: arg-type
fl.from_queue(marked).size()  # E: misc

# -- images ----------------------------------------------------------------------------------------
fl.from_images(3)  # E: arg-type
fl.from_images("*.jpg", channels=4)  # E: arg-type
fl.from_images("*.jpg", resize="224")  # E: arg-type
fl.from_images("*.jpg", resize=(224, 224, 3))  # E: arg-type
fl.from_images("*.jpg", 3)  # E: call-arg
fl.from_images("*.jpg").map(str.upper)  # E: arg-type
fl.from_files("*.jpg").map(fl.decode_image)  # E: arg-type
fl.from_items([jpeg]).map(fl.random_resized_crop(4))  # E: arg-type
fl.from_items([jpeg]).random_map(fl.decode_image)  # E: arg-type
fl.decode_image(jpeg, crop=(0, 0, 4))  # E: arg-type
fl.decode_image("a.jpg")  # E: arg-type

# -- files -----------------------------------------------------------------------------------------
fl.from_files(3)  # E: arg-type
fl.from_files(["a.png", 3])  # E: list-item
fl.from_files("*.png").map(scale)  # E: arg-type
fl.from_lmdb(3)  # E: call-overload
fl.from_lmdb("digits.lmdb", 3)  # E: call-overload
fl.from_lmdb_raw(3)  # E: arg-type
fl.from_lmdb_raw("digits", keys=3)  # E: arg-type
fl.from_tensorpack_lmdb("digits", trusted=3)  # E: call-overload
fl.from_caffe_lmdb("digits", dtype="int8")  # E: call-overload
fl.from_lmdb("digits.lmdb", Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_lmdb("digits.lmdb").map(lambda s: s.label)  # E: attr-defined
fl.from_lmdb("digits.lmdb").batch(32)  # E: call-overload
fl.from_text(3)  # E: arg-type
fl.from_text("lines.txt").map(scale)  # E: arg-type
fl.from_text("lines.txt.bz2", compression="bz2")  # E: arg-type
fl.from_csv(3)  # E: call-overload
fl.from_csv("rows.csv", 3)  # E: call-overload
fl.from_csv("rows.csv").map(lambda row: row.label)  # E: attr-defined
fl.from_csv("rows.csv", Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_csv("rows.csv", header="names")  # E: call-overload
fl.from_csv("rows.csv", columns="name")  # E: call-overload
fl.from_csv("rows.csv", Sample, columns="name")  # E: call-overload
fl.from_hdf5("rows.h5")  # E: call-overload
fl.from_hdf5("rows.h5", 3)  # E: call-overload
fl.from_hdf5("rows.h5", ["x"], Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_npz(3)  # E: call-overload
fl.from_npz("rows.npz", Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_npy("rows.npy", 3)  # E: call-overload
numbers.repeat().write_hdf5("numbers.h5", "x")  # E: misc
numbers.repeat().write_npz("numbers.npz")  # E: misc
numbers.write_hdf5("numbers.h5")  # E: call-arg
fl.from_svmlight("rows.svm").map(scale)  # E: arg-type
fl.from_svmlight("rows.svm", zero_based="no")  # E: call-overload
numbers.write_text("numbers.txt")  # E: misc
numbers.repeat().write_csv("numbers.csv")  # E: misc
fl.from_tfrecord(3)  # E: call-overload
fl.from_tfrecord("a.tfrecord", compression="lz4")  # E: call-overload
fl.from_tfrecord("a.tfrecord").map(lambda s: s.label)  # E: attr-defined
fl.from_tfrecord("a.tfrecord", Sample).map(fl.parse_example(Sample))  # E: arg-type
numbers.repeat().write_tfrecord("numbers.tfrecord")  # E: misc
numbers.write_tfrecord("numbers.tfrecord", compression=9)  # E: arg-type
numbers.repeat().write_lmdb("numbers.lmdb")  # E: misc
numbers.write_lmdb(3)  # E: arg-type
fl.from_parquet(3)  # E: call-overload
fl.from_parquet("a.parquet", Sample).map(lambda s: s.lable)  # E: attr-defined
fl.from_parquet("a.parquet", columns=[3])  # E: list-item
fl.from_parquet("a.parquet", columns="name")  # E: call-overload
fl.from_parquet("a.parquet", fill=0.0)  # E: call-overload
numbers.repeat().write_parquet("numbers.parquet")  # E: misc
fl.from_arrayrecord(3)  # E: call-overload
fl.from_arrayrecord("a.arrayrecord").map(lambda record: record.label)  # E: attr-defined
numbers.repeat().write_arrayrecord("numbers.arrayrecord")  # E: misc
fl.from_webdataset(3)  # E: call-overload
fl.from_webdataset("a.tar").map(lambda sample: sample.jpg)  # E: attr-defined
numbers.repeat().write_webdataset("numbers.tar")  # E: misc
