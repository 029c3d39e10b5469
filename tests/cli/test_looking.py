"""flowdsl explain, profile, measure, head."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands import TRAIN, Project


@pytest.fixture(autouse=True)
def _train(project: Project) -> None:
    project.write("train.py", TRAIN + "text = fl.from_items(['a', 'b'])")


def test_explain_prints_the_plan(project: Project) -> None:
    assert "  3  shuffle(seed=1)   Reordered" in project.succeeds("explain", "train.py:train")


def test_explain_writes_a_picture(project: Project) -> None:
    assert project.succeeds("explain", "train.py:train", "--svg", "plan.svg") == ""
    assert ElementTree.parse("plan.svg").getroot().tag.endswith("svg")


def test_profile_prints_the_verdict_and_writes_a_picture(project: Project) -> None:
    printed = project.succeeds(
        "profile", "train.py:train", "--seconds", "0.05", "--size", "20", "--save", "p.html"
    )
    assert "limits the run to" in printed
    assert "map(square)" in printed
    assert "<svg" in Path("p.html").read_text(encoding="utf-8")


def test_a_picture_has_a_known_suffix(project: Project) -> None:
    refused = project.refuses("profile", "train.py:train", "--save", "p.png")
    assert refused == "--save must end in .svg or .html, got 'p.png'"


def test_measure_prints_the_rate_and_the_table(project: Project) -> None:
    printed = project.succeeds("measure", "train.py:train", "--size", "50", "--warmup", "5")
    assert "elements/s" in printed
    assert "batch(4)" in printed
    assert "\x1b" not in printed


def test_measure_prints_json(project: Project) -> None:
    found = json.loads(project.succeeds("measure", "train.py:train", "--size", "50", "--json"))
    assert found["elements"] == 50
    assert found["elements_per_second"] == pytest.approx(50 / found["seconds"])
    assert set(found) == {
        "elements",
        "seconds",
        "elements_per_second",
        "bytes_per_second",
        "limiting",
        "verdict",
        "whole_run",
    }
    whole = found["whole_run"]
    assert whole["elements_per_second"] == pytest.approx(whole["elements"] / whole["seconds"])
    assert found["verdict"].startswith(
        "The whole run, with its start and the counting of bytes: "
        f"{whole['elements_per_second']:,.0f} elements/s"
    )


@pytest.mark.parametrize("option", [("--size", "0"), ("--warmup", "-1"), ("--warmup", "250")])
def test_measure_refuses_what_it_cannot_time(project: Project, option: tuple[str, str]) -> None:
    assert project.run("measure", "train.py:train", *option).exit_code in (1, 2)


def test_measure_says_which_rate_is_of_what_and_names_the_command(project: Project) -> None:
    printed = project.succeeds("measure", "train.py:train", "--size", "50", "--warmup", "5")
    assert "\nThe whole run, with its start, the warmup and the counting of bytes:\n" in printed
    assert "`flowdsl profile train.py:train` times both." in printed
    assert "flow.profile" not in printed


def test_a_command_that_is_advised_is_quoted_for_the_shell(project: Project) -> None:
    project.write("my flows.py", TRAIN)
    printed = project.succeeds("measure", "my flows.py:train", "--size", "50")
    assert "`flowdsl profile 'my flows.py:train'` times both." in printed


@pytest.mark.parametrize("command", ["measure", "profile"])
def test_a_flow_without_elements_cannot_be_timed(project: Project, command: str) -> None:
    project.write("none.py", "import flowdsl as fl\nnone = fl.from_range(0)")
    printed = project.run(command, "none.py:none").output
    assert printed == (f"Error: {command}: the flow has no elements, so there is nothing to time\n")


@pytest.mark.parametrize("option", ["-n", "--size"])
def test_a_number_of_elements_has_one_name_in_all_commands(project: Project, option: str) -> None:
    assert project.succeeds("head", "train.py:text", option, "1") == "'a'\n"
    measured = project.succeeds("measure", "train.py:train", option, "50", "--json")
    assert json.loads(measured)["elements"] == 50
    project.succeeds("profile", "train.py:train", option, "50", "--seconds", "0.01")


def test_head_prints_elements(project: Project) -> None:
    assert project.succeeds("head", "train.py:text") == "'a'\n'b'\n"
    assert len(project.succeeds("head", "train.py:train").splitlines()) == 5


def test_head_of_a_flow_without_elements_says_so(project: Project) -> None:
    project.write("none.py", "import flowdsl as fl\nnone = fl.from_range(0)")
    assert project.succeeds("head", "none.py:none") == "no elements\n"


def test_a_picture_in_a_missing_folder_is_bad_input(project: Project) -> None:
    refused = project.refuses("explain", "train.py:train", "--svg", "no/plan.svg")
    assert refused == "Invalid value for '--svg': the folder 'no' does not exist"


def test_head_prints_no_negative_number_of_elements(project: Project) -> None:
    assert "-1 is not in the range" in project.refuses("head", "train.py:train", "-n", "-1")
