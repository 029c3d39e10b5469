"""The cost of ``import flowdsl``, in a separate process."""

from __future__ import annotations

import subprocess
import sys

import flowdsl
import flowdsl.testing

NEEDED = {"attr", "attrs", "numpy", "typing_extensions"}
"""The modules that ``import flowdsl`` imports besides the standard library."""

LATER = {
    "flowdsl.runtime",
    "flowdsl.workers",
    "flowdsl.plan",
    "cloudpickle",
    "zmq",
    "lmdb",
    "msgspec",
    "xxhash",
}
"""Packages that run, store and send flows."""

SLOW = {
    "asyncio",
    "hashlib",
    "multiprocessing",
    "pathlib",
    "unittest",
    "concurrent.futures.process",
}
"""Slow modules of the standard library."""


def fresh(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_import_loads_no_slow_modules() -> None:
    program = """
import sys
before = set(sys.modules)
import flowdsl
new = set(sys.modules) - before
print(*new)
"""
    loaded = set(fresh(program).split())
    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    compiled = {name for name in others if name.startswith("_") or name == "cython_runtime"}
    assert others - compiled == NEEDED | {"flowdsl"}
    assert not (SLOW | LATER) & loaded


def test_the_fork_server_loads_no_slow_modules() -> None:
    program = """
import sys
from flowdsl.workers import worker_main
worker_main.stand_in("flowdsl")
import flowdsl.workers.forkserver
print(*sys.modules)
"""
    others = {"msgspec", "numpy.ma", "numpy.random", "threadpoolctl", "flowdsl.plan.lower"}
    assert not (SLOW | others) & set(fresh(program).split())


def test_the_fork_server_starts_while_the_modules_of_runs_are_imported() -> None:
    program = """
import sys
import flowdsl as fl
from flowdsl.workers import launching
start, loaded = launching.ForkServer.__init__, []
def note(server):
    loaded.append(sorted({"zmq", "flowdsl.runtime.run", "flowdsl.plan.plan"} & set(sys.modules)))
    start(server)
launching.ForkServer.__init__ = note
fl.from_range(3).map(abs).prefetch(threads=1).collect()
flow = fl.from_range(3).zip(fl.from_range(3).map(abs).prefetch(procs=1))
str(flow.explain()), flow.at(0), len(flow)
print(loaded)
"""
    program_of_processes_alone = program.replace("prefetch(threads=1)", "prefetch(procs=1)")
    assert fresh(program) == "[]\n"
    assert fresh(program_of_processes_alone) == "[[]]\n"


def test_datasets_are_recognised_without_importing_their_library() -> None:
    program = """
import sys, flowdsl as fl
assert fl.from_dataset([1, 2]).batch(2).collect()[0].tolist() == [1, 2]
for operator in (fl.from_dataset, fl.from_ray, fl.from_tfdata):
    try:
        operator(iter([1]))
    except fl.InvalidFlow:
        print(*sys.modules)
"""
    assert not {"torch", "grain", "tensorflow", "datasets", "ray", "PIL"} & set(
        fresh(program).split()
    )
    assert fresh(program).count("flowdsl.datasets.foreign") == 3


def test_every_public_name_exists() -> None:
    fresh("import flowdsl; [getattr(flowdsl, name) for name in flowdsl.__all__]")
    assert fresh("import flowdsl; print(sorted(flowdsl.__all__) == flowdsl.__all__)") == "True\n"


def test_every_public_name_is_listed() -> None:
    assert set(flowdsl.__all__) <= set(dir(flowdsl))
    assert fresh("import flowdsl; print({'progress', 'verdict'} <= {*dir(flowdsl)})") == "True\n"
    assert not hasattr(flowdsl, "no_such_name")


def test_workers_import_testing_functions_without_hypothesis() -> None:
    """A random chain calls ``flowdsl.testing.functions``, which each of its workers imports."""
    loaded = fresh("import sys, flowdsl.testing.functions; print(*sys.modules)").split()
    assert "flowdsl.testing" in loaded
    assert not {"hypothesis", "tensorflow"} & set(loaded)


def test_testing_imports_tensorflow_only_to_check_an_input() -> None:
    every = "from flowdsl.testing import *; import flowdsl.testing.inputs"
    assert "tensorflow" not in fresh(f"import sys; {every}; print(*sys.modules)").split()


def test_testing_names_its_missing_requirement() -> None:
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "try: import flowdsl.testing\n"
        "except ImportError as error: print(error)"
    )
    assert fresh(program) == ('flowdsl.testing needs hypothesis: pip install "flowdsl[testing]"\n')


def test_every_public_name_of_testing_exists() -> None:
    listed = set(flowdsl.testing.__all__)
    assert listed <= set(dir(flowdsl.testing))
    assert all(getattr(flowdsl.testing, name) is not None for name in listed)
    assert not hasattr(flowdsl.testing, "no_such_name")
