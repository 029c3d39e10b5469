"""from_items, from_range, from_iterable: their sequences, their second passes, their refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, SourceError, Unsized


class TestFromItems:
    @given(st.lists(st.integers()))
    def test_gives_the_items(self, items: list[int]) -> None:
        flow = fl.from_items(items)
        assert flow.collect() == items
        assert len(flow) == len(items)
        assert flow.effects == frozenset()

    @pytest.mark.parametrize("items", [(1, 2, 3), "abc", range(5), np.arange(4)])
    def test_takes_any_sequence(self, items: Sequence[Any]) -> None:
        assert fl.from_items(items).collect() == list(items)

    def test_takes_an_array_by_rows(self) -> None:
        rows = np.arange(12).reshape(4, 3)
        flow = fl.from_items(rows)
        assert len(flow) == 4
        assert np.array_equal(np.stack(flow.collect()), rows)
        assert str(flow.spec) == "int64[3]"

    def test_takes_an_array_of_numbers(self) -> None:
        flow = fl.from_items(np.arange(5, dtype=np.uint8)).shuffle()
        assert flow.batch(5).collect()[0].dtype == np.uint8
        assert sorted(flow.collect()) == [0, 1, 2, 3, 4]
        assert str(flow.spec) == "uint8[]"

    def test_of_nothing_has_no_spec(self) -> None:
        assert str(fl.from_items([]).spec) == "?"

    @pytest.mark.parametrize(
        ("items", "kind"),
        [
            ({1: 2}, "dict"),
            (MappingProxyType({}), "mappingproxy"),
            ((x for x in [1]), "generator"),
            (3, "int"),
            ({1, 2}, "set"),
            (np.array(3), "ndarray"),
        ],
    )
    def test_refuses_what_has_no_numbered_items(self, items: Any, kind: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(items)
        assert str(caught.value) == (
            f"from_items: items must be a sequence (list, tuple, array), got {kind}; for any other "
            f"iterable use from_iterable"
        )


class TestFromRange:
    @given(st.integers(0, 100))
    def test_counts(self, n: int) -> None:
        flow = fl.from_range(n)
        assert flow.collect() == list(range(n))
        assert len(flow) == n
        assert str(flow.spec) == "int"

    @pytest.mark.parametrize("n", [-1, 2.0, True, None, "3"])
    def test_refuses(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(n)
        assert str(caught.value) == f"from_range: n must be an int >= 0, got {n!r}"


class TestFromIterable:
    @given(st.lists(st.integers()))
    def test_gives_the_elements_in_every_pass(self, items: list[int]) -> None:
        flow = fl.from_iterable(items)
        assert flow.collect() == flow.collect() == items
        assert flow.effects == {Unsized}
        assert flow.node.length is None

    def test_calls_a_function_once_a_pass(self) -> None:
        made: list[int] = []

        def count() -> Iterator[int]:
            made.append(len(made))
            return iter([made[-1]])

        flow = fl.from_iterable(count)
        assert made == []
        assert [flow.collect(), flow.collect()] == [[0], [1]]
        assert flow.node.replayable

    def test_gives_a_live_iterator_once(self) -> None:
        flow = fl.from_iterable(iter([1, 2]))
        assert not flow.map(str).node.replayable
        assert str(flow.spec) == "?"  # and asking takes nothing away
        assert flow.collect() == [1, 2]
        with pytest.raises(SourceError, match="a second pass over a live iterator"):
            flow.collect()

    def test_names_the_element_at_which_it_fails(self) -> None:
        def stream() -> Iterator[int]:
            yield 5
            raise OSError("gone")

        run = iter(fl.from_iterable(stream))
        assert next(run) == 5
        with pytest.raises(ElementError) as caught:
            next(run)
        error = caught.value
        assert (error.operator, error.position) == ("from_iterable(stream)", 1)
        assert isinstance(error.__cause__, OSError)

    @pytest.mark.parametrize(
        ("make", "reason"),
        [(lambda: 3, "'int' object is not iterable"), (lambda: 1 // 0, "division")],
    )
    def test_says_when_there_is_no_iterator(self, make: Any, reason: str) -> None:
        with pytest.raises(SourceError, match=rf"no iterator for epoch 0: .*{reason}"):
            fl.from_iterable(make).collect()

    def test_passes_on_the_error_of_an_inner_flow(self) -> None:
        inner = fl.from_range(3).map(lambda i: 1 // i)
        with pytest.raises(ElementError, match=r"map\(<lambda>\) failed on element 0"):
            fl.from_iterable(inner).collect()

    def test_refuses(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_iterable(3)  # type: ignore[arg-type]  # what is tested
        assert str(caught.value) == (
            "from_iterable: expected an iterable or a function that makes one, got 3"
        )


class TestTheSameIteratorAgain:
    @pytest.mark.parametrize("kind", ["function", "object"])
    def test_is_an_error_on_the_second_pass(self, kind: str) -> None:
        live = iter([1, 2, 3])

        class Stream:
            def __iter__(self) -> Iterator[int]:
                return live

        flow = fl.from_iterable((lambda: live) if kind == "function" else Stream())
        assert flow.collect() == [1, 2, 3]
        with pytest.raises(SourceError, match="gave the same iterator as for the last pass"):
            flow.collect()

    def test_that_a_probe_took_is_an_error_and_no_empty_pass(self) -> None:
        live = iter([1, 2, 3])
        flow = fl.from_iterable(lambda: live)
        assert str(flow.spec) == "int"
        with pytest.raises(SourceError):
            flow.collect()
