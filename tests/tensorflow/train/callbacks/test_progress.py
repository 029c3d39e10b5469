from __future__ import annotations

import io
import re

from rich.console import Console

from flowdsl.tensorflow.train import ProgressBar, SimpleTrainer, TrainConfig
from tests.tensorflow.train.regression import Linear, points, sgd


def shown(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=140, color_system=None)
    config = TrainConfig(
        dataflow=points(32).batch(8),
        model=Linear,
        optimizer=sgd,
        extra_callbacks=[ProgressBar(console)],
        monitors=(),
        max_epoch=2,
    )
    SimpleTrainer(config).train()
    return out.getvalue()


def test_plain_line_per_epoch_without_a_terminal() -> None:
    lines = shown(terminal=False).splitlines()
    line = (
        r"epoch {}/2: 4 steps, \d+\.\d s, loss [\d.]+, bias -?[\d.e-]+, queue_fill \d+, "
        r"input_wait [\d.e-]+"
    )
    assert len(lines) == 2
    for number, text in enumerate(lines, 1):
        assert re.fullmatch(line.format(number), text), text


def test_progress_bar_is_shown_in_a_terminal() -> None:
    text = shown(terminal=True)
    assert "epoch 2/2" in text
    assert "━" in text
    assert "4/4" in text
    assert re.search(r"loss [\d.]+.*queue_fill \d", text)
