"""The element codec: elements are decoded unchanged, and decoding is safe on any bytes."""

from __future__ import annotations

import sys
import tracemalloc
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from flowdsl.elements.specs import ArraySpec, ListSpec, Spec, StructSpec, ValueSpec, join, spec_of
from flowdsl.elements.structure import components
from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.storage.codec import Decoder, decode, encode, spec_from_plain, spec_to_plain
from tests.storage.elements import ELEMENTS, identical


def arrays_in(x: Any) -> list[NDArray[Any]]:
    if isinstance(x, np.ndarray):
        return [x]
    parts = x if isinstance(x, list) else [part for _, part in components(x) or ()]
    return [array for part in parts for array in arrays_in(part)]


@given(ELEMENTS)
def test_written_elements_are_read_back(element: object) -> None:
    assert identical(decode(encode(element)), element)


@given(ELEMENTS)
def test_arrays_come_back_aligned_and_read_only(element: object) -> None:
    for array in arrays_in(decode(encode(element))):
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.writeable


@given(ELEMENTS)
def test_any_buffer_is_accepted(element: object) -> None:
    shifted = memoryview(b"\0" + encode(element))[1:]
    assert identical(decode(shifted), element)


@attrs.frozen
class Sample:
    image: NDArray[np.uint8]
    label: int


class Pair(NamedTuple):
    x: int
    y: int


def test_a_class_is_written_as_its_components() -> None:
    image = np.zeros(2, np.uint8)
    assert identical(decode(encode(Sample(image, 3))), {"image": image, "label": 3})
    assert identical(decode(encode(Pair(1, 2))), (1, 2))


def test_a_memory_map_is_an_array(tmp_path: Any) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    assert identical(decode(encode(np.load(tmp_path / "a.npy", mmap_mode="r"))), np.arange(3))


class Color(IntEnum):
    RED = 1


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ((1, 2**64), f"element.1: {2**64} cannot be written: an int has at most 64 bits"),
        ({"a": -(2**63) - 1}, "element.a: -9223372036854775809 cannot"),
        ([1, {2}], "element[1]: set cannot be written"),
        (Decimal(1), "Decimal cannot"),
        (Color.RED, "Color cannot"),
        (bytearray(b"a"), "bytearray cannot"),
        ({1: 2}, "str keys only"),
        (("a", "\ud800"), "element.1: text that is not Unicode"),
        ({"\ud800": 1}, "element: text that is not Unicode"),
        ((np.array([{}]),), "element.0: an array of object"),
        (np.zeros(2, [("x", "i4")]), "an array of [('x', '<i4')]"),
        (np.zeros((), [("x", "i4")])[()], "an array of [('x', '<i4')]"),
        (np.zeros(2, np.dtype(bfloat16).newbyteorder(">")), "an array of >V2"),
        (np.array(["a"], np.dtypes.StringDType()), "an array of StringDType()"),
        (np.ma.masked_array([1, 2], [True, False]), "MaskedArray cannot"),
        (CYCLE, "nested too deeply"),
    ],
    ids=str,
)
def test_value_that_would_not_be_read_back_is_refused(element: object, said: str) -> None:
    with pytest.raises(SpecMismatch) as caught:
        encode(element)
    assert said in str(caught.value)


# -- what both sides trust -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "element",
    [
        {"a": ({1: 2}, {3}), "b": [Decimal(1), Color.RED]},
        (2**64, "\ud800", bytearray(b"a")),
        {"\ud800": {(1, 2): None}},
    ],
    ids=str,
)
def test_unsupported_values_are_pickled_if_trusted(element: object) -> None:
    data = encode(element, trusted=True)
    assert repr(decode(data, trusted=True)) == repr(element)
    with pytest.raises(SourceError, match=r"pickled Python object.*pass trusted=True"):
        decode(data)


@pytest.mark.parametrize(
    "array",
    [np.zeros(2, [("x", "i4")]), np.array([{}]), np.ma.masked_array([1, 2])],
    ids=str,
)
def test_arrays_of_any_dtype_are_pickled_where_both_sides_trust(array: NDArray[Any]) -> None:
    got = decode(encode([array], trusted=True), trusted=True)[0]
    assert type(got) is type(array)
    assert got.dtype == array.dtype
    assert (got == array).all()


