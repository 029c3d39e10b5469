"""The zmq_ops format, compared with bytes that were written by hand."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowdsl.elements.declared_specs import spec_of_type
from flowdsl.elements.specs import UNKNOWN
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.remote.zmq_ops import Encoder, decode, encode
from tests.storage.elements import identical

# The numbers of tensorflow/core/framework/types.proto.
CODES = {
    "f4": 1,
    "f8": 2,
    "i4": 3,
    "u1": 4,
    "i2": 5,
    "i1": 6,
    "c8": 8,
    "i8": 9,
    "?": 10,
    "u2": 17,
    "c16": 18,
    "f2": 19,
    "u4": 22,
    "u8": 23,
}
VECTORS: list[tuple[Any, list[str]]] = [
    ((), ["00000000"]),
    (
        (np.array([[1, 2, 3], [4, 5, 6]], np.uint8),),
        ["01000000", "04000000 02000000 02000000 03000000 0600000000000000 010203040506"],
    ),
    (
        (np.float32(1.0), np.array([-1], np.int64)),
        [
            *("02000000", "01000000 00000000 0400000000000000 0000803f"),
            "09000000 01000000 01000000 0800000000000000 ffffffffffffffff",
        ],
    ),
    (
        (np.zeros((2, 0), np.float64), np.array([True, False])),
        [
            *("02000000", "02000000 02000000 02000000 00000000 0000000000000000"),
            "0a000000 01000000 02000000 0200000000000000 0100",
        ],
    ),
]


@pytest.mark.parametrize(("element", "written"), VECTORS, ids=lambda x: str(x)[:20])
def test_bytes_written_by_hand(element: tuple[Any, ...], written: list[str]) -> None:
    data = bytes.fromhex(" ".join(written))
    assert encode(element) == data
    got = decode(data)
    assert identical(got, tuple(map(np.asarray, element)))


@pytest.mark.parametrize(("dtype", "code"), CODES.items())
def test_the_number_of_each_dtype(dtype: str, code: int) -> None:
    written = encode(np.zeros(1, dtype))
    assert struct.unpack_from("<i", written, 4) == (code,)
    assert decode(written)[0].dtype == np.dtype(dtype)


ARRAYS = hnp.arrays(
    st.sampled_from([np.dtype(d) for d in CODES]), hnp.array_shapes(min_dims=0, min_side=0)
)


@given(st.lists(ARRAYS, max_size=4))
def test_arrays_are_restored(arrays: list[Any]) -> None:
    got = decode(memoryview(b"\0" + encode(arrays))[1:])
    assert identical(got, tuple(arrays))
    for array in got:
        assert array.flags.aligned
        assert not array.flags.writeable


class Pair(NamedTuple):
    x: int
    y: float


def test_numbers_become_arrays_and_names_are_dropped() -> None:
    for element in (Pair(1, 2.5), {"x": 1, "y": 2.5}, [1, 2.5]):
        x, y = decode(encode(element))
        assert identical((x, y), (np.array(1), np.array(2.5)))
    (flag,) = decode(encode(True))
    assert flag.dtype == np.bool_
    (array,) = decode(encode(np.arange(6, dtype=">i4").reshape(2, 3).T))
    assert (array.dtype.str, array.tolist()) == ("<i4", [[0, 3], [1, 4], [2, 5]])


class Row(TypedDict):
    x: int
    y: float


class Swapped(NamedTuple):
    y: float
    x: int


def test_a_dict_is_sent_in_the_order_of_the_spec() -> None:
    encoder = Encoder(spec_of_type(Row))
    for element in ({"x": 1, "y": 2.5}, {"y": 2.5, "x": 1}):
        assert encoder(element) == encode((1, 2.5))


def test_another_key_order_is_refused_without_a_spec() -> None:
    encoder = Encoder(UNKNOWN)
    assert encoder({"x": 1, "y": 2.5}) == encode((1, 2.5))
    with pytest.raises(SpecMismatch, match=r"its keys are y, x, the keys of the first .* x, y"):
        encoder({"y": 2.5, "x": 1})


def test_a_named_tuple_with_other_names_is_not_sent() -> None:
    encoder = Encoder(UNKNOWN)
    assert encoder(Pair(1, 2.5)) == encoder((1, 2.5)) == encode((1, 2.5))
    with pytest.raises(SpecMismatch, match=r"it is Swapped\(y.*expected is Pair\(x"):
        encoder(Swapped(2.5, 1))


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ((1, "a"), "element.1: str is not in the format zmq_ops, which has arrays and numbers of"),
        ({"a": None}, "element.a: NoneType is not in the format"),
        ((np.array(["a"]),), "element.0: an array of <U1 is not in"),
        (2**63, "element: int is not in"),
        ((np.array([{}]),), "element.0: an array of object is not in"),
        (np.zeros((1,) * 9), "element: the format zmq_ops has at most 8 dimensions"),
        (np.zeros((0, 2**31)), "of at most 2147483647; got [0, 2147483648]"),
    ],
    ids=str,
)
def test_unsupported_values_are_refused(element: object, said: str) -> None:
    with pytest.raises(SpecMismatch) as caught:
        encode(element)
    assert said in str(caught.value)


def tensor(code: int, shape: list[int], nbytes: int, content: bytes = b"") -> bytes:
    head = struct.pack(f"<iii{len(shape)}iq", 1, code, len(shape), *shape, nbytes)
    return head + content


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "requires a buffer"),
        (struct.pack("<i", -1), "requires a buffer"),
        (struct.pack("<i", 2**31 - 1), "requires a buffer"),
        (tensor(7, [1], 1, b"a"), "unknown dtype 7"),
        (struct.pack("<iii", 1, 4, 9), "9 dimensions"),
        (struct.pack("<iii", 1, 4, -1), "-1 dimensions"),
        (tensor(4, [2**31 - 1] * 8, 2**62), "0 bytes left for an array of"),
        (tensor(4, [3], 2, b"ab"), "2 bytes for uint8[3]"),
        (tensor(4, [-2, -1], 2, b"ab"), "negative dimensions"),
        (tensor(4, [3], -3), "0 bytes left for an array of -3"),
        (tensor(4, [3], 3, b"ab"), "2 bytes left for an array of 3"),
        (tensor(4, [3], 3, b"abcd"), "1 bytes after the end"),
        (tensor(10, [2], 2, b"\1\2"), "a byte that is neither True nor False"),
    ],
)
def test_invalid_frames_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        decode(data)
    assert str(caught.value).startswith("not an element of the format zmq_ops: ")
    assert said in str(caught.value)
