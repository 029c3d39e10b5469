"""Batches, groups and windows of tf.data."""

from __future__ import annotations

import numpy as np

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

TEN = fl.from_range(10)
PAIRS = fl.from_items([(1, "a"), (2, "b"), (3, "c")])
RAGGED = fl.from_items([[1], [2, 3], [4, 5, 6], [7]])


@table(
    Case(
        "batch keeps the rest",
        "range(10).batch(4)",
        lambda: TEN.batch(4),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    ),
    Case(
        "batch drops the rest",
        "range(10).batch(4, drop_remainder=True)",
        lambda: TEN.batch(4, drop_remainder=True),
        [[0, 1, 2, 3], [4, 5, 6, 7]],
    ),
    Case(
        "a batch larger than the dataset has all of it",
        "range(3).batch(10)",
        lambda: fl.from_range(3).batch(10),
        [[0, 1, 2]],
    ),
    Case(
        "nothing is left of a batch larger than the dataset",
        "range(3).batch(10, drop_remainder=True)",
        lambda: fl.from_range(3).batch(10, drop_remainder=True),
        [],
    ),
    Case(
        "an empty dataset has no batches",
        "range(0).batch(3)",
        lambda: fl.from_range(0).batch(3),
        [],
    ),
    Case(
        "a batch of none is refused",
        "range(3).batch(0)",
        lambda: fl.from_range(3).batch(0),
        Refusal(fl.InvalidFlow, "batch: n must be"),
    ),
    Case(
        "components of tuples are batched each",
        "from_tensor_slices((x, y)).batch(2)",
        lambda: PAIRS.batch(2),
        [([1, 2], ["a", "b"]), ([3], ["c"])],
    ),
    Case(
        "components of dicts are batched each",
        "from_tensor_slices({...}).batch(2)",
        lambda: fl.from_items({"x": np.arange(3), "y": np.arange(3) * 2}).batch(2),
        [{"x": [0, 1], "y": [0, 2]}, {"x": [2], "y": [4]}],
    ),
    Case(
        "batches are batched",
        "range(8).batch(2).batch(2)",
        lambda: fl.from_range(8).batch(2).batch(2),
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
    ),
    Case(
        "rows of different shapes do not stack",
        "from_generator(ragged).batch(3)",
        lambda: RAGGED.batch(3),
        Refusal(fl.ElementError, "row"),
    ),
    Case(
        "rows of different shapes are batched without padding",
        "ds.ragged_batch(2), dense_to_ragged_batch(2)",
        lambda: RAGGED.batch(2, collate=list),
        [[[1], [2, 3]], [[4, 5, 6], [7]]],
    ),
    Case(
        "a parallel batch has the same rows",
        "range(10).batch(4, num_parallel_calls=2)",
        lambda: TEN.batch(4).prefetch(threads=2),
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
    ),
    Case(
        "map_and_batch maps, then batches",
        "apply(map_and_batch(f, 3))",
        lambda: fl.from_range(5).map(lambda i: i * i).batch(3),
        [[0, 1, 4], [9, 16]],
    ),
    Case(
        "a batch becomes its rows",
        "ds.unbatch()",
        lambda: fl.from_items(np.arange(6).reshape(3, 2)).unbatch(),
        [0, 1, 2, 3, 4, 5],
    ),
    Case(
        "a batch of tuples becomes its rows",
        "ds.unbatch()",
        lambda: PAIRS.batch(2).unbatch(),
        [(1, "a"), (2, "b"), (3, "c")],
    ),
    Case(
        "a batch of dicts becomes its rows",
        "ds.unbatch()",
        lambda: fl.from_items([{"x": [1, 2], "y": [3, 4]}]).unbatch(),
        [{"x": 1, "y": 3}, {"x": 2, "y": 4}],
    ),
    Case(
        "empty batches become no rows",
        "ds.unbatch()",
        lambda: fl.from_items([[1], [], [2]]).unbatch(),
        [1, 2],
    ),
    Case(
        "unbatch takes one axis",
        "ds.unbatch()",
        lambda: fl.from_items(np.arange(8).reshape(2, 2, 2)).unbatch().take(2),
        [[0, 1], [2, 3]],
    ),
    Case(
        "components of different lengths do not unbatch",
        "from_tensors((arange(7), arange(8))).unbatch()",
        lambda: fl.from_items([([1, 2], [1, 2, 3])]).unbatch(),
        Refusal(fl.ElementError, "unbatch"),
    ),
    Case(
        "rebatch makes batches of another size",
        "range(10).batch(4).rebatch(3)",
        lambda: TEN.batch(4).unbatch().batch(3),
        [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]],
    ),
    Case(
        "rebatch drops the rest",
        "ds.rebatch(3, drop_remainder=True)",
        lambda: TEN.batch(4).unbatch().batch(3, drop_remainder=True),
        [[0, 1, 2], [3, 4, 5], [6, 7, 8]],
    ),
)
def test_batching_has_the_outcome_of_tf_data(case: Case) -> None:
    check(case)


