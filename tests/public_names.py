"""The public names, and the version since which a name that goes is deprecated.

``python -m tests.public_names`` adds new names and new deprecations to ``public_names.txt``. It
removes a name only if the policy of docs/versioning.md allows that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import flowdsl as fl

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "public_names.txt"
PACKAGES = (
    "flowdsl",
    "flowdsl.jax",
    "flowdsl.keras",
    "flowdsl.nodes",
    "flowdsl.remote",
    "flowdsl.tensorflow.inputs",
    "flowdsl.tensorflow.queues",
    "flowdsl.tensorflow.train",
    "flowdsl.tensorflow.train.callbacks",
    "flowdsl.testing",
    "flowdsl.torch",
)

Names = Mapping[str, str]
"""Each public name with the version since which it is deprecated, or "" if it is not."""


def in_all(package: str) -> list[str]:
    """Return the names in ``__all__`` of a package, without importing it."""
    folder = Path(fl.__file__).parent.joinpath(*package.split(".")[1:])
    source = (folder / "__init__.py").read_text()
    (names,) = (
        statement.value
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
    )
    return [*ast.literal_eval(names)]


def defined(version: str) -> dict[str, str]:
    """Return the public names of the code, as of a version."""
    names = dict.fromkeys((f"{of}.{name}" for of in PACKAGES for name in in_all(of)), "")
    for name in dir(fl.Flow):
        if not name.startswith("_"):
            going = hasattr(getattr(fl.Flow, name), "__deprecated__")
            names[f"flowdsl.Flow.{name}"] = version if going else ""
    return names


def listed() -> dict[str, str]:
    """Return the names of the list."""
    lines = (line.partition(" deprecated since ") for line in LIST.read_text().splitlines())
    return {name: since for name, _, since in lines}


def may_go(since: str, version: str) -> bool:
    """Return True if a name may be removed in a version."""
    return bool(since) and _minor(since) < _minor(version)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def violations(before: Names, now: Names, version: str) -> Iterator[str]:
    """Yield what the policy does not allow, and what the list lacks."""
    for name in before.keys() - now.keys():
        if not may_go(before[name], version):
            yield f"{name} is gone: a name warns for a minor version first, see docs/versioning.md"
    for name, since in now.items():
        if name not in before or (since and not before[name]):
            yield f"{name} is not listed as it is now: run python -m tests.public_names"


def updated(before: Names, now: Names, version: str) -> dict[str, str]:
    """Return the list with new names and deprecations, without names that may go."""
    kept = {name: since for name, since in before.items() if not may_go(since, version)}
    return {**now, **{name: since or now.get(name, "") for name, since in kept.items()}}


if __name__ == "__main__":
    names = updated(listed(), defined(fl.__version__), fl.__version__)
    lines = (f"{name} deprecated since {since}" if since else name for name, since in names.items())
    LIST.write_text("".join(f"{line}\n" for line in sorted(lines)))
