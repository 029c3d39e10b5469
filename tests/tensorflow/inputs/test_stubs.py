"""The stubs of TensorFlow compared with TensorFlow: every name, and every parameter by name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

STUBS = Path(__file__).parents[3] / "stubs" / "tensorflow"


def declared() -> Iterator[tuple[str, ast.stmt]]:
    """Return the dotted name of every public object in the stubs."""
    homes = dict.fromkeys(("_tensor", "_ops", "_function"), "tf")
    for path in sorted(STUBS.rglob("*.pyi")):
        parts = path.relative_to(STUBS).with_suffix("").parts
        module = ".".join(["tf", *(p for p in parts if p != "__init__" and p not in homes)])
        for node in ast.parse(path.read_text()).body:
            yield from members(module, node)


def members(where: str, node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        name = node.target.id
    elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        name = node.name
    else:
        return
    if name.startswith("_") or name in ("TensorLike", "Shape"):  # for the stubs themselves
        return
    yield f"{where}.{name}", node
    for member in node.body if isinstance(node, ast.ClassDef) else ():
        if not isinstance(member, ast.AnnAssign):  # the fields of protos are on instances only
            yield from members(f"{where}.{name}", member)


def real(name: str) -> object:
    if name.startswith("tf.Tensor."):
        name = name.replace("tf.Tensor", "eager")
    found: object = {"tf": tf, "eager": tf.constant(0)}[name.split(".")[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def problem(name: str, node: ast.stmt) -> str | None:
    """Return how the stubs contradict TensorFlow for this name, or None."""
    try:
        found = real(name)
    except AttributeError:
        return f"{name} does not exist"
    if not isinstance(node, ast.FunctionDef) or not callable(found):
        return None
    try:
        parameters = inspect.signature(found).parameters
    except ValueError:  # a compiled function does not tell
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    said = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)} - {"self"}
    extra = said - set(parameters)
    return f"{name} has no parameter {', '.join(sorted(extra))}" if extra else None


def test_stubs_match_tensorflow() -> None:
    checked = dict(declared())
    assert len(checked) > 150
    assert [wrong for name, node in checked.items() if (wrong := problem(name, node))] == []
