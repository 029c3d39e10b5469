"""Writes docs/operators.md, from the operators themselves: ``make docs``.

A method's signature, annotations and docstring say what it takes, what it gives, how many, and
what others call it. What it does to the rows, and what it is to the planner, is asked of its node,
in the chains below.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, get_overloads
from unittest.mock import create_autospec

import attrs
import lmdb
import numpy as np

import flowdsl as fl
from flowdsl.effects import TAGS, Tag
from flowdsl.nodes import (
    AnyNode,
    Batched,
    Elementwise,
    Identity,
    IndexedSource,
    IndexTransform,
    Joining,
    Merging,
)

PAGE = Path(__file__).with_name("operators.md")
PEERS = ("tensorpack", "tf.data", "Grain", "torchdata")

AnyFlow: TypeAlias = fl.Flow[Any, Any]
Chain: TypeAlias = Callable[[AnyFlow], AnyFlow]


@attrs.frozen
class Operator:
    """A source or a method, and chains that show what it does.

    One is it without options; each of the others has an option that changes its effects or its
    kind, and is named for it.
    """

    name: str
    chains: dict[str, Chain]
    base: Callable[[], AnyFlow]

    @property
    def is_source(self) -> bool:
        """Whether it begins a flow."""
        return not hasattr(fl.Flow, self.name)

    @property
    def function(self) -> Callable[..., object]:
        """What one calls."""
        found: Callable[..., object] = getattr(fl if self.is_source else fl.Flow, self.name)
        return found


def _numbers() -> AnyFlow:
    return fl.from_range(5)


def _arrays() -> AnyFlow:
    return fl.from_items([(np.arange(n), n) for n in (2, 3, 3)])


def _source(make: Callable[..., AnyFlow], *args: object) -> Operator:
    return Operator(make.__name__, {"": lambda _: make(*args)}, _numbers)


def _method(name: str, chain: Chain, base: Callable[[], AnyFlow] = _numbers) -> Operator:
    return Operator(name, {"": chain}, base)


def _from_lmdb() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().write_lmdb(f"{folder}/rows.lmdb")
        return fl.from_lmdb(f"{folder}/rows.lmdb", int)


def _from_text() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().map(str).write_text(f"{folder}/lines.txt")
        return fl.from_text(f"{folder}/lines.txt")


def _from_csv() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().map(lambda i: {"i": i}).write_csv(f"{folder}/rows.csv")
        return fl.from_csv(f"{folder}/rows.csv")


def _from_hdf5() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().write_hdf5(f"{folder}/rows.h5", "numbers")
        return fl.from_hdf5(f"{folder}/rows.h5", "numbers", int)


def _from_npz() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().write_npz(f"{folder}/rows.npz")
        return fl.from_npz(f"{folder}/rows.npz", int)


def _from_npy() -> AnyFlow:
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", np.arange(2))
        return fl.from_npy(f"{folder}/rows.npy")


def _from_svmlight() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().map(lambda i: f"{i} 1:2").write_text(f"{folder}/rows.svm")
        return fl.from_svmlight(f"{folder}/rows.svm")


def _from_tfrecord(**options: Any) -> AnyFlow:
    with TemporaryDirectory() as folder:
        path = f"{folder}/rows.tfrecord"
        fl.from_items([b"a", b"b"]).write_tfrecord(path, **options)
        return fl.from_tfrecord(path, **options)


def _from_arrayrecord() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().write_arrayrecord(f"{folder}/rows.arrayrecord")
        return fl.from_arrayrecord(f"{folder}/rows.arrayrecord", int)


def _from_parquet() -> AnyFlow:
    with TemporaryDirectory() as folder:
        _numbers().write_parquet(f"{folder}/rows.parquet")
        return fl.from_parquet(f"{folder}/rows.parquet", int)


def _from_webdataset() -> AnyFlow:
    with TemporaryDirectory() as folder:
        samples = _numbers().map(lambda i: {"__key__": f"{i}", "cls": i})
        samples.write_webdataset(f"{folder}/rows.tar")
        return fl.from_webdataset(f"{folder}/rows.tar")


def _from_others(read: Callable[[str], AnyFlow]) -> AnyFlow:
    with TemporaryDirectory() as folder:
        lmdb.open(folder).close()
        return read(folder)


def _from_tfdata(change: Callable[[Any], Any]) -> AnyFlow:
    import tensorflow as tf  # here, as below: only these two rows need it

    return fl.from_tfdata(change(tf.data.Dataset.range(5)))


def _without_some(dataset: Any) -> Any:
    return dataset.filter(lambda i: i > 0)


def _from_ray(ordered: bool) -> AnyFlow:
    import ray.data

    dataset = create_autospec(ray.data.Dataset, instance=True)  # a dataset needs a cluster
    return fl.from_ray(dataset, ordered=ordered)


def _of_grain(change: Callable[[Any], Any]) -> AnyFlow:
    import grain

    return fl.from_dataset(change(grain.MapDataset.range(5)))


FAMILIES: dict[str, list[Operator]] = {
    "Sources": [
        _source(fl.from_items, [1, 2]),
        _source(fl.from_iterable, [1, 2]),
        _source(fl.from_range, 2),
        _source(fl.from_queue, Queue()),
        _source(fl.from_files, __file__),
        _source(fl.from_images, __file__),
        Operator("from_lmdb", {"": lambda _: _from_lmdb()}, _numbers),
        Operator("from_text", {"": lambda _: _from_text()}, _numbers),
        Operator("from_csv", {"": lambda _: _from_csv()}, _numbers),
        Operator("from_hdf5", {"": lambda _: _from_hdf5()}, _numbers),
        Operator("from_npz", {"": lambda _: _from_npz()}, _numbers),
        Operator("from_npy", {"": lambda _: _from_npy()}, _numbers),
        Operator("from_svmlight", {"": lambda _: _from_svmlight()}, _numbers),
        Operator(
            "from_tfrecord",
            {
                "": lambda _: _from_tfrecord(),
                "with `compression`": lambda _: _from_tfrecord(compression="gzip"),
            },
            _numbers,
        ),
        Operator("from_arrayrecord", {"": lambda _: _from_arrayrecord()}, _numbers),
        Operator("from_parquet", {"": lambda _: _from_parquet()}, _numbers),
        Operator("from_webdataset", {"": lambda _: _from_webdataset()}, _numbers),
        Operator("from_lmdb_raw", {"": lambda _: _from_others(fl.from_lmdb_raw)}, _numbers),
        Operator(
            "from_tensorpack_lmdb", {"": lambda _: _from_others(fl.from_tensorpack_lmdb)}, _numbers
        ),
        Operator("from_caffe_lmdb", {"": lambda _: _from_others(fl.from_caffe_lmdb)}, _numbers),
        Operator(
            "from_zmq",
            {
                "": lambda _: fl.from_zmq("ipc://a"),
                "with several `senders`": lambda _: fl.from_zmq("ipc://a", senders=2),
                "with `senders=None`": lambda _: fl.from_zmq("ipc://a", senders=None),
                'with `format="zmq_ops"`': lambda _: fl.from_zmq("ipc://a", format="zmq_ops"),
            },
            _numbers,
        ),
        Operator(
            "from_tfdata",
            {
                "": lambda _: _from_tfdata(lambda ds: ds),
                "of unknown length": lambda _: _from_tfdata(_without_some),
                "without end": lambda _: _from_tfdata(lambda ds: ds.repeat()),
            },
            _numbers,
        ),
        Operator(
            "from_ray",
            {"": lambda _: _from_ray(False), "with `ordered=True`": lambda _: _from_ray(True)},
            _numbers,
        ),
        Operator(
            "from_dataset",
            {
                "": lambda _: fl.from_dataset([1, 2]),
                "of an `IterableDataset`": lambda _: fl.from_dataset(_numbers().to_torch()),
                "of a Grain dataset that filters": lambda _: _of_grain(lambda ds: ds.filter(bool)),
                "of one without end": lambda _: _of_grain(lambda ds: ds.repeat()),
            },
            _numbers,
        ),
        _source(fl.fake, [(2, 2)]),
    ],
    "Mapping": [
        _method("map", lambda flow: flow.map(str)),
        _method("starmap", lambda flow: flow.starmap(lambda *x: x), _arrays),
        _method("random_map", lambda flow: flow.random_map(lambda x, rng: x)),
        _method("filter", lambda flow: flow.filter(bool)),
        _method("filter_map", lambda flow: flow.filter_map(abs)),
        _method("flat_map", lambda flow: flow.flat_map(range)),
        _method("map_component", lambda flow: flow.map_component(abs, 1), _arrays),
        _method("select", lambda flow: flow.select(fl.c1, fl.c0), _arrays),
        _method("augment", lambda flow: flow.augment(np.flip), _arrays),
        _method("enumerate", lambda flow: flow.enumerate()),
        _method("scan", lambda flow: flow.scan(lambda total, x: (total + x, total + x), 0)),
    ],
    "Batching": [
        Operator(
            "batch",
            {
                "": lambda flow: flow.batch(2),
                "with `drop_remainder`": lambda flow: flow.batch(2, drop_remainder=True),
            },
            _numbers,
        ),
        Operator(
            "padded_batch",
            {
                "": lambda flow: flow.padded_batch(2),
                "with `drop_remainder`": lambda flow: flow.padded_batch(2, drop_remainder=True),
            },
            _arrays,
        ),
        Operator(
            "batch_by_shape",
            {
                "": lambda flow: flow.batch_by_shape(2, fl.c0),
                "with `drop_remainder`": lambda flow: flow.batch_by_shape(
                    2, fl.c0, drop_remainder=True
                ),
            },
            _arrays,
        ),
        Operator(
            "batch_by_key",
            {
                "": lambda flow: flow.batch_by_key(2, abs),
                "with `drop_remainder`": lambda flow: flow.batch_by_key(
                    2, abs, drop_remainder=True
                ),
            },
            _numbers,
        ),
        Operator(
            "bucket_by_length",
            {
                "": lambda flow: flow.bucket_by_length(len, [3], 2),
                "with `drop_remainder`": lambda flow: flow.bucket_by_length(
                    len, [3], 2, drop_remainder=True
                ),
            },
            lambda: _arrays().map(fl.c0),
        ),
        Operator(
            "pack",
            {
                "": lambda flow: flow.pack(2),
                "with `drop_remainder`": lambda flow: flow.pack(2, drop_remainder=True),
                "with `first_fit` or `best_fit`": lambda flow: flow.pack(9, "first_fit"),
            },
            lambda: _arrays().map(fl.c0),
        ),
        Operator(
            "window",
            {
                "": lambda flow: flow.window(2),
                "with `key`": lambda flow: flow.window(2, key=fl.c0),
            },
            _arrays,
        ),
        _method("unbatch", lambda flow: flow.unbatch(), lambda: _numbers().batch(2)),
    ],
    "Sizing": [
        _method("take", lambda flow: flow.take(2)),
        _method("skip", lambda flow: flow.skip(2)),
        _method("take_while", lambda flow: flow.take_while(bool)),
        _method("skip_while", lambda flow: flow.skip_while(bool)),
        Operator(
            "shard",
            {
                "": lambda flow: flow.shard(2, 0),
                "with `even`": lambda flow: flow.shard(2, 0, even="drop"),
            },
            _numbers,
        ),
        _method("split", lambda flow: flow.split(0.5)[0]),
        _method("select_rows", lambda flow: flow.select_rows([3, 1, 1])),
        _method("sample", lambda flow: flow.sample(2)),
        _method("fixed_size", lambda flow: flow.fixed_size(3)),
        Operator(
            "repeat",
            {"": lambda flow: flow.repeat(2), "without `n`": lambda flow: flow.repeat()},
            _numbers,
        ),
        _method("repeat_each", lambda flow: flow.repeat_each(2)),
    ],
    "Ordering": [
        Operator(
            "shuffle",
            {"": lambda flow: flow.shuffle(), "with `buffer`": lambda flow: flow.shuffle(2)},
            _numbers,
        ),
        _method("cache", lambda flow: flow.cache()),
    ],
    "Combining": [
        _method("zip", lambda flow: flow.zip(_numbers())),
        _method("concat", lambda flow: flow.concat(_numbers())),
        Operator(
            "interleave",
            {
                "": lambda flow: flow.interleave(_numbers()),
                'with `stop="first"`': lambda flow: flow.interleave(_numbers(), stop="first"),
                'with `stop="all"`': lambda flow: flow.interleave(_numbers(), stop="all"),
            },
            _numbers,
        ),
        Operator(
            "choose",
            {
                "": lambda flow: flow.choose(_numbers()),
                'with `stop="first"`': lambda flow: flow.choose(_numbers(), stop="first"),
                'with `stop="all"`': lambda flow: flow.choose(_numbers(), stop="all"),
            },
            _numbers,
        ),
        _method("mix", lambda flow: flow.mix(_numbers())),
        _method("merge", lambda flow: flow.merge(_numbers())),
        _method("latest", lambda flow: flow.latest()),
        _method("interleave_map", lambda flow: flow.interleave_map(range)),
    ],
    "Placement": [
        Operator(
            "prefetch",
            {
                "": lambda flow: flow.prefetch(procs=2),
                "with `ordered=False`": lambda flow: flow.prefetch(procs=2, ordered=False),
                "with `on_error`": lambda flow: flow.prefetch(procs=2, on_error="skip"),
            },
            _numbers,
        ),
        _method("replicate", lambda flow: flow.replicate(procs=2)),
    ],
    "Looking": [_method("inspect", lambda flow: flow.inspect())],
}


# -- from the node ---------------------------------------------------------------------------------

_KINDS: dict[type[object], str] = {
    IndexedSource: "indexed source",
    Elementwise: "elementwise",
    Batched: "grouping",
    IndexTransform: "indexing",
    Merging: "merging",
    Joining: "joining",
    Identity: "placement",
}


def kind_of(node: AnyNode) -> str:
    """What a node is to the planner."""
    found = next((kind for cls, kind in _KINDS.items() if isinstance(node, cls)), None)
    return found or ("in the consumer" if node.sources else "source")


def effects_of(chain: Chain, base: AnyFlow) -> str:
    """What a chain does to the row: over a flow that is exact, and over others."""
    adds = chain(base).effects - base.effects
    said = [_spelled(adds) if adds else "none"]
    ends, refuses = frozenset[Tag](), frozenset[Tag]()
    for tag, over in _OVER.items():
        other = over(base)
        try:
            effects = chain(other).effects
        except fl.InvalidFlow:
            refuses |= {tag}
            continue
        ends |= other.effects - effects
        more = effects - other.effects - adds
        said += [f"over `{tag.__name__}` also {_spelled(more)}"] if more else []
    said += [f"takes away {_spelled(ends)}"] if ends else []
    said += [f"not over {_spelled(refuses)}"] if refuses else []
    return ", ".join(said)


_OVER: dict[Tag, Chain] = {
    fl.Reordered: lambda flow: flow.shuffle(),
    fl.Resampled: lambda flow: flow.repeat(2).take(len(flow)),
    fl.Unsized: lambda flow: flow.filter(lambda _: True),
    fl.Endless: lambda flow: flow.repeat(),
}
"""Flows that have a tag, to see whether an operator does more, or less, over them."""


def _spelled(tags: frozenset[Tag]) -> str:
    return ", ".join(f"`{tag.__name__}`" for tag in TAGS if tag in tags)


def _of_each(operator: Operator, describe: Callable[[Chain, AnyFlow], str]) -> str:
    """Describe the operator without options, and with each option for which this differs."""
    cells = {option: describe(chain, operator.base()) for option, chain in operator.chains.items()}
    plain = cells[""]
    others = [f"{option} {cell}" for option, cell in cells.items() if cell != plain]
    return "; ".join([plain, *others])


# -- from the annotations --------------------------------------------------------------------------


def signature_of(function: Callable[..., object]) -> str:
    """Its name and parameters, without their types.

    >>> signature_of(fl.Flow.window)
    'window(size, stride=1, *, dilation=1, remainder="drop", stack=False, key=None)'
    """
    signature = inspect.signature(function)
    plain = [
        parameter.replace(annotation=parameter.empty, default=_plain(parameter.default))
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    shown = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return f"{function.__name__}{shown}".replace("'", '"')


def _plain(default: object) -> object:
    if isinstance(default, type) and default is not inspect.Parameter.empty:
        return _Name(default.__name__)
    return default


@attrs.frozen(eq=False, repr=False)
class _Name:
    """A default that is spelled by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