@given(ELEMENTS)
def test_trusted_does_not_change_supported_values(element: object) -> None:
    data = encode(element)
    assert encode(element, trusted=True) == data
    assert identical(decode(data, trusted=True), element)


class Unruly:
    def __reduce__(self) -> Any:
        raise KeyError("no")


def fail(*_: object) -> None:
    raise KeyError("no")


class FailsWhenRead:
    def __reduce__(self) -> Any:
        return fail, ()


def test_unpicklable_object_is_refused() -> None:
    with pytest.raises(SpecMismatch, match=r"element\.1: Unruly cannot.*nor can it be pickled"):
        encode((1, Unruly()), trusted=True)
    with pytest.raises(SourceError, match=r"pickled object cannot be read: KeyError\('no'\)"):
        decode(encode((1, FailsWhenRead()), trusted=True), trusted=True)


@given(st.binary())
def test_pickles_are_refused_without_trust(data: bytes) -> None:
    forged = msgspec.msgpack.encode([1, msgspec.msgpack.Ext(5, data)])
    with pytest.raises(SourceError, match="trusted=True"):
        decode(forged)


# -- bytes that nobody wrote -----------------------------------------------------------------------


def value_or_refusal(data: bytes) -> None:
    """Decode or raise SourceError, in memory proportional to the number of bytes."""
    tracemalloc.start()
    try:
        decode(data)
    except SourceError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 200_000 + 100 * len(data)


@given(st.binary())
def test_arbitrary_bytes_decode_or_raise_source_error(data: bytes) -> None:
    value_or_refusal(data)


@given(ELEMENTS, st.data())
def test_damaged_bytes_decode_or_raise_source_error(element: object, data: st.DataObject) -> None:
    payload = bytearray(encode(element))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(payload) - 1), BYTES))):
        payload[at] = byte
    value_or_refusal(bytes(payload))
    value_or_refusal(bytes(payload[: data.draw(st.integers(0, len(payload)))]))


BYTES = st.integers(0, 255)


def array_of(dtype: object, shape: object, content: object = b"", code: int = 2) -> bytes:
    encode_plain = msgspec.msgpack.Encoder().encode
    return encode_plain(msgspec.msgpack.Ext(code, encode_plain((dtype, shape, content))))


FORGED = {
    "more elements than bytes": array_of("<f8", (2**40,), b"12345678"),
    "more bytes than elements": array_of("<f8", (1,), b"1234567812345678"),
    "more elements than there are numbers": array_of("<f8", (2**62, 2**62), b"12345678"),
    "no elements, of a side beyond memory": array_of("<f8", (0, 2**62), b""),
    "no elements, of a side beyond int64": array_of("<f8", (0, 2**64 - 1), b""),
    "negative sides": array_of("|u1", (-2, -4), b"12345678"),
    "a side that NumPy would compute": array_of("|u1", (-1,), b"12345678"),
    "the same for an item of no bytes": array_of("<U0", (-1,), b"1234"),
    "endlessly many items of no bytes": array_of("<U0", (2**62,), b""),
    "too many dimensions": array_of("|u1", (1,) * 100, b"1"),
    "a character beyond the last": array_of("<U1", (1,), b"\x00\x00\x11\x00"),
    "the same the other way round": array_of(">U1", (), b"\x00\x11\x00\x00", code=3),
    "neither True nor False": array_of("|b1", (3,), b"\x00\x02\x01"),
    "objects": array_of("|O", (1,), b"12345678"),
    "an object by its name": array_of("object", (1,), b"12345678"),
    "fields": array_of("i4,O", (1,), b"123456789012"),
    "a dtype that NumPy finds deprecated": array_of("a5", (1,), b"12345"),
    "a dtype of a huge item": array_of("|V2147483647", (1,), b"1"),
    "a dtype of an item beyond int": array_of("|S99999999999999999999", (1,), b"1"),
    "an unknown unit": array_of("<M8[foo]", (1,), b"12345678"),
    "code for a dtype": array_of("__import__('os').abort()", (1,), b"1"),
    "a shape of floats": array_of("<f8", (1.0,), b"12345678"),
    "an array that is a list": array_of("<f8", [], [1]),
    "a tuple that is a number": msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\x01")),
    "a complex number of one part": msgspec.msgpack.encode(msgspec.msgpack.Ext(4, bytes(8))),
    "NumPy's text that is a number": msgspec.msgpack.encode(msgspec.msgpack.Ext(6, b"\x01")),
    "a class of ml_dtypes without numbers": array_of("finfo", (1,), b"12345678"),
    "a name of no dtype": array_of("bfloat17", (1,), b"12"),
    "fewer halves than their shape": array_of("bfloat16", (2,), b"12"),
    "an unknown extension": msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")),
    "an array as a key": b"\x81" + array_of("|u1", (1,), b"1") + b"\x01",
    "a list of 2**32 - 1": b"\xdd\xff\xff\xff\xff",
    "a dict of 2**32 - 1": b"\xdf\xff\xff\xff\xff",
    "bytes of 2**32 - 1": b"\xc6\xff\xff\xff\xff",
    "lists in lists": b"\x91" * 200_000,
    "huge lists in huge lists": b"\xdd\x7f\xff\xff\xff" * 500,
    "a time out of range": b"\xd7\xff" + b"\xff" * 8,
    "a pickle": b"cos\nsystem\n(S'exit'\ntR.",
    "bytes after the end": b"\x01\x01",
    "nothing": b"",
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_forged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SourceError, match="not an element"):
        decode(data)
    value_or_refusal(data)


