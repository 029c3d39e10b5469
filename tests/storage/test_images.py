"""Images: pixels compared with other decoders, cropping and resizing, and invalid images."""

from __future__ import annotations

import io
import shutil
import struct
import sys
import time
import zlib
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image, ImageOps

import flowdsl as fl
from flowdsl.errors import (
    ElementError,
    InvalidFlow,
    MissingLibrary,
    SourceError,
    StateMismatch,
)
from flowdsl.storage.images.headers import jpeg_header
from flowdsl.storage.images.scratch import Scratch
from flowdsl.testing import check_source
from tests.sampling import examples
from tests.storage.jpegs import sampled_jpeg

Pixels = NDArray[np.uint8]

LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "BMP": {},
    "WEBP": {"lossless": True, "exact": True},
}
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")


def encoded(pixels: NDArray[Any], form: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **LOSSLESS.get(form, {}), **options)
    return file.getvalue()


@cache
def photograph(height: int = 96, width: int = 128) -> Pixels:
    """Return a smooth image with some detail and another colour at each place."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    waves = 20 * np.sin(x / 9) * np.cos(y / 7)
    planes = [40 + 150 * x / width + waves, 40 + 150 * y / height - waves, 128 + 2 * waves]
    pixels: Pixels = np.stack(planes, -1).clip(0, 255).astype(np.uint8)
    return pixels


def differ(one: Pixels, other: NDArray[Any]) -> float:
    """Return the mean difference of two images of one shape."""
    assert one.shape == other.shape
    return float(np.abs(one.astype(float) - other.astype(float)).mean())


shapes = st.tuples(st.integers(1, 40), st.integers(1, 40))


@st.composite
def images(draw: st.DrawFn) -> Pixels:
    height, width = draw(shapes)
    seed = draw(st.integers(0, 2**32 - 1))
    pixels: Pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return pixels


@st.composite
def boxes(draw: st.DrawFn, height: int, width: int) -> tuple[int, int, int, int]:
    h, w = draw(st.integers(1, height)), draw(st.integers(1, width))
    return draw(st.integers(0, height - h)), draw(st.integers(0, width - w)), h, w


# -- pixels ----------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(images(), st.sampled_from(sorted(LOSSLESS)))
def test_lossless_images_are_decoded_exactly(pixels: Pixels, form: str) -> None:
    got = fl.decode_image(encoded(pixels, form))
    assert got.dtype == np.uint8
    assert np.array_equal(got, pixels)
    assert fl.image_size(encoded(pixels, form)) == pixels.shape[:2]


@settings(max_examples=examples(200))
@given(hnp.arrays(np.uint8, shapes), st.sampled_from(["PNG", "BMP", "GIF"]))
def test_grey_image_is_converted_to_colour_or_stays_grey(pixels: Pixels, form: str) -> None:
    data = encoded(pixels, form) if pixels.size > 1 else encoded(np.full((1, 2), 7, "u1"), form)
    grey = fl.decode_image(data, channels=1)
    assert grey.shape == (*fl.image_size(data), 1)
    assert np.array_equal(np.repeat(grey, 3, axis=2), fl.decode_image(data))
    assert pixels.size == 1 or np.array_equal(grey[..., 0].ravel(), pixels.ravel())


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpeg_equals_pillows_result(options: dict[str, Any]) -> None:
    data = encoded(photograph(), quality=90, **options)
    image = Image.open(io.BytesIO(data))
    assert differ(fl.decode_image(data), np.asarray(image)) < 0.1
    assert differ(fl.decode_image(data, channels=1)[..., 0], np.asarray(image.convert("L"))) < 1
    assert fl.image_size(data) == (96, 128)


def test_grey_jpeg() -> None:
    data = encoded(photograph()[..., 0])
    grey = fl.decode_image(data, channels=1)
    assert np.array_equal(grey[..., 0], np.asarray(Image.open(io.BytesIO(data))))
    assert np.array_equal(fl.decode_image(data), np.repeat(grey, 3, axis=2))


def test_cmyk_jpeg_is_decoded() -> None:
    file = io.BytesIO()
    Image.fromarray(photograph()).convert("CMYK").save(file, "JPEG", quality=95)
    assert differ(fl.decode_image(file.getvalue()), photograph()) < 3
    grey = np.asarray(Image.fromarray(photograph()).convert("L"))[..., None]
    assert differ(fl.decode_image(file.getvalue(), channels=1), grey) < 3


def test_palette_image_is_converted_to_colours() -> None:
    image = Image.fromarray(photograph()).quantize(50)
    for form in ("PNG", "GIF", "BMP"):
        file = io.BytesIO()
        image.save(file, form)
        assert np.array_equal(fl.decode_image(file.getvalue()), np.asarray(image.convert("RGB")))


def test_transparency_is_dropped() -> None:
    clear = np.dstack([photograph(), np.zeros((96, 128), np.uint8)])
    for form in ("PNG", "WEBP"):
        assert np.array_equal(fl.decode_image(encoded(clear, form)), photograph())


def test_only_the_first_frame_of_an_animation_is_decoded() -> None:
    other = [Image.fromarray(photograph()[::-1])]
    data = encoded(photograph(), "WEBP", save_all=True, append_images=other)
    assert np.array_equal(fl.decode_image(data), photograph())
    grey = photograph()[..., 0]
    moving = encoded(grey, "GIF", save_all=True, append_images=[Image.fromarray(grey[::-1])])
    assert np.array_equal(fl.decode_image(moving, channels=1)[..., 0], grey)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
def test_sixteen_bit_images_are_refused(shape: tuple[int, ...]) -> None:
    data = cv2.imencode(".png", np.full(shape, 1000, np.uint16))[1].tobytes()
    with pytest.raises(SourceError, match="this PNG image is of uint16, which would not fit"):
        fl.decode_image(data)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, partial(np.frombuffer, dtype="u1")])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_any_bytes_like_object_is_accepted(wrap: Any, form: str) -> None:
    data = encoded(photograph(), form)
    assert np.array_equal(fl.decode_image(wrap(data)), fl.decode_image(data))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "options", [{}, {"crop": (0, 0, 50, 128)}, {"crop": (1, 2, 3, 4), "channels": 1}, {"resize": 7}]
)
def test_returned_array_owns_its_memory(form: str, options: Any) -> None:
    got = fl.decode_image(encoded(photograph(), form), **options)
    assert got.flags.writeable
    assert got.flags.c_contiguous
    assert (got if got.base is None else got.base).nbytes == got.nbytes


SAMPLINGS: dict[str, list[tuple[int, int]]] = {
    "4:4:1": [(1, 4), (1, 1), (1, 1)],
    "4:1:0": [(4, 2), (1, 1), (1, 1)],
    "3x1": [(3, 1), (1, 1), (1, 1)],
    "mixed": [(2, 2), (2, 1), (1, 2)],
    "finer colours": [(1, 1), (2, 2), (2, 2)],
    "cmyk of 4:4:1": [(1, 4), (1, 1), (1, 1), (1, 4)],
}
"""Samples of the components that libjpeg-turbo's own interface does not know."""


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_jpegs_of_unusual_samplings_equal_pillows_result(sampling: str) -> None:
    data = sampled_jpeg(50, 70, SAMPLINGS[sampling])
    image = Image.open(io.BytesIO(data))
    got = fl.decode_image(data)
    assert fl.image_size(data) == (50, 70)
    assert differ(got, np.asarray(image.convert("RGB"))) < 1
    assert differ(fl.decode_image(data, channels=1)[..., 0], np.asarray(image.convert("L"))) < 2
    assert np.array_equal(fl.decode_image(data, crop=(5, 6, 20, 30)), got[5:25, 6:36])
    assert fl.decode_image(data, resize=9).shape == (9, 9, 3)