def elements_of(operator: Operator) -> list[str]:
    """The types of what comes in and goes out, one for each form of element.

    >>> elements_of(_method("filter", lambda flow: flow))
    ['`T` → `T`']
    """
    shown: dict[tuple[str, ...], _Types] = {}
    for function in get_overloads(operator.function) or [operator.function]:
        if "Never" in function.__annotations__.values():  # for ``**options`` of unknown types
            continue
        types = _types(operator, function)
        if "Any" in types.given:  # of elements of any types, where no other overload applies
            continue
        form = tuple(map(_form, types.given)) or (_of_any_number(types.result),)
        if "remainder" in types.options:  # it changes the form of the result
            form = (*form, "remainder")
        if form not in shown or types.tells_more_than(shown[form]):
            shown[form] = types
    return [str(types) for types in shown.values()]


@attrs.frozen
class _Types:
    """The types of an overload's elements, and the options that select it."""

    given: tuple[str, ...]
    result: str
    options: tuple[str, ...]

    def tells_more_than(self, other: _Types) -> bool:
        """Of two for one form of element, which to show: any number of components, ints, most."""
        same = self.given == other.given and ("Any" in other.result or "Any" not in self.result)
        more_components = same and len(self.result) > len(other.result)
        return self._rank > other._rank or more_components

    @property
    def _rank(self) -> tuple[bool, bool]:
        given = ", ".join(self.given) or self.result
        return "..." in given and "Any" not in given, given == "int"

    def __str__(self) -> str:
        text = f"`{', '.join(self.given)}` → `{self.result}`" if self.given else f"`{self.result}`"
        text = re.sub(r"\[(\w+)(, \1){3,}\]", r"[\1, ...]", text)  # as many as the overloads have
        text = text.replace("A0, A1, A2, A3, A4, A5, A6, A7", "A0, ..., A7")
        options = " and ".join(f"`{option}`" for option in self.options)
        return f"{text} with {options}" if options else text


