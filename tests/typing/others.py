"""``make other-checkers``: what pyrefly, ty and zuban say of the tests of the types, as a table."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOOD, BAD, NATURAL = (
    sorted(path.relative_to(ROOT) for path in Path(__file__).parent.glob(pattern))
    for pattern in ("good*.py", "bad*.py", "natural/test_*.py")
)
COMMANDS = {
    "pyrefly": "check --output-format=min-text --python-version=3.11 --search-path=stubs"
    f" --search-path=. --python-interpreter-path={sys.executable}",
    "ty": "check --output-format=concise --no-progress --python-version=3.11"
    f" --extra-search-path=stubs --python={sys.executable}",
    "zuban": f"mypy --python-executable={sys.executable}",  # it reads mypy.ini too
}
# pyrefly has the severity before the place, the others after it.
ERROR = re.compile(r"(ERROR )?(tests/typing/[\w/]+\.py):(\d+):(?(1)|(?:\d+:)? error\b)")


def errors(checker: Path) -> set[tuple[str, int]]:
    """Return the lines that a checker refuses."""
    paths = map(str, [*GOOD, *BAD, *NATURAL])
    command = [str(checker), *COMMANDS[checker.name].split(), *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), f"{checker.name} broke:\n{done.stdout}{done.stderr}"
    return {(line[2], int(line[3])) for line in map(ERROR.match, done.stdout.splitlines()) if line}


def chains(path: Path) -> list[range]:
    """Return the lines of each chain whose type is asserted."""
    nodes = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
    return [_lines(node) for node in nodes if ast.unparse(node.func) == "assert_type"]


def programs(path: Path) -> list[range]:
    """Return the lines of each function that is a test."""
    nodes = [node for node in _tree(path).body if isinstance(node, ast.FunctionDef)]
    return [_lines(node) for node in nodes if node.name.startswith("test_")]


def mistakes(path: Path) -> list[range]:
    """Return each line that is marked as a mistake."""
    lines = (ROOT / path).read_text().splitlines()
    return [range(i, i + 1) for i, line in enumerate(lines, 1) if "  # E: " in line]


def _tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def _lines(node: ast.Call | ast.FunctionDef) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def main() -> None:
    """Print a line for each checker in the folder that is the argument."""
    counted = [(GOOD, chains), (NATURAL, programs), (BAD, mistakes)]
    parts = [[(str(p), at) for p in paths for at in found(p)] for paths, found in counted]
    titles = "of {} chains, of another type | of {} programs, refused | of {} mistakes, found"
    print("| checker |", titles.format(*map(len, parts)), "|")
    print("|---|---|---|---|")
    for name in COMMANDS:
        refused = errors(checker := Path(sys.argv[1], name).absolute())
        found = [sum(any((p, n) in refused for n in at) for p, at in part) for part in parts]
        version = subprocess.check_output([checker, "--version"], text=True).split()[1]
        print(f"| {name} {version} |", " | ".join(map(str, found)), "|", flush=True)


if __name__ == "__main__":
    main()
