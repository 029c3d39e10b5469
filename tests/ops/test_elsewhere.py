"""Names of other libraries: the error suggests ours."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import flowdsl as fl
from flowdsl.ops import elsewhere

FLOW: Any = fl.from_range(10)  # type checkers refuse what is tried here
from_csv: Any = fl.from_csv


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("concatenate", r"concat \(concatenate in tf.data\)"),
        ("ConcatData", r"concat \(ConcatData in tensorpack\)"),
        ("head", r"take\(n\)"),
        ("to_list", r"collect\(\)"),
        ("group_by", r"batch_by_key"),
        ("tail", r"flow\[-n:\]"),
        ("rebatch", r"unbatch\(\).batch\(n\)"),
        ("demux", r"filter\(f\)"),
        ("with_epoch", r"fixed_size\(n\)"),
        ("rename_column", r"map"),
        ("mux", r"interleave\(other, stop=\"first\"\)"),
        ("WeightedRandomSampler", r"sample \(WeightedRandomSampler in torchdata\)"),
    ],
)
def test_a_method_of_another_library_is_named_here(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"a Flow has no method '{name}'; write {ours}"):
        getattr(FLOW, name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("from_list", r"from_items\(items\)"),
        ("from_generator", r"from_iterable\(function\)"),
        ("TFRecordDataset", r"from_tfrecord \(TFRecordDataset in tf.data\)"),
        ("read_csv", "from_csv"),
        ("train_test_split", r"the method split"),
    ],
)
def test_a_function_of_another_library_is_named_here(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=rf"flowdsl has no function '{name}'; write .*{ours}"):
        getattr(fl, name)


def test_other_names_are_not_suggested() -> None:
    with pytest.raises(AttributeError, match=r"^a Flow has no method 'frobnicate'$"):
        getattr(FLOW, "frobnicate")  # noqa: B009  # type checkers refuse the attribute
    with pytest.raises(AttributeError, match=r"^flowdsl has no function 'frobnicate'$"):
        getattr(fl, "frobnicate")  # noqa: B009
    assert not hasattr(FLOW, "shape")
    assert not hasattr(FLOW, "__array__")


def test_no_suggestion_hides_a_name_of_flowdsl() -> None:
    assert not set(elsewhere._METHODS) & set(dir(fl.Flow))
    assert not set(elsewhere._FUNCTIONS) & set(fl.__all__)


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: FLOW.map(abs, workers=2), r"prefetch\(procs=2\) after"),
        (lambda: FLOW.prefetch(n_jobs=2), r"write prefetch\(procs=2\)"),
        (lambda: FLOW.choose(FLOW, probabilities=[1, 2]), r"write weights=\[1, 2\]"),
        (lambda: FLOW.split(test_size=0.2), r"split\(0.8\)"),
        (lambda: FLOW.window(2, step=3), r"window\(size, stride=3\)"),
        (lambda: FLOW.window(2, drop_remainder=False), "remainder='keep' keeps"),
        (lambda: from_csv("x.csv", sep=";"), "write delimiter=';'"),
        (lambda: from_csv("x.csv", usecols=["a"]), r"write columns=\['a'\]"),
        (lambda: from_csv("x.csv", dtype={}), r"from_csv\(path, Row\)"),
        (lambda: from_csv("x.csv", na_values=["-"]), r"A \| None"),
    ],
)
def test_an_argument_of_another_library_is_named_here(
    call: Callable[[], object], advice: str
) -> None:
    with pytest.raises(fl.InvalidFlow, match=advice):
        call()


def test_dir_has_the_interface_only() -> None:
    assert [name for name in dir(fl) if not name.startswith("__")] == sorted(fl.__all__)
    doc = inspect.getdoc(fl) or ""
    assert doc.index("fl.from_") < doc.index("``plan``"), "help(fl) begins with what users call"


def test_packages_are_imported_when_they_are_used() -> None:
    program = "import flowdsl as fl; print(fl.testing.__name__, fl.plan.__name__)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "flowdsl.testing flowdsl.plan\n"


@pytest.mark.parametrize("name", ["concat", "choose", "interleave", "merge", "mix"])
def test_flows_one_by_one_are_refused_with_advice(name: str) -> None:
    function: Any = getattr(fl, name)
    with pytest.raises(fl.InvalidFlow, match=rf"2 arguments; write fl\.{name}\(\[a, b\]\)"):
        function(FLOW, FLOW)
    function(flows=[FLOW, FLOW])


def test_a_similar_argument_is_suggested() -> None:
    with pytest.raises(TypeError, match=r"^prefetch: there is no proc=; did you mean procs=\?"):
        FLOW.prefetch(proc=2)
    with pytest.raises(TypeError, match=r"^take: there is no xyz=; its arguments are n$"):
        FLOW.take(xyz=2)
