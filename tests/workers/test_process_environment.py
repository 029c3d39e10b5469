"""Settings of the program's process that its workers have too, and those that they cannot have."""

from __future__ import annotations

import decimal
import faulthandler
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.workers.process_environment import SETTINGS, apply_settings, read_settings
from tests.workers.test_launching import first


@pytest.fixture(autouse=True)
def settings_are_restored() -> Iterator[None]:
    before = read_settings()
    with warnings.catch_warnings():
        yield
    apply_settings({name: value for name, value in before.items() if name != "warning filters"})


class Rare(UserWarning):
    """A category that no installed module has."""


def warns(_: int) -> str:
    try:
        warnings.warn("rare", Rare, stacklevel=1)
    except Rare:
        return "raised"
    return "shown"


def divides(_: int) -> str:
    try:
        return str(np.ones(1) / 0)
    except FloatingPointError as error:
        return str(error)


def third(_: int) -> str:
    return str(decimal.Decimal(1) / 3)


def caught(_: int) -> bool:
    try:
        return bool(decimal.Decimal("1.5") + decimal.Decimal("1e30") > 0)
    except decimal.Inexact:
        return False


def printed(_: int) -> str:
    return str(np.array([1 / 3]))


CHANGES: dict[str, tuple[Callable[[], object], Callable[[int], Any]]] = {
    "recursion limit": (lambda: sys.setrecursionlimit(3456), lambda _: sys.getrecursionlimit()),
    "digits of an int": (
        lambda: sys.set_int_max_str_digits(5678),
        lambda _: sys.get_int_max_str_digits(),
    ),
    "warning filters": (lambda: warnings.simplefilter("error", Rare), warns),
    "decimal precision": (lambda: setattr(decimal.getcontext(), "prec", 5), third),
    "decimal traps": (
        lambda: decimal.getcontext().traps.__setitem__(decimal.Inexact, True),
        caught,
    ),
    "floating-point errors": (lambda: np.seterr(divide="raise"), divides),
    "print options": (lambda: np.set_printoptions(precision=3), printed),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_that_changes_between_passes_applies_wherever_a_function_runs(name: str) -> None:
    change, read = CHANGES[name]
    flow = fl.from_range(1).map(read)
    places = [flow, flow.prefetch(threads=1), flow.prefetch(procs=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = [place.collect() for place in places]
    change()
    after = [place.collect() for place in places]
    assert before == [before[0]] * 3
    assert after == [after[0]] * 3
    assert before[0] != after[0]


def test_faulthandler_is_enabled_in_workers_too() -> None:
    if not faulthandler.is_enabled():
        pytest.skip("pytest does not enable it")
    assert first(lambda _: faulthandler.is_enabled()) is True


def test_each_setting_is_read_as_it_was_applied() -> None:
    before = read_settings()
    apply_settings(before)
    assert read_settings() == before
    assert before.keys() == SETTINGS.keys()


def test_unchanged_settings_do_not_start_new_workers() -> None:
    flow = fl.from_range(1).map(lambda _: os.getpid()).prefetch(procs=1)
    assert decimal.getcontext().prec
    first_pass = flow.collect()
    assert third(0)  # which sets a flag of the context
    assert flow.collect() == first_pass


def test_filters_of_categories_that_a_worker_does_not_know_are_left_out() -> None:
    unknown = type("Unknown", (UserWarning,), {"__module__": "a_module_of_nowhere"})
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", unknown)
    assert first(warns) == "shown"


def test_the_options_of_the_interpreter_apply_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, warnings, flowdsl as fl

            def options(_):
                own = [name for name in dir(sys.flags) if not name.startswith(("_", "n_", "safe"))]
                flags = {name: getattr(sys.flags, name) for name in own}
                warnings.warn("ignored")
                return str([flags, __debug__, sys._xoptions, sys.warnoptions])

            if __name__ == "__main__":
                flow = fl.from_range(1).map(options)
                assert flow.collect() == flow.prefetch(procs=1).collect()
                print(*flow.collect())
            """
        )
    )
    options = ["-O", "-b", "-B", "-W", "ignore", "-X", "utf8=1", "-X", "mine=3"]
    command = [sys.executable, *options, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert "'optimize': 1" in done.stdout
    assert "'mine': '3'" in done.stdout


def hash_of_text(_: int) -> int:
    return hash("a")


def hash_attribute(x: Any) -> Any:
    return x.hash


@attrs.frozen
class Open:
    hash: int


def hash_within(_: int) -> list[int]:
    return [(lambda: hash(name))() for name in "ab"]


class TestHashes:
    def test_all_workers_of_a_program_have_one_seed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
        hashes = set()
        for number in range(2):
            monkeypatch.setenv("OMP_STACKSIZE", f"{number}M")  # which starts another fork server
            hashes.add(first(hash_of_text))
        assert len(hashes) == 1

    def test_the_seed_is_not_a_variable_of_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
        assert first(lambda _: os.environ.get("PYTHONHASHSEED")) is None

    @pytest.mark.parametrize("function", [hash_of_text, hash_within])
    def test_a_function_that_calls_hash_is_warned_of_once(
        self,
        function: Any,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("flowdsl.workers.hashes._warned", set())
        monkeypatch.setattr("flowdsl.workers.hashes.hashes_like_its_workers", lambda: False)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                fl.from_range(1).map(function).prefetch(procs=1).collect()
        (message,) = [r.message for r in caplog.records if "hash()" in r.message]
        assert message.startswith(f"{function.__name__} calls hash(), which differs between")

    def test_other_functions_are_not_warned_of(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flowdsl.workers.hashes._warned", set())
        monkeypatch.setattr("flowdsl.workers.hashes.hashes_like_its_workers", lambda: False)
        with caplog.at_level(logging.WARNING):
            fl.from_range(1).map(third).prefetch(procs=1).collect()
            fl.from_items([Open(1)]).map(hash_attribute).prefetch(procs=1).collect()
            monkeypatch.setattr("flowdsl.workers.hashes.hashes_like_its_workers", lambda: True)
            fl.from_range(1).map(hash_of_text).prefetch(procs=1).collect()
        assert not caplog.records