@pytest.mark.parametrize("factors", [[(4, 4), (1, 1), (1, 1)], [(0, 1)] * 3, [(1, 1)] * 2])
def test_jpegs_of_invalid_samplings_are_refused(factors: list[tuple[int, int]]) -> None:
    data = bytearray(sampled_jpeg(16, 16, [(max(a, 1), b) for a, b in factors]))
    at = data.index(b"\xff\xc0") + 10
    for k, (across, down) in enumerate(factors):
        data[at + 3 * k + 1] = across << 4 | down
    with pytest.raises(SourceError, match="this JPEG image is damaged"):
        fl.decode_image(data)


# -- palettes --------------------------------------------------------------------------------------


def masks(form: str, colours: int, height: int = 30, width: int = 41) -> tuple[bytes, Pixels]:
    """Return an image with a palette of random colours, and the indices of its pixels."""
    rng = np.random.default_rng(colours)
    indices = rng.integers(0, colours, (height, width), np.uint8)
    image = Image.fromarray(indices, "P")
    image.putpalette(rng.integers(0, 256, 3 * colours, np.uint8).tobytes())
    file = io.BytesIO()
    image.save(file, form, optimize=False)
    return file.getvalue(), indices[..., None]


@pytest.mark.parametrize("colours", [2, 4, 13, 256])
@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP"])
def test_indices_of_a_palette(form: str, colours: int) -> None:
    data, indices = masks(form, colours)
    assert np.asarray(Image.open(io.BytesIO(data))).max() == indices.max()
    assert np.array_equal(fl.decode_image(data, channels="palette"), indices)
    part = fl.decode_image(data, channels="palette", crop=(3, 4, 20, 30))
    assert np.array_equal(part, indices[3:23, 4:34])
    small = fl.decode_image(data, channels="palette", resize=(60, 82))
    assert np.array_equal(small[::2, ::2], indices)
    assert {*np.unique(small)} <= {*np.unique(indices)}


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_indices_of_packed_pixels_with_transparency(bits: int) -> None:
    indices = np.random.default_rng(bits).integers(0, 2**bits, (9, 13), np.uint8)
    image = Image.fromarray(indices, "P")
    image.putpalette(bytes(range(3, 255)) * 3)
    file = io.BytesIO()
    image.save(file, "PNG", bits=bits, transparency=1)
    assert np.array_equal(fl.decode_image(file.getvalue(), channels="palette")[..., 0], indices)
    file = io.BytesIO()
    image.save(file, "GIF", transparency=1, comment=b"a comment " * 90)
    want = np.asarray(Image.open(file))  # which may be of another order
    assert np.array_equal(fl.decode_image(file.getvalue(), channels="palette")[..., 0], want)


