"""Snapshots of the text of explain(), kept as files.

After an intended change, ``SNAPSHOTS=renew pytest tests/plan/test_explain.py`` writes them again;
read the difference before it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import Flow, FlowError, InvalidFlow, SpecMismatch
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import Spec, spec_of
from flowdsl.nodes import AnyNode, spec_for_all_elements
from flowdsl.plan.reference import interpret
from flowdsl.testing.outcomes import outcome
from flowdsl.testing.recipes import Recipe
from tests.sampling import examples
from tests.strategies import chains

FOLDER = Path(__file__).parent / "snapshots"
STAGES = ("flow", "rules", "plan")


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: np.int64


def augment(sample: Sample, rng: np.random.Generator) -> Sample:
    return sample._replace(image=np.roll(sample.image, rng.integers(8), axis=0))


def double(i: int) -> int:
    return 2 * i


def odd(i: int) -> bool:
    return i % 2 == 1


def words() -> Any:
    return iter(range(100))


def readme(folder: Path) -> Flow[Any, Any]:
    rows = [Sample(np.zeros((8, 8), np.uint8), np.int64(i)) for i in range(100)]
    fl.from_items(rows).write_lmdb(folder / "digits.lmdb")
    samples = fl.from_lmdb(folder / "digits.lmdb", Sample)
    return samples.shuffle(seed=7).random_map(augment, seed=7).batch(32).repeat().prefetch(procs=4)


def stream(_: Path) -> Flow[Any, Any]:
    return fl.from_iterable(words).map(double).filter(odd).batch(4).prefetch(procs=2)


def items(_: Path) -> Flow[Any, Any]:
    rows = [{"x": np.zeros(3), "y": i} for i in range(1000)]
    flow: Flow[Any, Any] = fl.from_items(rows)
    return flow.shuffle().map(lambda row: row).batch(64, drop_remainder=True).prefetch(procs=1)


def nested(_: Path) -> Flow[Any, Any]:
    flow = fl.from_range(10**6).map(double).prefetch(procs=2).map(double)
    return flow.take(5000).batch(3).prefetch(procs=4)


def both_sides(_: Path) -> Flow[Any, Any]:
    return fl.from_range(10**6).map(double).shuffle(512).map(double).batch(8).prefetch(procs=2)


def no_prefetch(_: Path) -> Flow[Any, Any]:
    return fl.from_range(100).filter(odd).map(double).repeat(3)


def wrong(_: Path) -> Flow[Any, Any]:
    return fl.from_range(3).map(lambda i: 1 / i).batch(2)


def several(_: Path) -> Flow[Any, Any]:
    rows = fl.from_items(range(1000)).map(double)
    some = fl.from_range(1000).filter(odd).map(double)
    flow = fl.from_range(10**6).map(double).concat(rows.shuffle()).prefetch(procs=2)
    return flow.choose(some.prefetch(procs=2), weights=[3, 1]).batch(8).prefetch(procs=4)


def one_plan(_: Path) -> Flow[Any, Any]:
    rows = fl.from_items(range(1000)).map(double)
    return (
        fl.from_range(1000).map(double).zip(rows).starmap(max).shuffle().batch(8).prefetch(procs=2)
    )


def threads(_: Path) -> Flow[Any, Any]:
    return fl.from_range(100).map(double).shuffle().batch(4).prefetch(threads=2, memory=10**6)


def unordered(_: Path) -> Flow[Any, Any]:
    flow = fl.from_range(100).map(double).prefetch(procs=2, ordered=False)
    return flow.map(double).batch(4).prefetch(procs=3)


def skipping(_: Path) -> Flow[Any, Any]:
    flow = fl.from_range(100).shuffle().map(lambda i: 1 / i).prefetch(on_error=print)
    return flow.enumerate().starmap(max).batch(4).prefetch(procs=2, on_error="skip")


def replicated(_: Path) -> Flow[Any, Any]:
    several = fl.from_range(100).shuffle().map(double).replicate(2)
    return several.concat(fl.from_iterable(words).map(double).replicate(2)).batch(4)


def leaking(_: Path) -> Flow[Any, Any]:
    shuffled = fl.from_range(1797).shuffle(seed=1).map(double)
    some = shuffled.skip(1437).shuffle(9).take(100).filter(odd)  # which have no fixed rows either
    return shuffled.take(1437).concat(some).shard(4, 0).batch(32).prefetch(procs=2)


FLOWS = (
    *(readme, stream, items, nested, both_sides, no_prefetch, wrong, several, one_plan),
    *(threads, unordered, skipping, replicated, leaking),
)


@pytest.mark.parametrize("make", FLOWS, ids=lambda make: make.__name__)
def test_explain_equals_the_snapshot(make: Any, tmp_path: Path) -> None:
    flow = make(tmp_path)
    text = "\n".join(f"explain({stage!r})\n{flow.explain(stage)}\n" for stage in STAGES)
    kept = FOLDER / f"{make.__name__}.txt"
    if os.environ.get("SNAPSHOTS") == "renew":
        kept.write_text(text)
    assert text == kept.read_text()


def test_every_snapshot_belongs_to_a_flow() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {make.__name__ for make in FLOWS}


def notes(flow: Flow[Any, Any]) -> list[str]:
    return [line for line in flow.explain().splitlines() if line.startswith("note: ")]


def test_operators_that_take_other_rows_in_every_epoch_are_noted() -> None:
    rows = fl.from_range(9)
    rest = (
        "takes other rows in every epoch; for a fixed part of the rows write .split(...) before "
        "both"
    )
    for moved, title in (
        (rows.shuffle(seed=3), "shuffle(seed=3)"),
        (rows.shuffle(4).map(double), "shuffle(buffer=4)"),
        (rows.mix(rows).batch(2), "mix(...)"),
        (rows.choose(rows), "choose(...)"),
        (rows.map(double).cache().mix(rows), "mix(...)"),
    ):
        assert notes(moved.take(3))[-1:] == [f"note: take(3) after {title} {rest}"]
        assert notes(moved.skip(3).repeat()) == [f"note: skip(3) after {title} {rest}"]
        (note,) = notes(moved.shard(3, 1).prefetch())
        assert note == (
            f"note: shard(3, 1) after {title} has other rows in every epoch, as the ranks of one "
            f"job need it: together they have all; for a fixed part of the rows write it before "
            f"{title}"
        )


def test_an_operator_that_is_moved_is_noted() -> None:
    """Its number is out of order then."""
    flow = fl.from_range(9).map(double).map(odd).take(5).filter(odd).map(double).take(3)
    reason = "so that only its elements are computed; # is the place in the chain as written"
    assert notes(flow) == [
        f"note: take(5) runs before map(double), {reason}",
        f"note: take(3) runs before map(double), {reason}",
    ]
    assert "note" not in flow.explain("flow")
    assert notes(fl.from_range(9).map(double).batch(2).take(3)) == []


def test_fixed_or_repeated_rows_are_not_noted() -> None:
    rows = fl.from_range(9)
    for flow in (
        rows.split(0.5)[0].shuffle(),
        rows.take(5).shuffle().batch(2),
        rows.interleave(rows).take(3),  # in another order, and always the same
        rows.shuffle().repeat().take(1000),  # so many steps
    ):
        assert notes(flow) == []
    (note,) = notes(rows.shuffle().cache().shard(3, 1))
    assert note.startswith("note: cache() has epoch 0 of shuffle() in every pass")
    again = rows.shuffle(seed=2).take(3)
    assert len(notes(again.shuffle().take(1))) == 1
    assert len(notes(again.concat(again))) == 1


EARLY = (
    "note: cache() is not filled by passes that take(3) ends early: each computes its elements "
    "again; put cache() after take(3)"
)


@pytest.mark.parametrize(
    ("chain", "is_filled"),
    [
        (lambda cached: cached.take(3), False),
        (lambda cached: cached.map(double).batch(2).take(3), False),
        (lambda cached: cached.batch(2).cache().take(3), False),
        (lambda cached: cached.filter(bool).take(3), False),
        (lambda cached: cached.take(9), True),
        (lambda cached: cached.batch(3).take(3), True),
        (lambda cached: cached.shuffle().take(3), True),
        (lambda cached: cached.repeat().take(12), True),
        (lambda cached: cached.map(double), True),
    ],
)
def test_a_cache_whose_passes_end_early_is_noted(
    chain: Callable[[Flow[int, Any]], Flow[Any, Any]], is_filled: bool
) -> None:
    computed: list[int] = []

    def counted(i: int) -> int:
        computed.append(i)
        return i

    flow = chain(fl.from_range(9).map(counted).cache())
    early = [note for note in notes(flow) if "is not filled" in note]
    assert early == ([] if is_filled else [EARLY])
    computed.clear()
    for _ in range(2):
        flow.collect()
    assert (len(computed) == 9) == is_filled


def test_what_a_cache_keeps_of_random_operators_is_noted(tmp_path: Path) -> None:
    drawn = fl.from_range(9).random_map(lambda i, rng: i + int(rng.integers(9)), seed=1)
    shown = "random_map(<lambda>, seed=1)"
    text = f"has epoch 0 of {shown} in every pass; to draw in each epoch, write random_map after it"
    assert notes(drawn.map(double).cache().shuffle()) == [f"note: cache() {text}"]
    (note,) = notes(drawn.prefetch(threads=1, on_error="skip").cache())
    assert note == f"note: cache() {text}"
    (note,) = notes(drawn.cache(tmp_path / "a.lmdb"))
    assert note.endswith(f"the elements of {shown}, and {text}")
    assert notes(fl.from_range(9).cache().shuffle()) == []
    assert notes(drawn.cache().map(double).cache()) == [f"note: cache() {text}"]


def test_a_prefetch_whose_workers_are_not_started_is_noted() -> None:
    flow = fl.from_range(9).map(double).prefetch(procs=2).map(double)
    text = "note: prefetch(threads=3) also runs the operators below prefetch(procs=2)"
    assert notes(flow.prefetch(threads=3)) == [text]
    assert notes(flow) == notes(flow.prefetch(procs=0)) == []
    assert notes(flow.flat_map(lambda x: [x]).prefetch(threads=3)) == []  # two pools


def test_the_plan_is_explained_by_default(tmp_path: Path) -> None:
    flow = readme(tmp_path)
    assert flow.explain() == flow.explain("plan")


def test_an_operator_keeps_its_number(tmp_path: Path) -> None:
    def numbered(stage: str) -> set[tuple[str, str]]:
        lines = flow.explain(stage).splitlines()[1:]
        rows = [line.split()[:2] for line in lines]
        return {(row[0], row[1]) for row in rows if row[0].isdigit()}

    for make in FLOWS:
        flow = make(tmp_path)
        assert numbered("flow") == numbered("rules") == numbered("plan")
        if make is readme:
            (tmp_path / "digits.lmdb").unlink()


def test_a_prefetch_does_not_change_operator_numbers() -> None:
    plain = fl.from_range(9).map(double).batch(2)
    ahead = fl.from_range(9).prefetch().map(double).prefetch(procs=2).batch(2)
    lines = [line for line in ahead.explain("flow").splitlines() if "prefetch" not in line]
    assert [line.split() for line in lines] == [
        line.split() for line in plain.explain("flow").splitlines()
    ]


def test_unknown_stages_are_refused() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(3).explain("stages")
    assert str(caught.value) == "explain: stage must be one of flow, rules, plan, got 'stages'"


def test_operators_above_a_shuffle_are_probed_through_it() -> None:
    shuffled = fl.from_items(["a b", "c"]).shuffle()
    for flow in (
        shuffled.map(str.upper).shuffle(seed=1).map(lambda words: words),
        shuffled.flat_map(str.split).map(lambda word: word),
        shuffled.repeat(2).batch(2, collate=list).unbatch(str).map(lambda word: word),
    ):
        assert flow.explain().splitlines()[-1].endswith("str")


def test_sources_of_a_nested_stage_are_indented_like_it() -> None:
    other = fl.from_items(range(9)).map(abs).prefetch(procs=1)
    lines = fl.from_range(9).filter(bool).choose(other.filter(bool)).explain().splitlines()
    (supply,) = [line for line in lines if "from_items(9 items)" in line]
    (worked,) = [line for line in lines if "map(abs)" in line]
    assert (
        supply.index("from_items") == worked.index("map(abs)") == lines[2].index("from_range") + 2
    )


def of_all(node: AnyNode) -> Spec:
    return spec_for_all_elements(node, tuple(map(of_all, node.sources)))


@settings(max_examples=examples(300))
@given(chains(most=5))
def test_the_explained_spec_holds_for_all_elements(recipe: Recipe) -> None:
    got = outcome(interpret(recipe.build().node))
    if got.error is None and got.elements:
        with suppress(FlowError):  # the probe meets what a filter leaves out
            spec = of_all(recipe.build().node)
            for element in got.elements:
                assert not _contradicts(spec, spec_of(element))


def _contradicts(spec: Spec, seen: Spec) -> bool:
    try:
        meet(spec, seen)
    except SpecMismatch:
        return True
    return False


TWO_ARRAYS: Any = fl.fake([(2,), (3,)], 4)


@pytest.mark.parametrize(
    ("flow", "element"),
    [
        (fl.from_items([np.arange(10), np.arange(3)]), "int64[?]"),
        (fl.from_items(np.zeros((4, 3))), "float64[3]"),
        (fl.from_items(np.zeros((4, 3))).map(lambda x: (x, 1)), "(float64[?], int)"),
        (fl.from_items(np.zeros((4, 3))).filter(lambda x: True), "float64[3]"),
        (fl.from_items(np.zeros((4, 3))).map(lambda x: x).batch(2), "float64[2, ?]"),
        (fl.from_iterable(lambda: iter([np.zeros(3)])), "float64[?]"),
        (
            TWO_ARRAYS.map_component(lambda x: x[:1], 1).prefetch(on_error="skip"),
            "(float32[2], float32[?])",
        ),
        (
            fl.from_range(4).map(lambda i: np.zeros(i + 1)).zip(fl.fake([(2,)], 4)).shuffle(),
            "(float64[?], float32[2])",
        ),
    ],
)
def test_sizes_known_only_from_the_first_element_are_unknown(
    flow: Flow[Any, Any], element: str
) -> None:
    assert flow.explain("flow").splitlines()[-1].endswith(f" {element}")


def test_merging_different_flows_is_noted() -> None:
    words: list[Any] = ["a"]
    flow = fl.from_range(2).map(lambda i: i).concat(fl.from_items(words).map(lambda x: x))
    assert "!" not in flow.explain()
    assert any(line.startswith("note: concat(...): element is int in ") for line in notes(flow))


def test_a_cache_among_mixed_flows_is_explained() -> None:
    rows = fl.from_range(9)
    assert "int" in rows.shuffle().cache().mix(rows).explain()
