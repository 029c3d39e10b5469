"""Links within the pages lead to a file and, if they name one, to a heading of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "docs" / "site")
READMES = (ROOT / "bench" / "README.md", ROOT / "changes" / "README.md")
PAGES = sorted([*READMES, *(page for folder in FOLDERS for page in folder.glob("*.md"))])


@cache
def prose(page: Path) -> str:
    """The text of a page without its programs."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and MyST name them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts}


def targets(page: Path) -> list[str]:
    """The targets of links, in line and by reference, that are not on the web."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    found += re.findall(r"^\[[^\]]+\]: (\S+)$", prose(page), re.MULTILINE)
    return [target for target in found if not re.match(r"https?:|mailto:", target)]


def is_broken(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    return not file.exists() or (bool(anchor) and anchor not in anchors(file))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert [target for target in targets(page) if is_broken(page, target)] == []


def test_broken_links_are_noticed() -> None:
    readme = ROOT / "README.md"
    assert sum(len(targets(page)) for page in PAGES) > 300
    assert is_broken(readme, "docs/no_such_page.md")
    assert is_broken(readme, "docs/types.md#no-such-heading")
    assert not is_broken(readme, "docs/types.md#known-limits")
