"""The types in the good files hold at run time: for the elements, and for the effects."""

from __future__ import annotations

import importlib
import sys
import typing
from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.effects import Exact
from flowdsl.feeding.loader import Loader

GOOD = [file.stem for file in Path(__file__).parent.glob("good*.py")]


def fits(value: Any, form: Any) -> bool:
    """Return True if a value has a type, to the depth that the good files use."""
    origin, args = get_origin(form), get_args(form)
    if hasattr(origin, "__value__"):  # an alias by a type statement, as NDArray of newer NumPy
        return fits(value, origin.__value__[args])
    if form is Any:
        return True
    if origin is fl.Flow:
        row = set(get_args(args[1]) or (args[1],)) - {Exact}
        elements = list(islice(value, 3))  # none would be of any type
        return value.effects <= row and elements != [] and all(fits(x, args[0]) for x in elements)
    if isinstance(origin, type) and issubclass(origin, Loader):
        elements = list(islice(value, 3))
        return isinstance(value, origin) and all(fits(x, args[0]) for x in elements)
    if origin is Literal:
        return value in args
    if origin in (Union, UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is list:
        return isinstance(value, list) and all(fits(x, args[0]) for x in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(x, args[1]) for x in value.values())
    if origin is tuple:
        parts = args[:1] * len(value) if args[-1] is Ellipsis else args
        return (
            isinstance(value, tuple) and all(map(fits, value, parts)) and len(parts) == len(value)
        )
    if origin is np.ndarray:
        kind = get_args(args[1])[0]
        return isinstance(value, np.ndarray) and (kind is Any or value.dtype == np.dtype(kind))
    if is_typeddict(form):
        hints = get_type_hints(form)
        return value.keys() == hints.keys() and all(fits(value[k], h) for k, h in hints.items())
    if origin is fl.Packed:
        numbered = np.ndarray[Any, np.dtype[np.int32]]
        forms = (args[0], numbered, numbered)  # it is generic in its first field
        return isinstance(value, fl.Packed) and all(map(fits, value, forms))
    if attrs.has(form) or hasattr(form, "_fields"):
        named = get_type_hints(form)
        return isinstance(value, form) and all(fits(getattr(value, n), named[n]) for n in named)
    # A run, too: it is spent by looking, and its flow's other claims cover its elements.
    return isinstance(value, origin or form)


@attrs.define
class Claims:
    """The claims of ``assert_type``, and the lines of wrong claims."""

    count: int = 0
    wrong: list[str] = attrs.field(factory=list)

    def check(self, value: Any, form: Any) -> Any:
        self.count += 1
        if not fits(value, form):
            self.wrong.append(f"{value!r} is no {form}")
        return value


@pytest.mark.parametrize("name", GOOD)
def test_every_claim_of_a_good_file_holds_at_run_time(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = Claims()
    monkeypatch.setattr(typing, "assert_type", claims.check)
    monkeypatch.delitem(sys.modules, f"tests.typing.{name}", raising=False)
    good = importlib.import_module(f"tests.typing.{name}")
    if hasattr(good, "stored"):
        good.stored(tmp_path)
    assert claims.wrong == []
    assert claims.count > 10
