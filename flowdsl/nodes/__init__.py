"""Nodes: the operators of a flow, as a tree. Authors of operators import from here.

frozen.py            the decorator of classes of nodes
base.py              Node and FlowBase: fields, sources, rows, length, spec, effects
kinds/               the kinds of node that the planner distinguishes: Elementwise, Windowed, ...
capabilities.py      optional abilities of a node: resume, be traced, buffer elements
validation.py        checks and messages for arguments
arguments.py         checks of arguments outside a chain
spec_inference.py    the spec of the elements that a user's function returns
turns.py             sequences of turns among parts, for interleave
randomness.py        random generators by position, and keyed permutations
random_sequences.py  random sequences of part numbers with random access, for mix and choose
failures.py          operators under on_error, and the node that skips failed elements

The kinds of node; an operator is a subclass of one of them:

Elementwise      changes one element at a time, which keeps its position
CodeTemplate     is elementwise, and defined by a line of Python for the generated loop
IndexedMap       is elementwise, and gets the number of the element in the pass
Windowed         makes one element of ``n`` consecutive ones
Batched          is windowed, with groups that do not overlap
IndexTransform   chooses or reorders elements without looking at them
Copying          interleaves several passes
Merging          yields the elements of several flows
Joining          makes one element of one from each of several flows
IndexedSource    has numbered rows, any of which can be read by itself
Placement        sets the workers on which the operators below it run
Unordered        yields elements as workers deliver them
Identity         yields the elements of its source unchanged

The capabilities; an operator has any number of them as further base classes:

Resumable        continues a pass after a number of elements, without computing them again
Restartable      continues a pass from a place where it began to use an element of its source
Reshardable      continues over another number of shards than a state was saved with
Retaining        reports which of the rows that it has read it may still use
Acknowledging    acknowledges rows to their sender, once they were delivered
OneShot          yields each element only once, as it arrives, such as from a queue
AnyOrder         yields other elements, or another order, in each pass
KeepsPass        keeps the elements of a pass, such as ``cache()``
StoresPass       stores the elements of another flow in a file, and reads them in every pass
Buffering        keeps elements for a while, which count against ``prefetch(memory=)``
MadeFromLatest   makes each element from the latest element of each source
PassThrough      yields elements of its sources without looking at them
Traceable        traces elements to their rows, where positions do not suffice
Padded           yields elements with padding, whose share the statistics show
ReadsSpans       may read consecutive elements together, stacked
Sliceable        may have its elements in arrays, so that stacked elements are a slice
SkippedByProbe   yields the elements of its source in epoch 0, so that a probe skips it

The protocols of a reader, which ``IndexedSource.open`` returns:

Expecting        learns which rows are read next, so that it can read many of them at once
ReadsInPlace     reads the arrays of a row into the arrays of a batch
"""

from __future__ import annotations

from flowdsl.nodes.arguments import (
    ListOf,
    checked,
    checked_choice,
    checked_function,
    checked_functions,
    checked_list,
    checked_names,
    checked_number,
    checked_path,
    wrong,
)
from flowdsl.nodes.base import (
    DROPPED,
    A,
    AnyNode,
    Dropped,
    E,
    Failed,
    FlowBase,
    Indices,
    Node,
    PassFactory,
    Positions,
    Provenance,
    Row,
    T,
    U,
    cached_per_node,
    endless_part,
    flow,
    with_sources,
)
from flowdsl.nodes.capabilities import (
    ELEMENTS_PER_RESTART,
    Acknowledging,
    AnyOrder,
    Buffering,
    KeepsPass,
    MadeFromLatest,
    Offsets,
    OneShot,
    Padded,
    PassThrough,
    ReadsSpans,
    Receipts,
    Reshardable,
    Restartable,
    RestartPoint,
    Restarts,
    Resumable,
    Retained,
    Retaining,
    SkippedByProbe,
    Sliceable,
    SourcePosition,
    StoresPass,
    Traceable,
    Traced,
    TracedReader,
    position_after_reshard,
    trace,
    when_read,
)
from flowdsl.nodes.frozen import frozen_node
from flowdsl.nodes.kinds import (
    Batched,
    CodeTemplate,
    Copying,
    Elementwise,
    Expecting,
    Identity,
    IndexedMap,
    IndexedSource,
    IndexTransform,
    Joining,
    Merging,
    Placement,
    ReadsInPlace,
    Unordered,
    Windowed,
)
from flowdsl.nodes.randomness import epoch_of_pass, generator, integers, permute, uniform
from flowdsl.nodes.spec_inference import (
    probed,
    refuse_mismatch,
    spec_for_all_elements,
    spec_of_result,
    with_inferred,
)
from flowdsl.nodes.validation import (
    BATCH_KEYWORD_ADVICE,
    PARALLEL_KEYWORD_ADVICE,
    POSITION_LIMIT,
    READER_KEYWORD_ADVICE,
    at_least,
    called_with,
    checked_flag,
    checked_int,
    deep_copied,
    describe_element,
    describe_group,
    format_call,
    is_int,
    keyword_unless_default,
    method_name,
    name_of,
    plain_int,
    rejects_keywords,
    validate_callable,
    validate_condition,
    validate_flag,
    validate_key,
)

__all__ = [
    "BATCH_KEYWORD_ADVICE",
    "DROPPED",
    "ELEMENTS_PER_RESTART",
    "PARALLEL_KEYWORD_ADVICE",
    "POSITION_LIMIT",
    "READER_KEYWORD_ADVICE",
    "A",
    "Acknowledging",
    "AnyNode",
    "AnyOrder",
    "Batched",
    "Buffering",
    "CodeTemplate",
    "Copying",
    "Dropped",
    "E",
    "Elementwise",
    "Expecting",
    "Failed",
    "FlowBase",
    "Identity",
    "IndexTransform",
    "IndexedMap",
    "IndexedSource",
    "Indices",
    "Joining",
    "KeepsPass",
    "ListOf",
    "MadeFromLatest",
    "Merging",
    "Node",
    "Offsets",
    "OneShot",
    "Padded",
    "PassFactory",
    "PassThrough",
    "Placement",
    "Positions",
    "Provenance",
    "ReadsInPlace",
    "ReadsSpans",
    "Receipts",
    "Reshardable",
    "RestartPoint",
    "Restartable",
    "Restarts",
    "Resumable",
    "Retained",
    "Retaining",
    "Row",
    "SkippedByProbe",
    "Sliceable",
    "SourcePosition",
    "StoresPass",
    "T",
    "Traceable",
    "Traced",
    "TracedReader",
    "U",
    "Unordered",
    "Windowed",
    "at_least",
    "cached_per_node",
    "called_with",
    "checked",
    "checked_choice",
    "checked_flag",
    "checked_function",
    "checked_functions",
    "checked_int",
    "checked_list",
    "checked_names",
    "checked_number",
    "checked_path",
    "deep_copied",
    "describe_element",
    "describe_group",
    "endless_part",
    "epoch_of_pass",
    "flow",
    "format_call",
    "frozen_node",
    "generator",
    "integers",
    "is_int",
    "keyword_unless_default",
    "method_name",
    "name_of",
    "permute",
    "plain_int",
    "position_after_reshard",
    "probed",
    "refuse_mismatch",
    "rejects_keywords",
    "spec_for_all_elements",
    "spec_of_result",
    "trace",
    "uniform",
    "validate_callable",
    "validate_condition",
    "validate_flag",
    "validate_key",
    "when_read",
    "with_inferred",
    "with_sources",
    "wrong",
]
