"""Strategies for all operators and sources; ``test_laws`` fails if one is missing."""

from __future__ import annotations

from hypothesis import strategies as st

from flowdsl.testing import standard
from flowdsl.testing.catalogue import Catalogue, Draw, DrawOperator, DrawSource, Theme
from flowdsl.testing.combining import zip_named
from flowdsl.testing.operators import a_row, can_skip, map_failing
from flowdsl.testing.recipes import Recipe
from tests.operators import (
    combining,
    grouping,
    mapping,
    packing,
    placing,
    rows,
    sizing,
    sources,
    windows,
)

SOURCES: dict[str, DrawSource] = {
    **standard.SOURCES,
    "AttemptToRead": sources.attempt_to_read,
    "AttemptToReadHere": sources.attempt_to_read_here,
    "Fake": sources.fake,
    "FromCsv": sources.from_csv,
    "FromCompressedTFRecord": sources.from_compressed_tfrecord,
    "FromArrayRecord": sources.from_arrayrecord,
    "FromCaffeLmdb": sources.from_caffe_lmdb,
    "FromFiles": sources.from_files,
    "FromHdf5": sources.from_hdf5,
    "FromImages": sources.from_images,
    "FromLmdb": sources.from_lmdb,
    "FromNpy": sources.from_npy,
    "FromNpz": sources.from_npz,
    "FromSvmlight": sources.from_svmlight,
    "FromText": sources.from_text,
    "FromTFRecord": sources.from_tfrecord,
    "FromParquet": sources.from_parquet,
    "FromWebDataset": sources.from_webdataset,
    "FromLmdbRaw": sources.from_lmdb_raw,
    "FromTensorpackLmdb": sources.from_tensorpack_lmdb,
}

OPERATORS: dict[str, DrawOperator] = {
    **standard.OPERATORS,
    "Attempt": placing.attempt,
    "AttemptToCount": placing.attempt_to_count,
    "AttemptToFilter": placing.attempt_to_filter,
    "Augment": mapping.augment,
    "BatchByKey": grouping.batch_by_key,
    "BatchByShape": grouping.batch_by_shape,
    "BucketByLength": grouping.bucket_by_length,
    "Choose": combining.choose,
    "ChooseAll": combining.choose_all,
    "ChooseFirst": combining.choose_first,
    "FilledBatch": grouping.filled_batch,
    "FilterMap": mapping.filter_map,
    "FixedSize": sizing.fixed_size,
    "Inspect": mapping.inspect,
    "Interleave": combining.interleave,
    "InterleaveAll": combining.interleave_all,
    "InterleaveFirst": combining.interleave_first,
    "InterleaveMap": combining.interleave_map,
    "MapComponent": mapping.map_component,
    "Mix": combining.mix,
    "Named": combining.named,
    "PackConcatenated": packing.pack_concatenated,
    "PackWhole": packing.pack_whole,
    "PaddedBatch": grouping.padded_batch,
    "RepeatEach": sizing.repeat_each,
    "Replicate": placing.replicate,
    "Backwards": rows.backwards,
    "Every": rows.every,
    "Sample": rows.sample,
    "Scan": mapping.scan,
    "Select": mapping.select,
    "SkipWhile": mapping.skip_while,
    "TakeWhile": mapping.take_while,
    "SelectRows": rows.select_rows,
    "WeightedSample": rows.weighted_sample,
    "EvenShard": sizing.even_shard,
    "Shard": sizing.shard,
    "Split": sizing.split,
    "StackedWindow": windows.stacked_window,
    "StarMap": mapping.starmap,
    "Unbatch": grouping.unbatch,
    "Unordered": placing.unordered,
    "Window": windows.window,
    "WindowByKey": windows.window_by_key,
    "ZipNamed": zip_named,
}

ELSEWHERE = ("Threads", "Unordered")
"""Entries that are not nodes in ``flowdsl.ops``: an argument, and one of the kinds."""

BY_THEMSELVES = {
    "CacheRows": "tests/ops/test_cache_file.py: a source, whose file is written by a run",
    "CacheStream": "tests/ops/test_cache_file.py: as CacheRows",
    "FromTable": "tests/ops/test_tables.py: it keeps the laws of sources",
    "Latest": "tests/ops/test_live.py: its elements depend on time",
    "Merge": "tests/ops/test_live.py: its order depends on time",
}
"""Nodes that no random chain has, and the tests of their own."""

