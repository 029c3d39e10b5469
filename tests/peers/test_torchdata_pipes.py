"""What the tests of torchdata's DataPipes ask, as flows."""

from __future__ import annotations

import gzip
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import flowdsl as fl
from tests.peers.cases import Case, check, table

TEN = fl.from_range(10)
A, B, C = fl.from_items("aaaa"), fl.from_items("bb"), fl.from_items("c")
ROWS: list[dict[str, Any]] = [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
NAMES = {1: "one", 2: "two"}


def divided(n: int, k: int) -> fl.Flow[int, fl.Effect]:
    return TEN.filter(lambda i: i % n == k)


def joined(keys: fl.Flow[int, fl.Exact], pairs: fl.Flow[tuple[int, str], fl.Exact]) -> object:
    """Look each key up in a second flow, which is read once."""
    by_key = dict(pairs)
    return keys.map(lambda key: (key, by_key[key]))


@table(
    Case(
        "a flow is read twice",
        "fork(2)",
        lambda: (list(TEN.take(2)), list(TEN.take(2))),
        ([0, 1], [0, 1]),
    ),
    Case(
        "a flow is divided by a function",
        "demux(2, lambda x: x % 2)",
        lambda: [divided(2, k) for k in range(2)],
        [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]],
    ),
    Case(
        "a flow is divided in turns",
        "round_robin_demux(3)",
        lambda: [list(TEN.shard(3, i)) for i in range(3)],
        [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]],
    ),
    Case(
        "tuples are divided",
        "unzip(2)",
        lambda: [list(fl.from_items([(1, "a"), (2, "b")]).map(pick)) for pick in (fl.c0, fl.c1)],
        [[1, 2], ["a", "b"]],
    ),
    Case("flows are concatenated", "concat(b)", lambda: B.concat(C), list("bbc")),
    Case("flows are zipped", "zip(b)", lambda: B.zip(fl.from_range(2)), [("b", 0), ("b", 1)]),
    Case(
        "flows take turns until one ends",
        "mux(b)",
        lambda: A.interleave(B, stop="first"),
        list("ababa"),
    ),
    Case("flows take turns to the end", "mux_longest(b)", lambda: A.interleave(B), list("ababaa")),
    Case(
        "flows are drawn by weight",
        "SampleMultiplexer({a: 0.9, b: 0.1})",
        lambda: sorted(A.choose(B, weights=[0.9, 0.1])),
        list("aaaabb"),
    ),
    Case(
        "elements are looked up by key",
        "zip_with_map(map, key)",
        lambda: fl.from_items(ROWS).map(lambda row: {**row, "name": NAMES[row["k"]]})[0],
        {"k": 1, "v": "a", "name": "one"},
    ),
    Case(
        "two flows are joined by key",
        "zip_with_iter(b, key, ref_key)",
        lambda: joined(fl.from_items([2, 1]), fl.from_items([(1, "x"), (2, "y")])),
        [(2, "y"), (1, "x")],
    ),
    Case("elements are counted", "enumerate(10)", lambda: B.enumerate(10), [(10, "b"), (11, "b")]),
    Case(
        "dicts have their index",
        "add_index('i')",
        lambda: fl.from_items(ROWS).enumerate().starmap(lambda i, row: {**row, "i": i})[1],
        {"k": 2, "v": "b", "i": 1},
    ),
    Case(
        "a flow says its length",
        "set_length(3)",
        lambda: len(fl.from_iterable(lambda: range(9)).fixed_size(3)),
        3,
    ),
    Case(
        "elements are repeated", "repeat(2)", lambda: fl.from_range(2).repeat_each(2), [0, 0, 1, 1]
    ),
    Case("a flow is repeated", "cycle(2)", lambda: fl.from_range(2).repeat(2), [0, 1, 0, 1]),
    Case(
        "rows become columns",
        "rows2columnar(['k'])",
        lambda: fl.from_items(ROWS).select("k").batch(2),
        [{"k": [1, 2]}],
    ),
    Case(
        "a component is mapped",
        "map(f, input_col=0)",
        lambda: fl.from_items([(1, "a")]).map_component(lambda i: i + 1),
        [(2, "a")],
    ),
    Case(
        "a component is filtered by",
        "filter(f, input_col=0)",
        lambda: fl.from_items([(1, "a"), (2, "b")]).filter(lambda x: x[0] > 1),
        [(2, "b")],
    ),
    Case(
        "components are selected",
        "slice([0, 2])",
        lambda: fl.from_items([(1, 2, 3)]).select(fl.c0, fl.c2),
        [(1, 3)],
    ),
    Case(
        "keys are dropped",
        "drop('v')",
        lambda: fl.from_items(ROWS).select("k"),
        [{"k": 1}, {"k": 2}],
    ),
    Case(
        "nested tuples are flattened",
        "flatten()",
        lambda: fl.from_items([(1, (2, 3))]).map(lambda x: (x[0], *x[1])),
        [(1, 2, 3)],
    ),
    Case(
        "elements become several",
        "flatmap(f)",
        lambda: fl.from_range(3).flat_map(lambda i: [i, -i]),
        [0, 0, 1, -1, 2, -2],
    ),
    Case(
        "shuffled elements become several",
        "shuffled_flatmap(f)",
        lambda: sorted(fl.from_range(3).flat_map(lambda i: [i, -i]).shuffle(buffer=4)),
        [-2, -1, 0, 0, 1, 2],
    ),
    Case(
        "elements of a batch are shuffled",
        "in_batch_shuffle()",
        lambda: [sorted(x) for x in TEN.batch(5).random_map(lambda x, rng: rng.permutation(x))],
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
    ),
    Case(
        "elements are grouped by key",
        "groupby(key, group_size=2)",
        lambda: TEN.batch_by_key(2, lambda i: i % 3, collate=list),
        [[0, 3], [1, 4], [2, 5], [6, 9], [7], [8]],
    ),
    Case(
        "groups that are not full are dropped",
        "groupby(key, guaranteed_group_size=2, drop_remaining=True)",
        lambda: TEN.batch_by_key(2, lambda i: i % 3, drop_remainder=True),
        [[0, 3], [1, 4], [2, 5], [6, 9]],
    ),
    Case(
        "neighbours of one key are joined",
        "lines_to_paragraphs()",
        lambda: fl.from_iterable(lambda: itertools.groupby(fl.from_items("aab"), str)).map(
            lambda group: (group[0], len(list(group[1])))
        ),
        [("a", 2), ("b", 1)],
    ),
    Case(
        "batches have so many tokens",
        "max_token_bucketize(6)",
        lambda: (
            fl.from_items([[1] * 3, [2] * 2, [3] * 3])
            .bucket_by_length(len, [], max_tokens=6)
            .map(lambda x: x.shape)
        ),
        [(2, 3), (1, 3)],
    ),
    Case(
        "buckets are sorted",
        "bucketbatch(2, sort_key=len)",
        lambda: (
            fl.from_items(["aaa", "a", "bb", "b"])
            .batch(4, collate=lambda rows: sorted(rows, key=len))
            .unbatch()
            .batch(2)
        ),
        [["a", "b"], ["bb", "aaa"]],
    ),
    Case("a shard is filtered", "sharding_filter()", lambda: TEN.shard(4, 3), [3, 7]),
    Case(
        "parts are drawn at random",
        "random_split({'train': 0.8, 'valid': 0.2}, seed=0)",
        lambda: [len(part) for part in TEN.split(0.8, seed=0)],
        [8, 2],
    ),
    Case(
        "a flow is cached",
        "in_memory_cache()",
        lambda: TEN.cache().repeat(2).take(11),
        [*range(10), 0],
    ),
    Case(
        "names of shards expand",
        "shard_expand()",
        lambda: fl.from_iterable(lambda: [f"s{i}" for i in range(2)]),
        ["s0", "s1"],
    ),
    Case("a header ends the pass", "header(2)", lambda: TEN.take(2), [0, 1]),
    Case(
        "a condition ends the pass",
        "IterableWrapper(itertools.takewhile(f, ...))",
        lambda: TEN.take_while(lambda i: i < 2),
        [0, 1],
    ),
)
def test_pipes_have_the_outcome_of_torchdata(case: Case) -> None:
    check(case)


def archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w") as file:
        file.writestr("1.txt", "one")
        file.writestr("2.txt", "two")
    return folder / "a.zip"


def members(path: str) -> Any:
    with zipfile.ZipFile(path) as file:
        yield from ((name, file.read(name)) for name in file.namelist())


def tar(folder: Path) -> Path:
    fl.from_items([{"__key__": "a", "txt": "one"}]).write_webdataset(folder / "a.tar")
    return folder / "a.tar"


def text(folder: Path, content: str, name: str = "a.txt") -> Path:
    (folder / name).write_text(content)
    return folder / name


def zipped(folder: Path) -> Path:
    (folder / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    return folder / "a.txt.gz"


@table(
    Case(
        "files of a folder",
        "FileLister(folder, '*.txt')",
        lambda d: fl.from_files(f"{text(d, 'x').parent}/*.txt").map(lambda p: Path(p).name),
        ["a.txt"],
    ),
    Case(
        "files of a tree",
        "FileLister(folder, recursive=True)",
        lambda d: (
            fl.from_files(f"{text(d, 'x').parent.parent}/**/a.txt")
            .map(lambda p: Path(p).name)
            .take(1)
        ),
        ["a.txt"],
    ),
    Case(
        "files are opened",
        "FileOpener(files, mode='b')",
        lambda d: fl.from_files(str(text(d, "x"))).map(lambda p: Path(p).read_bytes()),
        [b"x"],
    ),
    Case(
        "lines of files",
        "open_files().readlines()",
        lambda d: fl.from_text(text(d, "1\n2\n")),
        ["1", "2"],
    ),
    Case(
        "lines of compressed files",
        "open_files(mode='b').decompress()",
        lambda d: fl.from_text(zipped(d)),
        ["one", "two"],
    ),
    Case(
        "rows of a table",
        "open_files().parse_csv(skip_lines=1)",
        lambda d: fl.from_csv(text(d, "a,b\n1,2\n"), header=False).skip(1),
        [("1", "2")],
    ),
    Case(
        "rows of a table are dicts",
        "open_files().parse_csv_as_dict()",
        lambda d: fl.from_csv(text(d, "a,b\n1,2\n")),
        [{"a": "1", "b": "2"}],
    ),
    Case(
        "files of JSON",
        "open_files().parse_json_files()",
        lambda d: fl.from_files(str(text(d, '{"a": 1}'))).map(
            lambda p: json.loads(Path(p).read_text())
        ),
        [{"a": 1}],
    ),
    Case(
        "members of a zip file",
        "open_files(mode='b').load_from_zip()",
        lambda d: fl.from_files(str(archive(d))).flat_map(members),
        [("1.txt", b"one"), ("2.txt", b"two")],
    ),
    Case(
        "members of a tar file",
        "open_files(mode='b').load_from_tar().webdataset()",
        lambda d: fl.from_webdataset(tar(d)),
        [{"__key__": "a", "txt": b"one"}],
    ),
    Case(
        "a file is cached on disk",
        "on_disk_cache().end_caching()",
        lambda d: (list(TEN.cache(d / "c.lmdb")), list(TEN.cache(d / "c.lmdb")))[1],
        list(range(10)),
    ),
    Case(
        "elements are saved in files",
        "save_to_disk()",
        lambda d: (fl.from_items(["one"]).write_text(d / "t.txt"), (d / "t.txt").read_text())[1],
        "one\n",
    ),
)
def test_files_have_the_outcome_of_torchdata(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
