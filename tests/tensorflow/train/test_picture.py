"""draw_curves: a picture of the scalars in event files."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from flowdsl import InvalidFlow
from flowdsl.tensorflow.train import TFEventWriter, draw_curves


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    writer = TFEventWriter()
    writer.start(tmp_path, 0)
    for step in range(1, 101):
        writer.process_step(step, {"loss": 1 / step, "queue_fill": step % 7})
    writer.close()
    return tmp_path


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_it_draws_a_panel_for_each_name(tmp_path: Path, steps: int) -> None:
    writer = TFEventWriter()
    writer.start(tmp_path, 0)
    for step in range(1, steps + 1):
        writer.process_step(step, {"loss": 1 / step, "queue_fill": step % 7})
    writer.close()
    draw_curves(tmp_path, tmp_path / "curves.svg")
    tree = ElementTree.parse(tmp_path / "curves.svg")
    panels = [e for e in tree.iter() if str(e.get("id", "")).startswith("axes_")]
    assert len(panels) == 2


def test_curves_can_be_png(logdir: Path) -> None:
    draw_curves(logdir, logdir / "curves.png", ["loss"])
    assert (logdir / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_unknown_name_is_an_error(logdir: Path) -> None:
    with pytest.raises(InvalidFlow, match=r"no scalar 'lost' in .*; it has loss, queue_fill"):
        draw_curves(logdir, logdir / "curves.svg", ["lost"])
