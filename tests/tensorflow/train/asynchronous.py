"""A program that the processes of an asynchronous training run.

    python -m tests.tensorflow.train.asynchronous FOLDER NAME ROWS [VICTIM]

The chief writes the rows that were trained on, a line an element, and the weights at the end. It
kills the process ``VICTIM`` after the seventh step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from flowdsl.tensorflow.train import AsyncDistributedTrainer, Callback, ModelSaver, TrainConfig
from flowdsl.tensorflow.train.towers import Element
from tests.tensorflow.train.distributed import Recording, batches
from tests.tensorflow.train.regression import adam


class Kill(Callback):
    def __init__(self, process: int) -> None:
        self.process = process

    def trigger_step(self) -> None:
        if self.trainer.global_step == 7:
            os.kill(self.process, signal.SIGKILL)


class LoggingTrainer(AsyncDistributedTrainer):
    """A trainer that records the rows it trains on."""

    log = Path()

    def _train(self, k: int, element: Element) -> dict[str, float]:
        scalars = super()._train(k, element)
        with self.log.open("a") as file:
            file.write(json.dumps(element[0].numpy().tolist()) + "\n")
        return scalars


def main(folder: Path, name: str, rows: int, victim: int = 0) -> None:
    LoggingTrainer.log = folder / f"{name}.rows"
    config = TrainConfig(
        dataflow=batches(rows),
        model=Recording,
        optimizer=adam,
        callbacks=[ModelSaver(every_steps=4), *([Kill(victim)] if victim else [])],
        extra_callbacks=(),
        monitors=(),
        max_epoch=2,
        logdir=folder / "log",
    )
    trainer = LoggingTrainer(config)
    trainer.setup()
    began = trainer.global_step
    trainer.main_loop()
    assert isinstance(trainer.model, Recording)
    message = {
        "began": began,
        "steps": trainer.global_step,
        "updates": trainer.updates,
        "left_over": trainer.left_over,
        "weights": trainer.model.weights(),
        "on": trainer.model.w.device,
    }
    (folder / f"{name}.json").write_text(json.dumps(message))


if __name__ == "__main__":
    where, name, *numbers = sys.argv[1:]
    main(Path(where), name, *map(int, numbers))
