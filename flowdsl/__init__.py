"""flowdsl: typed, immutable input pipelines that give the same elements on any number of processes.

``flow``      the Flow type: chain, run, explain        ``effects``     what each operator promises
``ops``       the operators, a family a file            ``elements``    components, records
``storage``   files: sources, writers, the codec        ``specs``       what is known of elements
``datasets``  datasets of other libraries               ``kinds``       what a planner knows of it
``remote``    flows from and to other machines          ``arrays``      what is an array
``plan``      from the chain to stages                  ``stacking``    how rows become a batch
``runtime``   running stages, here or in workers        ``batch_specs`` what is known of a batch
``report``    where the time goes, and what to do       ``arguments``   what every operator checks
``graph``     into TensorFlow                           ``node``        the tree that a flow is
``train``     trainers; these two need TensorFlow       ``probing``     specs from one element, made
``errors``    what can go wrong, as a tree              ``testing``   the laws, for all packages
``batches``   the type of a batch, for checkers         ``worker_kinds``  who can run a stage
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flowdsl.effects import (
    Counted,
    Effect,
    Endless,
    Exact,
    Finite,
    InOrder,
    Reordered,
    Resampled,
    Unsized,
)
from flowdsl.elements.specs import Shape
from flowdsl.elements.stacking import lists, stack
from flowdsl.elements.structure import Record, Stackable, c0, c1, c2, c3, c4, c5, c6, c7
from flowdsl.errors import (
    ElementError,
    EndlessFlow,
    FlowError,
    InvalidFlow,
    MissingLibrary,
    NotResumable,
    NotShippable,
    SourceError,
    SpecMismatch,
    StateMismatch,
    UnknownLength,
    WorkerDied,
)
from flowdsl.flow import Flow
from flowdsl.ops.fakes import fake
from flowdsl.ops.files import from_files
from flowdsl.ops.queues import from_queue
from flowdsl.ops.sources import from_items, from_iterable, from_range
from flowdsl.ops.transforms import Augmentation, Drawn, Image

if TYPE_CHECKING:
    from flowdsl import remote
    from flowdsl.datasets.grain_data import from_grain
    from flowdsl.datasets.tf_data import from_tf_dataset
    from flowdsl.datasets.torch_data import from_torch_dataset
    from flowdsl.remote.from_zmq import from_zmq
    from flowdsl.report.bottleneck import verdict
    from flowdsl.report.profiling import Profile
    from flowdsl.report.progress import progress
    from flowdsl.report.verdict import Verdict
    from flowdsl.runtime.origins import Origin
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.speed import Speed
    from flowdsl.storage.arrayrecord import from_arrayrecord
    from flowdsl.storage.arrays.hdf5 import from_hdf5
    from flowdsl.storage.arrays.npy import from_npy
    from flowdsl.storage.arrays.npz import from_npz
    from flowdsl.storage.csv.reading import from_csv
    from flowdsl.storage.fetching import fetch
    from flowdsl.storage.images.cropping import random_resized_crop
    from flowdsl.storage.images.decoding import decode_image, image_size
    from flowdsl.storage.images.files import from_images
    from flowdsl.storage.lmdb.caffe import from_caffe_lmdb
    from flowdsl.storage.lmdb.raw import from_lmdb_raw
    from flowdsl.storage.lmdb.reading import from_lmdb
    from flowdsl.storage.lmdb.tensorpack import from_tensorpack_lmdb
    from flowdsl.storage.parquet.reading import from_parquet
    from flowdsl.storage.text.lines import from_text
    from flowdsl.storage.text.svmlight import from_svmlight
    from flowdsl.storage.tfrecord.example import parse_example, to_example
    from flowdsl.storage.tfrecord.records import from_tfrecord
    from flowdsl.storage.webdataset.samples import from_webdataset

__version__ = "0.1.0"

__all__ = [
    "Augmentation",
    "Counted",
    "Drawn",
    "Effect",
    "ElementError",
    "Endless",
    "EndlessFlow",
    "Exact",
    "Finite",
    "Flow",
    "FlowError",
    "Image",
    "InOrder",
    "InvalidFlow",
    "MissingLibrary",
    "NotResumable",
    "NotShippable",
    "Origin",
    "Profile",
    "Record",
    "Reordered",
    "Resampled",
    "Run",
    "Shape",
    "SourceError",
    "SpecMismatch",
    "Speed",
    "Stackable",
    "StateMismatch",
    "UnknownLength",
    "Unsized",
    "Verdict",
    "WorkerDied",
    "c0",
    "c1",
    "c2",
    "c3",
    "c4",
    "c5",
    "c6",
    "c7",
    "decode_image",
    "fake",
    "fetch",
    "from_arrayrecord",
    "from_caffe_lmdb",
    "from_csv",
    "from_files",
    "from_grain",
    "from_hdf5",
    "from_images",
    "from_items",
    "from_iterable",
    "from_lmdb",
    "from_lmdb_raw",
    "from_npy",
    "from_npz",
    "from_parquet",
    "from_queue",
    "from_range",
    "from_svmlight",
    "from_tensorpack_lmdb",
    "from_text",
    "from_tf_dataset",
    "from_tfrecord",
    "from_torch_dataset",
    "from_webdataset",
    "from_zmq",
    "image_size",
    "lists",
    "parse_example",
    "progress",
    "random_resized_crop",
    "remote",
    "stack",
    "to_example",
    "verdict",
]

_LATER = {
    "Origin": "runtime.origins",
    "Profile": "report.profiling",
    "Run": "runtime.run",
    "Speed": "statistics.speed",
    "Verdict": "report.verdict",
    "fetch": "storage.fetching",
    "from_csv": "storage.csv.reading",
    "from_grain": "datasets.grain_data",
    "from_tf_dataset": "datasets.tf_data",
    "from_torch_dataset": "datasets.torch_data",
    "decode_image": "storage.images.decoding",
    "from_hdf5": "storage.arrays.hdf5",
    "from_images": "storage.images.files",
    "from_npy": "storage.arrays.npy",
    "from_npz": "storage.arrays.npz",
    "from_lmdb": "storage.lmdb.reading",
    "from_svmlight": "storage.text.svmlight",
    "from_text": "storage.text.lines",
    "from_arrayrecord": "storage.arrayrecord",
    "from_parquet": "storage.parquet.reading",
    "from_webdataset": "storage.webdataset.samples",
    "from_caffe_lmdb": "storage.lmdb.caffe",
    "from_lmdb_raw": "storage.lmdb.raw",
    "from_tensorpack_lmdb": "storage.lmdb.tensorpack",
    "from_zmq": "remote.from_zmq",
    "image_size": "storage.images.decoding",
    "progress": "report.progress",
    "random_resized_crop": "storage.images.cropping",
    "from_tfrecord": "storage.tfrecord.records",
    "parse_example": "storage.tfrecord.example",
    "to_example": "storage.tfrecord.example",
    "verdict": "report.bottleneck",
}
"""Names that not every program asks for, and the modules that have them."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """What most programs do without is imported when it is asked for."""
    if name == "remote":
        return import_module("flowdsl.remote")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"flowdsl.{_LATER[name]}"), name)
