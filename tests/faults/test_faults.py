"""Each fault ends as documented on its page."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from docs.generate_reliability import PAGE, page
from tests.faults import peers
from tests.faults.scene import faults, sample


@pytest.mark.slow
@pytest.mark.timeout(450)
@pytest.mark.parametrize(
    ("options", "number"),
    [(["--quick"], len(sample())), pytest.param([], len(faults()), marks=pytest.mark.long)],
    ids=["sample", "all"],
)
def test_each_fault_ends_as_documented(options: list[str], number: int) -> None:
    """Run in a separate program, since it forks, which a process with threads must not do."""
    command = [sys.executable, "-m", "tests.faults", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{number} faults; 0 end otherwise\n")


def test_the_sample_has_faults_of_each_kind() -> None:
    kinds = [{fault.name.partition("_")[0] for fault in each} for each in (sample(), faults())]
    of_frameworks = {"devices", "input", "queues", "training"}
    assert kinds[1] - kinds[0] == of_frameworks | {"sender"}  # which only waits


def test_a_fault_with_another_end_is_detected() -> None:
    fault = faults()[0]
    assert fault.ends_so(fault.output)
    assert not fault.ends_so(fault.output.replace("e", "u"))


def test_the_same_faults_are_recorded_for_all_libraries() -> None:
    record = json.loads(peers.RECORD.read_text())
    assert list(record["versions"]) == list(peers.LIBRARIES)
    assert list(record["cases"]) == [case.__name__ for case in peers.CASES]
    for outcomes in record["cases"].values():
        assert list(outcomes) == list(peers.LIBRARIES)


def test_the_reliability_page_matches_the_programs() -> None:
    assert PAGE.read_text() == page(), "make docs"
