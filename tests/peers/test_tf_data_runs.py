"""Checkpoints, caches and files of tf.data."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, check_resumes, plain, table

TEN = fl.from_range(10)
RAGGED = fl.from_items([[1], [2, 3], [4, 5, 6], [7]])


@table(
    *(
        Case(name, "iterator.save() and restore()", lambda flow=flow: flow, None)
        for name, flow in {
            "batch": TEN.batch(3),
            "cache": TEN.cache(),
            "choose": TEN.choose(TEN, weights=[2, 1]),
            "concat": TEN.concat(TEN),
            "enumerate": TEN.enumerate(),
            "filter": TEN.filter(lambda i: i % 2 == 0),
            "flat_map": TEN.flat_map(range),
            "group": TEN.batch_by_key(3, lambda i: i % 2),
            "interleave": TEN.interleave_map(range, cycle=3, block=2),
            "map": TEN.map(lambda i: -i),
            "padded batch": RAGGED.padded_batch(2),
            "prefetch": TEN.prefetch(threads=2),
            "random map": TEN.random_map(lambda i, rng: i + int(rng.integers(9))),
            "repeat": TEN.repeat(3),
            "scan": TEN.scan(lambda s, i: (s + i, s + i), 0),
            "shard": TEN.shard(3, 1),
            "shuffle": TEN.shuffle(seed=1).repeat(2),
            "shuffle in a buffer": TEN.shuffle(buffer=3, seed=1),
            "skip": TEN.skip(3),
            "take": TEN.take(8),
            "take_while": TEN.take_while(lambda i: i < 8),
            "unbatch": TEN.batch(3).unbatch(),
            "window": TEN.window(3),
            "zip": TEN.zip(TEN.map(lambda i: -i)),
            "a generator": fl.from_iterable(lambda: range(10)),
        }.items()
    )
)
def test_a_run_is_saved_and_restored_as_in_tf_data(case: Case) -> None:
    flow = case.ours()
    assert isinstance(flow, fl.Flow)
    check_resumes(flow, (0, 1, 2))


def test_a_second_pass_reads_the_cache() -> None:
    """tf.data: ds.map(f).cache(), twice."""
    calls: list[int] = []
    cached = fl.from_range(3).map(lambda i: calls.append(i) or i).cache()  # type: ignore[func-returns-value]
    assert list(cached) == list(cached) == [0, 1, 2] == calls


def test_a_pass_that_was_left_early_is_not_cached() -> None:
    """tf.data: next(iter(ds.cache())), then a whole pass."""
    cached = fl.from_range(3).cache()
    next(iter(cached))
    assert list(cached) == [0, 1, 2]


def test_a_generator_is_closed_when_its_pass_is_left() -> None:
    """tf.data: from_generator, whose finalize runs when the iterator is deleted."""
    closed: list[bool] = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(True)

    assert fl.from_iterable(numbers).take(2).collect() == [0, 1]
    assert closed == [True]


def test_elements_have_a_spec() -> None:
    """tf.data: ds.element_spec."""
    flow = fl.from_items({"x": np.zeros((4, 2), np.float32), "y": np.arange(4)}).batch(
        2, drop_remainder=True
    )
    assert str(flow.spec) == "{x: float32[2, 2], y: int64[2]}"


def squares(path: Path) -> fl.Flow[int, fl.Exact]:
    return fl.from_range(4).map(lambda i: i * i).cache(path / "squares.lmdb")


def lines(folder: Path) -> list[Path]:
    """Two files of text, one of them compressed, and one of TFRecords."""
    (folder / "a.txt").write_text("one\ntwo\n")
    with gzip.open(folder / "b.txt.gz", "wt") as file:
        file.write("three\n")
    return [folder / "a.txt", folder / "b.txt.gz"]


def table_file(folder: Path) -> Path:
    (folder / "t.csv").write_text('a,b,c\n1,2.5,"x,y"\n2,,z\n')
    return folder / "t.csv"


def records(folder: Path, compression: Literal["gzip"] | None = None, name: str = "r") -> Path:
    path = folder / f"{name}.tfrecord"
    fl.from_items([b"x", b"y", b"z"]).write_tfrecord(path, compression=compression)
    return path


@table(
    Case(
        "lines of text files",
        "TextLineDataset([a, b])",
        lambda d: fl.from_text(lines(d)[:1]),
        ["one", "two"],
    ),
    Case(
        "lines of a compressed file",
        'TextLineDataset(b, compression_type="GZIP")',
        lambda d: fl.from_text(lines(d)[1]),
        ["three"],
    ),
    Case(
        "lines of several files",
        "TextLineDataset(files)",
        lambda d: fl.from_text(lines(d)),
        ["one", "two", "three"],
    ),
    Case(
        "lines without the header",
        "TextLineDataset(f).skip(1)",
        lambda d: fl.from_text(lines(d)).skip(1),
        ["two", "three"],
    ),
    Case(
        "lines of files in turns",
        "list_files(p).interleave(TextLineDataset)",
        lambda d: fl.from_files(str(lines(d)[0].parent / "*.txt*")).interleave_map(
            fl.from_text, cycle=2
        ),
        ["one", "three", "two"],
    ),
    Case(
        "files that match a pattern",
        'list_files("*.txt")',
        lambda d: fl.from_files(str(lines(d)[0].parent / "*.txt")).map(lambda p: Path(p).name),
        ["a.txt"],
    ),
    Case(
        "files that match several patterns",
        "list_files([p, q])",
        lambda d: fl.from_files([str(p) for p in lines(d)]).map(lambda p: Path(p).name),
        ["a.txt", "b.txt.gz"],
    ),
    Case(
        "a pattern without files is refused",
        'list_files("*.png")',
        lambda d: fl.from_files(str(d / "*.png")),
        Refusal(fl.SourceError, "no file matches"),
    ),
    Case(
        "files are shuffled",
        "list_files(p, shuffle=True, seed=1)",
        lambda d: sorted(
            fl.from_files([str(p) for p in lines(d)]).shuffle(seed=1).map(lambda p: Path(p).name)
        ),
        ["a.txt", "b.txt.gz"],
    ),
    Case(
        "records of a file",
        "TFRecordDataset(f)",
        lambda d: fl.from_tfrecord(records(d)),
        [b"x", b"y", b"z"],
    ),
    Case(
        "records of several files",
        "TFRecordDataset([f, f])",
        lambda d: fl.from_tfrecord([records(d), records(d, None, "s")]),
        [b"x", b"y", b"z"] * 2,
    ),
    Case(
        "records of a compressed file",
        'TFRecordDataset(f, compression_type="GZIP")',
        lambda d: fl.from_tfrecord(records(d, "gzip"), compression="gzip"),
        [b"x", b"y", b"z"],
    ),
    Case(
        "records of fixed length",
        "FixedLengthRecordDataset(f, 2, header_bytes=1, footer_bytes=1)",
        lambda d: (
            (d / "f.bin").write_bytes(b"<aabbcc>"),
            fl.from_items(np.memmap(d / "f.bin", "S2", "r", 1, (3,))).collect(),
        )[1],
        [b"aa", b"bb", b"cc"],
    ),
    Case(
        "rows of a table",
        "CsvDataset(f, [int, float, str], header=True)",
        lambda d: fl.from_csv(table_file(d), columns=["a", "c"]),
        [{"a": "1", "c": "x,y"}, {"a": "2", "c": "z"}],
    ),
    Case(
        "a field has a default",
        "CsvDataset(f, record_defaults=[...])",
        lambda d: fl.from_csv(table_file(d)).map(lambda row: float(row["b"] or "-1")),
        [2.5, -1.0],
    ),
    Case(
        "columns are batches and a label",
        'make_csv_dataset(f, 2, label_name="a")',
        lambda d: (
            fl.from_csv(table_file(d)).map(lambda row: ({"c": row["c"]}, int(row["a"]))).batch(2)
        ),
        [({"c": ["x,y", "z"]}, [1, 2])],
    ),
    Case(
        "a table has another delimiter and no header",
        'CsvDataset(f, field_delim="|")',
        lambda d: (
            (d / "p.csv").write_text("1|2\n"),
            fl.from_csv(d / "p.csv", delimiter="|", header=False).collect(),
        )[1],
        [("1", "2")],
    ),
    Case(
        "a row with too few fields is refused",
        "CsvDataset of a short row",
        lambda d: ((d / "s.csv").write_text("a,b\n1\n"), fl.from_csv(d / "s.csv").collect()),
        Refusal(fl.FlowError, "s.csv"),
    ),
    Case(
        "a dataset is saved and loaded",
        "ds.save(p), Dataset.load(p)",
        lambda d: (TEN.write_lmdb(d / "x.lmdb"), fl.from_lmdb(d / "x.lmdb", int).collect())[1],
        list(range(10)),
    ),
    Case(
        "a dataset is saved in shards",
        "ds.save(p, shard_func=f)",
        lambda d: (
            [TEN.shard(2, i).write_lmdb(d / f"{i}.lmdb") for i in range(2)],
            fl.interleave([fl.from_lmdb(d / f"{i}.lmdb", int) for i in range(2)]).collect(),
        )[1],
        list(range(10)),
    ),
    Case(
        "a second program reads the snapshot",
        "snapshot(p), cache(p)",
        lambda d: (list(squares(d)), list(squares(d))),
        ([0, 1, 4, 9], [0, 1, 4, 9]),
    ),
)
def test_files_have_the_outcome_of_tf_data(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


class Example(NamedTuple):
    x: NDArray[np.float32]
    y: int = -1


def test_examples_are_parsed_and_a_missing_feature_has_a_default() -> None:
    """tf.data: ds.apply(parse_example_dataset(features)).batch(2)."""
    rows = [{"x": np.arange(2.0, dtype=np.float32), "y": 7}, {"x": np.ones(2, np.float32)}]
    flow = fl.from_items([fl.to_example(row) for row in rows]).map(fl.parse_example(Example))
    assert plain(flow.batch(2)) == [([[0.0, 1.0], [1.0, 1.0]], [7, -1])]
