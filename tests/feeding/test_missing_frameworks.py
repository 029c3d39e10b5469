"""A framework that is not installed: the error names the operator and the command to install it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

import flowdsl as fl

FLOW = fl.from_range(3)


@pytest.mark.parametrize(
    ("operator", "framework", "use"),
    [
        ("to_torch", "torch", FLOW.to_torch),
        ("as_iterable_dataset", "torch", FLOW.as_iterable_dataset),
        ("to_jax", "jax", FLOW.to_jax),
        ("to_keras", "keras", FLOW.to_keras),
        ("keras.Fit", "keras", lambda: fl.keras.Fit(FLOW)),
    ],
)
def test_a_missing_framework_is_named(
    operator: str, framework: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, framework, None)
    command = f'{operator} needs {framework}, which is not installed: pip install "flowdsl'
    with pytest.raises(fl.MissingLibrary, match=re.escape(f'{command}[{framework}]"')):
        use()
