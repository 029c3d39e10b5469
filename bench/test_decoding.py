"""Decoding, to compare one state of the code with another: no peers, no assertions."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import flowdsl as fl
from bench import photographs

WAYS = {
    "whole": fl.decode_image,
    "224": partial(fl.decode_image, resize=224),
    "224, bilinear": partial(fl.decode_image, resize=224, antialias=False),
    "64": partial(fl.decode_image, resize=64),
    "a part": partial(fl.decode_image, crop=(100, 100, 160, 200), resize=(80, 100)),
}


@cache
def _files() -> list[bytes]:
    return [Path(name).read_bytes() for name in photographs.names()[:100]]


@cache
def _large() -> list[bytes]:
    """Photographs of ten times as many pixels."""
    jpeg: Any = import_module("simplejpeg")
    images = [fl.decode_image(data, resize=(1200, 1600)) for data in _files()[:10]]
    return [jpeg.encode_jpeg(image, quality=90, colorsubsampling="420") for image in images]


def _all(decode: Any, files: list[bytes]) -> None:
    for data in files:
        decode(data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("files", [_files, _large], ids=["360x480", "1200x1600"])
def test_decoding(benchmark: BenchmarkFixture, way: str, files: Any) -> None:
    benchmark.pedantic(_all, (WAYS[way], files()), rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types


def test_random_crops(benchmark: BenchmarkFixture) -> None:
    crop, rng = fl.random_resized_crop(224), np.random.default_rng(0)
    benchmark.pedantic(_all, (lambda data: crop(data, rng), _large()), rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]  # it has no types
