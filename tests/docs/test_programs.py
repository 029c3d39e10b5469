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


def printed(program: str, folder: Path, **environment: str) -> str:
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, **environment, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] * (page in LATER))
        for page in PAGES
        if page != "jax"
    ],
)
def test_the_program_of_a_page_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    assert printed(blocks(page, "python"), tmp_path) == blocks(page, "text")


def test_the_program_on_jax_prints_what_the_page_shows_and_trains_on_several_devices(
    tmp_path: Path,
) -> None:
    program = blocks("jax", "python") + "print('-' * 9)\n" + blocks("jax", "py")
    program += "train_step({'weights': jnp.zeros((3072, 2)), 'bias': jnp.zeros(2)}, image, label)\n"
    program += "print(image.sharding == rows, len(params['bias'].devices()))"
    flags = "--xla_force_host_platform_device_count=4"  # the first blocks use one of them
    shown, _, after = printed(program, tmp_path, XLA_FLAGS=flags).partition(f"{'-' * 9}\n")
    assert shown == blocks("jax", "text")
    assert after == "True 4\n"


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
