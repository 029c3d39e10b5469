from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

import flowdsl as fl
from flowdsl import InvalidFlow
from flowdsl.report.progress import MAX_PER_LOOK, SECONDS_BETWEEN_DRAWINGS, Watched
from flowdsl.report.progress_bar import Bar, shows, standard_error

SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"
"""Escape sequences that show and hide the cursor."""


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False)


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())


def last_line(console: Console) -> str:
    return re.split(r"\x1b\[2K|\r", drawn(console))[-1]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the test advances."""
    moment = [1000.0]
    monkeypatch.setattr("flowdsl.report.progress.time.monotonic", lambda: moment[0])
    return moment


def test_progress_yields_the_elements_of_the_run() -> None:
    flow = fl.from_range(100).shuffle(seed=3)
    assert list(flow.progress()) == flow.collect()
    assert list(Watched(iter(flow), "shuffled", terminal())) == flow.collect()


def test_without_a_terminal_no_bar_is_drawn_at_no_cost(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = iter(fl.from_range(5))
    assert iter(fl.progress(run)) is run
    assert list(fl.from_range(5).progress("five")) == [0, 1, 2, 3, 4]
    assert capfd.readouterr() == ("", "")


def test_forced_colours_do_not_make_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for one
    standard_error.cache_clear()
    run = iter(fl.from_range(5))
    assert iter(fl.progress(run)) is run
    standard_error.cache_clear()


def test_a_dumb_terminal_shows_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shows(terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not shows(terminal())


def test_a_notebook_shows_a_bar_if_it_has_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Console(force_jupyter=True)
    monkeypatch.setattr("flowdsl.report.progress_bar.find_spec", lambda name: None)
    assert not shows(notebook)  # rich would warn instead of drawing
    monkeypatch.setattr("flowdsl.report.progress_bar.find_spec", lambda name: name)
    assert shows(notebook)


def test_the_bar_shows_position_and_rate() -> None:
    console = terminal()
    for _ in Watched(iter(fl.from_range(50)), "train", console):
        pass
    assert "train" in last_line(console)
    assert "50/50" in last_line(console)
    assert re.search(r"[\d,]+/s", last_line(console))


def test_an_unknown_length_is_shown_as_a_question_mark() -> None:
    console = terminal()
    list(Watched(iter(fl.from_range(50).filter(bool)), "", console))
    assert "49/?" in last_line(console)


def test_the_bar_of_a_resumed_run_continues() -> None:
    flow, console = fl.from_range(50), terminal()
    run = iter(flow)
    for x in fl.progress(run):
        if x == 29:
            break
    resumed = Watched(flow.resume(run.state_dict()), "", console)
    assert next(iter(resumed)) == 30
    assert "31/50" in drawn(console)


def test_stages_with_workers_have_a_line() -> None:
    console = terminal()
    list(Watched(iter(fl.from_range(50).map(abs).prefetch(threads=1)), "", console))
    assert re.search(r"from_range\(50\) … .*: busy \d+%, queue <?\d+% full", drawn(console))
    auto = terminal()
    list(Watched(iter(fl.from_range(50).map(abs).prefetch(threads="auto")), "", auto))
    assert re.search(r"from_range\(50\) … .*: 1 thread, busy \d+%", drawn(auto))
    plain = terminal()
    list(Watched(iter(fl.from_range(50)), "", plain))
    assert "busy" not in drawn(plain)


def test_the_bar_is_drawn_by_time_and_not_per_element(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []
    run = iter(fl.from_range(1000))
    monkeypatch.setattr(Bar, "draw", lambda bar: draws.append(run.position))
    for x in Watched(run, "", terminal()):
        if x in (300, 700):
            now[0] += SECONDS_BETWEEN_DRAWINGS
    first, second, third, last = draws
    assert (first, last) == (1, 1000)
    assert 301 <= second < 301 + MAX_PER_LOOK
    assert 701 <= third < 701 + MAX_PER_LOOK


def test_the_bar_is_drawn_for_each_slow_element(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []
    run = iter(fl.from_range(100))
    monkeypatch.setattr(Bar, "draw", lambda bar: draws.append(run.position))
    for x in Watched(run, "", terminal()):
        now[0] += SECONDS_BETWEEN_DRAWINGS if x >= 50 else 0
    assert draws[1] <= 51 + MAX_PER_LOOK
    assert sorted({*draws[1:]}) == list(range(draws[1], 101))


def raising(error: type[BaseException]) -> Callable[[int], int]:
    def fail(i: int) -> int:
        if i == 3:
            raise error
        return i

    return fail


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_cursor_is_restored_when_the_loop_fails(error: type[BaseException]) -> None:
    console = terminal()

    def loop() -> None:
        for x in Watched(iter(fl.from_range(9)), "", console):
            assert drawn(console).count(HIDDEN) == 1
            raising(error)(x)

    with pytest.raises(error):
        loop()
    assert drawn(console).endswith(SHOWN)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_cursor_is_restored_when_the_flow_fails(error: type[BaseException]) -> None:
    console = terminal()
    tracked = Watched(iter(fl.from_range(9).map(raising(error))), "", console)
    with pytest.raises((fl.ElementError, KeyboardInterrupt)):
        list(tracked)
    assert drawn(console).endswith(SHOWN)
    assert "3/9" in drawn(console)


def test_the_cursor_is_restored_when_the_first_drawing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Ctrl-C may cause."""
    console = terminal()
    monkeypatch.setattr(Progress, "start", interrupted(Progress.start))
    with pytest.raises(KeyboardInterrupt):
        next(iter(Watched(iter(fl.from_range(9)), "", console)))
    assert drawn(console).endswith(SHOWN)


