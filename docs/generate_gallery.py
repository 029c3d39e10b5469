"""Writes the pictures of the gallery: for each example, the plan of the flow that it trains on.

An example runs until it passes this flow to its framework, in an empty folder and without a
cluster.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import tempfile
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import ray
import ray.train.torch

import flowdsl as fl
from flowdsl.plan.lower import plan_of
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture
from flowdsl.tensorflow import train as training
from flowdsl.tensorflow.inputs import QueueInput

EXAMPLES = Path(__file__).parents[1] / "examples"
PLANS = Path(__file__).with_name("site") / "plans"


class Passed(BaseException):
    """Ends an example."""

    def __init__(self, flow: fl.Flow[object]) -> None:
        self.flow = flow


def stop(flow: fl.Flow[object]) -> NoReturn:
    """Take the place of a method that passes a flow to a framework."""
    raise Passed(flow)


def stop_trainer(
    config: training.TrainConfig,
    dataflow: fl.Flow[object] | None = None,
    data: QueueInput | None = None,
    **others: object,
) -> None:
    """Take the place of ``TrainConfig.__init__``."""
    flow = data.flow if data else dataflow
    assert flow
    stop(flow)


def trained_on(example: Path) -> fl.Flow[object]:
    """Return the flow that an example trains on."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        patch.object(sys, "argv", [str(example)]),
        patch.object(fl.Flow, "to_torch", stop),
        patch.object(fl.Flow, "to_jax", stop),
        patch.object(fl.Flow, "to_keras", stop),
        patch.object(training.TrainConfig, "__init__", stop_trainer),
        patch.object(ray, "init"),
        patch.object(ray.train.torch, "TorchTrainer", lambda worker, **settings: worker()),
    ):
        try:
            runpy.run_path(str(example), run_name="__main__")
        except Passed as passed:
            return passed.flow
    raise AssertionError(f"{example.name} trained on no flow")


def main(folder: Path) -> None:
    """Write a picture for each example."""
    for example in sorted(EXAMPLES.glob("*.py")):
        drawn = picture(diagram_of(plan_of(trained_on(example).node))).svg()
        (folder / f"{example.stem}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PLANS)
