"""Pages for users: their programs run in an empty folder, print what is shown, and type-check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkers import Checker, mypy, pyright

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRAMEWORKS = ["jax", "keras", "pytorch", "tf-data"]
PAGES = [*FRAMEWORKS, "costs", "language-models", "mixtures", "sensors", "tables"]
LATER = ["keras", "pytorch", "tf-data"]
"""Pages whose framework takes longest to import, with the flow of the page on JAX."""


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


def test_the_step_of_the_page_trains_on_several_devices(tmp_path: Path) -> None:
    program = blocks("jax", "python") + blocks("jax", "py")
    program += "train_step({'weights': jnp.zeros((3072, 2)), 'bias': jnp.zeros(2)}, image, label)\n"
    program += "print(image.sharding == rows, len(params['bias'].devices()))"
    (tmp_path / "program.py").write_text(program)
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True 4"


def test_the_frameworks_are_fed_by_one_pipeline() -> None:
    assert len({blocks(page, "python").partition("print(")[0] for page in FRAMEWORKS}) == 1


def file_of(page: str) -> str:
    return f"page_{page.replace('-', '_')}.py"


for _page in PAGES:
    mypy.add(file_of(_page), blocks(_page, "python"))
    pyright.add(file_of(_page), blocks(_page, "python"))


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
@pytest.mark.parametrize("page", PAGES)
def test_type_checkers_accept_the_programs(page: str, checker: Checker) -> None:
    assert [finding for finding in checker.in_program(file_of(page)) if finding.error] == []