def test_indices_of_a_gif_whose_frame_has_its_own_palette() -> None:
    data, indices = masks("GIF", 16)
    flags = data[10]
    table = data[13 : 13 + 3 * (2 << (flags & 7))]
    frame = data.index(b",\0\0\0\0", 13 + len(table))
    own_flags = data[frame + 9] | 0x80 | flags & 7
    own = data[frame : frame + 9] + bytes([own_flags]) + table + data[frame + 10 :]
    moved = data[:10] + bytes([flags & 0x7F]) + data[11:13] + data[13 + len(table) : frame] + own
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(moved))), indices[..., 0])
    assert np.array_equal(fl.decode_image(moved, channels="palette"), indices)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP"])
def test_a_grey_image_is_its_own_palette(form: str) -> None:
    data = encoded(photograph(20, 30)[..., 0], form)
    want = fl.decode_image(data, channels=1)
    assert np.array_equal(fl.decode_image(data, channels="palette"), want)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP"])
def test_colours_without_a_palette_have_no_indices(form: str) -> None:
    with pytest.raises(SourceError, match="has colours without a palette, and so no indices; pass"):
        fl.decode_image(encoded(photograph(), form), channels="palette")


def test_masks_in_batches_and_at_random(tmp_path: Path) -> None:
    data, indices = masks("PNG", 21)
    (tmp_path / "a.png").write_bytes(data)
    flow = fl.from_images([tmp_path / "a.png"] * 6, channels="palette")
    assert repr(flow) == "from_images('a.png', 6 files, channels='palette')"
    assert str(flow.spec) == "uint8[?, ?, 1]"
    for masks_ in (flow.batch(6).at(0), flow.prefetch(procs=2).batch(6).collect()[0]):
        assert np.array_equal(masks_, np.stack([indices] * 6))
    crop = fl.random_resized_crop(8, channels="palette")
    assert {*np.unique(crop(data, np.random.default_rng(0)))} <= {*np.unique(indices)}


# -- orientation -----------------------------------------------------------------------------------


def turned(form: str, orientation: int, height: int = 24, width: int = 36) -> bytes:
    exif = Image.Exif()
    exif[0x112] = orientation
    return encoded(photograph(height, width), form, exif=exif)


ORIENTED = ["JPEG", "PNG", "WEBP"]


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("form", ORIENTED)
def test_an_orientation_is_applied_as_by_pillow_if_wanted(form: str, orientation: int) -> None:
    data = turned(form, orientation)
    image = Image.open(io.BytesIO(data))
    assert fl.decode_image(data).shape == (24, 36, 3)
    got = fl.decode_image(data, orient=True)
    assert differ(got, np.asarray(ImageOps.exif_transpose(image))) < 0.1
    assert fl.image_size(data, orient=True) == got.shape[:2]
    assert fl.image_size(data) == (24, 36)
    grey = fl.decode_image(data, orient=True, channels=1)
    assert grey.shape == (*got.shape[:2], 1)
    assert got.flags.c_contiguous
    assert got.flags.writeable


@settings(max_examples=examples(100))
@given(st.data(), st.integers(1, 8), st.sampled_from(ORIENTED))
def test_a_crop_of_a_turned_image_is_a_part_of_it(
    data: st.DataObject, orientation: int, form: str
) -> None:
    image = turned(form, orientation)
    whole = fl.decode_image(image, orient=True)
    box = data.draw(boxes(*whole.shape[:2]))
    top, left, h, w = box
    part = fl.decode_image(image, orient=True, crop=box)
    assert np.array_equal(part, whole[top : top + h, left : left + w])
    size = data.draw(shapes)
    resized = fl.decode_image(image, orient=True, crop=box, resize=size)
    assert resized.shape == (*size, 3)
    if (h, w) <= size:
        assert differ(resized, cv2.resize(part, size[::-1]).reshape(*size, 3)) < 4


def test_a_crop_beyond_a_turned_image_is_refused() -> None:
    data = turned("JPEG", 6)
    with pytest.raises(InvalidFlow, match=r"is not within the image of 36 x 24 pixels"):
        fl.decode_image(data, orient=True, crop=(0, 0, 24, 36))


