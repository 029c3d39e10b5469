"""Caffe's LMDB files: images with channels last, and labels; a bad datum is named."""

from __future__ import annotations

import struct
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, MissingLibrary, SourceError
from flowdsl.testing import check_source
from flowdsl.testing.elements import same
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "images.lmdb"


def number(x: int) -> bytes:
    """A varint in protobuf's encoding."""
    x %= 2**64
    parts = bytearray()
    while x > 127:
        parts.append(x & 127 | 128)
        x >>= 7
    return bytes([*parts, x])


def datum(
    shape: tuple[int, ...] = (), data: bytes = b"", label: int = 0, more: bytes = b""
) -> bytes:
    """A ``caffe.Datum`` encoded by hand."""
    sides = b"".join(
        bytes([tag]) + number(side) for tag, side in zip(b"\x08\x10\x18", shape, strict=False)
    )
    text = b"\x22" + number(len(data)) + data if data else b""
    return sides + text + b"\x28" + number(label) + more


def floats(values: list[float], packed: bool) -> bytes:
    items = [np.float32(value).tobytes() for value in values]
    if packed:
        return b"\x32" + number(4 * len(items)) + b"".join(items)
    return b"".join(b"\x35" + item for item in items)


def store(path: Path, *data: bytes) -> Path:
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 26, sync=False) as env,
        env.begin(write=True) as txn,
    ):
        for i, value in enumerate(data):
            txn.put(b"%08d" % i, value)
    return path


IMAGES = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=3, max_dims=3, max_side=5))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(IMAGES, st.integers(-(2**31), 2**31 - 1)), min_size=1, max_size=4))
def test_images_have_channels_last(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[NDArray[np.uint8], int]]
) -> None:
    path = tmp_path_factory.mktemp("caffe") / "images.lmdb"
    store(
        path,
        *(datum(x.transpose(2, 0, 1).shape, x.transpose(2, 0, 1).tobytes(), y) for x, y in rows),
    )
    assert same(fl.from_caffe_lmdb(path).collect(), rows)
    assert same(fl.from_caffe_lmdb(path, "{:0>8d}").collect(), rows)


def test_source_passes_the_laws(path: Path) -> None:
    rows = [(np.full((2, 2, 1), i, np.uint8), i) for i in range(12)]
    store(path, *(datum((1, 2, 2), bytes([i] * 4), i) for i in range(12)))
    check_source(lambda: fl.from_caffe_lmdb(path), rows, examples=3)
    flow = fl.from_caffe_lmdb(path)
    assert str(flow.node.spec(False)) == "(uint8[?, ?, ?], int)"
    assert [image.shape for image, _ in flow.batch(4)] == [(4, 2, 2, 1)] * 3


def test_tensorpack_reads_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = import_module("tensorpack.dataflow.format")

    from flowdsl.storage.lmdb.caffe import _datum_class

    class Proto:  # tensorpack would download it
        Datum = _datum_class()

    monkeypatch.setattr(theirs, "get_caffe_pb", lambda: Proto)
    monkeypatch.setattr(np, "fromstring", np.frombuffer)
    image = np.random.default_rng(0).integers(0, 256, (3, 4, 5), np.uint8)
    store(path, datum(image.shape, image.tobytes(), 7))
    flow = theirs.CaffeLMDB(str(path), shuffle=False)
    flow.reset_state()
    assert same(fl.from_caffe_lmdb(path).collect(), [tuple(row) for row in flow])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_encoded_images_are_decoded(path: Path, channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 5, channels), np.uint8)
    png = cv2.imencode(".png", image)[1].tobytes()
    store(path, datum(data=png, label=3, more=b"\x38\x01"))
    assert same(fl.from_caffe_lmdb(path).collect(), [(image, 3)])


JPEG = cv2.imencode(".jpg", np.full((20, 30, 3), (200, 100, 30), np.uint8))[1].tobytes()


def test_encoded_jpegs_keep_their_order_of_colours(path: Path) -> None:
    grey = cv2.imencode(".jpg", np.full((5, 6), 70, np.uint8))[1].tobytes()
    store(path, *(datum(data=data, more=b"\x38\x01") for data in (JPEG, grey)))
    [(image, _), (other, _)] = fl.from_caffe_lmdb(path)
    assert np.abs(image.astype(int) - (200, 100, 30)).max() < 4
    assert image.shape == (20, 30, 3)
    assert (other.shape, int(other.min())) == ((5, 6, 1), 70)


