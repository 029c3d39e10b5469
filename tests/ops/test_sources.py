"""from_items, from_range, from_iterable: their sequences, their second passes, their refusals."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, assert_type

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import (
    ElementError,
    Exact,
    Flow,
    FlowError,
    InvalidFlow,
    SourceError,
    SpecMismatch,
    Unsized,
)
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Stage
from flowdsl.testing.elements import same
from tests import functions


class TestFromItems:
    @given(st.lists(st.integers()))
    def test_from_items_yields_the_items(self, items: list[int]) -> None:
        flow = fl.from_items(items)
        assert flow.collect() == items
        assert len(flow) == len(items)
        assert flow.effects == frozenset()

    @pytest.mark.parametrize("items", [(1, 2, 3), "abc", range(5), np.arange(4)])
    def test_from_items_accepts_any_sequence(self, items: Sequence[Any]) -> None:
        assert fl.from_items(items).collect() == list(items)

    def test_from_items_yields_the_rows_of_an_array(self) -> None:
        rows = np.arange(12).reshape(4, 3)
        flow = fl.from_items(rows)
        assert len(flow) == 4
        assert np.array_equal(np.stack(flow.collect()), rows)
        assert str(flow.spec) == "int64[3]"

    def test_from_items_accepts_an_array_of_numbers(self) -> None:
        flow = fl.from_items(np.arange(5, dtype=np.uint8)).shuffle()
        assert flow.batch(5).collect()[0].dtype == np.uint8
        assert sorted(flow.collect()) == [0, 1, 2, 3, 4]
        assert str(flow.spec) == "uint8[]"

    def test_from_items_without_items_has_no_spec(self) -> None:
        assert str(fl.from_items([]).spec) == "?"

    @pytest.mark.parametrize("change", [list.pop, lambda items: items.append(7)])
    @pytest.mark.parametrize(
        "chained",
        [
            lambda flow: flow,
            lambda flow: flow.map(str),
            lambda flow: flow.batch(2),
            lambda flow: flow.shuffle(seed=1).repeat(2),
            lambda flow: flow.zip(fl.from_range(3)),
            lambda flow: flow.prefetch(threads=2),
            lambda flow: flow.batch(2).prefetch(procs=2),
        ],
    )
    def test_a_changed_number_of_items_is_an_error(
        self, change: Callable[[list[int]], object], chained: Callable[[Any], Flow[Any, Any]]
    ) -> None:
        items = [0, 1, 2]
        flow = chained(fl.from_items(items))
        flow.collect()
        change(items)
        for again in (flow, flow.map(repr)):
            with pytest.raises(SourceError) as caught:
                again.collect()
            assert str(caught.value) == (
                f"from_items: there were 3 items when this flow was built, and there are "
                f"{len(items)} now; build a new flow of them"
            )
        assert repr(fl.from_items(items)) == f"from_items({len(items)} items)"

    def test_from_items_refuses_keys_that_are_not_text(self) -> None:
        columns: Any = {"x": np.zeros(3), "more": {1: np.zeros(3)}}
        with pytest.raises(InvalidFlow, match=r"^from_items: the keys .* must be text, got 1$"):
            fl.from_items(columns)

    def test_from_items_accepts_a_map_style_dataset(self) -> None:
        class Squares:
            def __len__(self) -> int:
                return 3

            def __getitem__(self, index: int) -> int:
                return index * index

        flow = fl.from_items(Squares())
        assert_type(flow, Flow[int, Exact])
        assert flow.shuffle(seed=1).collect() == [4, 1, 0]

    @pytest.mark.parametrize(
        ("items", "kind"),
        [
            ({}, "dict"),
            (MappingProxyType({}), "mappingproxy"),
            ((x for x in [1]), "generator"),
            (3, "int"),
            ({1, 2}, "set"),
        ],
    )
    def test_from_items_refuses_objects_without_numbered_items(self, items: Any, kind: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(items)
        assert str(caught.value) == (
            f"from_items: items must be a sequence (list, tuple, array), got {kind}; for any other "
            f"iterable use from_iterable"
        )

    def test_from_items_refuses_an_array_without_axes(self) -> None:
        with pytest.raises(
            InvalidFlow, match=r"got ndarray; an array .* write from_items\(\[x\]\)"
        ):
            fl.from_items(np.array(3))


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([5, 6, 7, 8])
TEXT = np.array(["a", "bb", "", "d"])


class Pair(NamedTuple):
    x: NDArray[np.float32]
    y: NDArray[np.int64]


def rows_of(columns: Any) -> list[Any]:
    """The expected rows, computed by hand."""
    if isinstance(columns, tuple):
        return list(zip(*(rows_of(part) for part in columns), strict=True))
    if isinstance(columns, dict):
        rows = zip(*(rows_of(part) for part in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    return list(columns)


class TestColumns:
    @pytest.mark.usefixtures("mortals")
    @pytest.mark.parametrize(
        ("columns", "spec"),
        [
            ((X,), "(float32[3])"),
            ((X, Y), "(float32[3], int64[])"),
            ({"x": X, "y": Y}, "{x: float32[3], y: int64[]}"),
            ({"in": (X, {"z": Y}), "y": Y}, "{in: (float32[3], {z: int64[]}), y: int64[]}"),
            (({"x": X}, Y), "({x: float32[3]}, int64[])"),
            ((X, TEXT), "(float32[3], str_)"),
            ((X, np.array([[1], 2, "x", None], object)), "(float32[3], list[int])"),
        ],
    )
    def test_columns_yield_rows(self, columns: Any, spec: str) -> None:
        flow = fl.from_items(columns)
        assert len(flow) == 4
        assert same(flow.collect(), rows_of(columns))
        assert str(flow.spec) == spec
        assert flow.effects == frozenset()
        for procs in (0, 2):
            shuffled = flow.shuffle(seed=1).map(functions.itself).prefetch(procs=procs).collect()
            order = fl.from_range(4).shuffle(seed=1)
            assert same(shuffled, [rows_of(columns)[i] for i in order])

    def test_rows_are_views_and_scalars(self) -> None:
        x, y = fl.from_items((X, Y)).collect()[1]
        assert np.shares_memory(x, X)
        assert type(y) is np.int64

    def test_rows_of_columns_can_be_batched(self) -> None:
        flow = fl.from_items({"x": X, "y": Y}).batch(3)
        first, last = flow.collect()
        assert same(first, {"x": X[:3], "y": Y[:3]})
        assert same(last, {"x": X[3:], "y": Y[3:]})
        assert str(flow.node.spec(probe=False)) == "{x: float32[?, 3], y: int64[?]}"

    def test_the_spec_of_empty_columns_is_known(self) -> None:
        flow = fl.from_items((X[:0], Y[:0], np.empty(0, object)))
        assert str(flow.spec) == "(float32[3], int64[], ?)"
        assert flow.collect() == []
        assert str(fl.from_items(X[:0]).spec) == "float32[3]"

    def test_rows_of_a_named_tuple_are_plain_tuples(self) -> None:
        flow = fl.from_items(Pair(X, Y))
        assert same(flow.collect(), rows_of((X, Y)))
        assert same(flow.batch(4).starmap(Pair).collect()[0], Pair(X, Y))

    def test_columns_may_be_any_mapping(self) -> None:
        assert same(fl.from_items(MappingProxyType({"x": X})).collect(), rows_of({"x": X}))

    def test_only_needed_rows_are_sent_to_workers(self) -> None:
        large = np.zeros((2000, 1000))  # 16 MB
        node = fl.from_items((large, np.arange(2000))).map(functions.itself).prefetch(procs=1).node
        stage = plan_of(node).root
        assert isinstance(stage, Stage)
        assert len(cloudpickle.dumps(stage.program)) < 10_000
        assert len(pickle.dumps(fl.from_items((large, large)).collect()[0])) < 20_000

    @pytest.mark.parametrize("items", [[X, X], [X, Y], ["a", X], ("a", X), (X, 3), ()])
    def test_tuples_of_other_values_are_items(self, items: Any) -> None:
        assert same(fl.from_items(items).collect(), list(items))

    @pytest.mark.parametrize(
        ("columns", "lengths"),
        [
            ((X, Y[:3]), "0 has 4, 1 has 3"),
            ({"x": X, "y": Y[:0]}, "x has 4, y has 0"),
            ({"in": (X, Y[1:]), "y": Y}, "in.0 has 4, in.1 has 3, y has 4"),
        ],
    )
    def test_columns_must_have_equal_lengths(self, columns: Any, lengths: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(columns)
        assert str(caught.value) == (
            f"from_items: the arrays of a dict or tuple must be equally long, but {lengths}; if "
            "the arrays are themselves the elements, pass a list: from_items([a, b])"
        )

    @pytest.mark.parametrize(
        ("columns", "name", "kind"),
        [
            ({"x": X, "y": [1, 2, 3, 4]}, "y", "list"),
            ({"x": np.array(3)}, "x", "ndarray without an axis"),
            ({"in": (X, 3)}, "in.1", "int"),
            ({"x": 2}, "x", "int"),
        ],
    )
    def test_values_of_a_dict_must_be_arrays(self, columns: Any, name: str, kind: str) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_items(columns)
        assert str(caught.value) == (
            f"from_items: the values of a dict must be arrays with rows, but {name} is {kind}; "
            "np.asarray(...) makes an array of a sequence"
        )


class TestFromRange:
    @given(st.integers(0, 100))
    def test_from_range_counts(self, n: int) -> None:
        flow = fl.from_range(n)
        assert flow.collect() == list(range(n))
        assert len(flow) == n
        assert str(flow.spec) == "int"

    @pytest.mark.parametrize("n", [-1, 2.0, True, None, "3"])
    def test_from_range_refuses_invalid_numbers(self, n: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_range(n)
        assert str(caught.value) == f"from_range: n must be an int >= 0, got {n!r}"

    def test_from_range_has_no_first_number(self) -> None:
        from_range: Any = fl.from_range
        with pytest.raises(InvalidFlow, match=r"write from_items\(range\(2, 5\)\)"):
            from_range(2, 5)
        assert fl.from_items(range(2, 5)).collect() == [2, 3, 4]


class TestFromIterable:
    @given(st.lists(st.integers()))
    def test_from_iterable_yields_the_elements_in_every_pass(self, items: list[int]) -> None:
        flow = fl.from_iterable(items)
        assert flow.collect() == flow.collect() == items
        assert flow.effects == {Unsized}
        assert flow.node.length is None

    def test_from_iterable_calls_the_function_once_per_pass(self) -> None:
        made: list[int] = []

        def count() -> Iterator[int]:
            made.append(len(made))
            return iter([made[-1]])

        flow = fl.from_iterable(count)
        assert made == []
        assert [flow.collect(), flow.collect()] == [[0], [1]]
        assert flow.node.replayable

    def test_from_iterable_yields_a_live_iterator_once(self) -> None:
        flow = fl.from_iterable(iter([1, 2]))
        assert not flow.map(str).node.replayable
        assert str(flow.spec) == "?"  # and asking takes nothing away
        assert flow.collect() == [1, 2]
        with pytest.raises(SourceError, match="an iterator allows only one pass"):
            flow.collect()

    def test_errors_name_the_element_at_which_the_iterable_fails(self) -> None:
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
    def test_a_function_without_an_iterator_is_an_error(self, make: Any, reason: str) -> None:
        with pytest.raises(SourceError, match=rf"an iterator for epoch 0: .*{reason}"):
            fl.from_iterable(make).collect()

    def test_errors_of_an_inner_flow_are_not_wrapped(self) -> None:
        inner = fl.from_range(3).map(lambda i: 1 // i)
        with pytest.raises(ElementError, match=r"map\(<lambda>\) failed on element 0"):
            fl.from_iterable(inner).collect()

    def test_masked_arrays_are_refused(self) -> None:
        masked: Any = np.ma.array([1.0, 2.0], mask=[False, True])
        y = np.zeros(2, np.int64)
        refused = {
            "items": masked,
            "items['y']": {"x": [1, 2], "y": masked},
            "items[0]": Pair(masked, y),
            "items['in'][1]": {"in": Pair(np.zeros(2, np.float32), masked)},
            "items['in']['x']": {"in": OrderedDict(x=masked)},
        }
        for name, items in refused.items():
            with pytest.raises(InvalidFlow) as caught:
                fl.from_items(items)
            assert str(caught.value) == (
                f"from_items: {name} is a masked array, whose mask would be lost; fill it with a "
                f"value, as x.filled(0) does"
            )

    def test_masked_arrays_may_be_elements(self) -> None:
        masked: Any = np.ma.array([1.0, 2.0], mask=[False, True])
        either: list[Any] = [[masked, "label"], (masked, "label")]
        for items in either:
            assert fl.from_items(items).at(0).mask.tolist() == [False, True]

    def test_dicts_in_a_tuple_are_elements_with_any_keys(self) -> None:
        for items in (({1: "a"}, {2: "b"}), (Counter([1]), Counter([2]))):
            assert fl.from_items(items).collect() == list(items)

    def test_a_named_tuple_of_tensors_has_rows(self) -> None:
        class Tensor:
            def __init__(self, array: Any) -> None:
                self.array = array

            def __dlpack__(self, **options: Any) -> Any:
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self) -> Any:
                return self.array.__dlpack_device__()

        columns: Any = Pair(Tensor(X), Tensor(Y))  # type: ignore[arg-type]  # as users do
        assert same(fl.from_items(columns).collect(), rows_of((X, Y)))

    def test_arrays_of_text_of_any_length_have_rows_of_text(self) -> None:
        words = np.array(["a", "long"], np.dtypes.StringDType())
        assert fl.from_items(words).collect() == ["a", "long"]
        (batch,) = fl.from_items({"s": words, "y": np.arange(2)}).batch(2)
        assert batch["s"] == ["a", "long"]
        assert "map" in str(fl.from_items(words).map(str.upper).explain())

    def test_rows_of_text_of_any_length_are_arrays_of_one_width(self) -> None:
        words = [["a", "long"], ["", "é"]]
        for shape in ((2, 2), (1, 2, 2), (0, 2)):
            fixed = np.resize(np.array(words), shape)
            flow, same_flow = (fl.from_items(x) for x in (fixed.astype("T"), fixed))
            assert [x.tolist() for x in flow] == [x.tolist() for x in same_flow]
            assert [x.tolist() for x in flow.batch(2)] == [x.tolist() for x in same_flow.batch(2)]

    def test_missing_text_of_any_length_stays_missing(self) -> None:
        texts = np.array([["a", None]], np.dtypes.StringDType(na_object=None))
        assert fl.from_items(texts).at(0).tolist() == ["a", None]

    @pytest.mark.parametrize("words", [{"a", "b"}, frozenset("ab")])
    def test_from_iterable_refuses_a_set_whose_order_varies(self, words: Any) -> None:
        with pytest.raises(InvalidFlow, match=r"a set has another order in each program.*sorted"):
            fl.from_iterable(words)
        assert fl.from_iterable({"b": 1, "a": 2}.keys()).collect() == ["b", "a"]

    def test_from_iterable_refuses_other_objects(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.from_iterable(3)  # type: ignore[arg-type]  # what is tested
        assert str(caught.value) == (
            "from_iterable: expected an iterable or a function that makes one, got 3"
        )


class TestTheSameIteratorAgain:
    @pytest.mark.parametrize("kind", ["function", "object"])
    def test_the_same_iterator_again_is_an_error(self, kind: str) -> None:
        live = iter([1, 2, 3])

        class Stream:
            def __iter__(self) -> Iterator[int]:
                return live

        flow = fl.from_iterable((lambda: live) if kind == "function" else Stream())
        assert flow.collect() == [1, 2, 3]
        with pytest.raises(SourceError, match="returned the same iterator as for the last"):
            flow.collect()

    def test_an_iterator_used_by_a_probe_is_an_error(self) -> None:
        live = iter([1, 2, 3])
        flow = fl.from_iterable(lambda: live)
        assert str(flow.spec) == "int"
        with pytest.raises(SourceError):
            flow.collect()


class TestSpecOfItems:
    def test_the_first_item_does_not_determine_other_classes(self) -> None:
        items: list[Any] = ["header", 1, 2]
        assert fl.from_items(items).skip(1).concat(fl.from_range(1)).collect() == [1, 2, 0]
        assert fl.from_items(items).skip(1).batch(2).collect()[0].tolist() == [1, 2]
        nothing: list[Any] = [None, 1, 2]
        assert fl.from_items(nothing).skip(1).batch(2).collect()[0].tolist() == [1, 2]

    def test_an_array_beside_a_list_is_refused(self) -> None:
        with pytest.raises(InvalidFlow, match="but 1 is a list"):
            fl.from_items((X, [1, 2, 3, 4]))

    def test_empty_tuples_are_items(self) -> None:
        assert fl.from_items(((), ())).collect() == [(), ()]

    def test_text_beside_arrays_can_be_batched(self) -> None:
        flow = fl.from_items({"x": np.array(["a", "bb"]), "n": np.array([1, 2], ">i4")})
        assert str(flow.spec) == "{x: str_, n: int32[]}"
        assert flow.batch(2).collect()[0]["x"] == ["a", "bb"]


class TestTablesAndLabels:
    """Objects indexed by label or by column are refused, with advice how to get their rows."""

    def test_a_series_is_refused_but_its_values_are_accepted(self) -> None:
        pandas = pytest.importorskip("pandas")
        series = pandas.Series([10, 20, 30], index=[2, 1, 0])
        refused: list[Callable[[], object]] = [
            lambda: fl.from_items(series),
            lambda: fl.from_items({"x": np.arange(3), "y": series}),
            lambda: fl.from_items((np.arange(3), series)),
            lambda: fl.from_items((series, series)),
            lambda: fl.from_dataset(series),
        ]
        for make in refused:
            with pytest.raises(InvalidFlow, match=r"by label; pass .* order, x\.to_numpy\(\)"):
                make()
        assert fl.from_items(series.to_numpy()).collect() == [10, 20, 30]
        assert fl.from_iterable(series).collect() == [10, 20, 30]
        assert fl.from_items(pandas.Index([3, 1, 2])).collect() == [3, 1, 2]

    @pytest.mark.parametrize("name", ["array", "chunked_array"])
    def test_an_array_of_arrow_is_refused_but_its_values_are_accepted(self, name: str) -> None:
        arrow = pytest.importorskip("pyarrow")
        array = arrow.array([1, None]) if name == "array" else arrow.chunked_array([[1], [None]])
        refused: list[Callable[[], object]] = [
            lambda: fl.from_items(array),
            lambda: fl.from_iterable(array),
            lambda: fl.from_dataset(array),
            lambda: fl.from_range(1).flat_map(lambda _: array).collect(),
        ]
        for make in refused:
            with pytest.raises(
                FlowError, match=r"Arrow's scalars, got .*Array; pass x\.to_numpy\("
            ):
                make()
        assert fl.from_items(array.to_pylist()).collect() == [1, None]
        values = fl.from_items(array.to_numpy(zero_copy_only=False)).collect()
        np.testing.assert_equal(values, [1, np.nan])

    def test_an_array_of_arrow_as_a_column(self) -> None:
        arrow = pytest.importorskip("pyarrow")
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # which reads Arrow's memory
            assert fl.from_items({"x": arrow.array([1, 2])}).collect() == [{"x": 1}, {"x": 2}]
        with pytest.raises(InvalidFlow, match=r"column x must .* Arrow's scalars"):
            fl.from_items({"x": arrow.chunked_array([[1], [2]])})
        with pytest.raises(InvalidFlow, match=r"column x.0 must .* Arrow's scalars"):
            fl.from_items({"x": (arrow.array(["a", None]), np.arange(2))})

    def test_a_column_that_numpy_cannot_read_is_named(self) -> None:
        class OnAnotherDevice:
            def __dlpack__(self, **options: object) -> object:
                raise BufferError("it is on cuda:0")

        tensor: Any = OnAnotherDevice()
        with pytest.raises(SpecMismatch) as caught:
            fl.from_items({"x": (np.arange(2), tensor)})
        assert str(caught.value).startswith(
            "from_items: items['x'][1]: NumPy cannot read this OnAnotherDevice: it is on cuda:0; "
        )
