"""Fragments of the changelog: a kind that towncrier knows, and a paragraph."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGMENTS = sorted(path for path in (ROOT / "changes").iterdir() if path.name != "README.md")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = {kind["directory"] for kind in SETTINGS["type"]}


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_fragment_is_well_formed(path: Path) -> None:
    name = re.fullmatch(r"\+[a-z0-9-]+\.([a-z]+)\.md", path.name)
    assert name is not None
    assert name[1] in KINDS
    paragraph = path.read_text()
    assert re.fullmatch(r"[^\s#-](.|\n(?!\n))*\.\n", paragraph)
    assert max(map(len, paragraph.splitlines())) <= 100


def test_the_changelog_has_the_place_for_them() -> None:
    assert SETTINGS["start_string"] in (ROOT / "CHANGELOG.md").read_text()
    page = (ROOT / "changes" / "README.md").read_text()
    assert set(re.findall(r"`(\w+)`", page)) >= KINDS