def test_an_encoded_image_of_too_many_pixels_is_refused(path: Path) -> None:
    large = bytearray(JPEG)
    struct.pack_into(">HH", large, large.index(b"\xff\xc0") + 5, 30_000, 30_000)
    store(path, *(datum(data=bytes(data), more=b"\x38\x01") for data in (large, JPEG)))
    with pytest.raises(ElementError, match=r"key b'00000000': .*30000 x 30000 pixels, more than"):
        fl.from_caffe_lmdb(path).collect()
    with pytest.raises(ElementError, match=r"20 x 30 pixels, more than most_pixels=599; pass a"):
        fl.from_caffe_lmdb(path, "{:0>7d}1", most_pixels=599).take(1).collect()
    with pytest.raises(InvalidFlow, match="from_caffe_lmdb: most_pixels must be an int >= 1"):
        fl.from_caffe_lmdb(path, most_pixels=0)


@pytest.mark.parametrize("packed", [True, False])
def test_floats_are_read_where_they_are_declared(path: Path, packed: bool) -> None:
    store(path, datum((2, 1, 2), label=1, more=floats([1, 2, 3, 0.5], packed)))
    image = np.array([[[1, 3], [2, 0.5]]], np.float32)
    assert same(fl.from_caffe_lmdb(path, dtype="float32").collect(), [(image, 1)])
    with pytest.raises(ElementError, match=r"is float32, and not uint8: pass dtype='float32'"):
        fl.from_caffe_lmdb(path).collect()
    store(path, datum((1, 1, 1), b"1"))
    with pytest.raises(ElementError, match=r"is uint8, and not float32: pass dtype='uint8'"):
        fl.from_caffe_lmdb(path, dtype="float32").collect()


PNG_16 = cv2.imencode(".png", np.zeros((2, 2), np.uint16))[1].tobytes()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"\xff", "it is not a Datum"),
        (b"\x22\xff\xff\xff\xff\x07", "it is not a Datum"),
        (datum(), "it has no image"),
        (datum((3, 2, 2), b"1" * 11), r"\(3, 2, 2\) values, but has 11"),
        (datum((2**31 - 1,) * 3, b"1"), "but has 1"),
        (datum((-1, -1, 1), b"1"), "but has 1"),
        (datum((1, 2), b"12"), "but has 2"),
        (datum((1, 1, 1), more=floats([1, 2], True)), "is float32"),
        (datum(data=b"no image", more=b"\x38\x01"), "cannot be decoded"),
        (datum(more=b"\x38\x01"), "cannot be decoded"),
        (datum(data=PNG_16, more=b"\x38\x01"), "is uint16, and not uint8"),
        (datum(data=JPEG[:-20], more=b"\x38\x01"), "JPEG image is damaged: Premature end"),
        (datum(data=PNG_16[:-20], more=b"\x38\x01"), "PNG image is cut off"),
    ],
)
def test_a_bad_datum_is_named(path: Path, bad: bytes, message: str) -> None:
    store(path, datum((1, 1, 1), b"1"), bad)
    flow = fl.from_caffe_lmdb(path)
    with pytest.raises(ElementError, match=rf"images\.lmdb': key b'00000001': .*{message}"):
        flow.collect()


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=40))
def test_arbitrary_bytes_raise_an_error_or_decode(
    tmp_path_factory: pytest.TempPathFactory, value: bytes
) -> None:
    path = store(tmp_path_factory.mktemp("caffe") / "images.lmdb", value)
    read = fl.from_caffe_lmdb(path).node.open()  # type: ignore[attr-defined]  # an indexed source
    try:
        image, label = read(0)
    except SourceError as error:
        assert "b'00000000'" in str(error)  # noqa: PT017  # or else an image comes
    else:
        assert (image.ndim, image.dtype, type(label)) == (3, np.dtype("uint8"), int)


def test_another_dtype_is_refused(path: Path) -> None:
    dtype: Any = "float64"
    with pytest.raises(InvalidFlow, match="dtype must be 'uint8' or 'float32', got 'float64'"):
        fl.from_caffe_lmdb(store(path, datum()), dtype=dtype)


def test_missing_library_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flowdsl.storage.lmdb import caffe

    def missing(module: str, operator: str, extra: str) -> Any:
        raise MissingLibrary(f"{operator} needs {module}: flowdsl[{extra}]")

    store(path, datum(data=b"1", more=b"\x38\x01"))
    flow = fl.from_caffe_lmdb(path)
    monkeypatch.setattr(caffe, "library", missing)
    caffe._datum_class.cache_clear()
    with pytest.raises(MissingLibrary, match=r"google.*flowdsl\[caffe\]"):
        fl.from_caffe_lmdb(path)
    monkeypatch.undo()
    row = flow.node.open()  # type: ignore[attr-defined]  # an indexed source
    monkeypatch.setattr(caffe, "library", missing)
    with pytest.raises(MissingLibrary, match=r"cv2: flowdsl\[images\]"):
        row(0)