def _types(operator: Operator, function: Callable[..., object]) -> _Types:
    hints = function.__annotations__
    flows = (
        "FlowBase[",
        "Batchable[",
        "FlowOfNonTuples[",
        "FlowOfSingleValues[",
        "FlowOfTuples[",
        "FlowOfTuplesInPyright[",
    )
    given = [_element(hint) for hint in hints.values() if hint.startswith(flows)]
    if not operator.is_source and "self" not in hints:
        given.insert(0, "T")
    usual = inspect.signature(operator.function).parameters
    options = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and _is_option(usual.get(name))
    ]
    return _Types(tuple(given), _element(hints["return"]), tuple(options))


def _is_option(parameter: inspect.Parameter | None) -> bool:
    return parameter is not None and parameter.default is not parameter.empty


def _form(element: str) -> str:
    """What kind of element it is; overloads for one kind differ in a number or a number's type."""
    head = element.partition("[")[0]
    return {"bool": "number", "int": "number", "float": "number", "Mapping": "dict"}.get(head, head)


def _of_any_number(element: str) -> str:
    """The same of a tuple of any number of components alike.

    >>> _of_any_number("tuple[NDArray[D1], NDArray[D2]]")
    'tuple[NDArray[D]]'
    """
    return re.sub(r"(?<=\[)([^,]+)(, (\1|\.\.\.))+(?=\]$)", r"\1", re.sub(r"D\d", "D", element))


