"""Pages for users: their programs run in an empty folder, print what is shown, and type-check."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.turns import mypy_alone

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRAMEWORKS = ["jax", "keras", "pytorch", "tf-data"]
PAGES = [*FRAMEWORKS, "costs", "language-models", "mixtures", "sensors", "tables"]
LATER = ["keras", "pytorch"]
"""Pages whose framework takes longest to import, with the flow of the other frameworks' pages."""


def blocks(page: str, language: str) -> str:
    """The blocks of a page in a language, in order, but for doctests, which pytest runs itself."""
    text = (DOCS / f"{page}.md").read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "".join(block for block in found if not block.startswith(">>>"))


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page in LATER)) for page in PAGES]
)
def test_the_program_of_a_page_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(blocks(page, "python"))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(f"{tmp_path}/", "") == blocks(page, "text")


def test_the_frameworks_are_fed_by_one_pipeline() -> None:
    assert len({blocks(page, "python").partition("print(")[0] for page in FRAMEWORKS}) == 1


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of all pages, a file each."""
    folder = tmp_path_factory.mktemp("programs")
    for page in PAGES:
        (folder / f"page_{page.replace('-', '_')}.py").write_text(blocks(page, "python"))
    return folder


def test_mypy_accepts_the_programs(programs: Path) -> None:
    with mypy_alone():
        done = check("mypy", *sorted(map(str, programs.glob("*.py"))))
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_basedpyright_accepts_the_programs(programs: Path) -> None:
    project = programs / "pyrightconfig.json"
    settings = {
        "include": ["."],
        "extraPaths": [str(ROOT)],
        "stubPath": str(ROOT / "stubs"),
        "pythonVersion": "3.11",
        "typeCheckingMode": "standard",
    }
    project.write_text(json.dumps(settings))
    done = check("basedpyright", "--pythonpath", sys.executable, "--project", str(project))
    assert done.returncode == 0, done.stdout


def check(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
