from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.train import TFEventWriter, read_events


def written(logdir: Path, steps: range, loss: float, step: int = 0) -> Path:
    before = set(logdir.glob("*"))
    writer = TFEventWriter()
    writer.start(logdir, step)
    for i in steps:
        writer.process_step(i, {"loss": loss, "queue_fill": float(i)})
    writer.process_epoch(1, steps[-1], {"loss": loss})
    writer.close()
    (path,) = set(logdir.glob("*")) - before
    return path


def events(path: Path) -> list[tf.compat.v1.Event]:
    """Read as TensorBoard does: checksummed records of protos."""
    records = tf.data.TFRecordDataset(str(path), buffer_size=1 << 18)
    return [tf.compat.v1.Event.FromString(cast("bytes", record.numpy())) for record in records]


def test_a_file_is_what_tensorboard_expects(tmp_path: Path) -> None:
    path = written(tmp_path / "log", range(1, 4), 0.5)
    assert path.name.startswith("events.out.tfevents.")
    first, marker, *rest = events(path)
    assert first.file_version == "brain.Event:2"
    assert first.wall_time > 0
    assert marker.session_log.status == tf.compat.v1.SessionLog.START
    seen = [(e.step, [(v.tag, v.simple_value) for v in e.summary.value]) for e in rest]
    assert seen[0] == (1, [("loss", 0.5), ("queue_fill", 1.0)])
    assert seen[-1] == (3, [("epoch/loss", 0.5)])
    assert len(seen) == 4


def test_a_damaged_record_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, range(1, 4), 0.5)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError):
        events(path)


def test_read_events_returns_steps_by_name(tmp_path: Path) -> None:
    written(tmp_path, range(1, 4), 0.5)
    series = read_events(tmp_path)
    assert series == {
        "loss": {1: 0.5, 2: 0.5, 3: 0.5},
        "queue_fill": {1: 1.0, 2: 2.0, 3: 3.0},
        "epoch/loss": {3: 0.5},
    }


def test_repeated_steps_are_read_once(tmp_path: Path) -> None:
    written(tmp_path, range(1, 7), 1.0)
    written(tmp_path, range(4, 6), 2.0, step=3)  # killed again, before step 6
    assert read_events(tmp_path)["loss"] == {1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 2.0}


def test_steps_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    written(tmp_path, range(1, 7), 1.0)
    writer = TFEventWriter()
    writer.start(tmp_path, 3)
    writer.close()
    assert read_events(tmp_path)["loss"] == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_record_torn_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, range(1, 4), 0.5)
    path.write_bytes(path.read_bytes()[:-5])
    assert read_events(tmp_path)["loss"] == {1: 0.5, 2: 0.5, 3: 0.5}
    assert "epoch/loss" not in read_events(tmp_path)


def test_directory_without_events_reads_empty(tmp_path: Path) -> None:
    assert read_events(tmp_path) == {}


def test_non_finite_values_arrive(tmp_path: Path) -> None:
    written(tmp_path, range(1, 2), math.nan)
    assert math.isnan(read_events(tmp_path)["loss"][1])


def test_writing_needs_a_logdir() -> None:
    with pytest.raises(fl.InvalidFlow, match=r"TFEventWriter needs a place.*logdir"):
        TFEventWriter().start(None, 0)
