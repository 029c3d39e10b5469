"""flowdsl: typed, immutable input pipelines with the same elements on any number of processes.

A flow begins with a source and is built by chaining; iterating over it runs it::

    import flowdsl as fl

    flow = fl.from_csv("train.csv").shuffle(seed=1).map(parse).batch(32).prefetch(procs=4)
    for batch in flow: ...

Sources are functions: ``from_items``, ``from_iterable``, ``from_range``, ``from_files``, one for
each file format, such as ``from_csv``, and ``from_dataset`` for datasets of other libraries.
Operators are methods of ``Flow``; ``help(fl.Flow.batch)`` describes one. ``concat``,
``interleave``, ``choose``, ``mix``, ``merge`` and ``zip`` are also functions of several flows.
``flow.explain()`` shows where each operator runs, ``flow.profile()`` what limits its speed.
``to_torch``, ``to_jax`` and ``to_keras`` feed a training loop, and ``write_lmdb`` and its siblings
store the elements.

The packages of flowdsl:

``flow``        the ``Flow`` type: chain, run, explain
``ops``         the operators, one family per file
``storage``     files: sources, writers, the codec
``datasets``    sources over the datasets of other libraries
``remote``      flows from and to other machines
``nodes``       the tree of operators that a flow describes; base classes for new operators
``elements``    elements: structure, specs, stacking into batches
``effects``     the effects of operators, as tags in a flow's type
``plan``        planning: from the chain to stages
``executor``    the compiled code that computes elements
``runtime``     running the stages of a plan, in this process or in workers
``workers``     worker processes and threads
``resources``   cores, cancellation, kinds of worker
``feeding``     loaders for training loops of PyTorch, JAX and Keras
``statistics``  counts and times of a run
``report``      where the time goes: profiles, verdicts, pictures, progress
``tensorflow``  input sources and trainers for TensorFlow
``testing``     the laws that operators obey, for tests of all packages
``cli``         the command line: ``flowdsl check train.py:train``
``errors``      the errors, as a tree
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
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
from flowdsl.elements.declared_specs import Shape
from flowdsl.elements.packing import Packed
from flowdsl.elements.stacking import lists, stack
from flowdsl.elements.structure import Record, Stackable, c0, c1, c2, c3, c4, c5, c6, c7
from flowdsl.errors import (
    ElementError,
    EndlessFlow,
    FlowError,
    InvalidArgument,
    InvalidFlow,
    MissingLibrary,
    NotResumable,
    NotShippable,
    SameEpoch,
    SourceError,
    SpecMismatch,
    StateMismatch,
    UnknownLength,
    WorkerDied,
)
from flowdsl.flow import Flow
from flowdsl.ops.iterables import from_iterable
from flowdsl.ops.several import choose, concat, interleave, merge, mix
from flowdsl.ops.several import zip as zip  # noqa: A004  # not in __all__: import * would hide it
from flowdsl.ops.sources import from_items, from_range
from flowdsl.ops.transforms import Augmentation, Drawn, Image
from flowdsl.storage.formats import FORMATS

if TYPE_CHECKING:
    from flowdsl import jax as jax  # not in __all__: import * would hide the libraries
    from flowdsl import keras as keras
    from flowdsl import remote
    from flowdsl import torch as torch
    from flowdsl.datasets.items import from_dataset
    from flowdsl.datasets.ray_data import from_ray
    from flowdsl.datasets.tf_data import from_tfdata
    from flowdsl.ops.fakes import fake
    from flowdsl.ops.files import from_files
    from flowdsl.ops.queues import from_queue
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
    "InvalidArgument",
    "InvalidFlow",
    "MissingLibrary",
    "NotResumable",
    "NotShippable",
    "Origin",
    "Packed",
    "Profile",
    "Record",
    "Reordered",
    "Resampled",
    "Run",
    "SameEpoch",
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
    "choose",
    "concat",
    "decode_image",
    "fake",
    "fetch",
    "from_arrayrecord",
    "from_caffe_lmdb",
    "from_csv",
    "from_dataset",
    "from_files",
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
    "from_ray",
    "from_svmlight",
    "from_tensorpack_lmdb",
    "from_text",
    "from_tfdata",
    "from_tfrecord",
    "from_webdataset",
    "from_zmq",
    "image_size",
    "interleave",
    "lists",
    "merge",
    "mix",
    "parse_example",
    "progress",
    "random_resized_crop",
    "remote",
    "stack",
    "to_example",
    "verdict",
]

_LATER = {
    **{one.reader: f"storage.{one.module}" for one in FORMATS},
    "Origin": "runtime.origins",
    "Profile": "report.profiling",
    "Run": "runtime.run",
    "Speed": "statistics.speed",
    "Verdict": "report.verdict",
    "fake": "ops.fakes",
    "fetch": "storage.fetching",
    "from_files": "ops.files",
    "from_queue": "ops.queues",
    "from_ray": "datasets.ray_data",
    "from_tfdata": "datasets.tf_data",
    "from_dataset": "datasets.items",
    "decode_image": "storage.images.decoding",
    "from_zmq": "remote.from_zmq",
    "image_size": "storage.images.decoding",
    "progress": "report.progress",
    "random_resized_crop": "storage.images.cropping",
    "parse_example": "storage.tfrecord.example",
    "to_example": "storage.tfrecord.example",
    "verdict": "report.bottleneck",
}
"""Names that not every program uses, with their modules, which are imported on first use."""


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> object:
    """Import the names of ``_LATER`` on first use, as most programs do not need them."""
    if name in _LATER:
        return getattr(import_module(f"flowdsl.{_LATER[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (
        name.isidentifier() and find_spec(f"flowdsl.{name}") is not None
    ):  # a package, imported on first use
        return import_module(f"flowdsl.{name}")
    from flowdsl.ops.elsewhere import no_function

    sources = [getattr(sys.modules[__name__], other) for other in __all__ if "from_" in other]
    raise no_function(name, sys.modules[__name__], sources)
