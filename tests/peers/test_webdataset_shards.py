"""Shards in the tests of WebDataset, as flows."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from PIL import Image

import flowdsl as fl
from tests.peers.cases import Case, Refusal, check, table

SAMPLES = fl.from_items([{"__key__": f"{i}", "cls": i, "txt": "x" * i} for i in range(4)])


def png(i: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((2, 3, 3), i, np.uint8)).save(file, "PNG")
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def shard(folder: Path, name: str = "a", rows: range = range(3)) -> Path:
    samples = [
        {"__key__": f"{name}{i}", "png": png(i), "cls": i, "json": f'{{"i": {i}}}'} for i in rows
    ]
    fl.from_items(samples).write_webdataset(folder / f"{name}.tar", overwrite=True)
    return folder / f"{name}.tar"


def shards(folder: Path) -> str:
    for i in range(2):
        shard(folder, f"s-{i}", range(2 * i, 2 * i + 2))
    return str(folder / "s-{0..1}.tar")


def damaged(folder: Path) -> Path:
    (folder / "d.tar").write_bytes(shard(folder).read_bytes()[:900])
    return folder / "d.tar"


def compressed(folder: Path) -> Path:
    with tarfile.open(folder / "c.tgz", "w:gz") as file:
        file.add(shard(folder), "a.cls")
    return folder / "c.tgz"


def members(path: Path) -> list[str]:
    with tarfile.open(path) as file:
        return sorted(file.getnames())


class Sample(TypedDict):
    png: bytes
    cls: int
    json: str


def decoded(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "json": json.loads(sample["json"])}


@table(
    Case(
        "samples of a shard",
        "WebDataset('a.tar')",
        lambda d: [row["__key__"] for row in fl.from_webdataset(shard(d))],
        ["a0", "a1", "a2"],
    ),
    Case(
        "samples of numbered shards",
        "WebDataset('s-{0..1}.tar')",
        lambda d: len(fl.from_webdataset(shards(d))),
        4,
    ),
    Case(
        "samples of a list of shards",
        "WebDataset(['a.tar', 'a.tar'])",
        lambda d: len(fl.from_webdataset([shard(d)] * 2)),
        6,
    ),
    Case(
        "samples of shards in turns",
        "interleaved_shardlist",
        lambda d: [
            row["__key__"]
            for row in fl.from_files(shards(d)).interleave_map(fl.from_webdataset, cycle=2)
        ],
        ["s-00", "s-12", "s-01", "s-13"],
    ),
    Case(
        "samples have their files as bytes",
        "tarfile_to_samples()",
        lambda d: fl.from_webdataset(shard(d))[1]["cls"],
        b"1",
    ),
    Case(
        "files are decoded by extension",
        ".decode()",
        lambda d: fl.from_webdataset(shard(d), Sample).select("cls", "json")[1],
        {"cls": 1, "json": '{"i": 1}'},
    ),
    Case(
        "files are decoded by a function",
        ".decode(handler)",
        lambda d: decoded(fl.from_webdataset(shard(d))[2])["json"],
        {"i": 2},
    ),
    Case(
        "images are decoded",
        ".decode('rgb8')",
        lambda d: fl.from_webdataset(shard(d), Sample).map(
            lambda row: fl.decode_image(row["png"]).shape
        )[0],
        (2, 3, 3),
    ),
    Case(
        "images are floats",
        ".decode('rgb')",
        lambda d: str(
            (
                fl.from_webdataset(shard(d), Sample).map(
                    lambda row: fl.decode_image(row["png"]).astype(np.float32) / 255
                )[0]
            ).dtype
        ),
        "float32",
    ),
    Case(
        "arrays are decoded",
        ".decode() of npy",
        lambda d: (
            fl.from_items([{"__key__": "a", "npy": npy(np.ones(2))}]).write_webdataset(d / "n.tar"),
            fl.from_webdataset(d / "n.tar")
            .map(lambda row: np.load(io.BytesIO(row["npy"])))
            .collect(),
        )[1],
        [[1.0, 1.0]],
    ),
    Case(
        "only some files are read",
        "tarfile_to_samples(select_files=f)",
        lambda d: sorted(fl.from_webdataset(shard(d)).select("__key__", "png")[0]),
        ["__key__", "png"],
    ),
    Case(
        "a damaged shard is an error",
        "WebDataset('damaged.tar')",
        lambda d: fl.from_webdataset(damaged(d)),
        Refusal(fl.SourceError, "d.tar"),
    ),
    Case(
        "a compressed shard is refused",
        "WebDataset('c.tgz')",
        lambda d: fl.from_webdataset(compressed(d)),
        Refusal(fl.SourceError, "c.tgz"),
    ),
    Case(
        "a missing shard is an error",
        "WebDataset('missing.tar')",
        lambda d: fl.from_webdataset(d / "missing.tar"),
        Refusal(fl.SourceError, "missing.tar"),
    ),
    Case(
        "no shards are an error",
        "WebDataset([], empty_check=True)",
        lambda d: fl.from_webdataset(str(d / "*.tar")),
        Refusal(fl.SourceError, "no file matches"),
    ),
    Case(
        "shards are shuffled",
        "WebDataset(urls, shardshuffle=True)",
        lambda d: sorted(
            row["__key__"]
            for row in fl.from_files(shards(d)).shuffle(seed=1).flat_map(fl.from_webdataset)
        ),
        ["s-00", "s-01", "s-12", "s-13"],
    ),
    Case(
        "shards are divided among nodes",
        "nodesplitter=split_by_node",
        lambda d: [
            len(list(fl.from_files(shards(d)).shard(2, i).flat_map(fl.from_webdataset)))
            for i in range(2)
        ],
        [2, 2],
    ),
    Case(
        "shards are drawn with repetition",
        "ResampledShards(urls)",
        lambda d: len(
            list(fl.from_files(shards(d)).sample(3, seed=1).flat_map(fl.from_webdataset))
        ),
        6,
    ),
    Case(
        "samples are cached on disk",
        "cached_tarfile_to_samples(cache_dir=d)",
        lambda d: [len(list(fl.from_webdataset(shards(d)).cache(d / "c.lmdb"))) for _ in range(1)],
        [4],
    ),
    Case(
        "samples are written",
        "TarWriter('w.tar').write(sample)",
        lambda d: (
            SAMPLES.write_webdataset(d / "w.tar"),
            members(d / "w.tar")[:2],
        )[1],
        ["0.cls", "0.txt"],
    ),
    Case(
        "samples are written to several shards",
        "ShardWriter('s-%d.tar', maxcount=2)",
        lambda d: [SAMPLES[i : i + 2].write_webdataset(d / f"m-{i}.tar") for i in (0, 2)],
        [2, 2],
    ),
    Case(
        "a value without an encoding is refused",
        "TarWriter.write({'cls': object()})",
        lambda d: fl.from_items([{"__key__": "a", "cls": {1, 2}}]).write_webdataset(d / "x.tar"),
        Refusal(fl.SpecMismatch, "cls"),
    ),
)
def test_shards_have_the_outcome_of_webdataset(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
