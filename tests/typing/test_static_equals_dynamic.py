"""The effects that a checker reveals for a chain are the effects that it has at run time.

Every method is called on a flow of every possible row, and every operator over two flows on
every two of them, in one run of each checker. Chains that a checker refuses are refused when built.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib.util import find_spec
from types import UnionType
from typing import Any, TypeAlias, get_args

import attrs
import lmdb
import numpy as np
import pytest

import flowdsl as fl
from flowdsl import effects
from flowdsl.effects import TAGS
from tests.checkers import Checker, mypy, pyright

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="some sources need TensorFlow"),
]

Tags: TypeAlias = frozenset[str]
Wider: TypeAlias = Callable[..., set[str]]

SETUP = """
import queue
from itertools import count
from pathlib import Path
from typing import TypeVar
from collections.abc import Iterator

import grain
import lmdb
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

import flowdsl as fl
from flowdsl.effects import Effect
from flowdsl.ops.sizing import Repeat

F = TypeVar("F", bound=Effect)


class Streamed(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])


def evens(flow: fl.Flow[int, F]) -> fl.Flow[int, F | fl.Unsized]:
    return flow.filter(lambda i: i % 2 == 0)


keys = count()


def sample(x: object) -> dict[str, str]:
    return {"__key__": str(next(keys)), "txt": str(x)}


def yes(i: int) -> bool:
    return True


def running(total: int, i: int) -> tuple[int, int]:
    return total + i, total + i


def optional(i: int) -> int | None:
    return i or None


def pair(i: int) -> tuple[int, int]:
    return i, i


def array(i: int) -> NDArray[np.int64]:
    return np.ones(3, np.int64)