def test_turned_files_in_batches_and_at_random(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(turned("JPEG", 8))
    flow = fl.from_images([tmp_path / "a.jpg"] * 4, orient=True)
    want = fl.decode_image(turned("JPEG", 8), orient=True)
    assert want.shape == (36, 24, 3)
    assert repr(flow) == "from_images('a.jpg', 4 files, orient=True)"
    for images_ in (flow.batch(4).at(0), flow.prefetch(procs=2).batch(4).collect()[0]):
        assert np.array_equal(images_, np.stack([want] * 4))
    crop = fl.random_resized_crop((36, 24), scale=(1, 1), ratio=(24 / 36, 24 / 36), orient=True)
    assert np.array_equal(crop(turned("JPEG", 8), np.random.default_rng(0)), want)


@pytest.mark.parametrize("form", ORIENTED)
def test_damaged_exif_turns_nothing(form: str) -> None:
    data = turned(form, 6)
    at = next(i for order in (b"II*\0", b"MM\0*") if (i := data.find(order)) >= 0)
    for damage in (b"xx", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff"):
        changed = bytearray(data)
        changed[at : at + len(damage)] = damage
        if form == "PNG":
            start = data.index(b"eXIf")
            (size,) = struct.unpack_from(">I", data, start - 4)
            struct.pack_into(
                ">I", changed, start + 4 + size, zlib.crc32(changed[start : start + 4 + size])
            )
        assert np.array_equal(fl.decode_image(changed, orient=True), fl.decode_image(data))


# -- parts and sizes -------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(st.data(), shapes, st.sampled_from(["JPEG", "PNG", "WEBP"]), st.sampled_from([1, 3]))
def test_crop_equals_the_same_part_of_the_whole_image(
    data: st.DataObject, shape: tuple[int, int], form: str, channels: Any
) -> None:
    image = encoded(photograph(*shape), form)
    box = data.draw(boxes(*shape))
    top, left, h, w = box
    whole = fl.decode_image(image, channels=channels)
    part = fl.decode_image(image, channels=channels, crop=box)
    assert np.array_equal(part, whole[top : top + h, left : left + w])


@settings(max_examples=examples(200))
@given(st.data(), st.tuples(st.integers(1, 150), st.integers(1, 150)), shapes)
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_uniform_colour_is_kept_by_any_crop_and_size(
    form: str, data: st.DataObject, shape: tuple[int, int], size: tuple[int, int]
) -> None:
    image = encoded(np.full((*shape, 3), (200, 100, 30), np.uint8), form)
    got = fl.decode_image(image, crop=data.draw(boxes(*shape)), resize=size)
    assert got.shape == (*size, 3)
    assert np.abs(got.astype(int) - (200, 100, 30)).max() <= 3


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(90, 100), (48, 64), (40, 100), (20, 31), (12, 16), (7, 9)])
def test_shrinking_is_smoothed_as_in_pillow(form: str, size: tuple[int, int]) -> None:
    data = encoded(photograph(), form, **({"quality": 95} if form == "JPEG" else {}))
    smooth = Image.fromarray(photograph()).resize((size[1], size[0]), Image.Resampling.BILINEAR)
    assert differ(fl.decode_image(data, resize=size), np.asarray(smooth)) < 3


@pytest.mark.parametrize("size", [20, 30, 50, 61, (30, 200), (200, 10)])
def test_fine_lines_are_smoothed_without_aliasing(size: Any) -> None:
    lines = np.zeros((128, 128), np.uint8)
    lines[::2] = 255
    lines[:, ::2] ^= 255
    got = fl.decode_image(encoded(lines, "PNG"), channels=1, resize=size)
    inner = got[1:-1, 1:-1] if isinstance(size, int) else got[1:-1].mean(axis=1)
    assert np.abs(inner.astype(float) - 127.5).max() < 40


