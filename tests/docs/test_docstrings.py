"""Docstrings say what a thing is or does: their first word is not an interrogative."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "flowdsl"
INTERROGATIVE = re.compile(r"(What|How|Whether|Whoever|Where|Why|When)\b")


def docstrings(path: Path) -> Iterator[str]:
    """Yield the strings that are statements: docstrings, and those below attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def test_docstrings_do_not_begin_like_a_question() -> None:
    texts = [(path, text) for path in sorted(PACKAGE.rglob("*.py")) for text in docstrings(path)]
    assert len(texts) > 4000
    found = [f"{path.name}: {text}" for path, text in texts if INTERROGATIVE.match(text)]
    assert found == []