def bucketed(rows: list[list[int]]) -> list[list[int]]:
    """Pad to one less than the boundary of the bucket, of 2, 4 and 8."""
    longest = next(edge for edge in (2, 4, 8) if edge > max(map(len, rows))) - 1
    return [row + [0] * (longest - len(row)) for row in rows]


@table(
    Case(
        "rows are padded to the longest of a batch",
        "ds.padded_batch(2)",
        lambda: RAGGED.padded_batch(2),
        [[[1, 0], [2, 3]], [[4, 5, 6], [7, 0, 0]]],
    ),
    Case(
        "rows are padded to a fixed shape",
        "padded_batch(4, padded_shapes=[4])",
        lambda: RAGGED.padded_batch(4, length=4),
        [[[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0], [7, 0, 0, 0]]],
    ),
    Case(
        "a row longer than the fixed shape is refused",
        "padded_batch(4, padded_shapes=[2])",
        lambda: RAGGED.padded_batch(4, length=2),
        Refusal(fl.ElementError, "length"),
    ),
    Case(
        "rows are padded with a value",
        "padded_batch(2, padding_values=-1)",
        lambda: RAGGED.padded_batch(2, padding=-1),
        [[[1, -1], [2, 3]], [[4, 5, 6], [7, -1, -1]]],
    ),
    Case(
        "components are padded with values of their own",
        "padded_batch(2, padding_values=(-1, -2.0))",
        lambda: fl.from_items([([1], [1.0, 2.0]), ([3, 4], [5.0])]).padded_batch(
            2, padding=(-1, -2.0)
        ),
        [([[1, -1], [3, 4]], [[1.0, 2.0], [5.0, -2.0]])],
    ),
    Case(
        "components are padded to shapes of their own",
        "padded_batch(2, padded_shapes=([3], [None]))",
        lambda: fl.from_items([([1], [1]), ([3, 4], [5])]).padded_batch(2, length=(3, None)),
        [([[1, 0, 0], [3, 4, 0]], [[1], [5]])],
    ),
    Case(
        "a padding value of another dtype is refused",
        "padded_batch(2, padding_values=0.5)",
        lambda: RAGGED.padded_batch(2, padding=0.5),
        Refusal(fl.FlowError, "padding"),
    ),
    Case(
        "text is padded with nothing",
        "padded_batch(2) of strings",
        lambda: fl.from_items([np.array(["a"]), np.array(["b", "c"])]).padded_batch(2),
        [[["a", ""], ["b", "c"]]],
    ),
    Case(
        "all axes are padded",
        "padded_batch(2, padded_shapes=[None, None])",
        lambda: fl.from_items([np.ones((1, 2), int), np.ones((2, 1), int)]).padded_batch(2),
        [[[[1, 1], [0, 0]], [[1, 0], [1, 0]]]],
    ),
    Case(
        "later axes are padded to a fixed shape",
        "padded_batch(2, padded_shapes=[1, 3])",
        lambda: (
            fl.from_items([np.ones((1, 2), int)])
            .map(lambda x: np.pad(x, ((0, 0), (0, 3 - x.shape[1]))))
            .padded_batch(2)
        ),
        [[[[1, 1, 0]]]],
    ),
    Case(
        "a padded batch drops the rest",
        "padded_batch(3, drop_remainder=True)",
        lambda: RAGGED.padded_batch(3, drop_remainder=True),
        [[[1, 0, 0], [2, 3, 0], [4, 5, 6]]],
    ),
    Case(
        "rows of different ranks are not padded",
        "padded_batch of ranks 1 and 2",
        lambda: fl.from_items([np.ones(2), np.ones((2, 2))]).padded_batch(2),
        Refusal(fl.ElementError, "row"),
    ),
    Case(
        "each bucket has a batch size",
        "bucket_by_sequence_length(len, [2, 3], [2, 1, 1])",
        lambda: RAGGED.bucket_by_length(len, [2, 3], [2, 1, 1]),
        [[[2, 3]], [[4, 5, 6]], [[1], [7]]],
    ),
    Case(
        "buckets drop what is left",
        "bucket_by_sequence_length(..., drop_remainder=True)",
        lambda: RAGGED.bucket_by_length(len, [2], [2, 3], drop_remainder=True),
        [[[1], [7]]],
    ),
    Case(
        "buckets are not padded",
        "bucket_by_sequence_length(..., no_padding=True)",
        lambda: RAGGED.bucket_by_length(len, [4], [4, 1], collate=list),
        [[[1], [2, 3], [4, 5, 6], [7]]],
    ),
    Case(
        "buckets are padded to their boundary",
        "bucket_by_sequence_length(..., pad_to_bucket_boundary=True)",
        lambda: RAGGED.bucket_by_length(len, [2, 4, 8], 2, collate=bucketed),
        [[[2, 3, 0], [4, 5, 6]], [[1], [7]]],
    ),
    Case(
        "buckets are padded with a value",
        "bucket_by_sequence_length(..., padding_values=-1)",
        lambda: RAGGED.bucket_by_length(len, [], 4, padding=-1),
        [[[1, -1, -1], [2, 3, -1], [4, 5, 6], [7, -1, -1]]],
    ),
    Case(
        "tuples are bucketed by one component",
        "bucket_by_sequence_length(lambda x, y: len(x), ...)",
        lambda: fl.from_items([([1, 2], 0), ([3], 1)]).bucket_by_length(lambda x: len(x[0]), [], 2),
        [([[1, 2], [3, 0]], [0, 1])],
    ),
    Case(
        "boundaries that do not increase are refused",
        "bucket_by_sequence_length(len, [3, 2], 1)",
        lambda: RAGGED.bucket_by_length(len, [3, 2], 1),
        Refusal(fl.InvalidFlow, "boundaries"),
    ),
    Case(
        "batch sizes must fit the boundaries",
        "bucket_by_sequence_length(len, [3], [1])",
        lambda: RAGGED.bucket_by_length(len, [3], [1]),
        Refusal(fl.InvalidFlow, "batch_sizes"),
    ),
    Case(
        "groups have a window of one size",
        "group_by_window(lambda x: x % 2, reduce, 2)",
        lambda: TEN.batch_by_key(3, lambda i: i % 2),
        [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]],
    ),
    Case(
        "groups are reduced",
        "group_by_window(key, lambda k, ds: ds.reduce(...), 3)",
        lambda: TEN.batch_by_key(3, lambda i: i % 2, collate=sum),
        [6, 9, 14, 16],
    ),
    Case(
        "the size of a window depends on its key",
        "group_by_window(..., window_size_func=f)",
        lambda: TEN.bucket_by_length(lambda i: i % 2, [1], [2, 5], collate=list),
        [[0, 2], [4, 6], [1, 3, 5, 7, 9], [8]],
    ),
    Case(
        "groups of an empty dataset are none",
        "range(0).group_by_window(...)",
        lambda: fl.from_range(0).batch_by_key(3, lambda i: i % 2),
        [],
    ),
    Case(
        "each key is reduced at the end",
        "group_by_reducer(key, Reducer(...))",
        lambda: TEN.batch_by_key(10**9, lambda i: i % 3, collate=sum),
        [18, 12, 15],
    ),
    Case(
        "a window has consecutive elements",
        "range(7).window(3)",
        lambda: fl.from_range(7).window(3, stride=3, remainder="keep"),
        [(0, 1, 2), (3, 4, 5), (6,)],
    ),
    Case(
        "windows overlap",
        "window(3, shift=1, drop_remainder=True)",
        lambda: fl.from_range(5).window(3),
        [(0, 1, 2), (1, 2, 3), (2, 3, 4)],
    ),
    Case(
        "a window has every other element",
        "window(3, shift=1, stride=2, drop_remainder=True)",
        lambda: fl.from_range(6).window(3, dilation=2),
        [(0, 2, 4), (1, 3, 5)],
    ),
    Case(
        "windows keep what is left",
        "window(3, shift=2)",
        lambda: fl.from_range(5).window(3, stride=2, remainder="keep"),
        [(0, 1, 2), (2, 3, 4), (4,)],
    ),
    Case(
        "windows skip elements",
        "window(2, shift=4)",
        lambda: fl.from_range(8).window(2, stride=4),
        [(0, 1), (4, 5)],
    ),
    Case(
        "a window larger than the dataset has all of it",
        "window(9)",
        lambda: fl.from_range(2).window(9, stride=9, remainder="keep"),
        [(0, 1)],
    ),
    Case(
        "windows are batched",
        "window(2).flat_map(lambda w: w.batch(2))",
        lambda: fl.from_range(4).window(2, stride=2, stack=True),
        [[0, 1], [2, 3]],
    ),
    Case(
        "windows of dicts are batched",
        "window(2).flat_map(zip of batches)",
        lambda: fl.from_items([{"x": 1}, {"x": 2}]).window(2, stack=True),
        [{"x": [1, 2]}],
    ),
    Case(
        "a window of none is refused",
        "window(0)",
        lambda: TEN.window(int("0")),
        Refusal(fl.InvalidFlow, "window: size must be"),
    ),
)
def test_padding_and_grouping_have_the_outcome_of_tf_data(case: Case) -> None:
    check(case)
