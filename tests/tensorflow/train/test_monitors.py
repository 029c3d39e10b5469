from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import flowdsl as fl
from flowdsl.tensorflow.train import History, JSONWriter, ScalarPrinter, read_stats


def test_stats_have_one_object_per_epoch(tmp_path: Path) -> None:
    tmp_path /= "made"
    writer = JSONWriter()
    writer.start(tmp_path, 0)
    writer.process_epoch(1, 10, {"loss": 0.5, "accuracy": 0.25})
    writer.process_epoch(2, 20, {"loss": math.nan, "accuracy": math.inf})
    assert json.loads((tmp_path / "stats.json").read_text()) == [
        {"epoch_num": 1, "global_step": 10, "loss": 0.5, "accuracy": 0.25},
        {"epoch_num": 2, "global_step": 20, "loss": None, "accuracy": None},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["stats.json"]


def test_resumed_stats_drop_repeated_epochs(tmp_path: Path) -> None:
    first = JSONWriter()
    first.start(tmp_path, 0)
    for epoch in (1, 2, 3):
        first.process_epoch(epoch, 10 * epoch, {"loss": 1.0})
    second = JSONWriter()
    second.start(tmp_path, 20)
    second.process_epoch(3, 30, {"loss": 2.0})
    steps = [(entry["global_step"], entry["loss"]) for entry in read_stats(tmp_path)]
    assert steps == [(10, 1.0), (20, 1.0), (30, 2.0)]


@pytest.mark.parametrize("content", ["[{", "3", "[3]", '[{"epoch_num": 1}]', '{"global_step": 1}'])
def test_damaged_stats_are_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "stats.json").write_text(content)
    with pytest.raises(fl.SourceError, match=r"stats\.json is not a list of epochs"):
        JSONWriter().start(tmp_path, 0)
    assert (tmp_path / "stats.json").read_text() == content


def test_writing_needs_a_logdir() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"JSONWriter needs a place.*logdir"):
        JSONWriter().start(None, 0)


def test_scalars_are_printed_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    ScalarPrinter().process_epoch(1, 10, {"loss": 0.123456789, "accuracy": 1.0})
    assert capsys.readouterr().out == "accuracy: 1\nloss: 0.12346\n"


def test_history_keeps_every_step() -> None:
    history = History()
    history.process_step(1, {"loss": 3.0})
    history.process_step(2, {"loss": 2.0, "queue_fill": 7.0})
    assert history["loss"] == {1: 3.0, 2: 2.0}
    assert history["queue_fill"] == {2: 7.0}
