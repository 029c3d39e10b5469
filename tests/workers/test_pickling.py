"""Pickling of objects that a script defines and that pickle knows only by name."""

from __future__ import annotations

import functools
import subprocess
import sys
import traceback
from pathlib import Path
from types import CodeType
from typing import Any, NewType

import cloudpickle
import pytest

import flowdsl as fl
from flowdsl.resources.worker_kinds import PROCESSES
from flowdsl.workers.pickling import reduction_of
from flowdsl.workers.wire import ship

SCRIPT = """
import functools
import typing
import flowdsl as fl

@functools.cache
def cached(i): return i + 1

@functools.lru_cache(maxsize=2, typed=True)
def bounded(i): return i + 1

@functools.cache
def recursive(i): return i if i < 2 else recursive(i - 1) + recursive(i - 2)

@functools.wraps(cached)
def around(i): return cached(i)

def inner():
    @functools.cache
    def local(i): return i + 1
    return local

@functools.singledispatch
def leaves(tree): return 1

@leaves.register
def _(tree: list): return sum(map(leaves, tree))

Number = typing.NewType("Number", int)

class Model:
    @functools.cached_property
    def one(self): return 1

    def add(self, i): return Number(i) + self.one

    @functools.cache
    def of_each(self, i): return i + self.one

    @staticmethod
    @functools.cache
    def static(i): return bounded(i) + cached(i)

    @functools.singledispatchmethod
    def by_type(self, value): return value

    @by_type.register
    def _(self, value: int): return value + self.one

model = Model()
functions = {
    "cached": cached, "bounded": bounded, "recursive": recursive, "around": around,
    "local": inner(), "leaves": lambda i: leaves([i, [i, [i]]]), "add": model.add,
    "of_each": model.of_each, "static": Model.static, "by_type": model.by_type,
    "partial": functools.partial(bounded), "type": lambda i: Number(i).bit_length(),
}
for name, func in functions.items():
    flow = fl.from_range(9).map(func)
    assert flow.prefetch(procs=1).collect() == flow.collect(), name
print(cached.cache_info().hits > 0, cached.cache_parameters(), "done")
"""


def test_all_kinds_of_objects_of_a_script_are_sent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert run.stdout == "True {'maxsize': None, 'typed': False} done\n", run.stderr


CLASSES = """
from __future__ import annotations
import dataclasses, typing
import attrs, numpy as np
from numpy.typing import NDArray
import flowdsl as fl

class Top(typing.NamedTuple):
    i: int

class Typed(typing.NamedTuple):
    label: int
    values: NDArray[np.float32]

class Outer:
    @dataclasses.dataclass
    class Inner:
        i: int

def main():
    @dataclasses.dataclass
    class Data:
        i: int

    @attrs.frozen
    class Record:
        i: int

    class Named(typing.NamedTuple):
        i: int

    for cls in (Top, Outer.Inner, Data, Record, Named):
        for wrap in (lambda x: x, lambda x: (1, {"a": x})):
            flow = fl.from_range(9).map(lambda i: wrap(cls(i)))
            got = flow.prefetch(procs=2).collect()
            assert got == flow.collect(), cls
            assert type(got[0] if type(got[0]) is cls else got[0][1]["a"]) is cls
    rows = fl.from_items([fl.to_example(Typed(7, np.ones(2, np.float32)))])
    (row,) = rows.map(fl.parse_example(Typed)).prefetch(procs=2).collect()
    assert (type(row), row.label, row.values.tolist()) == (Typed, 7, [1, 1])
    print("done")

main()
"""


