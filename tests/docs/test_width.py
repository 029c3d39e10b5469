"""Pages have one line width, which tables, code and long links may exceed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ROOT, ROOT / "bench", ROOT / "changes", ROOT / "docs"
PAGES = sorted(page for folder in FOLDERS for page in folder.glob("*.md"))
WIDTH = 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_is_longer_than_the_width(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [
        line for line in text.splitlines() if not re.match(r"\||!\[|\[[^]]*\]\(\S*\)\S*$", line)
    ]
    assert [line for line in lines if len(line) > WIDTH and " " in line.strip()] == []
