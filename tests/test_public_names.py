"""Public names stay, or warn for a release: docs/versioning.md."""

from __future__ import annotations

import re
import tomllib

import pytest

import flowdsl as fl
from tests.public_names import ROOT, defined, listed, updated, violations

GONE = "is gone: a name warns for a minor version first, see docs/versioning.md"
STALE = "is not listed as it is now: run python -m tests.public_names"


def test_no_name_is_gone_and_every_name_is_listed() -> None:
    assert [*violations(listed(), defined(fl.__version__), fl.__version__)] == []


@pytest.mark.parametrize(
    ("before", "now", "version", "found"),
    [
        ({"a": ""}, {}, "0.2.0", [f"a {GONE}"]),
        ({"a": "0.1.0"}, {}, "0.1.1", [f"a {GONE}"]),
        ({"a": "0.1.0"}, {}, "0.2.0", []),
        ({"a": "0.9.0"}, {}, "0.10.0", []),
        ({}, {"a": ""}, "0.1.0", [f"a {STALE}"]),
        ({"a": ""}, {"a": "0.1.0"}, "0.1.0", [f"a {STALE}"]),
        ({"a": "0.1.0"}, {"a": "0.2.0"}, "0.2.0", []),
    ],
)
def test_what_the_policy_finds(
    before: dict[str, str], now: dict[str, str], version: str, found: list[str]
) -> None:
    assert [*violations(before, now, version)] == found


def test_the_list_keeps_what_may_not_go() -> None:
    before = {"stays": "", "warns": "0.1.0", "went": "0.1.0"}
    now = {"new": "", "warns": "0.2.0", "stays": "0.2.0"}
    assert updated(before, now, "0.2.0") == {"new": "", "warns": "0.2.0", "stays": "0.2.0"}
    assert updated(before, {}, "0.1.5") == before


def test_a_deprecated_method_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from typing_extensions import deprecated

    old = deprecated("write map")(lambda flow: flow)
    monkeypatch.setattr(fl.Flow, "old", old, raising=False)
    assert defined("0.1.0")["flowdsl.Flow.old"] == "0.1.0"


def test_every_place_has_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == fl.__version__
    assert f"\nversion: {fl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_address_of_the_repository_is_in_both_places_or_none() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    assert all(url.startswith("https://") for url in urls.values())
    cited = re.search(r"^repository-code: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert urls.get("Repository") == (cited and cited[1])
