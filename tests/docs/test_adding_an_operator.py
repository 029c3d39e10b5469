"""The guide adds an operator: its code runs, its tests pass, and its types check."""

from __future__ import annotations

import importlib.util
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tests.checkers import mypy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("first_failure")]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "adding-an-operator.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
CODE = "\n".join(BLOCKS)
NEEDS_TENSORFLOW = pytest.mark.skipif(not find_spec("tensorflow"), reason="needs TensorFlow")
mypy.add("guide.py", CODE)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code blocks of the guide, in order, as one module."""
    path = tmp_path_factory.mktemp("guide") / "guide.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def guide(code: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("guide", code)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "test",
    [
        "test_reverse_is_typed",
        "test_reverse_keeps_the_laws",
        "test_reverse_is_reversed",
        "test_reverse_reads_late",
        "test_workers_run_below_it",
        "test_squares_keep_the_laws",
        "test_the_format_keeps_the_laws",
        pytest.param("test_the_input_keeps_the_laws", marks=NEEDS_TENSORFLOW),
    ],
)
def test_the_tests_of_the_page_pass(guide: ModuleType, test: str) -> None:
    getattr(guide, test)()


def test_the_page_has_no_other_tests(guide: ModuleType) -> None:
    assert len(BLOCKS) == 8
    found = [name for name in vars(guide) if name.startswith("test_")]
    assert len(found) == 8


@pytest.mark.parametrize(
    ("given", "broken"),
    [
        ("last - addresses.position)", "last - addresses.position - 1)"),
        ("reversed(elements)", "reversed(elements[1:])"),
        ("IndexTransform[T, E | Reordered]", "IndexTransform[T, E]"),
        ("return self.source.length\n", "return 3\n"),
    ],
)
def test_breaking_the_operator_is_detected(
    code: Path, tmp_path: Path, given: str, broken: str
) -> None:
    text = code.read_text()
    assert given in text
    module = ModuleType("broken")
    exec(compile(text.replace(given, broken), str(tmp_path / "broken.py"), "exec"), vars(module))
    with pytest.raises(Exception):  # noqa: B017, PT011  # hypothesis may group what it finds
        module.test_reverse_keeps_the_laws()


def test_the_types_of_the_page_check() -> None:
    assert mypy.in_program("guide.py") == []
