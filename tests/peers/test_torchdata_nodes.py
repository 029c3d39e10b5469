"""What the tests of torchdata.nodes ask, as flows."""

from __future__ import annotations

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
A, B, C = fl.from_items("aaaa"), fl.from_items("bb"), fl.from_items("c")
TAGGED = {"a": fl.from_items("xy"), "b": fl.from_items("z")}


@table(
    Case(
        "a wrapper iterates over an iterable",
        "IterableWrapper(range(3))",
        lambda: fl.from_iterable(range(3)),
        [0, 1, 2],
    ),
    Case(
        "a wrapper iterates over a generator once",
        "IterableWrapper(generator)",
        lambda: fl.from_iterable(i for i in range(3)),
        [0, 1, 2],
    ),
    Case(
        "a map-style wrapper has an order",
        "MapStyleWrapper(ds, sampler=[2, 0])",
        lambda: fl.from_items("abc").select_rows([2, 0]),
        ["c", "a"],
    ),
    Case(
        "a map-style wrapper has a random order",
        "MapStyleWrapper(ds, RandomSampler(ds))",
        lambda: sorted(fl.from_items("abc").shuffle(seed=1)),
        ["a", "b", "c"],
    ),
    Case(
        "a map-style wrapper has keys",
        "MapStyleWrapper({'x': 1}, sampler=['x'])",
        lambda: fl.from_items(["y", "x"]).map({"x": 1, "y": 2}.__getitem__),
        [2, 1],
    ),
    Case(
        "a sampler has an order for each epoch",
        "SamplerWrapper(sampler, epoch_updater)",
        lambda: (lambda flow: list(flow) != list(flow.epoch(1)))(TEN.shuffle(seed=1)),
        True,
    ),
    Case(
        "a batcher drops the last",
        "Batcher(node, 4)",
        lambda: TEN.batch(4, drop_remainder=True),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    Case(
        "a batcher keeps the last",
        "Batcher(node, 4, drop_last=False)",
        lambda: TEN.batch(4),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    ),
    Case(
        "a batcher has lists",
        "Batcher(node, 2)",
        lambda: fl.from_items(["a", 1, None]).batch(2, collate=list),
        [["a", 1], [None]],
    ),
    Case(
        "an unbatcher is the inverse",
        "Unbatcher(Batcher(node, 4))",
        lambda: TEN.batch(4).unbatch(),
        list(range(10)),
    ),
    Case("a filter keeps elements", "Filter(node, f)", lambda: TEN.filter(lambda i: i > 7), [8, 9]),
    Case(
        "a filter keeps none",
        "Filter(node, lambda x: False)",
        lambda: TEN.filter(lambda i: False),
        [],
    ),
    Case(
        "a filter of batches",
        "Filter(Batcher(node, 4), f)",
        lambda: TEN.batch(4).filter(lambda x: x.sum() > 20),
        [[4, 5, 6, 7]],
    ),
    Case("a header has the first elements", "Header(node, 3)", lambda: TEN.take(3), [0, 1, 2]),
    Case(
        "a header of an empty source is empty",
        "Header(empty, 3)",
        lambda: fl.from_range(0).take(3),
        [],
    ),
    Case(
        "a negative header is refused",
        "Header(node, -1)",
        lambda: TEN.take(-1),
        Refusal(fl.InvalidFlow, "take"),
    ),
    Case(
        "a cycler never ends",
        "Cycler(node)",
        lambda: fl.from_range(2).repeat().take(5),
        [0, 1, 0, 1, 0],
    ),
    Case(
        "a cycler ends after some cycles",
        "Cycler(node, max_cycles=2)",
        lambda: fl.from_range(2).repeat(2),
        [0, 1, 0, 1],
    ),
    Case(
        "a cycler of nothing is refused",
        "Cycler(empty)",
        lambda: fl.from_range(0).repeat(),
        Refusal(fl.InvalidFlow, "no elements"),
    ),
    Case(
        "a loader starts again",
        "Loader(node, restart_on_stop_iteration=True)",
        lambda: (list(TEN), list(TEN)),
        (list(range(10)), list(range(10))),
    ),
    Case(
        "a parallel mapper keeps the order",
        "ParallelMapper(node, f, 2, in_order=True)",
        lambda: TEN.map(lambda i: -i).prefetch(threads=2),
        [-i for i in range(10)],
    ),
    Case(
        "a parallel mapper need not keep the order",
        "ParallelMapper(node, f, 2, in_order=False)",
        lambda: sorted(TEN.map(lambda i: -i).prefetch(threads=2, ordered=False)),
        sorted(-i for i in range(10)),
    ),
    Case(
        "a parallel mapper sends batches",
        "ParallelMapper(node, f, 2, prebatch=3)",
        lambda: TEN.batch(3).map(lambda x: -x).prefetch(threads=2).unbatch(),
        [-i for i in range(10)],
    ),
    Case(
        "an error of a mapper is raised here",
        "ParallelMapper(node, failing, 2)",
        lambda: TEN.map(lambda i: 1 // (i - 4)).prefetch(threads=2),
        Refusal(fl.ElementError, "ZeroDivisionError"),
    ),
    Case(
        "a prefetcher changes nothing",
        "Prefetcher(node, 2)",
        lambda: TEN.prefetch(threads=1),
        list(range(10)),
    ),
    Case(
        "round robin ends with the last dataset",
        "MultiNodeRoundRobinSampler(nodes, ALL_DATASETS_EXHAUSTED)",
        lambda: A.interleave(B, C),
        list("abcabaa"),
    ),
    Case(
        "round robin ends with the first dataset",
        "MultiNodeRoundRobinSampler(nodes, FIRST_DATASET_EXHAUSTED)",
        lambda: A.interleave(B, C, stop="first"),
        list("abcab"),
    ),
    Case(
        "round robin cycles until all have ended",
        "MultiNodeRoundRobinSampler(nodes, CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED)",
        lambda: A.interleave(B, C, stop="all"),
        list("abcabcabca"),
    ),
    Case(
        "round robin over one dataset is that dataset",
        "MultiNodeRoundRobinSampler([node])",
        lambda: fl.interleave([A]),
        list("aaaa"),
    ),
    Case(
        "round robin over empty datasets is empty",
        "MultiNodeRoundRobinSampler(empty)",
        lambda: fl.interleave([fl.from_range(0), fl.from_range(0)], stop="first"),
        [],
    ),
    Case(
        "elements have the names of their datasets",
        "MultiNodeRoundRobinSampler(nodes, tag_output=True)",
        lambda: fl.interleave(TAGGED, with_names=True),
        [("a", "x"), ("b", "z"), ("a", "y")],
    ),
    Case(
        "round robin is batched",
        "Batcher(MultiNodeRoundRobinSampler(nodes), 2)",
        lambda: A.interleave(B).batch(2),
        [["a", "b"], ["a", "b"], ["a", "a"]],
    ),
    Case(
        "a weighted sampler ends with the first dataset",
        "MultiNodeWeightedSampler(nodes, w, FIRST_DATASET_EXHAUSTED)",
        lambda: (lambda x: x.count("a") == 4 or x.count("b") == 2)(
            list(A.choose(B, weights=[0.9, 0.1], stop="first", seed=1))
        ),
        True,
    ),
    Case(
        "a weighted sampler ends with the last dataset",
        "MultiNodeWeightedSampler(nodes, w, ALL_DATASETS_EXHAUSTED)",
        lambda: sorted(A.choose(B, weights=[0.9, 0.1])),
        list("aaaabb"),
    ),
    Case(
        "a weighted sampler cycles until all have ended",
        "MultiNodeWeightedSampler(nodes, w, CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED)",
        lambda: (lambda x: x.count("a") >= 4 and x.count("b") >= 2)(
            list(A.choose(B, weights=[0.9, 0.1], stop="all"))
        ),
        True,
    ),
    Case(
        "a weighted sampler cycles forever",
        "MultiNodeWeightedSampler(nodes, w, CYCLE_FOREVER)",
        lambda: len(list(A.repeat().choose(B.repeat(), weights=[0.9, 0.1]).take(100))),
        100,
    ),
    Case(
        "weights must have the keys of the datasets",
        "MultiNodeWeightedSampler(nodes, other keys)",
        lambda: fl.choose(TAGGED, weights={"a": 1.0}),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "weights must not be negative",
        "MultiNodeWeightedSampler(nodes, {'a': -1, ...})",
        lambda: A.choose(B, weights=[-1, 1]),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "a weighted sampler names datasets",
        "MultiNodeWeightedSampler(nodes, w, tag_output=True)",
        lambda: sorted(fl.choose(TAGGED, weights={"a": 1.0, "b": 1.0}, with_names=True)),
        [("a", "x"), ("a", "y"), ("b", "z")],
    ),
    Case(
        "each epoch has other draws",
        "sampler.reset() for the next epoch",
        lambda: (lambda flow: list(flow) != list(flow.epoch(1)))(
            fl.from_range(20).choose(fl.from_range(20))
        ),
        True,
    ),
    Case(
        "ranks read other elements",
        "MultiNodeWeightedSampler(..., rank=r, world_size=2)",
        lambda: sorted(x for r in range(2) for x in TEN.choose(TEN.map(lambda i: -i)).shard(2, r)),
        sorted([*range(10), *(-i for i in range(10))]),
    ),
)
def test_nodes_have_the_outcome_of_torchdata(case: Case) -> None:
    check(case)
