"""Int arguments accept ints, including NumPy's, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.tensorflow.train import InferenceRunner, ModelSaver, SimpleTrainer, TrainConfig
from tests.integers import NO_INTS
from tests.tensorflow.train.regression import Linear, adam, points

LEAST = {
    "starting_epoch": 0,
    "max_epoch": 0,
    "steps_per_epoch": 1,
    "nr_tower": 1,
    "record_every": 1,
}
MAY_BE_LEFT_OUT = {"steps_per_epoch", "nr_tower"}


def config(**arguments: Any) -> TrainConfig:
    return TrainConfig(
        **{"dataflow": points().batch(8), "model": Linear, "optimizer": adam, **arguments}
    )


@pytest.mark.parametrize("value", NO_INTS)
@pytest.mark.parametrize("name", LEAST)
def test_configuration_numbers_must_be_ints(name: str, value: Any) -> None:
    says = f"TrainConfig: {name} must be an int >= {LEAST[name]}, got {value!r}"
    with pytest.raises(fl.InvalidFlow, match=re.escape(says) + "$"):
        config(**{name: value})


@pytest.mark.parametrize("name", LEAST)
def test_none_is_accepted_only_for_optional_arguments(name: str) -> None:
    if name in MAY_BE_LEFT_OUT:
        assert getattr(config(**{name: None}), name) is None
    else:
        with pytest.raises(fl.InvalidFlow, match=f"{name} must be an int >= .*, got None"):
            config(**{name: None})


@pytest.mark.parametrize("value", [*NO_INTS, 0])
@pytest.mark.parametrize("name", ["every_steps", "max_to_keep"])
def test_saver_arguments_must_be_ints(name: str, value: Any) -> None:
    says = f"ModelSaver: {name} must be an int >= 1, got {value!r}"
    with pytest.raises(fl.InvalidFlow, match=re.escape(says) + "$"):
        ModelSaver(**{name: value})


def test_max_to_keep_must_be_an_int() -> None:
    none: Any = None
    with pytest.raises(fl.InvalidFlow, match="max_to_keep must be an int >= 1, got None"):
        ModelSaver(max_to_keep=none)


@pytest.mark.parametrize("value", [*NO_INTS, 0])
def test_inference_capacity_must_be_an_int(value: Any) -> None:
    with pytest.raises(fl.InvalidFlow, match="capacity must be an int >= 1, got"):
        InferenceRunner(points().batch(8), capacity=value)


def test_numpy_ints_are_saved_in_checkpoints(tmp_path: Path) -> None:
    def trainer(max_epoch: int) -> SimpleTrainer:
        numbers: dict[str, Any] = {name: np.int64(1) for name in LEAST}
        numbers |= {"steps_per_epoch": np.uint8(4), "max_epoch": np.int32(max_epoch)}
        saver: Any = {"every_steps": np.int64(3), "max_to_keep": np.int64(2)}
        chosen = config(
            **numbers,
            logdir=tmp_path,
            callbacks=[ModelSaver(**saver)],
            extra_callbacks=(),
            monitors=(),
        )
        assert all(type(getattr(chosen, name)) is int for name in LEAST)
        return SimpleTrainer(chosen)

    trainer(1).train()
    resumed = trainer(2)
    resumed.train()
    assert (resumed.epoch_num, resumed.global_step) == (2, 8)
