"""What the tests of Grain ask of datasets that are combined and packed, as flows."""

from __future__ import annotations

from typing import Any

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

EVEN, ODD = fl.from_items(range(0, 10, 2)), fl.from_items(range(1, 10, 2))
TEN = fl.from_range(10)


def packed(flow: fl.Flow[fl.Packed[Any], Any]) -> fl.Flow[Any, Any]:
    return flow.map(lambda row: (row.tokens, row.segment_ids, row.positions))


TEXTS = fl.from_items([[1, 1, 1], [2, 2], [3], [4, 4]])


def with_bos(row: fl.Packed[Any]) -> Any:
    """Write 100 over the first token of every sequence."""
    return np.where((row.positions == 0) & (row.segment_ids > 0), 100, row.tokens)


@table(
    Case(
        "zip pairs elements",
        "ZipMapDataset([a, b])",
        lambda: EVEN.zip(ODD).take(2),
        [(0, 1), (2, 3)],
    ),
    Case(
        "zip of dicts",
        'ZipMapDataset({"a": a, "b": b})',
        lambda: fl.zip({"a": EVEN, "b": ODD}).take(1),
        [{"a": 0, "b": 1}],
    ),
    Case(
        "a strict zip refuses a shorter one",
        "ZipIterDataset([a, b], strict=True)",
        lambda: fl.from_range(3).filter(lambda i: True).zip(fl.from_range(2)),
        Refusal(fl.FlowError, "zip"),
    ),
    Case(
        "a zip that is not strict ends with the shortest",
        "ZipIterDataset([a, b], strict=False)",
        lambda: fl.from_range(3).take(2).zip(fl.from_range(2)),
        [(0, 0), (1, 1)],
    ),
    Case(
        "datasets are concatenated",
        "MapDataset.concatenate([a, b])",
        lambda: fl.concat([EVEN, ODD]),
        [0, 2, 4, 6, 8, 1, 3, 5, 7, 9],
    ),
    Case(
        "a concatenation is repeated",
        "concatenate([a, b]).repeat(2)",
        lambda: fl.from_range(1).concat(fl.from_items([7])).repeat(2),
        [0, 7, 0, 7],
    ),
    Case(
        "a concatenation is sliced",
        "concatenate([a, b]).slice(slice(4, 7))",
        lambda: EVEN.concat(ODD)[4:7],
        [8, 1, 3],
    ),
    Case(
        "an endless dataset is not concatenated",
        "concatenate([a.repeat(), b])",
        lambda: fl.concat([EVEN.repeat(), ODD]).take(1),
        Refusal(fl.FlowError, "end"),
    ),
    Case(
        "mix takes turns",
        "MapDataset.mix([a, b])",
        lambda: EVEN.interleave(ODD, stop="first"),
        list(range(10)),
    ),
    Case(
        "mix has whole proportions",
        "MapDataset.mix([a, b], [1, 2])",
        lambda: EVEN.interleave(ODD, weights=[1, 2], stop="first").collect().count(1),
        1,
    ),
    Case(
        "mix has shares",
        "MapDataset.mix([a, b], [0.75, 0.25])",
        lambda: sorted(EVEN.repeat().interleave(ODD.repeat(), weights=[0.75, 0.25]).take(8)),
        sorted([0, 2, 4, 6, 8, 0, 1, 3]),
    ),
    Case(
        "mix keeps its proportions over endless datasets",
        "mix([zeros, ones], [4, 1])",
        lambda: (
            fl.from_items([0])
            .repeat()
            .interleave(fl.from_items([1]).repeat(), weights=[4, 1])
            .take(1000)
            .collect()
            .count(1)
        ),
        200,
    ),
    Case(
        "a mixture is mixed",
        "mix([mix([zeros, ones], [4, 1]), ones])",
        lambda: (
            fl.from_items([0])
            .repeat()
            .interleave(fl.from_items([1]).repeat(), weights=[4, 1])
            .interleave(fl.from_items([1]).repeat())
            .take(1000)
            .collect()
            .count(1)
        ),
        600,
    ),
    Case(
        "mix ends with the first dataset",
        "IterDataset.mix([a, b])",
        lambda: fl.from_range(2).interleave(fl.from_items([7, 8, 9]), stop="first"),
        [0, 7, 1, 8],
    ),
    Case(
        "negative proportions are refused",
        "mix([a, b], [-1, 1])",
        lambda: EVEN.interleave(ODD, weights=[-1, 1]),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "proportions must be one for each",
        "mix([a, b], [1])",
        lambda: EVEN.interleave(ODD, weights=[1]),
        Refusal(fl.InvalidFlow, "weights"),
    ),
    Case(
        "a map of numbers selects elements",
        "select_from_datasets([a, b], selection_map)",
        lambda: EVEN.concat(ODD).select_rows([0, 5, 1, 6]),
        [0, 1, 2, 3],
    ),
    Case(
        "datasets of datasets are interleaved",
        "InterleaveIterDataset(ds, cycle_length=2)",
        lambda: fl.from_items([[1] * 3, [2] * 2, [3]]).interleave_map(list, cycle=2),
        [1, 2, 1, 2, 1, 3],
    ),
    Case(
        "interleave has fewer datasets than places",
        "InterleaveIterDataset(ds, cycle_length=5)",
        lambda: fl.from_items([[1, 1], [2]]).interleave_map(list, cycle=5),
        [1, 2, 1],
    ),
    Case(
        "interleave of one place is a concatenation",
        "InterleaveIterDataset(ds, cycle_length=1)",
        lambda: fl.from_items([[1, 1], [2]]).interleave_map(list, cycle=1),
        [1, 1, 2],
    ),
    Case(
        "sequences are joined and split",
        'ConcatThenSplitIterDataset(ds, {"x": 4})',
        lambda: packed(TEXTS.pack(4)),
        [([1, 1, 1, 2], [1, 1, 1, 2], [0, 1, 2, 0]), ([2, 3, 4, 4], [1, 2, 3, 3], [0, 0, 0, 1])],
    ),
    Case(
        "a sequence is split several times",
        'ConcatThenSplitIterDataset(ds, {"x": 2})',
        lambda: fl.from_items([[1, 2, 3, 4, 5]]).pack(2).map(lambda row: row.tokens),
        [[1, 2], [3, 4], [5, 0]],
    ),
    Case(
        "the first token of a sequence becomes another",
        "bos_handling=REPLACE_FIRST_TOKEN_WITH_BOS",
        lambda: TEXTS.pack(4).map(with_bos),
        [[100, 1, 1, 100], [100, 100, 100, 4]],
    ),
    Case(
        "sequences go where they fit first",
        'FirstFitPackIterDataset(ds, {"x": 4}, num_packing_bins=2)',
        lambda: packed(TEXTS.pack(4, "first_fit", bins=2)),
        [([1, 1, 1, 3], [1, 1, 1, 2], [0, 1, 2, 0]), ([2, 2, 4, 4], [1, 1, 2, 2], [0, 1, 0, 1])],
    ),
    Case(
        "sequences go where they fit best",
        'BestFitPackIterDataset(ds, {"x": 4}, num_packing_bins=2)',
        lambda: sorted(
            x.tolist() for x in TEXTS.pack(4, "best_fit", bins=2).map(lambda row: row.tokens)
        ),
        [[1, 1, 1, 3], [2, 2, 4, 4]],
    ),
    Case(
        "several features of equal length are packed",
        "FirstFitPackIterDataset(ds, {'x': 3, 'y': 3})",
        lambda: (
            fl.from_items([{"x": [1], "y": [5]}, {"x": [2], "y": [6]}])
            .pack(3)
            .map(lambda row: row.tokens)
        ),
        [{"x": [1, 2, 0], "y": [5, 6, 0]}],
    ),
    Case(
        "features of two dimensions are packed",
        "pack of arrays (length, 2)",
        lambda: (
            fl.from_items([np.ones((1, 2)), np.zeros((1, 2))]).pack(2).map(lambda row: row.tokens)
        ),
        [[[1.0, 1.0], [0.0, 0.0]]],
    ),
    Case(
        "a sequence that is too long is refused",
        "FirstFitPackIterDataset of a long sequence",
        lambda: TEXTS.pack(2, "first_fit"),
        Refusal(fl.ElementError, "pack"),
    ),
    Case(
        "packing pads with a value",
        "padding_struct={'x': -1}",
        lambda: fl.from_items([[1]]).pack(2, padding=-1).map(lambda row: row.tokens),
        [[1, -1]],
    ),
    Case(
        "packed rows are batched",
        "PackAndBatch(batch_size=2)",
        lambda: TEXTS.pack(4).batch(2).starmap(fl.Packed).map(lambda rows: rows.tokens),
        [[[1, 1, 1, 2], [2, 3, 4, 4]]],
    ),
    Case(
        "a pass is cached",
        "CacheIterDataset(ds)",
        lambda: TEN.cache().repeat(2),
        [*range(10), *range(10)],
    ),
    Case(
        "a limited cache repeats",
        "ds.limit(2).cache().repeat(2)",
        lambda: TEN.take(2).cache().repeat(2),
        [0, 1, 0, 1],
    ),
)
def test_combining_and_packing_have_the_outcome_of_grain(case: Case) -> None:
    check(case)
