"""Runs the property-based tests with random seeds, round after round.

    python -m tests.explore --minutes 10

It stops at the first finding, and prints the command that shows it again. What counts is the mark
``hypothesis``: a test with ``@given`` has it by itself, one with ``@given`` inside it is given it,
but not one that sees a law notice what is broken: that some draws miss it is no finding.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import subprocess
import sys
import time

import pytest

_PYTEST = [sys.executable, "-m", "pytest"]
_AT_RANDOM = ["--hypothesis-profile=explore"]
_PATIENT = ["--timeout=1200"]
"""Shrinking a failure takes up to five minutes, after which it must still be reported."""


def main() -> int:
    """Run rounds until one fails or the time is up; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="no round begins later")
    minutes: float = parser.parse_args().minutes
    the_tests_that_draw = ["-q", "-x", "-m", "hypothesis", "-p", "tests.explore"]
    began, rounds = time.monotonic(), 0
    while rounds == 0 or time.monotonic() - began < 60 * minutes:
        rounds += 1
        seed = f"--hypothesis-seed={secrets.randbelow(2**32)}"
        command = [*_PYTEST, *the_tests_that_draw, *_AT_RANDOM, *_PATIENT, seed]
        print(f"==> round {rounds}: {shlex.join(command)}", flush=True)
        try:
            status = subprocess.run(command).returncode
        except KeyboardInterrupt:
            return 130
        if status:
            print(f"==> round {rounds} failed: the command above shows it again")
            return 1
    print(f"==> {rounds} rounds in {(time.monotonic() - began) / 60:.0f} minutes, and no finding")
    return 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Return the command for the test that failed, which is faster than the round."""
    seed = terminalreporter.config.getoption("--hypothesis-seed")
    for report in terminalreporter.getreports("failed"):
        again = [*_PYTEST, report.nodeid, *_AT_RANDOM, *_PATIENT, f"--hypothesis-seed={seed}"]
        terminalreporter.write_line(f"This shows it again: {shlex.join(again)}")


if __name__ == "__main__":
    sys.exit(main())
