"""Names of operators in other libraries: an error for ``flow.concatenate`` suggests ``concat``.

The docstrings of operators have the names that tensorpack, tf.data, Grain and torchdata use, under
``Elsewhere``. Further names, of pandas and Ray Data for example, are listed here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

_METHODS: Final = {
    "add_column": 'zip(from_items([{"name": value}, ...])), or map(f)',
    "add_index": "enumerate()",
    "add_item": "concat(from_items([item]))",
    "agg": "a loop over the flow, or a table library before from_items",
    "apply_transform": "map(f)",
    "as_numpy_iterator": "a for loop: elements are NumPy arrays already",
    "assert_cardinality": "zip(from_range(n)), which fails at the end of a pass of another length",
    "associate": "map(lambda x: {**x, **table[key(x)]})",
    "batch_by_length": "bucket_by_length(length, boundaries, batch_sizes)",
    "batch_by_size": "bucket_by_length(length, boundaries, max_tokens=n)",
    "batch_by_tokens": "bucket_by_length(length, boundaries, max_tokens=n)",
    "batched": "batch(n)",
    "cardinality": "len(flow), or sum(1 for _ in flow) where only a pass shows it",
    "cast": "map(f), or an element type in the reader, as in from_csv(path, Row)",
    "cast_column": "map_component(f, name)",
    "class_encode_column": "map_component(names.index, name)",
    "collate": "batch(n, collate=f)",
    "columnar": "batch(n)",
    "count": "len(flow), or sum(1 for _ in flow) where only a pass shows it",
    "cycle": "repeat()",
    "decode": "an element type in the reader, as in from_webdataset(paths, Sample), or map(f)",
    "demux": "filter(f), once for each part: a flow can be read several times",
    "drop": "skip(n)",
    "drop_columns": "select(names of the others)",
    "epochs_iter": "epochs(n)",
    "extract_keys": "select(*names)",
    "first": "flow[0], or take(1)",
    "flatmap": "flat_map(f)",
    "flatten": "map(f), or flat_map(f) for several elements",
    "for_each": "a for loop",
    "foreach": "a for loop",
    "fork": "the same flow, which can be read several times",
    "gather": "select_rows(positions)",
    "get_single_element": "flow[0], or [x] = flow",
    "global_shuffle": "shuffle(seed=0)",
    "group_by": "batch_by_key(n, key), or sort the rows before from_items",
    "group_by_reducer": "batch_by_key(10**9, key, collate=reduce)",
    "groupby": "batch_by_key(n, key), or sort the rows before from_items",
    "head": "take(n).collect(), or `flowdsl head file.py:flow` in a terminal",
    "iloc": "flow[a:b], or flow[positions]",
    "in_batch_shuffle": "random_map(lambda batch, rng: rng.permutation(batch))",
    "iter_batches": "a for loop over batch(n)",
    "last": "flow[-1]",
    "limit": "take(n)",
    "load_state_dict": "resume(state)",
    "map_batched": "batch(n).map(f).unbatch()",
    "map_batches": "batch(n).map(f).unbatch()",
    "map_dict": "map_component(f, name)",
    "map_tuple": "starmap(f)",
    "mux": 'interleave(other, stop="first")',
    "mux_longest": "interleave(other)",
    "pad_to_cardinality": 'batch(n, remainder="fill")',
    "parallel": "prefetch(procs=n) after the operators that should run in parallel",
    "parallel_map": "map(f).prefetch(procs=n)",
    "persist": "cache(), or cache(path) in a file",
    "pin_memory": 'to_torch("cuda"), which copies into pinned memory',
    "ragged_batch": "batch(n, collate=list)",
    "random_split": "split(0.8, seed=0)",
    "rebatch": "unbatch().batch(n)",
    "reduce": "functools.reduce(f, flow), or a for loop",
    "rejection_resample": "sample(n, weights), with a weight for each row",
    "remove_columns": "select(names of the others)",
    "rename": "map(lambda x: {...})",
    "rename_column": "map(lambda x: {...})",
    "rename_columns": "map(lambda x: {...})",
    "rename_keys": "map(lambda x: {...})",
    "resampled": "sample(n), or repeat()",
    "reverse": "flow[::-1]",
    "rolling": "window(n)",
    "round_robin_demux": "shard(n, i), once for each part",
    "rows2columnar": "batch(n)",
    "rsample": "random_map(lambda x, rng: x if rng.random() < p else None).filter_map(lambda x: x)",
    "save": "write_lmdb(path), or another write method",
    "select_columns": "select(*names)",
    "set_epoch": "epoch(k), or epochs(n)",
    "set_format": "batch(n), whose elements are arrays, or to_torch()",
    "set_length": "fixed_size(n)",
    "set_transform": "map(f), which is applied when an element is read",
    "sharding_filter": "shard(n, i)",
    "show": "explain() for the operators, inspect() for elements",
    "slice": "flow[a:b:c]",
    "sliding_window": "window(n)",
    "snapshot": "cache(path)",
    "sort": "sorted(flow), or sort the rows before from_items",
    "split_by_node": "shard(n, i)",
    "starmap_async": "starmap(f).prefetch(procs=n)",
    "sum": "sum(flow)",
    "tail": "flow[-n:]",
    "to_csv": "write_csv(path)",
    "to_dataloader": "to_torch()",
    "to_dict": "batch(len(flow))[0]",
    "to_iter_dataset": "prefetch(threads=n)",
    "to_json": "map(json.dumps).write_text(path)",
    "to_list": "collect()",
    "to_numpy": "batch(n), whose elements are arrays",
    "to_pandas": "pandas.DataFrame(flow.collect())",
    "to_parquet": "write_parquet(path)",
    "to_tf": "flowdsl.tensorflow.inputs.dataflow_to_dataset(flow)",
    "to_tuple": "select(*picks)",
    "tolist": "collect()",
    "train_test_split": "split(0.8, seed=0)",
    "transform": "map(f), or augment(transform) for images",
    "unbatched": "unbatch()",
    "unfold": "window(n, stride, dilation=k)",
    "union": "concat(other), or interleave(other)",
    "unique": "scan(f, frozenset()).filter_map(g), or set(flow)",
    "unlisted": "unbatch()",
    "until": "take_while(f)",
    "unzip": "map(itemgetter(0)) and map(itemgetter(1)): a flow can be read several times",
    "where": "filter(f)",
    "window_shuffle": "shuffle(buffer=n)",
    "with_epoch": "fixed_size(n)",
    "with_format": "batch(n), whose elements are arrays, or to_torch()",
    "with_length": "fixed_size(n)",
    "with_transform": "map(f), which is applied when an element is read",
    "zip_with_iter": "map(lambda x: (x, by_key[key(x)])), where by_key = dict(other)",
    "zip_with_map": "map(lambda x: (x, table[key(x)]))",
}
"""For names of other libraries' methods that are not in a docstring: what to write instead."""

