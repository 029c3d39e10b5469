"""inspect: its descriptions, when they are written, and that the flow does not change."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Flow, InvalidFlow, Unsized
from flowdsl.ops.inspecting import describe_element


class Pair(NamedTuple):
    number: int
    text: str


@attrs.frozen
class Point:
    x: float
    _tag: str


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class TestDescription:
    def test_a_description_looks_as_in_tensorpack(self) -> None:
        element = (
            0.0816501893251,
            np.arange(11, dtype=np.int32),
            np.array([[-1.2248, 1.2177]], np.float32),
            [np.array([-128, 80], np.int8), np.array([0.84, 0.6845]), None],
        )
        assert describe_element(element, max_list=2).splitlines() == [
            "tuple with 4 components",
            "   0: float with value 0.0816501893251",
            "   1: ndarray:int32 of shape (11,) in range [0, 10]",
            "   2: ndarray:float32 of shape (1, 2) in range [-1.2248, 1.2177]",
            "   3: list of len 3",
            "      0: ndarray:int8 of shape (2,) in range [-128, 80]",
            "      1: ndarray:float64 of shape (2,) in range [0.6845, 0.84]",
            "      ...",
        ]

    @pytest.mark.parametrize(
        ("array", "description"),
        [
            (np.zeros((0, 3), np.uint8), "uint8 of shape (0, 3)"),
            (np.array(7), "int64 of shape () in range [7, 7]"),
            (np.array([True, False]), "bool of shape (2,) in range [False, True]"),
            (
                np.array([2**64 - 1, 0], np.uint64),
                "uint64 of shape (2,) in range [0, 18446744073709551615]",
            ),
            (np.array([1.0, np.nan, 3.0, np.nan]), "float64 of shape (4,) in range [1, 3], 2 NaN"),
            (np.array([np.nan]), "float64 of shape (1,), 1 NaN"),
            (np.array(np.nan), "float64 of shape (), 1 NaN"),
            (np.array([-np.inf, 1.0]), "float64 of shape (2,) in range [-inf, 1]"),
            (np.array([65504], np.float16), "float16 of shape (1,) in range [65504, 65504]"),
            (np.array([1, 2], ">i2"), ">i2 of shape (2,) in range [1, 2]"),
            (np.array([1j]), "complex128 of shape (1,)"),
            (np.array(["ab", "c"]), "<U2 of shape (2,)"),
            (np.array([b"ab"]), "|S2 of shape (1,)"),
            (np.array([None, "x"], object), "object of shape (2,)"),
            (
                np.array(["2020-01-02", "NaT"], "datetime64[D]"),
                "datetime64[D] of shape (2,) in range [2020-01-02, 2020-01-02], 1 NaN",
            ),
            (np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), None),
        ],
    )
    def test_arrays_are_described_by_dtype_shape_and_range(
        self, array: np.ndarray[Any, Any], description: str | None
    ) -> None:
        expected = description or f"{array.dtype} of shape (1,)"
        assert describe_element(array) == f"ndarray:{expected}"

    @given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
    def test_a_range_has_the_least_and_the_greatest_value(self, numbers: list[int]) -> None:
        described = describe_element(np.array(numbers, np.int64))
        assert described.endswith(f" in range [{min(numbers)}, {max(numbers)}]")

    @pytest.mark.parametrize(
        ("value", "description"),
        [
            (7, "int with value 7"),
            (True, "bool with value True"),
            (None, "NoneType with value None"),
            (np.int64(7), "int64 with value 7"),
            (np.float32(0.5), "float32 with value 0.5"),
            (np.datetime64("2020-01-02"), "datetime64 with value 2020-01-02"),
            ("héllo\n", "str of len 6 with value 'héllo\\n'"),
            (b"\x00a", "bytes of len 2 with value b'\\x00a'"),
            ("x" * 100, "str of len 100 with value '" + "x" * 56 + "..."),
            (range(3), "range with value range(0, 3)"),
            (frozenset({1}), "frozenset with value frozenset({1})"),
            (Broken(), "Broken with value unknown: repr raised RuntimeError"),
            ([], "list of len 0"),
            ((), "tuple with 0 components"),
            ({}, "dict with 0 components"),
        ],
    )
    def test_single_values_are_described(self, value: object, description: str) -> None:
        assert describe_element(value) == description

    def test_a_number_with_too_many_digits_is_described(self) -> None:
        assert describe_element(10**5000) == "int with value unknown: repr raised ValueError"

    def test_components_of_dicts_and_records_are_named(self) -> None:
        element = {"pair": Pair(1, "a"), "point": Point(0.5, "b"), "dict": {"a": 1}}
        assert describe_element(element).splitlines() == [
            "dict with 3 components",
            "   pair: Pair with 2 components",
            "      number: int with value 1",
            "      text: str of len 1 with value 'a'",
            "   point: Point with 2 components",
            "      x: float with value 0.5",
            "      _tag: str of len 1 with value 'b'",
            "   dict: dict with 1 component",
            "      a: int with value 1",
        ]

    @pytest.mark.parametrize("depth", range(6))
    def test_nesting_is_described_down_to_max_depth(self, depth: int) -> None:
        element: Any = 7
        for _ in range(4):
            element = (element,)
        lines = describe_element(element, max_depth=depth).splitlines()
        heads = ["tuple with 1 component"] * 4 + ["int with value 7"]
        names = [""] + ["0: "] * 4
        expected = [3 * i * " " + names[i] + heads[i] for i in range(5)]
        assert lines == expected[: depth + 1]

    @given(st.integers(0, 5), st.integers(0, 5))
    def test_nested_entries_are_limited_by_max_list(self, size: int, max_list: int) -> None:
        names = [str(i) for i in range(size)]
        nested = [list(names), tuple(names), dict.fromkeys(names, "x")]
        lines = describe_element({"f": nested[0], "g": nested[1], "h": nested[2]}, 3, max_list)
        shown = [line.strip() for line in lines.splitlines() if line.startswith("      ")]
        each = [f"{i}:" for i in names[:max_list]] + ["..."] * (size > max_list)
        assert [line.partition(" ")[0] for line in shown] == each * 3

    def test_all_components_of_the_element_are_shown(self) -> None:
        for element in (tuple(range(9)), {str(i): i for i in range(9)}):
            lines = describe_element(element, max_list=2).splitlines()
            assert lines[1:] == [f"   {i}: int with value {i}" for i in range(9)]
        assert describe_element(list(range(9)), max_list=2).splitlines() == [
            "list of len 9",
            "   0: int with value 0",
            "   1: int with value 1",
            "   ...",
        ]

    def test_a_recursive_list_is_described(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        assert len(describe_element(endless, max_depth=2).splitlines()) == 3

    def test_each_value_has_one_line(self) -> None:
        class Lines:
            def __repr__(self) -> str:
                return "one\ntwo"

        assert describe_element(Lines()) == "Lines with value one two"


class TestInspect:
    def test_inspect_describes_the_first_elements(self, capsys: pytest.CaptureFixture[str]) -> None:
        flow = fl.from_items([(i, "a") for i in range(5)]).inspect(2, name="letters")
        assert capsys.readouterr().err == ""
        assert flow.collect() == [(i, "a") for i in range(5)]
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            "letters: element 0 (of 2 shown): tuple with 2 components\n"
            "   0: int with value 0\n"
            "   1: str of len 1 with value 'a'\n"
            "letters: element 1 (of 2 shown): tuple with 2 components\n"
            "   0: int with value 1\n"
            "   1: str of len 1 with value 'a'\n"
        )

    @pytest.mark.parametrize(("num", "lines"), [(0, 0), (1, 1), (3, 3), (9, 4)])
    def test_inspect_describes_num_elements(
        self, num: int, lines: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert fl.from_range(4).inspect(num).collect() == [0, 1, 2, 3]
        expected = [
            f"inspect: element {i} (of {num} shown): int with value {i}" for i in range(lines)
        ]
        assert capsys.readouterr().err.splitlines() == expected

    def test_inspect_passes_on_its_limits(self, capsys: pytest.CaptureFixture[str]) -> None:
        source = fl.from_items([([1, 2], ([3],))])
        source.inspect(max_list=1).collect()
        source.inspect(max_depth=1).collect()
        assert capsys.readouterr().err.splitlines() == [
            "inspect: element 0 (of 1 shown): tuple with 2 components",
            "   0: list of len 2",
            "      0: int with value 1",
            "      ...",
            "   1: tuple with 1 component",
            "      0: list of len 1",
            "         0: int with value 3",
            "inspect: element 0 (of 1 shown): tuple with 2 components",
            "   0: list of len 2",
            "   1: tuple with 1 component",
        ]

    def test_inspect_counts_elements_after_a_filter(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flow = fl.from_range(9).filter(lambda i: i > 6).inspect(2)
        for rows in (flow.__iter__, lambda: (x for _, x in flow.node.reference(0))):
            assert list(rows()) == [7, 8]
            assert capsys.readouterr().err.splitlines() == [
                "inspect: element 0 (of 2 shown): int with value 7",
                "inspect: element 1 (of 2 shown): int with value 8",
            ]

    def test_inspect_describes_only_epoch_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        flow = fl.from_range(2).inspect()
        assert list(flow.epoch(1)) == [0, 1]
        assert capsys.readouterr().err == ""
        assert flow.repeat(3).collect() == [0, 1] * 3
        assert capsys.readouterr().err == "inspect: element 0 (of 1 shown): int with value 0\n"

    def test_inspect_writes_once_per_element(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written: list[str] = []

        class Stream:
            def write(self, text: str) -> None:
                written.append(text)

        monkeypatch.setattr(sys, "stderr", Stream())
        fl.from_items([(1, 2), (3, 4)]).inspect(2).collect()
        assert [text.count("\n") for text in written] == [3, 3]

    def test_inspect_writes_in_workers_too(self, capfd: pytest.CaptureFixture[str]) -> None:
        flow = fl.from_range(6).map(str).inspect(3).prefetch(procs=1)
        assert flow.collect() == list("012345")
        assert sorted(capfd.readouterr().err.splitlines()) == [
            f"inspect: element {i} (of 3 shown): str of len 1 with value '{i}'" for i in range(3)
        ]

    def test_probes_are_not_described(self, capsys: pytest.CaptureFixture[str]) -> None:
        flow = fl.from_range(3).map(lambda i: (i,)).inspect().map(lambda pair: pair[0] / 2)
        assert str(flow.spec) == "float"
        assert str(fl.from_range(3).map(lambda i: (i, "a")).inspect().spec) == "(int, str)"
        assert "inspect()" in flow.explain()
        assert capsys.readouterr().err == ""

    def test_inspect_does_not_change_the_flow(self) -> None:
        def draw(i: int, rng: np.random.Generator) -> float:
            return i + rng.random()

        plain = fl.from_range(20).random_map(draw).shuffle().filter(lambda x: x > 3)
        looked = (
            fl.from_range(20)
            .inspect(0)
            .random_map(draw)
            .inspect(0)
            .shuffle()
            .filter(lambda x: x > 3)
            .inspect(0)
        )
        for k in range(2):
            assert list(looked.epoch(k)) == list(plain.epoch(k))
        assert list(looked.node.reference(1)) == list(plain.node.reference(1))
        assert looked.effects == plain.effects

    def test_inspect_has_the_length_and_spec_of_its_source(self) -> None:
        flow = fl.from_range(3).inspect(0)
        assert (len(flow), flow.effects, flow.node.indexable) == (3, frozenset(), True)
        assert str(flow.node.spec(probe=False)) == "int"
        stream = flow.filter(bool).inspect(0)
        assert stream.node.length is None
        assert stream.effects == {Unsized}

    def test_a_state_does_not_depend_on_inspect(self) -> None:
        source = fl.from_range(5)
        with iter(source.inspect(0).shuffle()) as run:
            first = next(run)
            state = run.state_dict()
        rest = source.shuffle().inspect(0, name="x", max_list=9).resume(state)
        assert [first, *rest] == source.shuffle().collect()

    def test_inspect_title(self) -> None:
        flow = fl.from_range(5)
        assert flow.inspect().node.title == "inspect()"
        assert flow.inspect(2, name="it's").node.title == 'inspect(2, name="it\'s")'

    @pytest.mark.parametrize("field", ["num", "max_depth", "max_list"])
    @pytest.mark.parametrize("value", [-1, 1.0, True, None])
    def test_inspect_refuses_invalid_numbers(self, field: str, value: Any) -> None:
        flow: Flow[Any, Any] = fl.from_range(3)
        with pytest.raises(InvalidFlow) as caught:
            flow.inspect(**{field: value})
        assert str(caught.value) == f"inspect: {field} must be an int >= 0, got {value!r}"

    def test_inspect_refuses_an_invalid_name(self) -> None:
        name: Any = 3
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(3).inspect(name=name)
        assert str(caught.value) == "inspect: name must be a string or None, got 3"