LAUNCHED = """
import functools, multiprocessing, sys, typing
import flowdsl as fl

class Row(typing.NamedTuple):
    i: int

def half(i):
    return Row(i // 2)

@functools.cache
def cached(i):
    return half(i)

def rank(number):
    for func in (half, cached):
        flow = fl.from_range(4).map(func)
        got = flow.prefetch(procs=1).collect()
        assert got == flow.collect() and type(got[0]) is Row, got
    rows = fl.from_iterable([Row(1), Row(2)]).map(lambda row: row.i)
    assert rows.prefetch(procs=1).collect() == [1, 2]
    print("done")

if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=rank, args=(0,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_scripts_in_a_multiprocessing_child_are_sent(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAUNCHED)
    command = [sys.executable, str(script), method]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert run.stdout == "done\n", run.stderr


def test_a_traceback_shows_the_lines_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloudpickle 3.1.3 drops the name of the file."""
    table = cloudpickle.Pickler.dispatch_table
    as_it_is = table[CodeType]

    def without_file(code: CodeType) -> tuple[Any, ...]:
        return as_it_is(code.replace(co_filename="<dynamic-code>"))

    monkeypatch.setitem(table, CodeType, without_file)
    for sent in (lambda i: (lambda: 1 // i)(), functools.cache(lambda i: (lambda: 1 // i)())):
        flow = fl.from_range(1).map(sent).prefetch(procs=1)
        with pytest.raises(fl.ElementError) as caught:
            flow.collect()
        text = "".join(traceback.format_exception(caught.value))
        assert text.count("(lambda: 1 // i)()") > 1
        assert "<dynamic-code>" not in text


def test_classes_of_a_script_and_of_its_functions(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CLASSES)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100)
    assert run.stdout == "done\n", run.stderr


@functools.lru_cache(maxsize=3, typed=True)
def importable(i: int) -> int:
    """A page about it."""
    return i


@functools.singledispatch
def kind_of(value: object) -> str:
    return "other"


@kind_of.register
def _(value: int) -> str:
    return "int"


Age = NewType("Age", int)


class Holder:
    @functools.cached_property
    def one(self) -> int:
        return 1

    @functools.cache  # noqa: B019  (for a class as people write it)
    def two(self) -> int:
        return 2


def made_again(value: Any) -> Any:
    how = reduction_of(value)
    assert how is not None
    made = how[0](*how[1])
    if len(how) == 3:
        vars(made).update(how[2])
    return made


@pytest.mark.parametrize("value", [importable, kind_of, Age, Holder.two])
def test_importable_objects_are_sent_by_name(value: Any) -> None:
    assert reduction_of(value) is None


def test_objects_of_modules_sent_by_value_are_sent_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        cloudpickle, "list_registry_pickle_by_value", lambda: {__name__.rpartition(".")[0]}
    )
    assert reduction_of(importable) is not None
    monkeypatch.setattr(cloudpickle, "list_registry_pickle_by_value", lambda: {__name__[:-1]})
    assert reduction_of(importable) is None


def test_restored_objects_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudpickle, "list_registry_pickle_by_value", lambda: {__name__})
    cached: Any = made_again(importable)
    assert cached is not importable
    assert cached.cache_parameters() == importable.cache_parameters()
    assert (cached.__name__, cached.__doc__) == ("importable", "A page about it.")
    dispatching: Any = made_again(kind_of)
    assert (dispatching(""), dispatching(1)) == ("other", "int")
    age: Any = made_again(Age)
    assert (age.__name__, age.__module__, age.__supertype__) == ("Age", __name__, int)
    one: Any = made_again(vars(Holder)["one"])
    assert one.__get__(Holder()) == 1


def test_no_such_object_uses_the_default_pickling() -> None:
    assert [reduction_of(value) for value in (len, Holder, Holder.two.__wrapped__, 3, "x")] == [
        None
    ] * 5


def test_a_flow_is_pickled_equally_twice() -> None:
    @functools.cache
    def local(i: int) -> int:
        return i

    flow = fl.from_range(9).map(local)
    assert ship(flow.node, PROCESSES) == ship(flow.node, PROCESSES)


class Settings(dict[str, int]):
    """A dict whose keys are attributes: reading another one raises ``KeyError``."""

    def __getattr__(self, name: str) -> int:
        return self[name]


def test_attributes_of_objects_are_not_read() -> None:
    """They are code of the user, which may raise other errors than ``AttributeError``."""
    settings = Settings(factor=2)
    flow = fl.from_range(4).map(lambda i: i * settings.factor)
    assert flow.prefetch(procs=1).collect() == [0, 2, 4, 6]