_FUNCTIONS: Final = {
    "AUTOTUNE": 'prefetch(procs="auto")',
    "DataLoader": "a flow: from_dataset(dataset).batch(n).prefetch(procs=n).to_torch()",
    "Dataset": "a source, such as from_items, from_iterable or from_files",
    "array_record": "from_arrayrecord",
    "from_array": "from_items(array)",
    "from_arrow": "from_items(table)",
    "from_generator": "from_iterable(function), where function returns an iterator",
    "from_json": "from_text(path).map(json.loads)",
    "from_list": "from_items(items)",
    "from_numpy": "from_items(array), or from_npy for a file",
    "from_pandas": "from_items(frame)",
    "from_tensor_slices": "from_items((features, labels))",
    "load_dataset": "from_dataset(datasets.load_dataset(...))",
    "open_csv": "from_csv",
    "range": "from_range(n)",
    "read_csv": "from_csv",
    "read_images": "from_images",
    "read_json": "from_text(path).map(json.loads)",
    "read_numpy": "from_npy or from_npz",
    "read_parquet": "from_parquet",
    "read_text": "from_text",
    "read_tfrecords": "from_tfrecord",
    "read_webdataset": "from_webdataset",
    "scan_csv": "from_csv",
    "scan_parquet": "from_parquet",
}
"""The same for names of functions that begin a pipeline."""


def no_method(name: str, flow: object) -> AttributeError:
    """Create the error for a method that a flow does not have."""
    return _error(f"a Flow has no method {name!r}", name, flow, _METHODS.get(name), type(flow))


def no_function(name: str, module: object, functions: Iterable[object]) -> AttributeError:
    """Create the error for a name that ``flowdsl`` does not have."""
    if name not in _FUNCTIONS and (method := _METHODS.get(name)) is not None:
        return _error(f"flowdsl has no function {name!r}", name, module, f"the method {method}")
    what = f"flowdsl has no function {name!r}"
    return _error(what, name, module, _FUNCTIONS.get(name), *functions)


def _error(
    what: str, name: str, owner: object, ours: str | None, *documented: object
) -> AttributeError:
    """Create an error that suggests ``ours``, or the names in the docstrings of ``documented``."""
    suggestions = [ours] if ours else []
    if not ours:
        for function_or_class in documented:
            for theirs, library, our_name in _named_elsewhere(function_or_class):
                if _last_part(theirs) == name:
                    suggestions.append(f"{our_name} ({theirs} in {library})")
    advice = f"; write {' or '.join(dict.fromkeys(suggestions))}" if suggestions else ""
    # With a name and an object, Python adds a suggestion for a name that is spelled wrong.
    return AttributeError(f"{what}{advice}", name=name, obj=owner)


@cache
def _named_elsewhere(documented: object) -> list[tuple[str, str, str]]:
    """Return names of other libraries, each with its library and our name, from docstrings.

    ``documented`` is a function, or a class whose methods are read.
    """
    functions: Iterator[object] = iter([documented])
    if isinstance(documented, type):
        functions = (
            getattr(documented, name) for name in dir(documented) if not name.startswith("_")
        )
    found: list[tuple[str, str, str]] = []
    for function in functions:
        text = " ".join((inspect.getdoc(function) or "").partition("Elsewhere:")[2].split())
        for part in text.split("; "):
            library = part.partition(" ")[0]
            names = re.findall("``([^`]+)``", part)
            found += [(name, library, getattr(function, "__name__", "")) for name in names]
    return found


def _last_part(name: str) -> str:
    """Return a name without its class and arguments.

    >>> _last_part("MapDataset.concatenate(other)")
    'concatenate'
    """
    return name.partition("(")[0].rpartition(".")[2]
