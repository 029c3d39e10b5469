from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from flowdsl.train import ModelSaver, ProgressBar, SimpleTrainer, TrainConfig
from tests.train.regression import Linear, points, sgd


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


def test_without_a_terminal_there_is_one_plain_line_an_epoch() -> None:
    lines = shown(terminal=False).splitlines()
    line = (
        r"epoch {}/2: 4 steps, \d+\.\d s, loss [\d.]+, bias -?[\d.e-]+, queue_fill \d+, "
        r"input_wait [\d.e-]+"
    )
    assert len(lines) == 2
    for number, text in enumerate(lines, 1):
        assert re.fullmatch(line.format(number), text), text


def test_in_a_terminal_there_is_a_bar() -> None:
    text = shown(terminal=True)
    assert "epoch 2/2" in text
    assert "━" in text
    assert "4/4" in text
    assert re.search(r"loss [\d.]+.*queue_fill \d", text)


def test_where_training_goes_on_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    for epochs in (1, 2):
        out = io.StringIO()
        config = TrainConfig(
            dataflow=points(32).batch(8),
            model=Linear,
            optimizer=sgd,
            callbacks=[ModelSaver()],
            extra_callbacks=[ProgressBar(Console(file=out))],
            monitors=(),
            max_epoch=epochs,
            logdir=tmp_path,
        )
        SimpleTrainer(config).train()
        said.append(out.getvalue())
    assert "going on" not in said[0]
    assert said[1].startswith("going on after step 4\nepoch 2/2")