_RESHAPING = frozenset(
    (
        *("Attempt", "AttemptToCount", "BatchByKey", "BatchByShape", "BucketByLength", "Choose"),
        *("ChooseAll", "ChooseFirst"),
        *(
            "FilledBatch",
            "InterleaveAll",
            "InterleaveFirst",
            "MapComponent",
            "Mix",
            "Named",
            "PackConcatenated",
            "PackWhole",
            "PaddedBatch",
            "Select",
            "StarMap",
            "Unbatch",
            "Window",
            "WindowByKey",
            "ZipNamed",
        ),
    )
)
_GROUPING = ("Batch", "PaddedBatch", "Window")
_OF_FILES = frozenset(
    (
        *("FromArrayRecord", "FromCaffeLmdb", "FromCompressedTFRecord", "FromCsv", "FromHdf5"),
        *("FromImages", "FromLmdbRaw", "FromNpy", "FromNpz", "FromParquet", "FromSvmlight"),
        *("FromTFRecord", "FromTensorpackLmdb", "FromWebDataset"),
    )
)

THEMES: tuple[Theme, ...] = (
    # workers are supplied from what never ends, and must not ask beyond where it is cut
    (
        "FromItems",
        (
            ("RepeatForever",),
            ("Map",),
            ("RepeatEach", "Skip", *_GROUPING),
            ("Take",),
            ("RepeatEach", "Skip", *_GROUPING),
        ),
    ),
    # positions have gaps, also where they are kept
    (
        None,
        (
            ("Filter", "FilterMap"),
            ("Cache", "Inspect", "Map", "Take"),
            ("Enumerate", "RandomMap", *_GROUPING),
            ("Map",),
        ),
    ),
    # workers are supplied from several places in memory
    (
        "FromItems",
        (
            ("Map", "RandomMap"),
            ("Choose", "Concat", "Interleave", "InterleaveAll", "Mix", "Zip"),
            ("RepeatEach", "Shuffle", *_GROUPING),
        ),
    ),
    # elements of several epochs stand side by side
    (
        "FromRange",
        (("Map", "RandomMap", "Shuffle"), ("Repeat", "RepeatForever"), ("RepeatEach", *_GROUPING)),
    ),
    # what is exact still is parted, and only then moved
    (
        None,
        (
            ("Cache", "Enumerate", "RandomMap", "Skip"),
            ("Split",),
            ("Cache", "Repeat", "RepeatForever", "Shuffle"),
            ("Map", *_GROUPING),
        ),
    ),
)
"""Sources and operators that belong together, but are rarely drawn in sequence."""

CATALOGUE = Catalogue(
    SOURCES,
    OPERATORS,
    standard.ONE_PASS,
    standard.RESHAPING | _RESHAPING,
    standard.REORDERING
    | {"InterleaveMap", "Backwards", "Sample", "SelectRows", "Unordered", "WeightedSample"},
    THEMES,
    slow=_OF_FILES,
)
chains = CATALOGUE.chains


@st.composite
def skipping(draw: Draw, most: int = 4) -> Recipe:
    """A chain that fails at some rows, and reads only the rows it needs."""
    recipe = draw(
        CATALOGUE.source_recipes(
            draw(st.sampled_from([None, "FromItems", "FromIterable", "FromLmdb"]))
        )
    )
    for name in draw(st.lists(st.sampled_from(_TAKING_ALL), max_size=most)):
        longer = map_failing(recipe, a_row(draw, recipe)) if draw(st.booleans()) else recipe
        longer = OPERATORS[name](draw, longer)
        recipe = longer if can_skip(longer) else recipe
    return recipe


_TAKING_ALL = (
    *("Attempt", "Batch", "Concat", "Enumerate", "Filter", "FilterMap", "FlatMap", "Inspect"),
    *("Map", "Prefetch", "RandomMap", "Repeat", "RepeatEach", "Replicate", "Select", "Shuffle"),
    *("Unbatch", "WindowShuffle"),
)