@pytest.mark.parametrize("size", [(130, 128), (96, 300), (500, 400)])
def test_enlarging_is_bilinear(size: tuple[int, int]) -> None:
    want = cv2.resize(photograph(), size[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(fl.decode_image(encoded(photograph(), "PNG"), resize=size), want)


@pytest.mark.parametrize("size", [(40, 70), (20, 20), (200, 10)])
def test_without_smoothing_it_is_bilinear(size: tuple[int, int], tmp_path: Path) -> None:
    data = encoded(photograph(), "PNG")
    want = cv2.resize(photograph(), size[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(fl.decode_image(data, resize=size, antialias=False), want)
    assert not np.array_equal(fl.decode_image(data, resize=size), want)
    (tmp_path / "a.png").write_bytes(data)
    flow = fl.from_images(tmp_path / "a.png", resize=size, antialias=False)
    assert np.array_equal(flow.collect()[0], want)
    assert repr(flow) == f"from_images('a.png', resize={size}, antialias=False)"
    crop = fl.random_resized_crop(size, scale=(1, 1), ratio=(128 / 96, 128 / 96), antialias=False)
    assert np.array_equal(crop(data, np.random.default_rng(0)), want)


@pytest.mark.parametrize(("size", "by"), [(51, 1), (50, 2), (26, 2), (25, 4), (12, 8), (5, 8)])
def test_jpeg_is_decoded_at_a_reduced_scale(
    size: int, by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, ...]] = []
    decode = simplejpeg.decode_jpeg

    def decoded(*args: Any, **options: Any) -> Pixels:
        got = decode(*args, **options)
        sizes.append(got.shape)
        return got

    monkeypatch.setattr(simplejpeg, "decode_jpeg", decoded)
    data = encoded(photograph(101, 203))
    assert fl.decode_image(data, resize=size).shape == (size, size, 3)
    assert fl.decode_image(data, crop=(1, 3, 100, 150), resize=size).shape == (size, size, 3)
    assert sizes == [(-(-101 // by), -(-203 // by), 3)] * 2


@settings(max_examples=examples(200))
@given(st.data(), st.integers(8, 40))
def test_crop_of_a_reduced_jpeg_is_in_the_right_place(data: st.DataObject, size: int) -> None:
    y, x = np.mgrid[:256, :320]
    pixels = np.stack([y * 0.9, x * 0.7, 0 * x + 50], -1).astype(np.uint8)
    top, left, h, w = box = data.draw(boxes(256, 320))
    got = fl.decode_image(encoded(pixels, quality=95), crop=box, resize=size)
    ends = (np.arange(size) + 0.5) / size
    down, across = got[:, size // 2, 0], got[size // 2, :, 1]
    for values, start, length, slope in ((down, top, h, 0.9), (across, left, w, 0.7)):
        pixel = length / size  # half of which a reduced part may be off
        want = (start + ends * length - 0.5) * slope
        assert np.abs(values - want).max() <= 3 + 0.5 * slope * max(pixel, 1)


def test_threads_do_not_share_scratch_memory() -> None:
    images = [encoded(np.full((60, 70, 3), i, np.uint8)) for i in range(0, 200, 20)]
    small = partial(fl.decode_image, resize=40)
    flow = fl.from_items(images).repeat(20).map(small).prefetch(threads=4)
    assert [int(image.min()) for image in flow] == [int(small(x).max()) for x in images] * 20
    scratch = Scratch()
    assert np.shares_memory(scratch.array(10, 10), scratch.array(5, 4, 3))
    large = (2**12, 2**12)
    assert not np.shares_memory(scratch.array(*large), scratch.array(*large))  # nothing so large


# -- random parts ----------------------------------------------------------------------------------


def places(height: int, width: int) -> bytes:
    """Return an image whose pixels encode their positions."""
    y, x = np.mgrid[:height, :width]
    return encoded(np.stack([y, x, 0 * x], -1).astype(np.uint8), "PNG")


def test_random_crops_have_the_requested_areas_and_aspects() -> None:
    data, rng = places(200, 240), np.random.default_rng(0)
    crop = fl.random_resized_crop((20, 24), scale=(0.1, 0.4), ratio=(0.5, 2))
    seen = []
    for _ in range(300):
        got = crop(data, rng).astype(float)
        assert got.shape == (20, 24, 3)
        height = (got[-1, 0, 0] - got[0, 0, 0]) * 20 / 19
        width = (got[0, -1, 1] - got[0, 0, 1]) * 24 / 23
        seen.append((height * width / 200 / 240, width / height, got[0, 0, 0], got[0, 0, 1]))
    shares, aspects, tops, lefts = np.array(seen).T
    assert 0.08 < shares.min() < 0.15
    assert 0.35 < shares.max() < 0.43
    assert 0.45 < aspects.min() < 0.6
    assert 1.7 < aspects.max() < 2.2
    assert abs(np.median(np.log(aspects))) < 0.15
    assert tops.min() < 15
    assert tops.max() > 100
    assert lefts.min() < 15
    assert lefts.max() > 100


def test_crop_is_centered_if_no_draw_fits() -> None:
    crop = fl.random_resized_crop(10, scale=(1, 1), ratio=(1, 1))
    for shape, top, left in (((20, 100), 0, 40), ((100, 20), 40, 0), ((20, 20), 0, 0)):
        got = crop(places(*shape), np.random.default_rng(0))
        want = fl.decode_image(places(*shape), crop=(top, left, 20, 20), resize=10)
        assert np.array_equal(got, want)


def test_random_crops_are_independent_of_the_number_of_workers() -> None:
    flow = fl.from_items([encoded(photograph())] * 8)
    crops = flow.random_map(fl.random_resized_crop(16, channels=1), seed=3)
    here = crops.batch(8).collect()[0]
    assert here.shape == (8, 16, 16, 1)
    assert len({image.tobytes() for image in here}) == 8
    assert np.array_equal(crops.prefetch(procs=2).batch(8).collect()[0], here)


# -- what is no image ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_an_image_that_is_cut_off_is_an_error(form: str) -> None:
    data = encoded(photograph(30, 40), form)
    for size in {*range(40), *range(40, len(data) - 2, 1 + len(data) // 60), len(data) - 2}:
        with pytest.raises(SourceError):
            fl.decode_image(data[:size])


@pytest.mark.parametrize("cut", [1, 2])
def test_an_image_without_its_end_is_decoded_if_wanted(cut: int, tmp_path: Path) -> None:
    hint = r"it is cut off: pass truncated='allow' "
    sampled = sampled_jpeg(20, 30, SAMPLINGS["4:1:0"])
    grey = encoded(photograph(30, 40)[..., 0], "GIF")
    for data in (encoded(photograph(30, 40)), sampled, grey):
        with pytest.raises(SourceError, match=hint):
            fl.decode_image(data[:-cut])
        got = fl.decode_image(data[:-cut], truncated="allow")
        assert np.array_equal(got, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    data = encoded(photograph(30, 40))
    (tmp_path / "a.jpg").write_bytes(data[:-cut])
    with pytest.raises(ElementError) as caught:
        fl.from_images(tmp_path / "a.jpg").collect()
    assert "pass truncated='allow'" in str(caught.value.__cause__)
    flow = fl.from_images([tmp_path / "a.jpg"] * 2, truncated="allow")
    want = fl.decode_image(data)
    assert np.array_equal(flow.prefetch(procs=2).batch(2).collect()[0], [want, want])
    crop = fl.random_resized_crop((30, 40), scale=(1, 1), ratio=(4 / 3, 4 / 3), truncated="allow")
    assert np.array_equal(crop(data[:-cut], np.random.default_rng(0)), want)


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
def test_a_jpeg_that_is_cut_off_keeps_its_first_rows_if_wanted(options: dict[str, Any]) -> None:
    data = encoded(photograph(), **options)
    whole = fl.decode_image(data)
    got = fl.decode_image(data[: len(data) * 3 // 4], truncated="allow")
    assert got.shape == whole.shape
    if not options:
        assert np.array_equal(got[:32], whole[:32])
        assert (got[-1, -1] == 128).all()


def test_a_whole_image_is_decoded_strictly_whatever_is_allowed() -> None:
    data = bytearray(encoded(photograph()))
    scan = data.index(b"\xff\xda")
    data[scan + 200 : scan + 204] = b"\xff\xd4\xff\xd5"
    for truncated in ("error", "allow"):
        with pytest.raises(SourceError, match=r"this JPEG image is damaged: .*[^']$"):
            fl.decode_image(data, truncated=truncated)


@settings(max_examples=examples(150))
@given(st.data())
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_image_raises_an_error_or_decodes(form: str, data: st.DataObject) -> None:
    image = bytearray(encoded(photograph(30, 40), form))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    try:
        got = fl.decode_image(image)
    except SourceError:
        return
    assert got.shape == (*fl.image_size(image), 3)
    assert form != "PNG" or np.array_equal(got, photograph(30, 40))


STARTS = (
    *(b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM"),
    *(b"RIFF\x20\0\0\0WEBPVP8 ", b"RIFF\x20\0\0\0WEBPVP8X"),
)


@settings(max_examples=examples(100))
@given(st.binary(), st.sampled_from(STARTS))
def test_arbitrary_bytes_are_refused(garbage: bytes, start: bytes) -> None:
    with pytest.raises(SourceError):
        fl.decode_image(start + garbage)


def test_invalid_image_is_reported() -> None:
    with pytest.raises(SourceError, match=r"not a JPEG, PNG, WebP, BMP or GIF image: .*b'II\*"):
        fl.decode_image(encoded(photograph(), "TIFF"))
    with pytest.raises(SourceError, match="not an image: there are no bytes"):
        fl.decode_image(b"")


def resaid(form: str, side: int) -> bytes:
    """Return a small image whose header claims this many pixels per side."""
    data = bytearray(encoded(photograph(30, 40), form))
    if form == "JPEG":
        struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, side, side)
    elif form == "PNG":
        struct.pack_into(">II", data, 16, side, side)
        struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    elif form == "BMP":
        struct.pack_into("<ii", data, 18, side, side)
    else:
        struct.pack_into("<HH", data, 6, side, side)
    return bytes(data)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "GIF"])
def test_an_image_that_claims_to_be_huge_takes_no_memory_or_time(form: str) -> None:
    data, start = resaid(form, 60_000), time.process_time()
    with pytest.raises(SourceError, match=r"60000 x 60000 pixels"):
        fl.decode_image(data)
    if form != "GIF":  # whose frames may be smaller
        with pytest.raises(SourceError):
            fl.decode_image(resaid(form, 5000))
    assert time.process_time() - start < 2


def test_most_pixels_is_configurable(tmp_path: Path) -> None:
    data = encoded(photograph(10, 10))
    assert fl.decode_image(data, most_pixels=100).shape == (10, 10, 3)
    with pytest.raises(SourceError, match=r"10 x 10 pixels, more than most_pixels=99; pass a lar"):
        fl.decode_image(data, most_pixels=99)
    (tmp_path / "a.jpg").write_bytes(data)
    assert len(fl.from_images(tmp_path / "a.jpg", most_pixels=100).collect()) == 1
    with pytest.raises(ElementError, match="more than most_pixels=99"):
        fl.from_images(tmp_path / "a.jpg", most_pixels=99).collect()
    with pytest.raises(SourceError, match="more than most_pixels=99"):
        fl.random_resized_crop(8, most_pixels=99)(data, np.random.default_rng(0))


def test_jpeg_with_too_many_scans_is_refused() -> None:
    data = encoded(photograph(), progressive=True)
    scan = data.index(b"\xff\xda")
    with pytest.raises(SourceError, match="more than 500 scans"):
        fl.decode_image(data[:scan] + data[scan : scan + 30] * 501 + data[scan:])


def test_jpeg_with_scans_that_take_too_long_is_refused() -> None:
    data = bytearray(encoded(photograph(), progressive=True))
    struct.pack_into(">HH", data, data.index(b"\xff\xc2") + 5, 8000, 8000)
    scan = data.index(b"\xff\xda")
    many, start = data[:scan] + data[scan : scan + 30] * 40 + data[scan:], time.process_time()
    with pytest.raises(SourceError, match=r"50 scans of 8000 x 8000 .* pass most_pixels=200000000"):
        fl.decode_image(many)
    assert time.process_time() - start < 0.5


def test_scans_of_one_component_each_are_counted_too() -> None:
    data = bytearray(sampled_jpeg(8, 8, [(1, 1)] * 3))
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, 4096, 4096)
    scan = data.index(b"\xff\xda")
    own = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0"
    with pytest.raises(SourceError, match=r"200 scans of 4096 x 4096 pixels"):
        fl.decode_image(data[:scan] + own * 200)


def test_png_with_more_pixels_than_its_bytes_allow_is_refused() -> None:
    with pytest.raises(SourceError, match=r"5000 x 5000 pixels cannot be in \d+ bytes"):
        fl.decode_image(resaid("PNG", 5000))
    plain = encoded(np.zeros((3000, 3000), np.uint8), "PNG", compress_level=9)
    assert fl.decode_image(plain, channels=1).shape == (3000, 3000, 1)


def test_png_chunk_that_claims_to_be_huge_takes_no_memory() -> None:
    data = bytearray(encoded(photograph(), "PNG"))
    struct.pack_into(">I", data, data.index(b"IDAT") - 4, 2**32 - 9)
    with pytest.raises(SourceError, match="this PNG image is cut off"):
        fl.decode_image(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 4}, "channels must be 1 (grey), 3 (RGB) or 'palette' (indices), got 4"),
        ({"channels": True}, "channels must be 1 (grey), 3 (RGB) or 'palette' (indices), got True"),
        ({"resize": 0}, "resize must be an int >= 1, got 0"),
        ({"resize": (1, 2, 3)}, "resize must be an int or (height, width), got (1, 2, 3)"),
        ({"resize": (8, 1.5)}, "resize must be an int >= 1, got 1.5"),
        ({"resize": 2**15}, "resize must be an int >= 1 and below 2**15, got 32768"),
        ({"crop": (0, 0, 5)}, "crop must be (top, left, height, width), got (0, 0, 5)"),
        ({"crop": (0, -1, 5, 5)}, "crop: left must be an int >= 0, got -1"),
        ({"crop": (0, 0, 0, 5)}, "crop: height must be an int >= 1, got 0"),
        ({"crop": (1, 0, 10, 5)}, "crop=(1, 0, 10, 5) is not within the image of 10 x 12 pixels"),
        ({"crop": (0, 8, 5, 5)}, "crop=(0, 8, 5, 5) is not within the image of 10 x 12 pixels"),
        ({"antialias": 1}, "antialias must be True or False, got 1"),
        ({"orient": 6}, "orient must be True or False, got 6"),
        ({"truncated": True}, "truncated must be 'error' or 'allow', got True"),
        ({"most_pixels": 0}, "most_pixels must be an int >= 1, got 0"),
    ],
)
def test_bad_arguments(options: Any, message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.decode_image(encoded(photograph(10, 12)), **options)
    assert str(caught.value) == f"decode_image: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": None}, "size must be an int or (height, width), got None"),
        ({"scale": (0.5, 1.1)}, "scale must be at most 1, all of the image, got (0.5, 1.1)"),
        ({"scale": (0.5, 0.1)}, "scale must be (low, high), 0 < low <= high, got (0.5, 0.1)"),
        ({"ratio": (0, 1)}, "ratio must be (low, high), 0 < low <= high, got (0, 1)"),
        ({"ratio": 1}, "ratio must be (low, high), 0 < low <= high, got 1"),
        ({"channels": 2}, "channels must be 1 (grey), 3 (RGB) or 'palette' (indices), got 2"),
    ],
)
def test_invalid_crop_arguments_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.random_resized_crop(**{"size": 8, **options})
    assert str(caught.value) == f"random_resized_crop: {message}"


@pytest.mark.parametrize("data", ["a.jpg", Path("a.jpg"), 3, np.zeros(3)])
def test_non_bytes_argument_is_refused(data: Any) -> None:
    hint = "; from_images reads files" if isinstance(data, str | Path) else ""
    given: Any = data
    with pytest.raises(InvalidFlow) as caught:
        fl.decode_image(given)
    name = type(data).__name__
    assert str(caught.value) == (
        f"decode_image: data must be the bytes of an image file, got {name}{hint}"
    )


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write files a.png, b.png and c.png, all of one grey."""
    for i, name in enumerate("abc"):
        (tmp_path / f"{name}.png").write_bytes(encoded(np.full((4, 5, 3), i, np.uint8), "PNG"))
    return tmp_path


def greys(flow: fl.Flow[Pixels]) -> list[int]:
    return [int(image[0, 0, 0]) for image in flow]


@pytest.mark.hypothesis
def test_source_passes_the_laws(folder: Path) -> None:
    rows = [np.full((4, 5, 3), i, np.uint8) for i in range(3)]
    check_source(lambda: fl.from_images(folder / "*.png"), rows, examples=10)


def test_files_keep_their_order(folder: Path) -> None:
    a, b, c = (str(folder / f"{name}.png") for name in "abc")
    assert greys(fl.from_images(folder / "*.png")) == [0, 1, 2]
    assert greys(fl.from_images([c, a, b, a])) == [2, 0, 1, 0]
    assert greys(fl.from_images([folder / "c.png", folder / "[ab].png"])) == [2, 0, 1]
    assert greys(fl.from_images(b)) == [1]
    assert greys(fl.from_images([b, c]).prefetch(procs=2)) == [1, 2]


def test_spec_of_images(folder: Path) -> None:
    flow = fl.from_images(folder / "*.png")
    assert repr(flow) == "from_images('a.png', 3 files)"
    assert str(flow.spec) == "uint8[?, ?, 3]"
    small = fl.from_images(folder / "a.png", channels=1, resize=8)
    assert repr(small) == "from_images('a.png', channels=1, resize=(8, 8))"
    assert str(small.spec) == "uint8[8, 8, 1]"
    assert small.collect()[0].shape == (8, 8, 1)
    assert len(flow) == 3
    assert flow.effects == frozenset()
    assert (
        flow.node.origin(0, 1)
        == f"row 1 of from_images('a.png', 3 files), {str(folder / 'b.png')!r}"
    )


def test_resume_detects_other_files(folder: Path) -> None:
    with fl.from_images(folder / "*.png").epoch(0) as run:
        next(run)
        state = run.state_dict()
    assert greys(fl.from_images(folder / "?.png").map(np.array)) == [0, 1, 2]
    with fl.from_images(folder / "?.png").resume(state) as run:
        assert [int(image[0, 0, 0]) for image in run] == [1, 2]
    others = [folder / "a.png", folder / "c.png", folder / "b.png"]
    with pytest.raises(StateMismatch):
        next(fl.from_images(others).resume(state))


def test_a_state_is_resumed_where_the_images_are_in_another_folder(
    folder: Path, tmp_path: Path
) -> None:
    run = iter(fl.from_images(folder / "*.png"))
    next(run)
    state = run.state_dict()
    again_there = tmp_path / "job 2" / folder.name
    shutil.copytree(folder, again_there)
    with fl.from_images(tmp_path / "job 2" / "*" / "?.png").resume(state) as again:
        assert [int(image[0, 0, 0]) for image in again] == [1, 2]
    renamed = again_there.rename(again_there.with_name("val"))
    with pytest.raises(StateMismatch):
        next(fl.from_images(renamed / "*.png").resume(state))
    (renamed / "b.png").rename(tmp_path / "job 2" / "b.png")
    moved = [tmp_path / "job 2" / name for name in ("val/a.png", "b.png", "val/c.png")]
    with pytest.raises(StateMismatch):
        next(fl.from_images(moved).resume(state))


def test_remote_files_are_read(folder: Path) -> None:
    memory: Any = import_module("fsspec").filesystem("memory")
    for name in "ab":
        memory.pipe(f"/images/{name}.png", (folder / f"{name}.png").read_bytes())
    assert greys(fl.from_images("memory://images/*.png")) == [0, 1]
    assert greys(fl.from_images(["memory://images/b.png", folder / "c.png"])) == [1, 2]


def test_missing_file_is_named(folder: Path) -> None:
    missing = str(folder / "d.png")
    with pytest.raises(SourceError, match=f"from_images: '{missing}' cannot be opened"):
        fl.from_images(missing)
    with pytest.raises(SourceError, match="no file matches"):
        fl.from_images(folder / "*.jpg")
    above = folder / "digits"
    (above / "0").mkdir(parents=True)
    for path, message in [
        (above, f"{above}' is a folder, not a file.* as '{above}/\\*/\\*'$"),
        (above / "0", f"{above}/0' is a folder, not a file.* as '{above}/0/\\*'$"),
        (above / "*", f"{above}/\\*' matches folders only.* as '{above}/\\*/\\*'$"),
    ]:
        with pytest.raises(SourceError, match=f"^from_images: '{message}"):
            fl.from_images(path)
    flow = fl.from_images([folder / "a.png", missing, folder / "c.png"])
    with pytest.raises(ElementError, match="row 1 of from_images") as caught:
        flow.collect()
    assert missing in str(caught.value.__cause__)
    assert greys(flow.prefetch(on_error="skip")) == [0, 2]


@pytest.mark.parametrize("procs", [0, 2])
def test_a_bad_file_is_named_or_left_out(folder: Path, procs: int) -> None:
    bad = folder / "b.png"
    bad.write_bytes(bad.read_bytes()[:-3])
    flow = fl.from_images(folder / "*.png")
    with pytest.raises(ElementError) as caught:
        flow.prefetch(procs=procs).collect()
    assert f"from_images: '{bad}' cannot be read: this PNG image is cut off" in str(
        caught.value.__cause__
    )
    assert greys(flow.prefetch(procs=procs, on_error="skip")) == [0, 2]


def test_invalid_files_are_refused(folder: Path) -> None:
    nothing: Any = (3, [], [3], "", None)
    for files in nothing:
        with pytest.raises(InvalidFlow, match="from_images: path must be a str or path"):
            fl.from_images(files)
    with pytest.raises(InvalidFlow, match="from_images: channels must be 1"):
        fl.from_images(folder / "a.png", channels=2)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidFlow, match="from_images: resize must be an int"):
        fl.from_images(folder / "a.png", resize=0)
    with pytest.raises(SourceError, match="not a file"):
        fl.from_images(folder)


def test_files_of_a_list_are_opened_only_when_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(path: object) -> bool:
        raise AssertionError(f"{path} was looked for")

    monkeypatch.setattr("os.path.exists", looked)
    assert len(fl.from_images([f"/somewhere/{i}.jpg" for i in range(1000)])) == 1000


@pytest.mark.parametrize("name", ["simplejpeg", "cv2"])
def test_missing_library_is_reported(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingLibrary, match=rf'needs {name}, .*: pip install "flowdsl\[images\]"'):
        fl.from_images(folder / "a.png", resize=8)


def test_encoded_images_from_other_formats_are_decoded(tmp_path: Path) -> None:
    rows = [(encoded(np.full((8, 8, 3), 30 * i, np.uint8)), i) for i in range(4)]
    fl.from_items(rows).write_lmdb(tmp_path / "rows.lmdb")
    stored = fl.from_lmdb(tmp_path / "rows.lmdb", tuple[bytes, int])
    small = partial(fl.decode_image, resize=4)
    images, labels = stored.map_component(small, 0).prefetch(procs=2).batch(4).collect()[0]
    assert images.shape == (4, 4, 4, 3)
    assert np.abs(images[:, 0, 0, 0] - 30.0 * labels).max() <= 3


def test_markers_of_a_jpeg_without_content_are_skipped() -> None:
    image = sampled_jpeg(16, 8, [(1, 1)])
    filled = image[:2] + b"\xff\x01" + b"\xff\xff\xff" + image[2:]  # a marker, and fill bytes
    assert jpeg_header(memoryview(filled)) == jpeg_header(memoryview(image))
    with pytest.raises(SourceError, match="damaged: expected a marker at byte 2"):
        jpeg_header(memoryview(image[:2] + b"\0" + image[2:]))
    with pytest.raises(SourceError, match="cut off: it has 30 bytes, and no pixels"):
        jpeg_header(memoryview(image[:30]))