def _element(hint: str) -> str:
    """The element of a flow's type, as short as can be read; of several flows, it and dots."""
    if hint.startswith("Batchable["):
        return hint
    flow = ast.parse(hint, mode="eval").body
    assert isinstance(flow, ast.Subscript)
    assert isinstance(flow.slice, ast.Tuple)
    if ast.unparse(flow.value) == "tuple":
        return f"{_element(ast.unparse(flow.slice.elts[0]))}, ..."
    text = ast.unparse(flow.slice.elts[0])
    if ast.unparse(flow.value) in ("FlowOfTuples", "FlowOfTuplesInPyright"):
        text = f"tuple[{text}, ...]"
    text = text.replace("Unknown", "Any").replace("TypedDictLike", "TypedDict")
    text = text.replace("Rows", "NDArray[Any]")  # or lists, or tuples and dicts of them
    return text.replace("np.", "").replace("bool_", "bool").replace(",]", "]")


# -- from the docstrings ---------------------------------------------------------------------------

_LABELS = "Length|Effects|Errors|Source|Elsewhere"


def paragraph_of(function: Callable[..., object], label: str) -> str:
    """What a docstring says under a label, in one line.

    >>> paragraph_of(fl.from_range, "Length")
    '`n`'
    """
    text = inspect.getdoc(function) or ""
    found = re.search(rf"\b{label}: (.*?)\.?(?=\s+(?:{_LABELS}): |\n\n|$)", text, re.DOTALL)
    if found is None:
        raise ValueError(f"the docstring of {function.__qualname__} has no line {label}: ...")
    return " ".join(found[1].split()).replace("``", "`")


