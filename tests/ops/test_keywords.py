"""Arguments of other libraries: each is an error that says what to write."""

from __future__ import annotations

from typing import Any

import pytest

import flowdsl as fl
from flowdsl.errors import InvalidFlow
from flowdsl.storage.formats import FORMATS

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


@pytest.mark.parametrize("reader", sorted({one.reader for one in FORMATS} - {"from_arrayrecord"}))
def test_an_argument_of_another_reader_is_an_error_with_advice(reader: str) -> None:
    with pytest.raises(InvalidFlow, match=rf"{reader}: there is no batch_size=; write {reader}"):
        getattr(fl, reader)("path", batch_size=2)


@pytest.mark.parametrize(
    ("function", "keyword", "advice"),
    [
        (fl.choose, {"probabilities": [1, 2]}, "write weights=[1, 2]"),
        (fl.mix, {"weights": [1, 2]}, "write choose(flows, weights=[1, 2])"),
        (fl.from_npz, {"allow_pickle": True}, "write trusted=True"),
        (FLOW.to_keras, {"epochs": 3}, "write model.fit(flow.to_keras(), epochs=3)"),
    ],
)
def test_an_argument_that_another_function_has_is_an_error_with_advice(
    function: Any, keyword: dict[str, object], advice: str
) -> None:
    with pytest.raises(InvalidFlow) as caught:
        function(**keyword)
    assert advice in str(caught.value)
