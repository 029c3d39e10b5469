"""The site has every page, and every example with its picture."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_example_is_in_the_gallery_with_its_plan() -> None:
    shown = re.findall(
        r"\]\(plans/(\w+)\.svg\)\n\n:::{literalinclude} \.\./\.\./examples/(\w+)\.py$",
        (SITE / "gallery.md").read_text(),
        re.MULTILINE,
    )
    examples = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
    assert sorted(shown) == [(name, name) for name in examples]
    assert sorted(path.stem for path in (SITE / "plans").iterdir()) == examples


@pytest.mark.long  # it imports every framework
def test_the_plans_of_the_examples_are_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    command = [sys.executable, str(ROOT / "docs" / "generate_gallery.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert pictures(tmp_path) == pictures(SITE / "plans"), "make docs"


def pictures(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
