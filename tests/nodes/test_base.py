"""Nodes: the properties that they declare, and the properties that the planner derives."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl import Endless, Flow, InvalidFlow, Reordered, Resampled, Unsized
from flowdsl.effects import Effect, Exact
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.nodes import (
    AnyNode,
    Batched,
    E,
    Elementwise,
    IndexedSource,
    IndexTransform,
    Indices,
    Node,
    PassFactory,
    Placement,
    Row,
    T,
    at_least,
    is_int,
    name_of,
    spec_of_result,
    validate_callable,
    validate_flag,
)
from flowdsl.ops.sizing import Take


@attrs.frozen
class Plain(Node[T, E], Generic[T, E]):
    """A node without a kind."""

    source: Node[T, E]

    @property
    def title(self) -> str:
        return "plain()"

    @property
    def length(self) -> int | None:
        return self.source.length

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return sources[0](epoch)


@attrs.frozen
class Mixing(Plain[T, E | Reordered | Resampled], Generic[T, E]):
    """Adds two tags."""


@attrs.frozen
class Joined(Node[Any, Effect]):
    """Has many sources."""

    first: AnyNode
    others: tuple[AnyNode, ...]
    n: int = attrs.field(default=1, validator=at_least(1))

    @property
    def title(self) -> str:
        return f"joined({self.n})"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        raise NotImplementedError


RANGE = fl.from_range(6).node
ODD = fl.from_range(6).filter(lambda i: i % 2 == 1).node
STREAM = fl.from_iterable(iter([1])).node


class TestEffects:
    def test_tags_are_read_from_the_class_arguments(self) -> None:
        assert Plain.adds == frozenset()
        assert Mixing.adds == {Reordered, Resampled}
        assert type(STREAM).adds == {Unsized}
        assert type(RANGE).adds == frozenset()  # Exact is no tag

    def test_effects_combine_the_sources_and_the_node(self) -> None:
        assert Plain(RANGE).effects == frozenset()
        assert Mixing(ODD).effects == {Unsized, Reordered, Resampled}
        assert Joined(Mixing(RANGE), (ODD, RANGE)).effects == {Unsized, Reordered, Resampled}

    def test_effects_of_every_operator(self) -> None:
        flow: Any = fl.from_range(6)
        stream: Any = fl.from_iterable([1])
        shuffled: Any = flow.shuffle()
        table: list[tuple[Any, set[type[Effect]]]] = [
            (flow, set()),
            (stream, {Unsized}),
            (flow.map(str), set()),
            (flow.random_map(max), set()),
            (flow.filter(bool), {Unsized}),
            (flow.batch(2), set()),
            (flow.batch(4, drop_remainder=True), {Resampled}),
            (shuffled, {Reordered}),
            (flow.shuffle(3), {Reordered}),
            (flow.repeat(2), {Resampled}),
            (flow.repeat(), {Resampled, Endless}),
            (shuffled.repeat(), {Reordered, Resampled, Endless}),
            (flow.repeat().take(9), {Resampled}),
            (flow.filter(bool).repeat().take(9), {Resampled}),
            (flow.filter(bool).take(9), {Unsized}),
            (flow.take(3), set()),
            (shuffled.take(3), {Reordered, Resampled}),
            (shuffled.prefetch(), {Reordered}),
        ]
        for built, tags in table:
            assert built.effects == tags, built.node.title


class TestSources:
    def test_sources_are_found_in_fields_and_in_tuples(self) -> None:
        assert RANGE.sources == ()
        assert Plain(RANGE).sources == (RANGE,)
        assert Joined(RANGE, (ODD, STREAM)).sources == (RANGE, ODD, STREAM)

    def test_a_node_is_replayable_only_if_all_sources_are(self) -> None:
        assert Plain(RANGE).replayable
        assert not Joined(RANGE, (ODD, STREAM)).replayable

    def test_depth_counts_operators_but_not_prefetch(self) -> None:
        assert RANGE.depth == 1
        assert Joined(RANGE, (Plain(Plain(RANGE)), RANGE)).depth == 4
        assert fl.from_range(6).prefetch().prefetch(procs=2).node.depth == 1


class TestIndexable:
    @pytest.mark.parametrize(
        ("flow", "indexable"),
        [
            (fl.from_range(6), True),
            (fl.from_items([1]), True),
            (fl.from_iterable([1]), False),
            (fl.from_range(6).map(str), True),
            (fl.from_range(6).filter(bool), False),
            (fl.from_range(6).filter(bool).map(str), False),
            (fl.from_range(6).batch(2).shuffle().repeat().take(2).prefetch(), True),
            (fl.from_range(6).shuffle(2), False),
            (fl.from_range(6).filter(bool).take(2), False),
        ],
        ids=lambda value: value.node.title if isinstance(value, fl.Flow) else "",
    )
    def test_indexable_by_operator(self, flow: fl.Flow[Any, Any], indexable: bool) -> None:
        assert flow.node.indexable is indexable

    def test_a_node_without_a_kind_is_not_indexable(self) -> None:
        assert not Plain(RANGE).indexable


def test_indices_are_built_from_spans_and_positions() -> None:
    at = Indices.span(3, 5, 8)
    assert (at.epoch.tolist(), at.position.tolist()) == ([3, 3, 3], [5, 6, 7])
    at = Indices.at(2, [9, 4])
    assert (at.epoch.tolist(), at.position.tolist()) == ([2, 2], [9, 4])
    assert at.epoch.dtype == at.position.dtype == np.int64
    assert Indices.span(0, 4, 4).position.tolist() == []


class TestOrigin:
    def test_origin_is_the_row_of_the_source(self) -> None:
        row = "row 4 of from_range(6)"
        assert RANGE.origin(0, 4) == row
        assert fl.from_range(6).map(str).take(5).prefetch().node.origin(0, 4) == row
        assert fl.from_range(6).repeat(2).node.origin(0, 10) == row
        assert ODD.origin(0, 4) == row

    def test_origin_of_a_batch_is_its_first_and_last_row(self) -> None:
        batches = fl.from_range(6).batch(4).node
        assert batches.origin(0, 0) == "row 0 of from_range(6) to row 3 of from_range(6)"
        assert batches.origin(0, 1) == "row 4 of from_range(6) to row 5 of from_range(6)"
        assert fl.from_range(6).batch(5).node.origin(0, 1) == "row 5 of from_range(6)"

    def test_origin_without_index_is_the_element_itself(self) -> None:
        assert STREAM.origin(0, 4) == f"element 4 of {STREAM.title}"
        assert fl.from_range(6).shuffle(2).node.origin(0, 4) == ("element 4 of shuffle(buffer=2)")
        assert fl.from_range(6).filter(bool).repeat(2).node.origin(0, 4) == (
            "element 4 of repeat(2)"
        )

    def test_origin_is_in_the_error_message(self) -> None:
        error = fl.from_range(6).map(str).node.error_at(2, 4)
        assert str(error) == "map(str) failed on element 4 of epoch 2 (row 4 of from_range(6))"


class TestValidators:
    @pytest.mark.parametrize("value", [1, 5, np.int64(3), 2**62 - 1])
    def test_validators_accept_an_int(self, value: int) -> None:
        assert is_int(value, 1)
        assert Joined(RANGE, (), value).n == value

    @pytest.mark.parametrize("value", [0, -3, True, 1.0, np.float64(3), np.True_, "3", None])
    def test_validators_refuse_other_values(self, value: Any) -> None:
        assert not is_int(value, 1)
        with pytest.raises(InvalidFlow) as caught:
            Joined(RANGE, (), value)
        assert str(caught.value) == f"joined: n must be an int >= 1, got {value!r}"

    def test_validators_refuse_too_large_ints(self) -> None:
        with pytest.raises(InvalidFlow) as caught:
            Joined(RANGE, (), 2**62)
        assert str(caught.value) == (f"joined: n must be an int >= 1 and below 2**62, got {2**62}")

    def test_validators_name_operator_and_argument(self) -> None:
        field: Any = attrs.fields(Joined).n
        node = Joined(RANGE, ())
        validate_callable(node, field, print)
        validate_flag(node, field, False)
        with pytest.raises(InvalidFlow, match="joined: n must be callable, got 3"):
            validate_callable(node, field, 3)
        with pytest.raises(InvalidFlow, match="joined: n must be True or False, got 1"):
            validate_flag(node, field, 1)


def test_names_of_functions() -> None:
    class Caller:
        def __call__(self) -> None: ...

        def method(self) -> None: ...

    assert name_of(len) == "len"
    assert name_of(Caller().method) == "Caller.method"
    assert name_of(Caller()) == "Caller"
    assert name_of(partial(max, 1)) == "partial"
    assert name_of(lambda: 0) == "<lambda>"


def test_spec_of_a_result_comes_from_the_annotation() -> None:
    def annotated() -> int:
        return 0

    def broken() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821  # what is tested

    assert str(spec_of_result(annotated)) == "int"
    assert spec_of_result(broken) == UNKNOWN
    assert spec_of_result(len) == UNKNOWN
    assert spec_of_result(lambda: 0) == UNKNOWN


class TestProbing:
    def test_probing_makes_few_elements_of_a_large_flow(self) -> None:
        made: list[int] = []

        def note(i: int) -> Any:
            made.append(i)
            return np.zeros(3)

        flow = fl.from_range(10**9).map(note).shuffle().map(lambda x: x).batch(4).shuffle()
        assert str(flow.map(lambda x: x).spec) == "float64[4, 3]"
        assert len(made) < 50

    def test_probing_does_not_consume_a_live_iterator(self) -> None:
        stream = iter([1, 2])
        assert str(fl.from_iterable(stream).map(lambda i: i).spec) == "?"
        assert next(stream) == 1

    def test_probing_an_empty_flow_leaves_the_spec_unknown(self) -> None:
        assert str(fl.from_range(0).map(lambda i: i).spec) == "?"

    def test_probing_leaves_varying_batch_sizes_unknown(self) -> None:
        flow = fl.from_range(7).map(lambda i: np.zeros(3)).batch(4)
        assert str(flow.map(lambda x: x * 2).spec) == "float64[?, 3]"
        even = fl.from_range(3).repeat(4).map(lambda i: np.zeros(3)).batch(12)
        assert str(even.map(lambda x: x * 2).spec) == "float64[12, 3]"

    def test_probing_detects_a_wrong_annotation(self) -> None:
        def wrong(i: int) -> tuple[int, Any]:
            return i  # type: ignore[return-value]  # what is tested

        with pytest.raises(fl.SpecMismatch, match=r"map\(wrong\): element 0: declared .*got int"):
            _ = fl.from_range(3).map(wrong).spec


def test_each_operator_has_one_kind() -> None:
    kinds = (IndexedSource, Elementwise, Batched, IndexTransform, Placement)
    for flow in (fl.from_range(3), fl.from_range(3).map(str), fl.from_range(3).batch(2)):
        assert sum(isinstance(flow.node, kind) for kind in kinds) == 1
    assert issubclass(Exact, Reordered)


AnyFlow: TypeAlias = Flow[Any, Any]
CHAINS: dict[str, Callable[[AnyFlow], AnyFlow]] = {
    "take": lambda flow: flow.take(1000),
    "repeat": lambda flow: flow.repeat(1),
    "zip": lambda flow: flow.zip(fl.from_range(5)),
    "choose": lambda flow: flow.choose(fl.from_range(5).repeat(), stop="first"),
    "map_component": lambda flow: flow.map(lambda x: (x, 1)).map_component(abs, -1),
    "batch and take": lambda flow: flow.batch(1, drop_remainder=True, collate=list).take(9),
}


class TestCachedProperties:
    """Properties are computed from the nodes below: their cost must not grow exponentially."""

    @pytest.mark.parametrize("name", CHAINS)
    def test_properties_are_computed_once_per_node(self, name: str) -> None:
        flow: AnyFlow = fl.from_range(5)
        for _ in range(60):
            flow = CHAINS[name](flow)
        asked = (flow.node.length, flow.effects, flow.node.indexable, flow.node.spec(probe=False))
        assert len(asked) == 4

    def test_a_probe_runs_each_function_a_few_times(self) -> None:
        calls: list[int] = []

        def note(i: int) -> int:
            calls.append(i)
            return i

        flow: AnyFlow = fl.from_range(5).map(lambda i: (i, i))
        for _ in range(8):
            flow = flow.map_component(note, 0)
        assert str(flow.spec) == "(int, int)"
        assert len(calls) < 200

    def test_the_effects_of_a_class_and_its_base_are_separate(self) -> None:
        node = fl.from_range(6).batch(4, drop_remainder=True).node
        assert node.effects == {Resampled}
        assert Node.combined_effects(node) == frozenset()

    def test_cached_properties_survive_pickling(self) -> None:
        node = fl.from_range(6).batch(4).node
        assert node.length == 2
        assert pickle.loads(pickle.dumps(node)).length == 2


class TestClasses:
    def test_nodes_are_shown_as_written_in_the_chain(self) -> None:
        flow: AnyFlow = fl.from_range(6).map(abs).batch(4)
        assert repr(flow.node) == "<Batch batch(4)>"
        assert repr(flow.node.sources) == "(<Map map(abs)>,)"

    def test_classes_without_own_arguments_need_no_decorator(self) -> None:
        class Other(Take[int, Exact]):
            pass

        three = fl.from_range(9).node
        assert Other(three, 3) == Other(three, 3)
        assert Other(three, 3) != Take(three, 3)
        assert len({Other(three, 3), Other(three, 3), Other(three, 4)}) == 2
        items = [1, 2]
        assert fl.from_items(items).take(1) == fl.from_items(items).take(1)
        assert fl.from_items(items).take(1) != fl.from_items([1, 2]).take(1)  # they may be arrays
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            Other(three, 3).n = 4  # type: ignore[misc]  # nodes are values
