"""Arguments of other libraries: each is an error that says what to write."""

from __future__ import annotations

from typing import Any

import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow

FLOW: Any = fl.from_range(4)


@pytest.mark.parametrize(
    ("operator", "arguments", "keyword", "advice"),
    [
        ("batch", (2,), {"use_list": True}, "write collate=fl.lists for lists"),
        ("prefetch", (), {"nr_proc": 2}, "write prefetch(procs=2)"),
        ("map", (abs,), {"nr_proc": 2}, "with prefetch(procs=2) after these operators"),
        ("map", (abs,), {"procs": 2}, "with prefetch(procs=2) after these operators"),
        ("map", (abs,), {"threads": 2}, "with prefetch(threads=2) after these operators"),
        ("filter", (abs,), {"on_error": "skip"}, "write prefetch(on_error='skip')"),
    ],
)
def test_an_argument_of_another_library_is_an_error_with_advice(
    operator: str, arguments: tuple[object, ...], keyword: dict[str, object], advice: str
) -> None:
    (name,) = keyword
    with pytest.raises(InvalidFlow) as caught:
        getattr(FLOW, operator)(*arguments, **keyword)
    assert str(caught.value).startswith(f"{operator}: there is no {name}=; ")
    assert advice in str(caught.value)
