"""Names of other libraries: an error for ``flow.concatenate`` suggests ``concat``.

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
    "agg": "a loop over the flow, or a table library before from_items",
    "apply_transform": "map(f)",
    "as_numpy_iterator": "a for loop: elements are NumPy arrays already",
    "batch_by_length": "bucket_by_length(length, boundaries, batch_sizes)",
    "batch_by_size": "bucket_by_length(length, boundaries, max_tokens=n)",
    "batch_by_tokens": "bucket_by_length(length, boundaries, max_tokens=n)",
    "cardinality": "len(flow), or flow.size() where a pass has to count",
    "collate": "batch(n, collate=f)",
    "count": "len(flow), or flow.size() where a pass has to count",
    "drop": "skip(n)",
    "epochs_iter": "epochs(n)",
    "first": "flow[0], or take(1)",
    "for_each": "a for loop",
    "foreach": "a for loop",
    "gather": "select_rows(positions)",
    "group_by": "batch_by_key(n, key), or sort the rows before from_items",
    "groupby": "batch_by_key(n, key), or sort the rows before from_items",
    "head": "take(n).collect(), or `flowdsl head file.py:flow` in a terminal",
    "iter_batches": "a for loop over batch(n)",
    "iloc": "flow[a:b], or flow[positions]",
    "last": "flow[-1]",
    "limit": "take(n)",
    "parallel": "prefetch(procs=n) after the operators that should run in parallel",
    "parallel_map": "map(f).prefetch(procs=n)",
    "persist": "cache(), or cache(path) in a file",
    "snapshot": "cache(path)",
    "pin_memory": 'to_torch("cuda"), which copies into pinned memory',
    "reduce": "functools.reduce(f, flow), or a for loop",
    "random_split": "split(0.8, seed=0)",
    "rolling": "window(n)",
    "sliding_window": "window(n)",
    "save": "write_lmdb(path), or another write method",
    "show": "explain() for the operators, inspect() for elements",
    "reverse": "flow[::-1]",
    "slice": "flow[a:b:c]",
    "sort": "sorted(flow), or sort the rows before from_items",
    "starmap_async": "starmap(f).prefetch(procs=n)",
    "sum": "sum(flow)",
    "tail": "flow[-n:]",
    "to_dataloader": "to_torch()",
    "to_numpy": "batch(n), whose elements are arrays",
    "to_list": "collect()",
    "to_tf": "flowdsl.tensorflow.inputs.dataflow_to_dataset(flow)",
    "tolist": "collect()",
    "train_test_split": "split(0.8, seed=0)",
    "transform": "map(f), or augment(transform) for images",
    "unfold": "window(n, stride, dilation=k)",
    "union": "concat(other), or interleave(other)",
    "where": "filter(f)",
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
    found = (
        [f"{ours}"]
        if ours
        else [
            f"{our_name} ({theirs} in {library})"
            for of in documented
            for theirs, library, our_name in _named_elsewhere(of)
            if _last(theirs) == name
        ]
    )
    advice = f"; write {' or '.join(dict.fromkeys(found))}" if found else ""
    # With a name and an object, Python adds a suggestion for a name that is spelled wrong.
    return AttributeError(f"{what}{advice}", name=name, obj=owner)


@cache
def _named_elsewhere(documented: object) -> list[tuple[str, str, str]]:
    """Return names of other libraries, each with its library and our name, from docstrings."""
    functions: Iterator[object] = iter([documented])
    if isinstance(documented, type):
        functions = (getattr(documented, n) for n in dir(documented) if not n.startswith("_"))
    found: list[tuple[str, str, str]] = []
    for function in functions:
        text = " ".join((inspect.getdoc(function) or "").partition("Elsewhere:")[2].split())
        for part in text.split("; "):
            library = part.partition(" ")[0]
            names = re.findall("``([^`]+)``", part)
            found += [(name, library, getattr(function, "__name__", "")) for name in names]
    return found


def _last(name: str) -> str:
    """Return a name without its class and arguments.

    >>> _last("MapDataset.concatenate(other)")
    'concatenate'
    """
    return name.partition("(")[0].rpartition(".")[2]
