"""flowdsl bench."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from flowdsl.cli import benching, sampling
from flowdsl.cli.sampling import Request
from flowdsl.cli.targets import load_target
from flowdsl.report.bench.costs import costs_of, load
from flowdsl.report.bench.sampling import Part, Sample, Size
from tests.cli.commands import TRAIN, Project

MAP, TRANSPORT = Part("operator", 2, "map(square)"), Part("transport", 0, "from 1 process")
BATCH = Part("operator", 4, "batch(4)")
PARTS = {MAP: 1.0, BATCH: 0.5, TRANSPORT: 0.1}


@attrs.define
class Machine:
    """Stands for the processes that take samples."""

    factors: dict[Part, float] = attrs.field(factory=dict[Part, float])
    requests: list[Request] = attrs.field(factory=list[Request])
    noise: Callable[[int], float] = lambda process: 1.0
    copies: float = 1.0
    """How slow copies in memory are now."""

    @contextmanager
    def copying_memory(self) -> Iterator[None]:
        """Slow down copies in memory, and one operator that depends on them."""
        self.copies, self.factors[BATCH] = 2.0, 2.0
        yield
        self.copies = 1.0
        del self.factors[BATCH]

    def sample(self, request: Request) -> list[Sample]:
        self.requests.append(request)
        noise = self.noise(len(self.requests))
        sizes = dict(request.sizes)
        return [
            Sample(
                part,
                sizes.get(part, Size(4, 8)),
                ratio * noise * self.factors.get(part, 1.0),
                0.001,
                {"loops": 0.5, "copies in memory": 0.5 * self.copies},
            )
            for part, ratio in PARTS.items()
            if part.kind in request.kinds
        ]


@pytest.fixture
def machine(project: Project, monkeypatch: pytest.MonkeyPatch) -> Machine:
    project.write("train.py", TRAIN + "other = train.map(len)\nnone = fl.from_range(0)")
    machine = Machine()
    monkeypatch.setattr(benching, "sample_in_a_process", machine.sample)
    monkeypatch.setattr(benching, "copying_memory", machine.copying_memory)
    return machine


def test_costs_are_printed(project: Project, machine: Machine) -> None:
    assert project.succeeds("bench", "train.py:train").splitlines() == [
        "train.py:train",
        "  #  part            an element  ratio  spread",
        "  2  map(square)           1 ms      1  ±0.0%",
        "  4  batch(4)            500 µs    0.5  ±0.0%",
        "     from 1 process      100 µs    0.1  ±0.0%",
    ]
    assert len(machine.requests) == 5


def test_a_file_is_saved_and_compared(project: Project, machine: Machine) -> None:
    project.succeeds("bench", "train.py:train", "--save", "base.json")
    assert len(machine.requests) == 15  # of which 5 beside a process that copies memory
    machine.requests.clear()
    printed = project.succeeds("bench", "train.py:train", "--compare", "base.json")
    assert printed.splitlines()[-1] == "no part is more than 10% slower"
    assert len(machine.requests) == 5
    assert {size for request in machine.requests for _, size in request.sizes} == {Size(4, 8)}


@pytest.mark.parametrize("part", [MAP, TRANSPORT])
def test_a_slower_part_fails(project: Project, machine: Machine, part: Part) -> None:
    project.succeeds("bench", "train.py:train", "--save", "base.json")
    machine.requests.clear()
    machine.factors[part] = 1.15
    result = project.run("bench", "--compare", "base.json", "--fail-above", "10%")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == f"more than 10% slower: {part.title} +15.0%"
    assert [request.kinds for request in machine.requests[5:]] == [[part.kind]] * 10
    assert project.run("bench", "--compare", "base.json", "--fail-above", "20%").exit_code == 0


def test_slow_memory_explains_only_parts_that_depend_on_it(
    project: Project, machine: Machine
) -> None:
    project.succeeds("bench", "train.py:train", "--save", "base.json")
    saved = load(Path("base.json")).flows["train.py:train"]
    assert (saved[MAP].beside_copies, saved[BATCH].beside_copies) == (1, 2)
    machine.copies = 1.3
    machine.factors = {BATCH: 1.25}
    printed = project.succeeds("bench", "--compare", "base.json")
    assert re.search(r"batch\(4\) .* \+25.0%  \(within the noise\)", printed)
    assert "note: copies in memory are slower beside the reference" in printed
    assert printed.endswith("that may slow batch(4) up to 100%\n")
    machine.factors[MAP] = 1.15
    result = project.run("bench", "--compare", "base.json")
    assert result.exit_code == 1
    assert "more than 10% slower: map(square) +15.0%" in result.output


def test_a_suspicion_that_is_not_confirmed_passes(project: Project, machine: Machine) -> None:
    project.succeeds("bench", "train.py:train", "--save", "base.json")
    machine.requests.clear()
    machine.noise = lambda process: 1.3 if process <= 5 else 1.0
    printed = project.succeeds("bench", "--compare", "base.json")
    assert "no part is more than 10% slower" in printed
    assert len(machine.requests) == 15


def test_a_change_near_the_limit_is_measured_again(project: Project, machine: Machine) -> None:
    project.succeeds("bench", "train.py:train", "--save", "base.json")
    machine.factors[MAP] = 1.07
    for limit, processes in (("10%", 15), ("20%", 5)):
        machine.requests.clear()
        project.succeeds("bench", "--compare", "base.json", "--fail-above", limit)
        assert len(machine.requests) == processes


def test_several_flows(project: Project, machine: Machine) -> None:
    targets = ("train.py:train", "train.py:other")
    project.succeeds("bench", *targets, "--save", "base.json", "--processes", "2")
    assert list(json.loads(Path("base.json").read_text())["flows"]) == [*targets]
    printed = project.succeeds("bench", "--compare", "base.json")
    assert [line for line in printed.splitlines() if line in targets] == [*targets]


def test_json(project: Project, machine: Machine) -> None:
    saved = json.loads(project.succeeds("bench", "train.py:train", "--save", "b.json", "--json"))
    assert saved == json.loads(Path("b.json").read_text())
    machine.factors[MAP] = 1.5
    result = project.run("bench", "--compare", "b.json", "--json")
    first = json.loads(result.output)[0]
    assert result.exit_code == 1
    assert first == {
        "target": "train.py:train",
        "kind": "operator",
        "step": 2,
        "title": "map(square)",
        "ratio": 1.5,
        "saved": 1.0,
        "change": 0.5,
        "seconds": 0.0015,
        "counts": True,
        "slower": True,
        "processes": 15,
    }


def test_notes(project: Project, machine: Machine) -> None:
    machine.noise = lambda process: 1.0 + 0.2 * (process % 2)
    project.succeeds("bench", "train.py:train", "--save", "b.json")
    file = Path("b.json")
    saved = json.loads(file.read_text()) | {"python": "3.9.1", "machine": "pdp11"}
    file.write_text(json.dumps(saved))
    printed = project.run("bench", "--compare", "b.json").output
    assert "note: the costs were saved by Python 3.9.1, whose ratios may differ" in printed
    assert "note: the costs were saved on pdp11, whose ratios may differ" in printed
    assert "note: map(square) differs by " in printed


REFUSED: dict[tuple[str, ...], str] = {
    (): "name a flow: flowdsl bench train.py:train",
    ("train.py:train", "--save", "a", "--compare", "b.json"): "--save and --compare exclude each "
    "other",
    ("train.py:train", "--fail-above", "10"): "--fail-above must be a percentage above 0%, such as "
    "10%, got '10'",
    ("train.py:train", "--fail-above", "x%"): "--fail-above must be a percentage above 0%, such as "
    "10%, got 'x%'",
    ("train.py:other", "--compare", "b.json"): "bench: train.py:other was not saved; saved are "
    "train.py:train",
    ("my flows.py:other", "--compare", "b.json"): "bench: 'my flows.py:other' was not saved; saved "
    "are train.py:train",
    ("train.py:none",): "bench: train.py:none has no elements, so it has no costs",
    ("train.py:train", "--compare", "train.py"): "bench: 'train.py' is not a file of costs, which "
    "bench --save writes: JSON is malformed: invalid character (byte 1)",
}


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED.items())
@pytest.mark.usefixtures("machine")
def test_bad_input_is_a_sentence(
    project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    project.write("my flows.py", TRAIN + "other = train.map(len)")
    project.succeeds("bench", "train.py:train", "--save", "b.json")
    assert project.refuses("bench", *arguments) == sentence


@pytest.mark.usefixtures("machine")
def test_a_flow_that_has_changed_is_refused(project: Project) -> None:
    project.succeeds("bench", "train.py:train", "--save", "b.json")
    file = Path("b.json")
    file.write_text(file.read_text().replace("map(square)", "map(cube)"))
    assert project.refuses("bench", "--compare", "b.json") == (
        "bench: the saved costs are of another flow: operator 2 is map(cube) there and "
        "map(square) here; save them again with --save"
    )


def _scaled(saved: Any, factor: float) -> Any:
    for flow in saved["flows"].values():
        for part in flow["parts"]:
            part["ratios"] = [factor * ratio for ratio in part["ratios"]]
    return saved


def test_it_measures(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benching, "_MAX_ROUNDS", 1)  # others show that it measures again
    quick = TRAIN.replace("train =", "def fits(batch) -> bool: return True\n\ntrain =")
    project.write(
        "quick.py", quick + "print('imported')\nflow = train.filter(fits).prefetch(procs=1)\n"
    )
    options = ("--processes", "1", "--seconds", "0.01")
    project.succeeds("bench", "quick.py:flow", "--save", "b.json", *options)
    file = Path("b.json")
    saved = json.loads(file.read_text())
    titles = [part["part"]["title"] for part in saved["flows"]["quick.py:flow"]["parts"]]
    assert titles == [
        *(
            "from_range(1000)",
            "map(square)",
            "batch(4)",
            "filter(fits)",
        ),  # a shuffle is arithmetic on blocks
        *("the flow, in one process", "from 1 worker process"),
    ]
    file.write_text(json.dumps(_scaled(saved, 1e6)))
    project.succeeds("bench", "--compare", "b.json", *options)
    file.write_text(json.dumps(_scaled(saved, 1e-12)))  # of the million-fold
    assert project.run("bench", "--compare", "b.json", *options).exit_code == 1


def test_a_process_that_fails_is_status_1(project: Project) -> None:
    project.write("once.py", "import flowdsl as fl\nflow = fl.from_iterable(iter([1]))\n")
    result = project.run("bench", "once.py:flow")
    assert result.exit_code in (1, 2)
    assert "yields its elements only once" in result.output


def test_the_baseline_of_this_project_is_of_its_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    (gate,) = re.findall(r"^GATE = (.*)$", Path("Makefile").read_text(), re.MULTILINE)
    baseline = load(Path("bench/baseline.json"))
    assert list(baseline.flows) == gate.split()
    for name, costs in baseline.flows.items():
        now = costs_of(load_target(name).flow.node, []).operators
        assert costs.operators == now, f"{name} has changed: make bench-baseline"


def test_the_process_that_copies_memory_ends_with_its_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = list[subprocess.Popen[bytes]]()

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with sampling.copying_memory():
        (copying,) = begun
        assert copying.poll() is None
    assert copying.returncode == 0
