"""What a worker cannot import is sent by value; what it cannot load is an error with a name."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

import flowdsl as fl
from flowdsl import NotShippable
from flowdsl.workers.importing import send_by_value_unless_found

CODE = """
    STEP = 4

    class Row:
        def __init__(self, i):
            self.i = i

        twice = staticmethod(lambda i: 2 * i)

    def add(i):
        return i + STEP

    def made(i):
        return Row(i)

    def of_row(row):
        return row.i
"""


@pytest.fixture(autouse=True)
def modules_are_restored() -> Iterator[None]:
    registry: set[str] = vars(import_module("cloudpickle.cloudpickle"))["_PICKLE_BY_VALUE_MODULES"]
    before, registered = dict(sys.modules), cloudpickle.list_registry_pickle_by_value()
    yield
    for name in set(sys.modules) - set(before):
        if not name.startswith("flowdsl"):
            del sys.modules[name]
    for name in cloudpickle.list_registry_pickle_by_value() - registered:
        registry.discard(name)


def at_run_time(folder: Path) -> Any:
    module: Any = ModuleType("made_at_run_time")
    exec(textwrap.dedent(CODE), vars(module))
    sys.modules[module.__name__] = module
    return module


def from_a_file(folder: Path) -> Any:
    (folder / "a_module_of_a_file.py").write_text(textwrap.dedent(CODE))
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    return import_module("a_module_of_a_file")


def removed(folder: Path) -> Any:
    module = from_a_file(folder)
    del sys.modules[module.__name__]
    return module


def whose_file_is_gone(folder: Path) -> Any:
    module = from_a_file(folder)
    Path(module.__file__).unlink()
    return module


def of_a_relative_entry(folder: Path) -> Any:
    (folder / "code").mkdir()
    module_file = folder / "code" / "a_relative_module.py"
    module_file.write_text(textwrap.dedent(CODE))
    importlib.invalidate_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        sys.path.insert(0, "code")
        return import_module("a_relative_module")


def hidden_by_another(folder: Path) -> Any:
    module = from_a_file(folder)
    other = folder / "other"
    other.mkdir()
    (other / "a_module_of_a_file.py").write_text("def add(i): return -1\n")
    sys.path.insert(0, str(other))
    return module


def of_a_namespace(folder: Path) -> Any:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(textwrap.dedent(CODE), names)
    module = ModuleType("ignored")
    vars(module).update(names)
    return module


@pytest.mark.parametrize(
    "origin",
    [
        at_run_time,
        from_a_file,
        removed,
        whose_file_is_gone,
        of_a_relative_entry,
        hidden_by_another,
        of_a_namespace,
    ],
    ids=lambda origin: origin.__name__,
)
def test_functions_and_classes_of_any_module_run_in_workers(
    origin: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = origin(tmp_path)
    rows = fl.from_range(3)
    assert rows.map(module.add).prefetch(procs=1).collect() == [4, 5, 6]
    assert rows.map(module.Row.twice).prefetch(procs=1).collect() == [0, 2, 4]
    made = rows.map(module.made).prefetch(procs=1).collect()
    assert [type(row) for row in made] == [module.Row] * 3
    assert fl.from_items(made).map(module.of_row).prefetch(procs=1).collect() == [0, 1, 2]
    if module.__name__ in sys.modules:
        through = rows.map(lambda i: module.add(i)).prefetch(procs=1).collect()
        assert through == [4, 5, 6]


@pytest.mark.parametrize("run_name", ["__main__", "another_name", None])
def test_a_program_run_by_runpy_has_workers(run_name: str | None, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(CODE) + "import flowdsl as fl\n"
        "got = fl.from_range(3).map(add).prefetch(procs=1).collect()\n"
    )
    assert runpy.run_path(str(script), run_name=run_name)["got"] == [4, 5, 6]


def test_modules_that_workers_import_are_not_sent_by_value() -> None:
    for value in (fl, Path, pytest.fixture, textwrap.dedent, runpy, described):
        send_by_value_unless_found(value)
    assert (
        not {"tests", __name__, "flowdsl", "pytest"} & cloudpickle.list_registry_pickle_by_value()
    )


def test_functions_of_this_module_are_imported_by_workers() -> None:
    assert fl.from_range(1).map(described).prefetch(procs=1).collect() == [__name__]


def described(_: int) -> str:
    return described.__module__


class Unloadable:
    """An argument that raises where it is loaded."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, x: object) -> bool:
        return bool(x)

    def __reduce__(self) -> Any:
        return _raise, (self.error,)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), ImportError("gone")], ids=repr)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_the_error_of_an_argument_that_cannot_be_loaded_names_it(
    error: BaseException, on_error: Any
) -> None:
    flow = fl.from_range(3).map(str).filter(Unloadable(error)).batch(2)
    with pytest.raises(NotShippable) as caught:
        flow.prefetch(procs=1, on_error=on_error).collect()
    assert str(caught.value).startswith(
        f"filter(Unloadable): keep cannot be loaded by a worker process: {error!r}; "
    )
    cause = caught.value.__cause__
    assert cause is not None
    assert type(cause) is type(error)
    assert "Traceback" in cause.__notes__[0]


def test_a_module_that_begins_a_pass_when_it_is_imported_is_refused_in_a_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "careless.py").write_text(
        "import flowdsl as fl\n"
        "def add(i): return i + 1\n"
        "print(fl.from_range(2).map(add).prefetch(procs=1).collect())\n"
    )
    command = [sys.executable, "-c", "import careless"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "map(add): func cannot be loaded by a worker process" in last
    assert "put that code under if __name__ == '__main__'" in last
