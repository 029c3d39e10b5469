"""``origins``: returns exactly the rows whose change changes the element."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import Node, PassFactory, Row
from flowdsl.plan.tree import steps_of
from flowdsl.runtime.origins import traced
from flowdsl.runtime.random_access import without_workers
from flowdsl.testing import Recipe, laws
from flowdsl.testing.catalogue import MAX_ROWS
from flowdsl.testing.outcomes import outcome, reference
from tests.sampling import examples
from tests.strategies import chains

LETTERS = list("abcdefgh")


def rows(flow: fl.Flow[Any, Any], position: int, epoch: int = 0) -> list[int]:
    return [origin.row for origin in flow.origins(position, epoch)]


def is_odd(x: int) -> bool:
    return x % 2 == 1


def numbers(n: int = 9) -> fl.Flow[int, fl.Unsized]:
    """A stream of the numbers of its rows."""
    return fl.from_iterable(lambda: iter(range(n)))


def single(i: int) -> Any:
    return np.array([i])


def real_tokens(row: fl.Packed[Any]) -> Any:
    return row.tokens[row.segment_ids > 0]


def marked(flow: fl.Flow[Any, Any], epoch: int = 0) -> None:
    """Check elements that consist of row numbers: their origins are these numbers, in order."""
    for position, x in enumerate(islice(flow.epoch(epoch), 40)):
        assert rows(flow, position, epoch) == np.ravel(x).tolist()


EACH_BY_ITS_ROWS: dict[str, Callable[[fl.Flow[Any, Any]], fl.Flow[Any, Any]]] = {
    "nothing": lambda f: f,
    "map": lambda f: f.map(int),
    "batch": lambda f: f.batch(4),
    "drop_remainder": lambda f: f.batch(4, drop_remainder=True),
    "padded_batch": lambda f: f.padded_batch(2),
    "batch of batches": lambda f: f.batch(2).batch(2, collate=list).map(np.concatenate),
    "window": lambda f: f.window(3),
    "window with gaps": lambda f: f.window(2, stride=3),
    "window with a dilation": lambda f: f.window(3, dilation=2, stride=3),
    "window with a remainder": lambda f: f.window(3, stride=2, remainder="keep"),
    "window by key": lambda f: f.window(2, dilation=2, remainder="keep", key=is_odd),
    "stacked window by key": lambda f: f.window(2, stack=True, key=is_odd),
    "windows in batches": lambda f: f.window(3).batch(3).map(np.transpose),
    "shuffle": lambda f: f.take(9).shuffle(4),
    "window shuffle": lambda f: f.shuffle(4, seed=1).batch(2),
    "filter": lambda f: f.filter(is_odd),
    "filter then batch": lambda f: f.filter(is_odd).batch(3),
    "filter then skip": lambda f: f.filter(is_odd).skip(1).batch(2),
    "filter then window": lambda f: f.filter(is_odd).window(2),
    "filter then enumerate": lambda f: f.filter(is_odd).enumerate().map(lambda pair: pair[1]),
    "flat_map": lambda f: f.flat_map(lambda i: [i] * (i % 3)),
    "flat_map then batch": lambda f: f.flat_map(lambda i: [i] * (i % 3)).batch(4),
    "cache": lambda f: f.shuffle(3).cache().shuffle(2, seed=1),
    "cache after a filter": lambda f: f.filter(is_odd).cache().batch(2),
    "take, skip": lambda f: f.skip(2).take(5).batch(2),
    "shard": lambda f: f.shard(2, 1).batch(2),
    "repeat": lambda f: f.shuffle(3).repeat(2).batch(4),
    "repeat without end": lambda f: f.shuffle(3).repeat().batch(4),
    "repeat_each": lambda f: f.repeat_each(2).batch(3),
    "fixed_size": lambda f: f.fixed_size(20),
    "batch_by_shape": lambda f: f.batch_by_shape(2, lambda i: np.zeros(i % 3)),
    "batch_by_key": lambda f: f.batch_by_key(2, lambda i: i % 3),
    "bucket_by_length": lambda f: f.bucket_by_length(lambda i: i, [3, 5], 2, collate=list),
    "pack": lambda f: f.map(single).pack(3, padding=-1).map(real_tokens),
    "pack whole": lambda f: f.map(single).pack(3, "best_fit", bins=1).map(real_tokens),
    "inspect": lambda f: f.inspect(0),
    "prefetch": lambda f: f.prefetch(threads=2).batch(2).prefetch(procs=2),
    "replicate": lambda f: f.shuffle(3).replicate(procs=2),
    "on_error": lambda f: f.map(lambda i: i if i % 4 else [][i]).prefetch(on_error="skip").batch(2),
}


@pytest.mark.parametrize("chain", EACH_BY_ITS_ROWS.values(), ids=EACH_BY_ITS_ROWS)
@pytest.mark.parametrize("source", [lambda: fl.from_range(9), numbers], ids=["rows", "stream"])
def test_origins_through_each_operator(chain: Any, source: Any) -> None:
    for epoch in (0, 2):
        marked(chain(source()), epoch)


def test_origins_in_streams_are_indices_in_the_pass() -> None:
    flow = fl.from_iterable(lambda: iter("abcd")).repeat(2)
    assert rows(flow.batch(4), 1) == [0, 1, 2, 3]


# -- several sources -------------------------------------------------------------------------------


def tens(n: int = 9) -> fl.Flow[int, fl.Exact]:
    return fl.from_items([10 * i for i in range(n)])


MERGED: dict[str, Callable[..., fl.Flow[Any, Any]]] = {
    "concat": lambda f, g: f.concat(g),
    "interleave": lambda f, g: f.interleave(g),
    "choose": lambda f, g: f.choose(g, weights=[1, 3]),
    "choose the first": lambda f, g: f.choose(g, stop="first"),
    "choose of endless": lambda f, g: f.repeat().choose(g.repeat(), stop="first").take(30),
    "mix": lambda f, g: f.mix(g, seed=3),
    "mix below a shuffle": lambda f, g: f.mix(g).shuffle().repeat(2),
}


@pytest.mark.parametrize("merge", MERGED.values(), ids=MERGED)
def test_origins_of_merged_flows(merge: Any) -> None:
    flow = merge(fl.from_range(9), tens()).batch(4)
    for position, batch in enumerate(flow):
        origins = flow.origins(position)
        assert batch.tolist() == [
            origin.row if origin.source == "from_range(9)" else 10 * origin.row
            for origin in origins
        ]


@pytest.mark.parametrize("merge", ["concat", "interleave", "choose", "choose the first"])
def test_origins_of_merged_filtered_flows(merge: str) -> None:
    odd = fl.from_range(9).filter(is_odd)
    flow = MERGED[merge](odd, tens().filter(lambda x: x % 20 == 0)).batch(3)
    for position, batch in enumerate(flow):
        origins = flow.origins(position)
        assert batch.tolist() == [o.row if o.step == 1 else 10 * o.row for o in origins]
        assert {origin.step for origin in origins} <= {1, 3}


def test_origins_of_zipped_flows() -> None:
    flow = fl.from_range(9).zip(tens()).shuffle(seed=1).batch(2)
    ones, others = flow.at(3)
    assert [str(origin) for origin in flow.origins(3)] == [
        f"row {row} of {source}"
        for row, ten in zip(ones, others // 10, strict=True)
        for row, source in ((row, "from_range(9)"), (ten, "from_items(9 items)"))
    ]


def test_origins_of_zipped_flows_by_replay() -> None:
    flow = fl.from_range(9).filter(is_odd).zip(numbers(4)).batch(2)
    assert [(o.step, o.row) for o in flow.origins(1)] == [(1, 5), (3, 2), (1, 7), (3, 3)]
    assert [title for title, _ in map(_by_title, flow.origins(1))] == [
        "from_range(9)",
        "from_iterable(<lambda>)",
    ] * 2


def _by_title(origin: fl.Origin) -> tuple[str, int]:
    return origin.source, origin.row


def test_sources_with_the_same_title_are_distinguished() -> None:
    flow = fl.from_range(9).zip(fl.from_range(9).map(abs))
    one, other = flow.origins(3)
    assert (one.source, one.row) == (other.source, other.row) == ("from_range(9)", 3)
    assert one != other
    lines = flow.explain().splitlines()
    for origin in (one, other):
        assert any(re.match(rf" +{origin.step} +from_range\(9\)", line) for line in lines)


def test_a_row_that_is_used_twice_is_named_twice() -> None:
    assert rows(fl.from_range(3).repeat_each(2).batch(4), 0) == [0, 0, 1, 1]


def test_origins_of_split_flows() -> None:
    train, held_out = tens(20).split(0.7, seed=1)
    assert [rows(train, i)[0] * 10 for i in range(14)] == train.collect()
    assert [rows(held_out, i)[0] * 10 for i in range(6)] == held_out.collect()


def test_origins_of_components() -> None:
    flow = fl.from_items([(i, -i) for i in range(5)]).map_component(abs, 1).select(fl.c1).shuffle()
    assert [rows(flow, i) for i in range(5)] == [[x] for (x,) in flow]


def test_origins_of_a_function_result_are_all_its_inputs() -> None:
    for batches in (fl.from_range(6).batch(3), numbers(6).batch(3), fl.from_range(6).window(3, 3)):
        assert rows(batches.map(np.array).unbatch(int), 4) == [3, 4, 5]
        assert rows(batches.flat_map(list), 4) == [3, 4, 5]


@pytest.mark.parametrize("source", [lambda: fl.from_range(5), numbers], ids=["rows", "stream"])
def test_origins_of_rows_that_fill_a_batch_are_its_last_row(source: Any) -> None:
    flow = source().take(5).batch(4, remainder="fill").unbatch()
    elements = [(int(row), bool(real)) for row, real in flow]
    assert elements[4:] == [(4, True)] + [(4, False)] * 3
    assert [rows(flow, i) for i in range(8)] == [[row] for row, _ in elements]


def test_origins_of_padded_rows_are_the_whole_batch() -> None:
    flow = fl.from_items([np.ones(n) for n in range(6)]).padded_batch(3).unbatch()
    assert rows(flow, 4) == [3, 4, 5]


@pytest.mark.parametrize(
    "take_apart",
    [
        lambda f: f.batch(3).unbatch(),
        lambda f: f.batch(4).shuffle(3).prefetch(threads=2).unbatch(),
        lambda f: f.filter(is_odd).batch(3).shuffle(2).unbatch(),
        lambda f: f.batch(2).concat(f.filter(is_odd).batch(3)).unbatch(),
        lambda f: f.batch(2).interleave(f.batch(3)).repeat(2).unbatch(int),
        lambda f: f.batch_by_shape(2, lambda i: np.zeros(i % 3)).unbatch(),
        lambda f: f.batch(2).batch(2, drop_remainder=True).unbatch(),
        lambda f: f.batch(2).shuffle(3).cache().repeat_each(3).unbatch(),
    ],
)
@pytest.mark.parametrize("source", [lambda: fl.from_range(9), numbers], ids=["rows", "stream"])
def test_origins_of_unbatched_rows_are_single_rows(source: Any, take_apart: Any) -> None:
    marked(take_apart(source()))


def test_origins_of_unbatched_source_batches() -> None:
    flow = fl.from_items([np.arange(3), np.arange(2)]).shuffle(seed=1).unbatch()
    assert [rows(flow, i) for i in range(5)] in ([[0]] * 3 + [[1]] * 2, [[1]] * 2 + [[0]] * 3)


def test_origins_in_files(tmp_path: Path) -> None:
    path = tmp_path / "letters.lmdb"
    fl.from_items(LETTERS).write_lmdb(path)
    flow = fl.from_lmdb(path).shuffle(seed=2).map(str).batch(3)
    (origin, *_) = flow.origins(1)
    assert origin.source == fl.from_lmdb(path).node.title
    assert [LETTERS[row] for row in rows(flow, 1)] == flow.at(1)
    for letter in "ab":
        (tmp_path / f"{letter}.txt").touch()
    assert rows(fl.from_files(str(tmp_path / "*.txt")), 1) == [1]


def test_origins_through_attempt_keep_the_source_title() -> None:
    flow = fl.from_items(LETTERS).prefetch(threads=1, on_error="skip")
    assert list(map(str, flow.origins(2))) == ["row 2 of from_items(8 items)"]


def test_origins_do_not_call_the_skip_handler_again() -> None:
    reported: list[fl.ElementError] = []
    bad = fl.from_range(5).map(lambda i: [0][i] if i == 1 else i)
    assert rows(bad.prefetch(on_error=reported.append), 1) == [2]
    assert not reported


@pytest.mark.timeout(20)
def test_an_endless_pass_without_elements_raises_endless_flow() -> None:
    flow: fl.Flow[Any, Any] = numbers(3).map([].__getitem__).repeat().prefetch(on_error="skip")
    with pytest.raises(fl.EndlessFlow, match="pass 0 had no elements"):
        flow.origins(0)


# -- by arithmetic ---------------------------------------------------------------------------------


def test_origins_of_a_random_access_flow_read_and_call_nothing() -> None:
    class Untouched(Sequence[int]):
        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, i: Any) -> Any:
            raise AssertionError("a row was read")

    def fail(*_: object) -> Any:
        raise AssertionError("a function was called")

    one = fl.from_items(Untouched()).shuffle(seed=3).map(fail).window(3, stride=2)
    flow = one.mix(one.skip(10**8).random_map(fail)).batch(5, collate=fail).repeat()
    assert len(flow.prefetch(procs=2).origins(10**8, epoch=5)) == 15


# -- the run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("procs", [0, 2])
def test_run_origins_belong_to_the_last_element(procs: int) -> None:
    flow = fl.from_range(20).shuffle(seed=1).batch(3).repeat().prefetch(procs)
    with flow.epoch(2) as run:
        with pytest.raises(InvalidFlow, match="origins: this run has delivered no element yet"):
            run.origins()
        batches = list(islice(run, 1))
        for batch in islice(run, 8):
            batches.append(batch)
            assert [origin.row for origin in run.origins()] == batch.tolist()
        state = run.state_dict()
    with flow.resume(state) as run:
        assert [origin.row for origin in run.origins()] == batches[-1].tolist()
        batch = next(run)
        assert [origin.row for origin in run.origins()] == batch.tolist()


def test_run_origins_after_the_end() -> None:
    run = iter(numbers(5).filter(is_odd))
    assert list(run) == [1, 3]
    assert [origin.row for origin in run.origins()] == [3]


# -- what is refused -------------------------------------------------------------------------------


@attrs.frozen
class Pairs(Node[Any, fl.Unsized]):
    """An operator that does not support origins."""

    source: Node[Any, Any]

    @property
    def title(self) -> str:
        return "pairs()"

    @property
    def length(self) -> None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        x = [x for _, x in sources[0](epoch)]
        return enumerate(zip(x[::2], x[1::2], strict=False))


@pytest.mark.parametrize(
    ("flow", "position", "error", "words"),
    [
        (fl.from_range(5), 5, IndexError, "origins: position 5 is beyond the 5 elements of from"),
        (fl.from_range(5), -6, IndexError, "origins: position -6 is beyond the 5 elements"),
        (fl.from_range(5).filter(bool), 4, IndexError, "beyond the 4 elements of filter(bool)"),
        (numbers(5), 5, IndexError, "beyond the 5 elements of from_iterable(<lambda>)"),
        (numbers(5), -1, fl.UnknownLength, "because of from_iterable(<lambda>)"),
        (fl.from_range(5).repeat(), -1, fl.EndlessFlow, "put .take(n) after it"),
        (fl.from_range(5), 1.0, InvalidFlow, "origins: position must be an int, got 1.0"),
        (fl.from_iterable(iter("ab")), 0, InvalidFlow, "yields its elements only once"),
        (fl.from_range(5).prefetch(threads=1, ordered=False), 0, InvalidFlow, "origins: after"),
        (fl.from_range(5).apply(Pairs).batch(2), 0, InvalidFlow, "origins: pairs() does not say"),
        (fl.from_range(5).filter(lambda i: 1 // i > 0), 0, fl.ElementError, "element 0 (row 0"),
    ],
    ids=str,
)
def test_positions_beyond_the_end_are_refused(
    flow: Any, position: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=re.escape(words)):
        flow.origins(position)


def test_invalid_epochs_are_refused() -> None:
    with pytest.raises(InvalidFlow, match="origins: epoch must be an int >= 0"):
        fl.from_range(5).origins(0, epoch=-1)


@pytest.mark.parametrize("position", range(-5, 5))
def test_negative_positions_are_refused_or_counted_from_the_end(position: int) -> None:
    assert rows(fl.from_range(5).map(str), position) == [range(5)[position]]
    same_number: Any = np.int64(position)
    assert rows(fl.from_range(5), same_number) == [range(5)[position]]


def test_runs_work_with_operators_that_do_not_support_origins() -> None:
    run = iter(fl.from_range(4).apply(Pairs))
    assert next(run) == (0, 1)
    with pytest.raises(InvalidFlow, match="pairs"):
        run.origins()


# -- laws ------------------------------------------------------------------------------------------


@settings(max_examples=examples(250))
@given(chains(most=6), st.integers(0, 2 * MAX_ROWS), st.integers(0, 2))
def test_changing_a_row_changes_exactly_its_elements(recipe: Recipe, row: int, epoch: int) -> None:
    laws.origins_name_the_rows(recipe)
    laws.changing_a_row_changes_exactly_its_elements(recipe, row, epoch)


@settings(max_examples=examples(200))
@given(chains(most=5), st.integers(0, 2))
def test_origins_by_replay_equal_origins_by_arithmetic(recipe: Recipe, epoch: int) -> None:
    flow = recipe.build()
    if not flow.node.replayable or recipe.is_unordered:
        return
    whole = without_workers(flow.node, "origins")
    replayed = traced(steps_of(whole), lambda step: not step.sources)
    elements = outcome(x for _, x in replayed.reference(epoch)).elements
    for position in range(0, len(elements), 1 + len(elements) // 6):
        places = [(step.number, row) for step, _, row, *_ in elements[position].places]
        assert places == [(o.step, o.row) for o in flow.origins(position, epoch)]


@settings(max_examples=examples(100))
@given(chains(most=5, prefetched=True), st.integers(1, 12), st.integers(0, 2), st.integers(0, 3))
def test_run_origins_equal_flow_origins_of_the_last_element(
    recipe: Recipe, n: int, procs: int, epoch: int
) -> None:
    flow, twin = recipe.build(procs), recipe.build()
    if not flow.node.replayable or recipe.is_unordered:
        return
    n = min(n, len(reference(twin.node, epoch).elements))
    with flow.epoch(epoch) as run:
        state = run.state_dict()
        for k in range(n):
            state = run.state_dict()
            next(run)
            assert run.origins() == twin.origins(k, epoch)
    with flow.resume(state) as run:
        for k in range(n)[-1:]:
            next(run)
            assert run.origins() == twin.origins(k, epoch)