def names_of(function: Callable[..., object]) -> dict[str, str]:
    """What the other systems call it, by system; ``none`` where one has no counterpart."""
    found = dict[str, str]()
    for part in paragraph_of(function, "Elsewhere").split("; "):
        peer, _, name = part.partition(" ")
        found[peer] = name
    if tuple(found) != PEERS:
        raise ValueError(f"{function.__qualname__}: Elsewhere: {found}; expected {PEERS}")
    return found


# -- the page --------------------------------------------------------------------------------------

_HEAD = """\
# The operators

Written by `make docs` from the operators themselves: their nodes, annotations and docstrings, which
say more of each, as `help(fl.Flow.batch)` does. How to add one:
[adding-an-operator.md](adding-an-operator.md). For a reader who knows tensorpack or TF1 queues:
[migrating.md](migrating.md).

- **elements**: the type of what comes in, and of what goes out. Of types that differ only in how
  many components there are, or in which kind of number it is, one is shown. `Batchable[B]` is an
  element whose batch is a `B`: [types.md](types.md#elements) has a table. `NDArray` is NumPy's.
- **effects**: the tags that it adds to the row of the flow, or of the flows; and, over a flow that
  has a tag, those that it adds besides, takes away, or is refused for. `fl.effects` says what each
  tag promises.
- **length**: how many elements a pass has.
- **kind**: what it is to the planner. An *indexed source* reads any row by its number; over such,
  *indexing* and *merging* are arithmetic on positions, and no element moves. *Elementwise*,
  *grouping* and *joining* operators can run in a worker, on the elements that it has. What is *in
  the consumer* sees the whole pass there; what is below or above it may run in workers.

`fl.zip(a, b, c)` and `fl.concat`, `fl.interleave`, `fl.choose`, `fl.mix` and `fl.merge` of a list
or a dict of flows are functions of the same operators; with `with_names=True` each element of a
dict of flows becomes `(name, element)`. `flow.apply(Node)` chains a node of your own, of any kind.
"""

