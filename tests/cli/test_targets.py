"""Flows named on the command line, and the sentences about those that cannot be found."""

from __future__ import annotations

import sys

import pytest

from tests.cli.commands import TRAIN, Project

pytestmark = pytest.mark.usefixtures("project")


def test_a_flow_of_a_file(project: Project) -> None:
    project.write("train.py", TRAIN)
    assert project.succeeds("head", "train.py:train", "-n", "1") == (
        "int64[4] [483025, 81796, 622521, 982081]\n"
    )


def test_a_flow_of_a_module(project: Project) -> None:
    project.write("pkg/__init__.py", "")
    project.write("pkg/flows.py", TRAIN)
    assert project.succeeds("head", "pkg.flows:train", "-n", "1").startswith("int64[4]")


def test_a_function_that_returns_a_flow(project: Project) -> None:
    project.write("make.py", TRAIN + "def flow(n: int = 2): return train.take(n)")
    assert len(project.succeeds("head", "make.py:flow").splitlines()) == 2


def test_an_attribute_of_an_attribute(project: Project) -> None:
    project.write("inner.py", TRAIN + "class Data:\n    train = train")
    assert project.succeeds("head", "inner.py:Data.train", "-n", "1").startswith("int64[4]")


def test_a_file_beside_it_is_imported(project: Project) -> None:
    project.write("job/steps_of_job.py", TRAIN)
    project.write("job/run.py", "from steps_of_job import train")
    assert project.succeeds("head", "job/run.py:train", "-n", "1").startswith("int64[4]")


@pytest.mark.parametrize("name", ["json.py", "two-words.py"])
def test_a_file_whose_name_is_no_module_of_its_own_runs_in_workers(
    project: Project, name: str
) -> None:
    project.write(name, TRAIN + "flow = train.prefetch(procs=1)")
    assert project.succeeds("head", f"{name}:flow", "-n", "1").startswith("int64[4] [483025")
    assert sys.modules.get("json") is not None


def test_a_script_does_not_run(project: Project) -> None:
    project.write("script.py", TRAIN + "if __name__ == '__main__': raise SystemExit(5)")
    project.succeeds("explain", "script.py:train")


REFUSED = {
    "nowhere.py:train": "the file 'nowhere.py' does not exist",
    "nowhere:train": "there is no module 'nowhere', neither in this folder nor installed",
    "no.where:train": "there is no module 'no.where', neither in this folder nor installed",
    "flows.py": "expected FILE.py:NAME or MODULE:NAME, such as train.py:train, got 'flows.py'; "
    "the flows of flows.py are train, endless",
    "train": "expected FILE.py:NAME or MODULE:NAME, such as train.py:train, got 'train'",
    "flows.py:test": "flows.py has no 'test'; the flows of flows.py are train, endless",
    "flows.py:train.test": "flows.py has no 'train.test'; the flows of flows.py are train, endless",
    "flows.py:number": "'number' in flows.py is 3; expected a flow, or a function without "
    "arguments that returns one; the flows of flows.py are train, endless",
    "flows.py:wants": "'wants' in flows.py cannot be called without arguments: missing a required "
    "argument: 'x'; give its parameters defaults, or name a flow",
    "flows.py:fails": "flows.py, line 14 (return 1 / 0): ZeroDivisionError: division by zero",
    "none.py:train": "none.py has no 'train'; none.py has no flows",
    "make.py:train": "make.py has no 'train'; make.py has no flows; one of its functions may make "
    "one: loader",
    "flows.py:build_n": "'build_n' in flows.py cannot be called without arguments: missing a "
    "required argument: 'n'; give its parameters defaults, or name a flow",
    "pkg/sub/data.py:flow": "pkg/sub/data.py, line 1 (from .base import flow): ImportError: "
    "attempted relative import with no known parent package; the file belongs to a package, so "
    "name its module: pkg.sub.data:flow",
    "names/data.py:flow": "names/data.py, line 1 (from .base import flow): ImportError: attempted "
    "relative import with no known parent package; the file belongs to a package, so name its "
    "module: names.data:flow",
    "src/inner/data.py:flow": "src/inner/data.py, line 1 (from .base import flow): ImportError: "
    "attempted relative import with no known parent package; the file belongs to a package, so "
    "name its module: inner.data:flow, in the folder src",
    "a b/data.py:flow": "a b/data.py, line 1 (from .base import flow): ImportError: attempted "
    "relative import with no known parent package; the file belongs to a package, so name its "
    "module: 'a b.data:flow'",
    "raises.py:train": "raises.py, line 3 (flow = fl.from_range(10).batch(0)): InvalidFlow: "
    "batch: n must be an int >= 1, got 0",
    "needs.py:train": "needs.py, line 2 (import no_such_library): no_such_library is not "
    "installed: pip install no_such_library",
    "extra.py:train": "extra.py, line 3 (raise MissingLibrary('it needs h5py: pip install x')): "
    "MissingLibrary: it needs h5py: pip install x",
    "syntax.py:train": "syntax.py, line 2: invalid syntax: train = = 1",
    "exits.py:train": "exits.py, line 2 (raise SystemExit(3)): SystemExit: 3",
}


@pytest.mark.parametrize(("target", "sentence"), REFUSED.items(), ids=REFUSED)
def test_bad_input_is_a_sentence(project: Project, target: str, sentence: str) -> None:
    project.write(
        "flows.py",
        TRAIN + "number = 3\ndef wants(x): return train\n"
        "def endless() -> fl.Flow[int, fl.Endless]: ...\n"
        "def build_n(n) -> fl.Flow[int, fl.Exact]: ...\n"
        "def fails():\n\n    return 1 / 0\n",
    )
    project.write("none.py", "x = 1")
    project.write("make.py", "def loader(): ...\ndef other(n): ...")
    for file in ("pkg/__init__", "pkg/sub/__init__", "src/inner/__init__"):
        project.write(f"{file}.py", "")
    for folder in ("pkg/sub", "names", "src/inner", "a b"):
        project.write(f"{folder}/data.py", "from .base import flow")
    project.write("raises.py", "import flowdsl as fl\n\nflow = fl.from_range(10).batch(0)\n")
    project.write("needs.py", "\nimport no_such_library\n")
    project.write(
        "extra.py",
        "\nfrom flowdsl.errors import MissingLibrary\n"
        "raise MissingLibrary('it needs h5py: pip install x')",
    )
    project.write("syntax.py", "\ntrain = = 1\n")
    project.write("exits.py", "\nraise SystemExit(3)\n")
    assert project.refuses("head", target) == sentence
