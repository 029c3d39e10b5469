"""Error messages: they name the operator, the position, the cause and the element."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError
from flowdsl.nodes import describe_element, describe_group
from flowdsl.testing.elements import FORMS, make
from flowdsl.testing.outcomes import outcome
from tests.paces import paced, whims

ROWS = fl.from_items([4, 2, 0])
STREAM = fl.from_iterable(lambda: iter([4, 2, 0]))
IMAGES = fl.from_range(3).map(lambda i: (np.zeros((224, 224, 3), np.uint8), i))


class Odd:
    """An element whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def eighth(x: int) -> float:
    return 8 / x


def broken(x: object) -> int:
    raise ValueError


def stacked(rows: Any) -> Any:
    return [8 / x for x in rows]


DIVISION = "ZeroDivisionError('division by zero')"
ROW = "(row 2 of from_items(3 items))"

CASES: dict[str, tuple[Callable[[], fl.Flow[Any, Any]], str]] = {
    "map": (
        lambda: ROWS.map(eighth),
        f"map(eighth) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "stream": (
        lambda: STREAM.map(eighth),
        (
            f"map(eighth) failed on element 2 (element 2 of from_iterable(<lambda>)): {DIVISION}; "
            f"the element was 0"
        ),
    ),
    "the second of two": (
        lambda: ROWS.map(str).map(int).map(eighth),
        f"map(eighth) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "below a batch": (
        lambda: ROWS.map(eighth).batch(2),
        f"map(eighth) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "filter": (
        lambda: ROWS.filter(lambda x: bool(8 / x)),
        f"filter(<lambda>) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "random_map": (
        lambda: ROWS.random_map(lambda x, rng: 8 / x, seed=1),
        f"random_map(<lambda>, seed=1) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "starmap": (
        lambda: ROWS.map(lambda x: (8, x)).starmap(lambda a, b: a / b),
        f"starmap(<lambda>) failed on element 2 {ROW}: {DIVISION}; the element was (8, 0)",
    ),
    "batch": (
        lambda: ROWS.batch(3, collate=stacked),
        (
            f"batch(3, collate=stacked) failed on element 0 (row 0 of from_items(3 items) to row 2 "
            f"of from_items(3 items)): {DIVISION}; the group was [4, 2, 0]"
        ),
    ),
    "zip": (
        lambda: ROWS.map(lambda x: {"a": x}).zip(ROWS.map(lambda x: {"a": x})),
        (
            'zip(...) failed on element 0 (row 0 of from_items(3 items)): SpecMismatch("zip: two '
            "elements have the keys ['a']; rename one with .map\"); "
            "the group was [{'a': 4}, {'a': 4}]"
        ),
    ),
    "flat_map": (
        lambda: ROWS.flat_map(lambda x: [8 / x]),
        f"flat_map(<lambda>) failed on element 2 {ROW}: {DIVISION}; the element was 0",
    ),
    "arrays": (
        lambda: IMAGES.map(lambda x: 1 / (x[1] - 1)),
        (
            f"map(<lambda>) failed on element 1 (row 1 of from_range(3)): {DIVISION}; "
            f"the element was (uint8[224, 224, 3], 1)"
        ),
    ),
    "long text": (
        lambda: fl.from_items(["x" * 10_000]).map(int),
        f"the element was {repr('x' * 10_000)[:38]}...{'x' * 38}'",
    ),
    "no repr": (
        lambda: fl.from_range(1).map(lambda _: Odd()).map(broken),
        "the element was <Odd, whose repr raised RuntimeError>",
    ),
    "an inner flow": (
        lambda: fl.from_items([0]).flat_map(lambda x: fl.from_items([x]).map(eighth)),
        (
            f"flat_map(<lambda>) failed on element 0 (row 0 of from_items(1 items)): "
            f'ElementError("map(eighth) failed on element 0 (row 0 of from_items(1 items)): '
            f'{DIVISION}; the element was 0"); the element was 0'
        ),
    ),
}


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("workers", [{}, {"procs": 1}, {"threads": 1}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_error_messages_show_the_failed_element(case: str, workers: dict[str, Any]) -> None:
    make, expected = CASES[case]
    with pytest.raises(ElementError) as caught:
        make().prefetch(**workers).collect()
    said = str(caught.value)
    assert said == expected if not expected.startswith("the element") else said.endswith(expected)
    assert str(pickle.loads(pickle.dumps(caught.value))) == said
    assert repr(caught.value) == f"ElementError({said!r})"


class Rows(list[int]):
    """Rows in memory, one of which cannot be read."""

    def __getitem__(self, i: Any) -> Any:
        if (x := super().__getitem__(i)) < 0:
            raise OSError(f"row {i} is gone")
        return x


def _stream(rows: list[int]) -> Iterator[int]:
    for i, x in enumerate(rows):
        if x < 0:
            raise OSError(f"row {i} is gone")
        yield x


row = st.sampled_from([1, 1, 0, -1])
pairs = st.lists(st.tuples(row, row), min_size=1, max_size=8)


@pytest.mark.usefixtures("mortals")
@given(pairs, st.booleans(), st.booleans(), st.integers(1, 4), st.integers(1, 2), whims)
def test_the_first_failure_is_reported(
    pairs: list[tuple[int, int]], in_memory: bool, zipped: bool, n: int, k: int, sizes: list[int]
) -> None:
    """A source in the consumer's process fails, too, and is read ahead of the workers."""
    one, other = ([pair[k] for pair in pairs] for k in range(2))

    def source(rows: list[int]) -> fl.Flow[Any, Any]:
        return fl.from_items(Rows(rows)) if in_memory else fl.from_iterable(lambda: _stream(rows))

    def build() -> fl.Flow[Any, Any]:
        flow = source(one).map(eighth)
        if zipped:
            return flow.zip(source(other).map(eighth)).batch(n, collate=list)
        return flow.batch(n, collate=list)

    expected = outcome(iter(build()))
    with paced(sizes):
        assert outcome(iter(build().prefetch(k))) == expected
    assert outcome(iter(build().prefetch(threads=k))) == expected


@pytest.mark.parametrize("workers", [{}, {"procs": 1}, {"threads": 1}], ids=str)
def test_skipped_elements_are_shown_in_messages(workers: dict[str, Any]) -> None:
    reported: list[ElementError] = []
    run = iter(ROWS.map(eighth).prefetch(**workers, on_error=reported.append))
    assert list(run) == [2, 4]
    expected = f"map(eighth) failed on element 2 {ROW}: {DIVISION}; the element was 0"
    assert list(map(str, reported)) == [expected]
    assert [skip.error for skip in run.statistics().skips] == [expected]


def test_errors_do_not_keep_elements_alive() -> None:
    class Large:
        def __repr__(self) -> str:
            return "Large()"

    large = Large()
    kept = weakref.ref(large)
    error = ElementError("map(f)", 0, 0, "row 0 of from_range(1)", describe_element(large))
    del large
    gc.collect()
    assert kept() is None
    assert str(error).endswith("the element was Large()")


def test_a_reason_without_a_repr_or_too_long_is_replaced() -> None:
    class Unspeakable(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

    error = ElementError("map(f)", 0, 0, "row 0 of from_range(1)")
    error.__cause__ = Unspeakable()
    assert str(error).endswith(": Unspeakable, whose repr raised RuntimeError")
    error.__cause__ = ValueError("x" * 10_000)
    assert len(str(error)) < 1100


class TestDescriptions:
    @pytest.mark.parametrize(
        ("element", "said"),
        [
            (np.float32(0.5), "np.float32(0.5)"),
            ({"b": 1, "a": np.zeros(3)}, "{'b': 1, 'a': float64[3]}"),
            ((1,), "(1,)"),
            (None, "None"),
            ("a\nb", r"'a\nb'"),
            ([[[[[1]]]]], "[[[[[...]]]]]"),
            ({3: np.zeros(2)}, "{3: float64[2]}"),
            (list(range(20)), "[0, 1, 2, 3, 4, 5, 6, 7, ...]"),
            (slice(0, 3), "slice(0, 3, None)"),
        ],
    )
    def test_elements_are_described(self, element: object, said: str) -> None:
        assert describe_element(element) == f"the element was {said}"

    @pytest.mark.parametrize("form", FORMS)
    def test_elements_of_every_form_are_described(self, form: str) -> None:
        said = describe_element(make(form, 3))
        assert "\n" not in said
        assert "array(" not in said

    def test_groups_are_described(self) -> None:
        assert (
            describe_group((np.zeros(2), np.zeros(3))) == "the group was [float64[2], float64[3]]"
        )

    anything = st.recursive(
        st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none()),
        lambda part: st.one_of(
            st.lists(part), st.dictionaries(st.text(), part), st.lists(part).map(tuple)
        ),
    )

    @given(anything)
    def test_descriptions_are_one_short_line(self, element: object) -> None:
        said = describe_element(element)
        assert len(said) <= len("the element was ") + 200
        assert len(said.splitlines()) == 1


@attrs.frozen
class Account:
    name: str
    password: str = attrs.field(repr=False)


def test_fields_hidden_from_the_repr_are_not_shown() -> None:
    assert describe_element(Account("ada", "secret")) == "the element was Account(name='ada')"


def test_a_component_without_a_repr_does_not_hide_others() -> None:
    expected = "the element was (1, <Odd, whose repr raised RuntimeError>)"
    assert describe_element((1, Odd())) == expected