def interrupted(start: Callable[[Progress], None]) -> Callable[[Progress], None]:
    def begin(progress: Progress) -> None:
        start(progress)
        raise KeyboardInterrupt

    return begin


def test_the_cursor_is_restored_after_break_and_the_run_continues() -> None:
    console = terminal()
    watched = Watched(iter(fl.from_range(9)), "", console)
    for x in watched:
        if x == 3:
            break
    assert drawn(console).endswith(SHOWN)
    assert list(watched) == [4, 5, 6, 7, 8]


def test_the_cursor_is_restored_if_a_failed_frame_keeps_the_bar() -> None:
    console = terminal()

    def train(elements: Iterable[int]) -> None:
        for x in elements:
            raising(ValueError)(x)

    with pytest.raises(ValueError) as caught:  # noqa: PT011  # it has no message
        train(Watched(iter(fl.from_range(9)), "", console))
    assert caught.tb is not None  # which holds the frame, and that the argument
    assert drawn(console).endswith(SHOWN)


def test_nested_loops_have_their_own_bars() -> None:
    console = terminal()
    for _ in Watched(iter(fl.from_range(2)), "epochs", console):
        for _ in Watched(iter(fl.from_range(3)), "steps", console):
            pass
    assert "3/3" in drawn(console)
    assert "epochs" in last_line(console)
    assert "2/2" in last_line(console)
    assert drawn(console).endswith(SHOWN)


def test_output_of_the_loop_to_a_file_is_not_redirected(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    for x in Watched(iter(fl.from_range(3)), "", console):
        print("element", x)
    assert capsys.readouterr().out == "element 0\nelement 1\nelement 2\n"
    assert "element" not in drawn(console)


def test_other_objects_than_runs_are_refused() -> None:
    not_a_run: Any = [1, 2]
    with pytest.raises(InvalidFlow) as caught:
        fl.progress(not_a_run)
    assert str(caught.value) == "progress: expected a flow, or a run of one, got [1, 2]"
    not_text: Any = 3
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).progress(not_text)
    assert str(caught.value) == "progress: description must be text, got 3"


SCRIPT = """
import time
import flowdsl as fl

def slow(i):
    time.sleep(0.01)
    return i

for x in fl.from_range(10**6).map(slow).prefetch(threads=1).progress("train"):
    pass
"""


def test_a_bar_in_a_real_terminal_ends_with_ctrl_c() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    seen, deadline, sent = b"", time.monotonic() + 60, False
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            read = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not read:
            break
        seen += read
        if not sent and b"/1000000" in seen:
            sent = True
            process.send_signal(signal.SIGINT)
    os.close(ours)
    process.wait(60)
    text = seen.decode()
    assert "train" in text
    assert text.count(HIDDEN) == text.count(SHOWN) == 1
    assert text.index(SHOWN) < text.index("KeyboardInterrupt")
