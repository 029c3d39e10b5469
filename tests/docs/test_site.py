"""The site has every page and every example."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"


def test_every_page_is_in_the_contents() -> None:
    contents = re.findall(
        r"^(?:.*<)?/?(\w[\w/-]*)>?$", (SITE / "index.md").read_text(), re.MULTILINE
    )
    pages = {f"docs/{page.stem}" for page in (ROOT / "docs").glob("*.md")}
    pages |= {f"api/{page.stem}" for page in (SITE / "api").glob("*.rst")}
    assert pages <= set(contents)
    assert {"README", *(page.stem for page in ROOT.glob("*.md"))} <= set(contents)


def test_every_example_is_in_the_gallery() -> None:
    shown = re.findall(r"\.\./examples/(\w+\.py)$", (SITE / "gallery.md").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))
