"""flowdsl: typed, immutable input pipelines that give the same elements on any number of processes.

``flow``      the Flow type: chain, run, explain        ``errors``    what can go wrong, as a tree
``ops``       the operators, a family a file            ``effects``   what each promises
``storage``   files: sources, writers, the codec        ``elements``  components, records
``plan``      from the chain to stages                  ``specs``     what is known of elements
``runtime``   running stages, here or in workers        ``stacking``  how rows become a batch
``graph``     into TensorFlow                           ``node``      the kinds of operator
``train``     trainers; these two need TensorFlow       ``probing``   specs from one element, made
"""

from __future__ import annotations

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
from flowdsl.elements import Record, Stackable, c0, c1, c2, c3
from flowdsl.errors import (
    ElementError,
    EndlessFlow,
    FlowError,
    InvalidFlow,
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
from flowdsl.runtime.measure import Speed
from flowdsl.runtime.run import Run
from flowdsl.specs import Shape
from flowdsl.stacking import lists, stack
from flowdsl.storage.lmdb import from_lmdb

__version__ = "0.1.0"

__all__ = [
    "Counted",
    "Effect",
    "ElementError",
    "Endless",
    "EndlessFlow",
    "Exact",
    "Finite",
    "Flow",
    "FlowError",
    "InOrder",
    "InvalidFlow",
    "NotShippable",
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
    "WorkerDied",
    "c0",
    "c1",
    "c2",
    "c3",
    "fake",
    "from_files",
    "from_items",
    "from_iterable",
    "from_lmdb",
    "from_queue",
    "from_range",
    "lists",
    "stack",
]
