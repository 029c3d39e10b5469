"""Classes of nodes are compiled when they are first used, however that is."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from contextlib import suppress
from inspect import isabstract
from typing import Any

import attrs
import pytest

import flowdsl.datasets
import flowdsl.ops
import flowdsl.remote
import flowdsl.storage
from flowdsl.nodes import Node
from flowdsl.nodes.frozen import compile_methods

BEGIN = """
import copy, pickle, threading
import attrs
import flowdsl as fl
from flowdsl.nodes import Elementwise
from flowdsl.nodes.frozen import compiled
from flowdsl.ops.mapping import Map
from flowdsl.ops.sizing import Take
from flowdsl.ops.zipping import ZipNamed

assert not {Map, Take, ZipNamed} & compiled
"""

USES = {
    "creation": "assert Take(fl.from_range(3).node, 2).length == 2",
    "a class without fields of its own": """
named = fl.zip({"a": fl.from_range(2), "b": fl.from_range(2)})
assert type(named.node) is ZipNamed
assert named.collect() == [{"a": 0, "b": 0}, {"a": 1, "b": 1}]
""",
    "a copy": """
flow = fl.from_range(3).take(2)
assert copy.copy(flow.node) == copy.deepcopy(flow.node) == flow.node
""",
    "a pickle": """
import subprocess, sys
flow = fl.from_range(3).take(2)
program = '''
import pickle, sys
from flowdsl.nodes.frozen import compiled
node = pickle.load(sys.stdin.buffer)
assert {"FromRange", "Take"} <= {cls.__name__ for cls in compiled}
assert node.length == 2 and node == pickle.loads(pickle.dumps(node))
assert hash(node) and node.sources[0].length == 3
'''
subprocess.run([sys.executable, "-c", program], input=pickle.dumps(flow.node), check=True)
""",
    "attrs.evolve": """
node = fl.from_range(3).take(2).node
assert attrs.evolve(node, n=1).length == 1
""",
    "a class of a user below one of ours": """
@attrs.frozen(eq=False, repr=False, slots=False)
class Less(Take):
    by: int = 1

    @property
    def length(self):
        return self.n - self.by

assert fl.from_range(9).apply(Less, 3).node.length == 2
""",
    "threads": """
flows, start = [], threading.Barrier(8)
def build():
    start.wait()
    flows.append(fl.from_range(5).map(str).take(3).batch(2))
threads = [threading.Thread(target=build) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert [flow.collect() for flow in flows] == [[["0", "1"], ["2"]]] * 8
""",
    "a fork while another thread compiles": """
import os, signal
from flowdsl.nodes import frozen
held, go_on = threading.Event(), threading.Event()
def hold():
    with frozen._compiling:
        held.set()
        go_on.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(fl.from_range(3).take(2).collect() != [0, 1])
assert os.waitpid(child, 0)[1] == 0
go_on.set()
""",
    "a field that has the name of a property": """
flow = fl.from_range(6).window(3)
assert [list(x) for x in flow][0] == [0, 1, 2]
""",
}


@pytest.mark.parametrize("use", USES)
def test_a_class_is_compiled_by_its_first_use(use: str) -> None:
    command = [sys.executable, "-c", BEGIN + USES[use]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_class_has_the_fields_that_it_and_its_bases_annotate() -> None:
    classes = [cls for cls in _subclasses() if cls.__module__.startswith("flowdsl.")]
    assert len(classes) > 150
    for cls in classes:
        compile_methods(cls)
        annotated = {
            name
            for base in cls.__mro__
            if issubclass(base, Node)
            for name, hint in vars(base).get("__annotations__", {}).items()
            if not str(hint).startswith("ClassVar")
        }
        computed = {name for name in annotated if isinstance(getattr(cls, name, None), property)}
        fields = {field.name for field in attrs.fields(cls)}
        assert isabstract(cls) or annotated - computed == fields, cls


def _subclasses() -> set[type[Node[Any, Any]]]:
    for package in (flowdsl.datasets, flowdsl.ops, flowdsl.remote, flowdsl.storage):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # an optional library
                importlib.import_module(module.name)
    found = set[type[Node[Any, Any]]]()
    waiting: list[type[Any]] = [Node]
    while waiting:
        below: list[type[Any]] = waiting.pop().__subclasses__()
        found.update(below)
        waiting += below
    return found