def test_tuples_in_tuples_are_refused_beyond_the_stack() -> None:
    data = b"\x01"
    for _ in range(3000):
        data = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, b"\x91" + data))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # as a program has it; other tests' libraries raise it
    try:
        with pytest.raises(SourceError, match="recursion"):
            decode(data)
    finally:
        sys.setrecursionlimit(limit)


# -- specs in headers ------------------------------------------------------------------------------


@given(ELEMENTS, ELEMENTS)
def test_spec_is_read_back(a: object, b: object) -> None:
    for spec in (spec_of(a), join(spec_of(a), spec_of(b))):
        assert spec_from_plain(passed_on(spec)) == known(spec)


def passed_on(spec: Spec) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(spec_to_plain(spec)))
    return plain


def known(spec: Spec) -> Spec:
    """Encode a spec in which only plain values are known."""
    if isinstance(spec, StructSpec):
        return attrs.evolve(spec, fields=tuple((name, known(part)) for name, part in spec.fields))
    if isinstance(spec, ListSpec):
        return attrs.evolve(spec, item=known(spec.item))
    return ValueSpec(object) if spec == ValueSpec(type(None)) else spec


def test_spec_keeps_a_class_as_its_form_and_names() -> None:
    kept = spec_from_plain(passed_on(spec_of((Pair(1, 2), Sample(np.zeros(2, np.uint8), 3)))))
    pair = StructSpec(tuple, (("x", ValueSpec(int)), ("y", ValueSpec(int))))
    image = ArraySpec(np.dtype(np.uint8), (2,))
    sample = StructSpec(dict, (("image", image), ("label", ValueSpec(int))))
    assert kept == StructSpec(tuple, (("0", pair), ("1", sample)))


def test_pickled_value_has_an_unknown_spec() -> None:
    spec = spec_of(({1: 2}, np.zeros(2, [("x", "i4")]), {"\ud800": 1}, 3))
    kept = spec_from_plain(passed_on(spec))
    unknown = ValueSpec(object)
    parts = (("0", unknown), ("1", unknown), ("2", unknown), ("3", ValueSpec(int)))
    assert kept == StructSpec(tuple, parts)


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"dtype": "|O", "shape": []},
        {"dtype": "<f8"},
        {"type": "Popen"},
        {"form": "set", "fields": []},
        {"form": "tuple", "fields": [1]},
    ],
    ids=str,
)
def test_a_forged_spec_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        spec_from_plain(plain)


@given(st.lists(ELEMENTS, min_size=1, max_size=4))
def test_a_decoder_returns_the_elements_that_decode_returns(elements: list[object]) -> None:
    decoder = Decoder()
    alike = [np.full(3, 100, dtype) for dtype in ("u1", "u1", "i1", "u1")]  # aligned anywhere
    for element in [*elements, *elements, *alike, *elements]:
        data = memoryview(encode(element))
        assert identical(decoder(data), decode(data))
        for array in arrays_in(decoder(data)):
            assert array.flags.aligned
            assert not array.flags.writeable
