"""The pages on CI: their programs and commands run, and their workflows are valid."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types

from flowdsl.report.bench.sampling import Part, Sample, Size
from tests.cli.commands import Project
from tests.cli.conftest import project as project

DOCS = Path(__file__).parents[2] / "docs"
TYPES = (DOCS / "type-checked-pipelines.md").read_text()
BENCHES = (DOCS / "performance-benches.md").read_text()


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands(page: str) -> list[str]:
    """The commands of the workflow's steps, one a line."""
    (workflow,) = blocks(page, "yaml")
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    lines = "\n".join(step.get("run", "") for step in job["steps"])
    return [line for line in lines.splitlines() if line]


@pytest.mark.parametrize("page", [TYPES, BENCHES], ids=["types", "benches"])
def test_a_workflow_is_valid(page: str) -> None:
    (text,) = blocks(page, "yaml")
    workflow: Any = yaml.safe_load(text)
    assert set(workflow) == {"name", True, "jobs"}  # YAML reads ``on`` as True
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


@pytest.fixture
def pipelines(project: Project) -> Project:
    """The project of the page on types."""
    program, samples = blocks(TYPES, "python")
    project.write("data.py", program)
    project.write("make_samples.py", samples)
    runpy.run_path("make_samples.py")
    return project


def test_the_check_prints_what_the_page_shows(pipelines: Project) -> None:
    (console,) = blocks(TYPES, "console")
    command, printed = console.split("\n", 1)
    assert pipelines.succeeds(*shlex.split(command.removeprefix("$ flowdsl "))) == printed


def test_the_checks_of_the_workflow_pass(pipelines: Project) -> None:
    checks = [line for line in commands(TYPES) if line.startswith("flowdsl")]
    assert len(checks) == 2
    for line in checks:
        pipelines.succeeds(*shlex.split(line.removeprefix("flowdsl ")), "--no-types")


def test_the_benches_of_the_workflow_run(
    pipelines: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Part("operator", 1, "from_npz('samples.npz')")
    sample = [Sample(part, Size(1, 1), 1.0, 0.001, {"loops": 0.5, "copies in memory": 0.5})]
    monkeypatch.setattr("flowdsl.cli.benching.sample_in_a_process", lambda request: sample)
    benches = [line for line in commands(BENCHES) if line.startswith("flowdsl")]
    assert len(benches) == 2
    for line in benches:
        pipelines.succeeds(*shlex.split(line.removeprefix("flowdsl ").replace("/tmp/", "")))


@pytest.mark.long
def test_the_type_errors_are_found(pipelines: Project) -> None:
    pipelines.write(
        "bad.py",
        "from data import evaluate, held_out, train\n"
        "evaluate(held_out())\n"
        "evaluate(train())\n"
        "held_out().map(lambda batch: batch.labels)\n",
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "bad.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in errors] == [["bad.py", "3"], ["bad.py", "4"]]