_FOOT = """\
The counterparts in other systems; what they promise may differ. Grain's are methods of its
`MapDataset`, or classes of `grain.experimental`. torchdata's are classes of its DataPipes, which
it no longer has, of `torchdata.nodes`, or of torch's `DataLoader` and its samplers.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, operators in FAMILIES.items():
        head = ["operator", "elements", "effects", "length", "kind"]
        parts += [f"## {title}\n", _table(head, map(_row, operators))]
    head = ["here", *PEERS]
    everyone = [operator for operators in FAMILIES.values() for operator in operators]
    names = ([_code(o.name), *names_of(o.function).values()] for o in everyone)
    parts += ["## Elsewhere\n", _FOOT, _table(head, names)]
    return "\n".join(parts)


def _row(operator: Operator) -> list[str]:
    return [
        _code(signature_of(operator.function)),
        "<br>".join(elements_of(operator)),
        _of_each(operator, effects_of if not operator.is_source else _effects),
        paragraph_of(operator.function, "Length"),
        _of_each(operator, lambda chain, base: kind_of(chain(base).node)),
    ]


def _effects(source: Chain, base: AnyFlow) -> str:
    return _spelled(source(base).effects) or "none"


def _code(text: str) -> str:
    return f"`{text}`"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


if __name__ == "__main__":
    PAGE.write_text(page())