def same(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return x


def noisy(i: int, rng: np.random.Generator) -> float:
    return i + rng.random()


flag = yes(1)
streamed = Streamed()
some, none = optional(2), optional(0)
folder = Path("FOLDER")
filled: queue.Queue[int | None] = queue.Queue()
exact = fl.from_range(6)
reordered = exact.shuffle()
resampled = fl.from_range(3).repeat(2)
unsized = exact.filter(yes)
reordered_resampled = fl.from_range(3).shuffle().repeat(2)
reordered_unsized = reordered.filter(yes)
resampled_unsized = resampled.filter(yes)
reordered_resampled_unsized = reordered_resampled.filter(yes)
resampled_endless = exact.repeat()
reordered_resampled_endless = reordered.repeat()
resampled_unsized_endless = unsized.repeat()
reordered_resampled_unsized_endless = reordered_unsized.repeat()
"""
"""A flow with each possible row of effects: of six numbers, or endless."""

ROWS = re.findall(r"^(\w+) = ", SETUP[SETUP.index("exact = ") :], re.MULTILINE)

MET = {"exact", "reordered_resampled_unsized", "reordered_resampled_unsized_endless"}
"""The rows that every row is combined with, besides itself: no tag, and all that go together."""

SOURCES = [
    "fl.from_range(6)",
    "fl.from_items([1, 2, 3])",
    "fl.from_items(np.zeros((3, 2)))",
    "fl.from_items((np.zeros((3, 2)), np.zeros(3)))",
    "fl.from_items({'x': np.zeros((3, 2))})",
    "fl.from_iterable([1, 2, 3])",
    "fl.from_iterable(lambda: iter([1, 2, 3]))",
    "fl.from_queue(filled)",
    "fl.from_queue(filled, end=0)",
    "fl.from_files(folder / '*.png')",
    "fl.from_text(folder / 'numbers.txt')",
    "fl.from_csv(folder / 'numbers.csv')",
    "fl.from_csv(folder / 'numbers.csv', tuple[int])",
    "fl.from_csv(folder / 'numbers.csv', header=False)",
    "fl.from_csv(folder / 'numbers.csv', header=flag)",
    "fl.from_csv(folder / 'numbers.csv', header=False, columns=['n'])",
    "fl.from_hdf5(folder / 'numbers.h5', 'n')",
    "fl.from_hdf5(folder / 'numbers.h5', 'n', int)",
    "fl.from_npz(folder / 'numbers.npz')",
    "fl.from_npz(folder / 'numbers.npz', int)",
    "fl.from_npy(folder / 'numbers.npy')",
    "fl.from_npy(folder / 'numbers.npy', np.int64)",
    "fl.from_svmlight(folder / 'numbers.svm')",
    "fl.from_images(folder / '*.png')",
    "fl.from_lmdb(folder / 'numbers.lmdb')",
    "fl.from_lmdb(folder / 'numbers.lmdb', int)",
    "fl.from_tfrecord(folder / 'bytes.tfrecord')",
    "fl.from_tfrecord(folder / 'numbers.tfrecord', int)",
    "fl.from_tfrecord(folder / 'bytes.tfrecord.gz', compression='gzip')",
    "fl.from_tfrecord(folder / 'numbers.tfrecord.gz', int, compression='gzip')",
    "fl.from_arrayrecord(folder / 'numbers.arrayrecord')",
    "fl.from_arrayrecord(folder / 'numbers.arrayrecord', int)",
    "fl.from_parquet(folder / 'numbers.parquet')",
    "fl.from_parquet(folder / 'numbers.parquet', int)",
    "fl.from_parquet([folder / 'numbers.parquet'], columns=['element'])",
    "fl.from_webdataset(folder / 'numbers.tar')",
    "fl.from_webdataset(folder / 'numbers.tar', dict)",
    "fl.from_dataset([1, 2, 3])",
    "fl.from_dataset(streamed)",
    "fl.from_tfdata(tf.data.Dataset.range(3))",
    "fl.from_tfdata(tf.data.Dataset.range(3).repeat())",
    "fl.from_dataset(grain.MapDataset.range(3))",
    "fl.from_dataset(grain.MapDataset.range(3).filter(yes).repeat())",
    "fl.from_lmdb_raw(folder / 'others.lmdb')",
    "fl.from_tensorpack_lmdb(folder / 'others.lmdb')",
    "fl.from_tensorpack_lmdb(folder / 'others.lmdb', int)",
    "fl.from_caffe_lmdb(folder / 'others.lmdb')",
    "fl.from_caffe_lmdb(folder / 'others.lmdb', dtype='float32')",
    "fl.from_zmq('ipc:///tmp/numbers')",
    "fl.from_zmq('ipc:///tmp/numbers', bind=False)",
    "fl.fake([(2, 3)])",
    "fl.fake([(2, 3)], dtype=np.uint8)",
    "fl.fake([(2, 3)], dtype='uint8')",
]


def exactly(*sources: Tags) -> set[str]:
    """The static row is not wider than necessary."""
    return set()


def for_all(*tags: str) -> Wider:
    """The type is the same for all arguments, some of which have fewer effects."""
    return lambda *sources: set(tags)


def endless_with_an_end(x: Tags, y: Tags) -> set[str]:
    """Types cannot express that the flow that ends stops the other."""
    return {"Endless"} & (x ^ y)


def unsized_in_vain(x: Tags) -> set[str]:
    """Removing a tag needs a type for each row, and not every row has one."""
    return {"Unsized"} if {"Unsized", "Endless"} <= x else set()


def whole(x: Tags) -> set[str]:
    """Types cannot express that three divides six."""
    return {"Resampled"} if x <= {"Reordered"} else set()


def a_step(x: Tags) -> set[str]:
    """Types do not show the sign of a step."""
    return {"Reordered"} - x


def backwards(x: Tags) -> set[str]:
    """A type with a step assumes that rows are left out."""
    return {"Resampled"} if "Reordered" in x else set()


def positions(x: Tags) -> set[str]:
    """Types do not show the positions in a list."""
    return {"Reordered", "Resampled"} if "Reordered" not in x else set()


OPERATORS: dict[str, Wider] = {
    "x.map(str)": exactly,
    "x.map(pair).starmap(max)": exactly,
    "x.random_map(noisy)": exactly,
    "x.filter(yes)": exactly,
    "x.filter_map(optional)": exactly,
    "x.flat_map(fl.from_range)": exactly,
    "x.map(pair).map_component(str)": exactly,
    "x.map(pair).select(fl.c1)": exactly,
    "x.map(array).augment(same)": exactly,
    "x.enumerate()": exactly,
    "x.inspect(0)": exactly,
    "x.batch(4)": exactly,
    "x.batch(4, drop_remainder=True)": exactly,
    "x.batch(4, drop_remainder=flag)": exactly,
    "x.batch(3, drop_remainder=True)": whole,
    "x.batch(2, collate=list)": exactly,
    "x.batch(4, collate=list, drop_remainder=True)": exactly,
    "x.map(array).padded_batch(4)": exactly,
    "x.map(array).padded_batch(4, drop_remainder=True)": exactly,
    "x.map(array).batch_by_shape(4, same)": exactly,
    "x.map(array).batch_by_shape(4, same, drop_remainder=True)": exactly,
    "x.batch_by_key(4, str)": exactly,
    "x.batch_by_key(4, str, drop_remainder=flag)": exactly,
    "x.batch_by_key(4, str, collate=list)": exactly,
    "x.map(array).bucket_by_length(len, [2], 4)": exactly,
    "x.map(array).bucket_by_length(len, [2], max_tokens=9, drop_remainder=True)": exactly,
    "x.map(array).bucket_by_length(len, [2], 4, collate=list)": exactly,
    "x.map(array).pack(4)": exactly,
    "x.map(array).pack(4, drop_remainder=True)": exactly,
    "x.map(array).pack(4, 'first_fit')": exactly,
    "x.map(array).pack(4, 'best_fit', bins=2, drop_remainder=flag)": exactly,
    "x.interleave_map(fl.from_range, 2)": exactly,
    "x.window(2)": exactly,
    "x.window(2, stack=True)": exactly,
    "x.window(2, 3, dilation=2, remainder='keep')": exactly,
    "x.window(2, remainder='fill')": exactly,
    "x.window(2, key=str)": exactly,
    "x.map(array).window(2, remainder='fill', stack=True, key=len)": exactly,
    "x.batch(4).unbatch()": exactly,
    "x.batch(4).unbatch(int)": exactly,
    "x.take(3)": unsized_in_vain,
    "x.take(9)": unsized_in_vain,
    "x.skip(1)": exactly,
    "x.shard(2, 0)": exactly,
    "x.split(0.5)[0]": exactly,
    "x[1:]": exactly,
    "x[1:3]": unsized_in_vain,
    "x[::2]": a_step,
    "x[1::2]": a_step,
    "x[::-1]": backwards,
    "x.select_rows([2, 1, 1])": exactly,
    "x[[2, 1, 1]]": exactly,
    "x.select_rows([1, 2])": positions,
    "x.sample(3)": exactly,
    "x.sample(3, replacement=False)": exactly,
    "x.sample(0, [0.5] * 6)": exactly,
    "x.scan(running, 0)": exactly,
    "x.take_while(yes)": exactly,
    "x.skip_while(yes)": exactly,
    "x.repeat()": exactly,
    "x.repeat(None)": exactly,
    "x.repeat(2)": exactly,
    "x.repeat(some)": for_all("Endless"),
    "x.repeat_each(2)": exactly,
    "x.fixed_size(4)": exactly,
    "x.fixed_size(4, keep_state=False)": exactly,
    "x.shuffle(seed=7)": exactly,
    "x.shuffle(seed=7, block=2)": exactly,
    "x.shuffle(2)": exactly,
    "x.shuffle(reshuffle=False)": exactly,
    "x.shuffle(2, reshuffle=flag)": exactly,
    "x.shuffle(none)": exactly,
    "x.cache()": exactly,
    "x.prefetch(procs=2)": exactly,
    "x.prefetch(threads=2, ordered=True, on_error='raise')": exactly,
    "x.prefetch(ordered=False)": exactly,
    "x.prefetch(ordered=flag)": for_all("Reordered"),
    "x.prefetch(on_error='skip')": exactly,
    "x.prefetch(on_error=print)": exactly,
    "x.prefetch(ordered=False, on_error=print)": exactly,
    "x.batch(2, collate=list).prefetch(on_error='skip')": exactly,
    "x.replicate(2)": exactly,
    "x.pipe(evens)": exactly,
    "x.apply(Repeat, 2)": exactly,
    "x.zip(y)": endless_with_an_end,
    "x.map(pair).zip(y.map(pair))": endless_with_an_end,
    "x.concat(y)": exactly,
    "x.interleave(y)": exactly,
    "x.choose(y)": exactly,
    "x.choose(y, stop='first')": endless_with_an_end,
    "x.mix(y)": exactly,
    "x.merge(y)": exactly,
    "x.latest(2)": exactly,
    # What ends a chain, for what it refuses.
    "x.collect()": exactly,
    "x.size()": exactly,
    "x.write_lmdb(folder / 'written.lmdb', overwrite=True)": exactly,
    "x.write_hdf5(folder / 'written.h5', 'n', overwrite=True)": exactly,
    "x.write_npz(folder / 'written.npz', overwrite=True)": exactly,
    "x.map(str).write_text(folder / 'written.txt', overwrite=True)": exactly,
    "x.map(pair).write_csv(folder / 'written.csv', overwrite=True)": exactly,
    "x.write_tfrecord(folder / 'written.tfrecord', overwrite=True)": exactly,
    "x.write_arrayrecord(folder / 'written.arrayrecord', overwrite=True)": exactly,
    "x.map(sample).write_webdataset(folder / 'written.tar', overwrite=True)": exactly,
    "x.write_parquet(folder / 'written.parquet', overwrite=True)": exactly,
}
"""Calls, and the tags by which their static row may be wider than necessary."""

LONG = [
    "exact.shuffle().map(str).batch(2, collate=list).repeat().prefetch().take(3)",
    "resampled_unsized.take(6).map(array).zip(resampled.map(array))",
    "exact.concat(exact, exact)",
    "fl.choose([exact, exact])",
    "fl.choose({'a': exact, 'b': exact}, with_names=True)",
    "fl.concat([reordered, reordered])",
    "fl.concat({'a': unsized, 'b': unsized}, with_names=True)",
    "fl.interleave([exact, exact], weights=[1, 2])",
    "fl.interleave([exact, exact], stop='all')",
    "fl.merge([unsized, unsized])",
    "fl.merge({'a': exact, 'b': exact}, with_names=True)",
    "fl.mix([exact, exact])",
    "fl.choose({'a': exact, 'b': exact}, stop='all', with_names=flag)",
    "fl.concat({'a': exact, 'b': exact}, with_names=flag)",
    "fl.interleave({'a': exact, 'b': exact}, with_names=flag)",
    "fl.merge({'a': exact, 'b': exact}, with_names=flag)",
    "fl.mix({'a': exact, 'b': exact}, with_names=flag)",
]

DIFFERENT = [
    "exact.concat(reordered, resampled_endless)",
    "exact.interleave(reordered, resampled)",
    "exact.choose(unsized, resampled)",
    "exact.mix(reordered, resampled)",
]

REFUSED_LATE = re.compile(r"endless\.concat\(|(endless|unsized)\[::-1\]")
"""Types cannot express that the last flow of ``concat``, and only it, may be endless; nor the sign
of a step."""

TOLD_BY_A_DATASET = ("fl.from_dataset(grain", "fl.from_tfdata(")
"""The type of a dataset does not show if it ends: the row is Any until the flow is built."""

JOINED_BY_MYPY = ("x.apply(Repeat, 2)", *DIFFERENT)
"""mypy may join several tags to their base: such a row promises nothing."""


@attrs.frozen
class Chain:
    call: str
    text: str
    wider: Tags

    @classmethod
    def over(cls, call: str, *names: str) -> Chain:
        flow = dict(zip("xy", names, strict=False))
        text = re.sub(r"\b[xy]\b(?=[.,)[])", lambda found: flow[found[0]], call)
        wider = OPERATORS.get(call, exactly)(*map(tags, names))
        return cls(call, text, frozenset(wider))


def tags(names: str) -> Tags:
    return frozenset(name.capitalize() for name in names.split("_") if name != "exact")


def _chains() -> list[Chain]:
    chains = [Chain.over(call) for call in (*SOURCES, *LONG, *DIFFERENT)]
    for call in OPERATORS:
        if re.search(r"\by\b[.,)]", call):
            chains += [Chain.over(call, x, y) for x in ROWS for y in ROWS if x == y or {x, y} & MET]
        else:
            chains += [Chain.over(call, x) for x in ROWS]
    return chains


CHAINS = _chains()

ALIASES = {
    name: [tag.__name__ for tag in get_args(value)]
    for name, value in vars(effects).items()
    if isinstance(value, UnionType)
}


def row(revealed: str) -> Tags:
    """The tags at the end of a type, as a checker prints it."""
    found = re.search(r"Flow\[.*, ([^,\[\]]+)\]\"$", revealed)
    names = re.findall(r"\w+", found[1].replace("flowdsl.effects.", "")) if found else []
    return frozenset(tag for name in names for tag in ALIASES.get(name, [name])) - {"Exact"}


# Each in a function of its own: pyright asks of every call before a line whether it returns.
PROGRAM = SETUP + "".join(
    f"def revealed_{n}() -> None: reveal_type({chain.text})\n" for n, chain in enumerate(CHAINS)
)
"""All chains, one per line, after the setup."""

for _checker in (mypy, pyright):
    _checker.add("chains.py", PROGRAM)


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Checker:
    checker: Checker = request.param
    return checker


@pytest.fixture(scope="module")
def revealed(checker: Checker) -> dict[Chain, Tags | None]:
    """The static row of each chain; None if it is refused, empty if it is not a flow."""
    found = checker.in_program("chains.py")
    lines = SETUP.count("\n")
    assert min(finding.line for finding in found) == lines + 1, "an error in the setup"
    refused = {finding.line for finding in found if finding.error}
    types = {finding.line: finding.message for finding in found if not finding.error}
    return {
        chain: None if line in refused else row(types[line])
        for line, chain in enumerate(CHAINS, lines + 1)
    }


@pytest.fixture(scope="module")
def scope(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.png").touch()
    fl.from_range(3).write_lmdb(folder / "numbers.lmdb")
    fl.from_range(3).map(str).write_text(folder / "numbers.txt")
    fl.from_range(3).map(lambda i: {"n": i}).write_csv(folder / "numbers.csv")
    fl.from_range(3).write_hdf5(folder / "numbers.h5", "n")
    fl.from_range(3).write_npz(folder / "numbers.npz")
    np.save(folder / "numbers.npy", np.arange(3))
    fl.from_items(["1 1:2"]).write_text(folder / "numbers.svm")
    fl.from_range(3).write_tfrecord(folder / "numbers.tfrecord")
    fl.from_range(3).write_tfrecord(folder / "numbers.tfrecord.gz", compression="gzip")
    fl.from_items([b"a"]).write_tfrecord(folder / "bytes.tfrecord")
    fl.from_items([b"a"]).write_tfrecord(folder / "bytes.tfrecord.gz", compression="gzip")
    fl.from_range(3).write_arrayrecord(folder / "numbers.arrayrecord")
    samples = [{"__key__": f"{i}", "cls": i} for i in range(3)]
    fl.from_items(samples).write_webdataset(folder / "numbers.tar")
    fl.from_range(3).write_parquet(folder / "numbers.parquet")
    lmdb.open(str(folder / "others.lmdb"), subdir=False, lock=False).close()
    scope: dict[str, Any] = {}
    exec(SETUP.replace("FOLDER", str(folder)), scope)
    return scope


def computed(chain: Chain, scope: dict[str, Any]) -> Tags | None:
    """The dynamic row of a chain; None if it is refused, empty if it is not a flow."""
    try:
        made = eval(chain.text, scope)
    except fl.FlowError:
        return None
    return frozenset(tag.__name__ for tag in getattr(made, "effects", ()))


@pytest.mark.parametrize("call", dict.fromkeys(chain.call for chain in CHAINS))
def test_static_row_is_dynamic_row(
    call: str,
    checker: Checker,
    revealed: dict[Chain, Tags | None],
    scope: dict[str, Any],
) -> None:
    differences = {}
    for chain in CHAINS:
        if chain.call == call:
            static, dynamic = revealed[chain], computed(chain, scope)
            if dynamic is None:
                agree = static is None or bool(REFUSED_LATE.search(chain.text))
            elif static == frozenset({"Any"}):
                agree = call.startswith(TOLD_BY_A_DATASET)
            elif static is not None and "Effect" in static:
                agree = checker is mypy and call in JOINED_BY_MYPY
            else:
                agree = static == dynamic | chain.wider
            if not agree:
                differences[chain.text] = static, dynamic
    assert differences == {}


def test_the_rows_are_what_they_are_named(scope: dict[str, Any]) -> None:
    assert len(ROWS) == 12
    for name in ROWS:
        assert {tag.__name__ for tag in scope[name].effects} == tags(name)
    # Without a row, or the tags by which one is wider, no chain would be tested.
    assert set().union(*map(tags, ROWS)) == {tag.__name__ for tag in TAGS}


def test_every_operator_and_source_is_here() -> None:
    def returns_flow(name: str, function: Callable[..., Any]) -> bool:
        returns = str(inspect.signature(function).return_annotation)
        return not name.startswith("_") and (returns.startswith("Flow[") or name == "pipe")

    methods = inspect.getmembers(fl.Flow, inspect.isfunction)
    operators = [f".{name}(" for name, method in methods if returns_flow(name, method)]
    functions = inspect.getmembers(fl, inspect.isfunction)
    sources = [f"fl.{name}(" for name, function in functions if returns_flow(name, function)]
    sources.remove("fl.from_ray(")  # its dataset needs a cluster, as tests/ray has one
    assert len(operators) >= 30
    assert len(sources) >= 7
    assert [call for call in operators if not any(call in key for key in OPERATORS)] == []
    assert [
        call for call in sources if not any(key.startswith(call) for key in (*SOURCES, *LONG))
    ] == []
