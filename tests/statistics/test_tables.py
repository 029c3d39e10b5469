from __future__ import annotations

import io

from rich.console import Console

from flowdsl.statistics.run import RunStatistics
from flowdsl.statistics.tables import costs_table, printed, table
from tests.report.books import run, stage

SLOW = stage(
    "from_lmdb('x')",
    "map(decode)",
    "batch(32)",
    busy=(10.0, 5.0),
    waited=9.0,
    costs={"from_lmdb('x')": 1.5, "map(decode)": 9.0},
    calls={"map(decode)": 32000},
)
LAST = stage("flat_map(f)", times=())
FIGURES = run(SLOW, LAST, consumer=1.0)


def test_the_table_has_a_row_for_each_stage() -> None:
    shown = table(FIGURES.stages)
    assert shown.row_count == 2
    (row,) = [line for line in printed(shown).splitlines() if "from_lmdb" in line]
    cells = [cell.strip() for cell in row.strip("│\n").split("│")]
    assert cells == [
        "from_lmdb('x') … batch(32)",
        "2 processes",
        "100",
        "75%",
        "+33%",
        "90%",
        "0%",
        "1.02 ms",
        "2.04 ms",
    ]


def test_empty_columns_are_left_out() -> None:
    assert "input" not in printed(table(FIGURES.stages))
    read = stage("map(f)", busy=(1.0,), input_seconds=2.0, nbytes=10**7)
    shown = printed(table(run(read).stages))
    assert "input" in shown
    assert "1 MB/s" in shown
    assert "skew" not in shown


def test_the_limiting_stage_is_highlighted() -> None:
    def bold(limiting: int | None) -> list[str]:
        console = Console(
            file=io.StringIO(), width=140, force_terminal=True, color_system="standard"
        )
        console.print(table(FIGURES.stages, limiting))
        assert isinstance(console.file, io.StringIO)
        return [line for line in console.file.getvalue().splitlines() if "\x1b[1;33m" in line]

    assert bold(None) == []
    (first,) = bold(0)
    assert "from_lmdb" in first
    (second,) = bold(1)
    assert "flat_map" in second


def test_retries_and_deaths_are_in_the_row() -> None:
    died = stage("map(f)", busy=(1.0,), deaths=2, retried=5)
    assert "5 retried, 2 deaths" in printed(table(run(died).stages))


def test_costs_of_operators_are_in_the_table() -> None:
    lines = printed(costs_table(FIGURES.stages, FIGURES.seconds)).splitlines()
    cells = [[cell.strip() for cell in line.strip("│\n").split("│")] for line in lines[3:-1]]
    assert cells[:2] == [
        ["from_lmdb('x')", "100", "1.5 ms", "10%"],
        ["map(decode)", "3,200", "281 µs", "60%"],
    ]
    assert cells[2] == ["packing, of from_lmdb('x') … batch(32)", "", "", "30%"]


def test_brackets_in_titles_are_not_markup() -> None:
    title = "choose(..., [1, 1], [bold]seed=0)"
    odd = stage(title, busy=(1.0,), costs={title: 1.0})
    assert title in printed(table(run(odd).stages))
    assert title in printed(costs_table(run(odd).stages, 2.0))


def test_a_run_is_printed_with_summary_and_table() -> None:
    assert str(FIGURES).splitlines() == [
        "100 elements/s: 1,000 in 10 s, of which the consumer waited 90%",
        *printed(table(FIGURES.stages)).splitlines(),
    ]


def test_a_run_that_has_not_started_is_printed_in_one_line() -> None:
    assert str(RunStatistics(0, 0.0, 0.0, ())) == "0 elements/s: 0 in 0"


def test_the_summary_says_how_long_the_consumer_waited_only_if_that_was_measured() -> None:
    assert RunStatistics(9, 2.0, 0.0, ()).summary == "4.5 elements/s: 9 in 2 s"
    assert RunStatistics(9, 2.0, 0.0, (), profiled=True).summary.endswith("waited 100%")
    assert RunStatistics(9, 2.0, 0.5, ()).summary.endswith("waited 75%")


def test_the_summary_is_not_wrapped_by_a_narrow_table() -> None:
    narrow = run(stage("f"), length=2000, skipped=1200)
    assert str(narrow).splitlines()[0] == (
        "100 elements/s: 1,000 of 2,000 in 10 s, of which the consumer waited 100%; "
        "1,200 were left out"
    )
