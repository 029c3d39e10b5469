"""Log directories and checkpoints that something else has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.tensorflow.interrupts import raising_hidden_interrupts
from flowdsl.tensorflow.train import (
    Callback,
    JSONWriter,
    ModelSaver,
    Monitor,
    SimpleTrainer,
    TFEventWriter,
    TrainConfig,
)
from flowdsl.tensorflow.train.callbacks.group import not_json
from flowdsl.tensorflow.train.checkpoint import latest_checkpoint
from flowdsl.tensorflow.train.logdir import locked
from tests.children import workers_of
from tests.tensorflow.train.regression import Linear, X, Y, sgd


def trainer(
    logdir: Path | None,
    *callbacks: Callback,
    epochs: int = 1,
    monitors: tuple[Monitor, ...] = (),
    initial: Mapping[str, object] | str | None = None,
    procs: int = 0,
) -> SimpleTrainer:
    config = TrainConfig(
        fl.from_items(list(zip(X[:8], Y[:8], strict=True)))
        .map(tuple)
        .batch(4)
        .prefetch(procs=procs),
        model=Linear,
        optimizer=sgd,
        callbacks=callbacks,
        extra_callbacks=(),
        monitors=monitors,
        max_epoch=epochs,
        logdir=logdir,
        session_init=initial,  # type: ignore[arg-type]  # wrong ones are refused at run time
    )
    return SimpleTrainer(config)


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_file_in_the_place_of_logdir_is_refused(tmp_path: Path, inside: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fl.InvalidArgument, match="logdir must be a folder that can be written"):
        trainer(tmp_path / "file" / inside).train()


def test_a_logdir_is_locked_until_its_training_has_ended(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(fl.FlowError, match="another training is writing to"):
        trainer(tmp_path).train()
    trainer(tmp_path).train()
    with locked(tmp_path):
        pass


def test_files_beside_the_checkpoints_are_ignored(tmp_path: Path) -> None:
    trainer(tmp_path, ModelSaver(), epochs=2).train()
    checkpoints = tmp_path / "checkpoints"
    for name in ("ckpt-4 (copy)", "ckpt-last", "ckpt-", "ckpt-9²"):
        shutil.copy(checkpoints / "ckpt-4.index", checkpoints / f"{name}.index")
    assert latest_checkpoint(tmp_path) == str(checkpoints / "ckpt-4")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _damaged(path: Path) -> None:
    path.write_bytes(b"\xff\0model")


@pytest.mark.parametrize("damage", [_empty, _damaged, Path.unlink])
def test_a_damaged_list_of_checkpoints_is_written_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    trainer(tmp_path, ModelSaver(max_to_keep=2), epochs=2).train()
    damage(tmp_path / "checkpoints" / "checkpoint")
    second = trainer(tmp_path, ModelSaver(max_to_keep=2), epochs=3)
    second.train()
    assert second.global_step == 6
    assert second.counts.finished.numpy() == 6
    names = {path.name for path in (tmp_path / "checkpoints").glob("*.index")}
    assert names == {"ckpt-4.index", "ckpt-6.index"}  # and the older one is removed as usual


class WithState(Callback):
    def __init__(self, state: Mapping[str, object]) -> None:
        self.state = state

    def state_dict(self) -> Mapping[str, object]:
        return self.state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        raise LookupError(f"no {list(state)}")


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"best": np.float32(1)}, r"the state\['best'\] is"),
        ({"best": [0, {3: 1}]}, r"the state\['best'\]\[1\] has the key 3"),
        ({"seen": {1, 2}}, r"the state\['seen'\] is"),
    ],
)
def test_a_state_that_cannot_be_saved_is_refused_before_the_first_step(
    tmp_path: Path, state: Mapping[str, object], named: str
) -> None:
    training = trainer(tmp_path, WithState(state), ModelSaver())
    with pytest.raises(fl.InvalidArgument, match=f"WithState.state_dict.*{named}"):
        training.train()
    assert training.global_step == 0
    trainer(None, WithState(state)).train()  # nothing is saved


def test_json_values_are_accepted_at_any_depth() -> None:
    assert not_json({"a": [1, 2.5, "x", None, True, {"b": (float("nan"),)}]}) is None


def test_a_callback_that_cannot_load_its_state_is_named(tmp_path: Path) -> None:
    trainer(tmp_path, WithState({"a": 1}), ModelSaver()).train()
    with pytest.raises(fl.StateMismatch, match=r"WithState.load_state_dict.*LookupError"):
        trainer(tmp_path, WithState({"a": 1}), ModelSaver(), epochs=2).train()


@pytest.mark.parametrize("content", [b"", b"PK\3\4 and so on", bytes(range(64, 128))])
def test_damaged_initial_values_are_an_error_that_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "values.npz").write_bytes(content)
    with pytest.raises(fl.SourceError, match=r"values\.npz', a file of \d+ bytes, is not an"):
        trainer(None, initial=str(tmp_path / "values.npz")).train()


@pytest.mark.parametrize("value", [1e300, -1e39, 1j])
def test_initial_values_beyond_the_range_are_refused(value: complex) -> None:
    with pytest.raises(fl.StateMismatch, match="'b'"):
        trainer(None, initial={"b": [value]}).train()


@pytest.mark.parametrize("value", [3e38, np.inf, np.nan, 1e-300, 7])
def test_initial_values_within_the_range_are_accepted(value: float) -> None:
    training = trainer(None, initial={"b": [value]})
    training.setup()
    assert isinstance(training.model, Linear)
    np.testing.assert_array_equal(training.model.b.numpy(), np.array([value], np.float32))


class RemoveLogdir(Callback):
    def after_epoch(self) -> None:
        assert self.trainer.config.logdir is not None
        shutil.rmtree(self.trainer.config.logdir)


def test_a_removed_logdir_is_an_error_that_names_the_writer(tmp_path: Path) -> None:
    monitor = JSONWriter()
    with pytest.raises(fl.FlowError, match=r"JSONWriter: .*stats.json' cannot be written: No such"):
        trainer(tmp_path / "out", RemoveLogdir(), monitors=(monitor,)).train()


def test_event_files_in_a_folder_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = TFEventWriter()
    writer.start(tmp_path, 0)
    writer.close()
    with pytest.raises(fl.FlowError, match=r"TFEventWriter: .*tfevents.* cannot be written"):
        writer.process_step(1, {"loss": 1.0})


class Fails(Callback):
    def trigger_epoch(self) -> None:
        raise ConnectionError


@pytest.mark.slow
def test_no_worker_is_left_when_a_training_has_ended() -> None:
    before = workers_of()
    trainer(None, procs=1).train()
    with pytest.raises(ConnectionError):
        trainer(None, Fails(), procs=1).train()
    assert workers_of() == before


def test_an_interrupt_that_tensorflow_hides_is_raised() -> None:
    hidden = RuntimeError("Exiting device scope without proper scope nesting")
    hidden.__context__ = ValueError()
    hidden.__context__.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), raising_hidden_interrupts():
        raise hidden
    with pytest.raises(RuntimeError), raising_hidden_interrupts():
        raise RuntimeError
