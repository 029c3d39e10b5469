"""The page on figures and verdicts documents all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

from flowdsl.report.bottleneck import SIMILAR_FACTOR
from flowdsl.report.verdict import Limit
from flowdsl.statistics.figures import HEADER

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "seeing.md").read_text()


def first_cells(header: str) -> list[str]:
    """Return the code in the first column of a table."""
    table = PAGE.partition(f"{header}\n|---")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    return [name for row in rows for name in re.findall("`(.*?)`", row)]


def test_every_column_is_documented() -> None:
    assert first_cells("| column | |") == list(HEADER[2:])


def test_every_verdict_is_documented() -> None:
    assert first_cells("| verdict | what is busy | advice |") == list(get_args(Limit))
    assert f"within {SIMILAR_FACTOR - 1:.0%} of each other" in PAGE


def test_the_picture_is_a_profile() -> None:
    (name,) = re.findall(r"!\[.*?\]\((.*?)\)", PAGE)
    svg = (DOCS / name).read_text(encoding="utf-8")
    assert len(svg) < 20_000
    texts = [element.text or "" for element in ElementTree.fromstring(svg).iter()]
    assert "limits" in texts
    (rate,) = re.findall(r"limits the run to ([\d,]+) batches", PAGE)
    assert f"{rate} elements/s" in texts
