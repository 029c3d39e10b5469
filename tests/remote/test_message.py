"""Messages: packed elements are restored, and invalid bytes are refused."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.remote.message import (
    MAX_ARRAY_FRAMES,
    Kind,
    MessageHeader,
    Packed,
    is_sealed,
    pack,
    pack_trusted,
    seal,
    unpack,
)
from flowdsl.storage.codec import encode
from tests.storage.elements import ELEMENTS, TEXT, identical

LARGE: st.SearchStrategy[Any] = st.sampled_from(
    [
        np.arange(5000, dtype=np.int32),
        np.arange(2**14, dtype=np.uint8).reshape(2, -1),
        np.asfortranarray(np.arange(10_000.0).reshape(100, 100)),
        np.arange(20_000, dtype=">i2")[::-1],
        np.zeros(20_000, np.bool_),
        np.full(5000, "abc"),
    ]
)
WITH_LARGE = st.recursive(
    ELEMENTS | LARGE,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(TEXT, parts, max_size=3),
    ),
    max_leaves=8,
)
IDS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, 2**64 - 1)
PAIR = (np.zeros(20_000, np.uint8), {"a": [np.ones(3000)], "b": 1})


def through(packed: Packed) -> Any:
    return unpack(packed.kind, [bytes(frame) for frame in packed.frames], trusted=True)


@given(WITH_LARGE)
def test_packed_elements_are_restored(element: object) -> None:
    assert identical(through(pack(element)), element)


# Pickle makes the others native.
NATIVE = LARGE.filter(lambda array: bool(array.dtype.isnative))


@given(NATIVE, NATIVE)
def test_pickled_elements_are_restored(first: object, second: object) -> None:
    element = (first, [second, {3}])
    assert identical(through(pack_trusted(element)), element)


HEADERS = st.builds(
    MessageHeader,
    st.sampled_from(Kind),
    IDS,
    IDS,
    st.integers(0, 2**32 - 1),
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


@given(HEADERS)
def test_headers_are_restored(header: MessageHeader) -> None:
    assert MessageHeader.decode(header.encode()) == header
    assert MessageHeader.decode(memoryview(header.encode())) == header


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.data())
def test_a_seal_shows_a_changed_bit_and_a_moved_byte(
    frames: list[bytes], data: st.DataObject
) -> None:
    message = [*frames, seal(frames)]
    assert is_sealed(message)
    assert not is_sealed(message[:-1]) or len(frames) > 1
    k = data.draw(st.integers(0, len(message) - 1))
    if message[k]:
        at, bit = data.draw(st.integers(0, len(message[k]) - 1)), data.draw(st.integers(0, 7))
        flipped = bytearray(message[k])
        flipped[at] ^= 1 << bit
        assert not is_sealed([*message[:k], bytes(flipped), *message[k + 1 :]])
    if len(frames) > 1 and frames[0]:
        moved = [frames[0][:-1], frames[0][-1:] + frames[1], *frames[2:]]
        assert not is_sealed([*moved, message[-1]])


def test_large_arrays_are_not_copied() -> None:
    packed = pack(PAIR)
    frames = [np.frombuffer(frame, np.uint8) for frame in packed.frames]
    assert len(frames) == 4
    assert np.shares_memory(frames[2], PAIR[0])
    got = unpack(packed.kind, packed.frames)
    assert np.shares_memory(got[0], PAIR[0])
    assert not got[0].flags.writeable
    assert not through(pack_trusted(PAIR))[0].flags.writeable


def test_the_number_of_frames_is_limited() -> None:
    element = [np.full(20_000, i, np.uint8) for i in range(MAX_ARRAY_FRAMES + 9)]
    for dump in (pack, pack_trusted):
        packed = dump(element)
        assert len(packed.frames) <= MAX_ARRAY_FRAMES + 2
        assert identical(through(packed), element)


def test_unsupported_elements_are_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    for element, said in (
        ((1, {2}), "element.1: set cannot be written"),
        (cycle, "element: nested too deeply to be sent"),
    ):
        with pytest.raises(SpecMismatch, match=said):
            pack(element)
    with pytest.raises(SpecMismatch, match="element: it cannot be pickled: "):
        pack_trusted(lambda: 1)


def test_a_pickle_is_not_opened_without_trust() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("it was opened",)

    with pytest.raises(SourceError, match="the sender pickles its elements"):
        unpack(Kind.PICKLED, [pickle.dumps(Bomb())])
    with pytest.raises(SourceError, match="its pickle cannot be opened: "):
        unpack(Kind.PICKLED, [b"no pickle"], trusted=True)
    # What says to be safe is never taken for a pickle.
    with pytest.raises(SourceError, match="not an element"):
        unpack(Kind.ELEMENT, [pickle.dumps(1)], trusted=True)


GOOD = MessageHeader(Kind.HELLO, b"s" * 16).encode()


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "not a flowdsl message: it begins with b''"),
        (b"FLOW", "not a flowdsl message"),
        (b"POST / HTTP/1.1", "it begins with b'POST', not b'FLOW'; is the other end flow.send_zmq"),
        (b"FLOW\x01" + GOOD[5:], "a message of version 1, this flowdsl reads version 2; both ends"),
        (GOOD[:-1], "a header of 75 bytes, not 76"),
        (GOOD + b"\0", "a header of 77 bytes, not 76"),
        (GOOD[:5] + b"\x63" + GOOD[6:], "a message of unknown kind 99"),
    ],
)
def test_invalid_headers_are_refused(frame: bytes, said: str) -> None:
    with pytest.raises(SourceError) as caught:
        MessageHeader.decode(frame)
    assert said in str(caught.value)


def place(path: Any, dtype: Any = "u1", shape: Any = (3,)) -> Any:
    return (path, np.empty(0, dtype), list(shape))


FORGED: dict[str, tuple[object, object, list[bytes]]] = {
    "more arrays than places": ([None], [place([0])], [b"abc", b"abc"]),
    "fewer": ([None], [place([0])], []),
    "no layout": ([None], {"a": 1}, [b"abc"]),
    "a place that is none": ([None], [3], [b"abc"]),
    "bytes for another shape": ([None], [place([0], shape=(4,))], [b"abc"]),
    "more bytes than the shape has": ([None], [place([0], shape=(2,))], [b"abc"]),
    "a huge shape": ([None], [place([0], shape=(2**40, 2**40))], [b"abc"]),
    "an empty one with a huge side": ([None], [place([0], shape=(0, 2**63))], [b""]),
    "a negative side": ([None], [place([0], shape=(-1, -3))], [b"abc"]),
    "a side that NumPy would compute": ([None], [place([0], shape=(-1,))], [b"abc"]),
    "the same for an item of no bytes": ([None], [place([0], "U0", (-1,))], [b"abc"]),
    "too many sides": ([None], [place([0], shape=(1,) * 100)], [b"a"]),
    "characters": ([None], [place([0], dtype="U1", shape=())], [b"\xff" * 4]),
    "the place of something": ([1], [place([0])], [b"abc"]),
    "the same place twice": ([None], [place([0]), place([0])], [b"abc", b"abc"]),
    "beyond the end": ([None], [place([1])], [b"abc"]),
    "from the end": ((None,), [place([-1])], [b"abc"]),
    "no such key": ({"a": None}, [place(["b"])], [b"abc"]),
    "a number in a dict": ({"a": None}, [place([0])], [b"abc"]),
    "a key in a list": ([None], [place(["a"])], [b"abc"]),
    "True in a list": ([None, None], [place([True])], [b"abc"]),
    "in a text": ("abc", [place([0])], [b"abc"]),
    "deeper than it is": ([None], [place([0] * 50)], [b"abc"]),
    "a side that is none": ([None], [([0], np.empty(0, "u1"), ["3"])], [b"abc"]),
    "a dtype that is none": ([None], [([0], "u1", [3])], [b"abc"]),
}


@pytest.mark.parametrize(("skeleton", "layout", "contents"), FORGED.values(), ids=FORGED)
def test_forged_layouts_are_refused(
    skeleton: object, layout: object, contents: list[bytes]
) -> None:
    with pytest.raises(SourceError, match="not an element: "):
        unpack(Kind.ELEMENT, [encode(skeleton), encode(layout), *contents])


def test_an_invalid_number_of_frames_is_refused() -> None:
    for count in (0, MAX_ARRAY_FRAMES + 3):
        with pytest.raises(SourceError, match=f"not an element: {count} frames"):
            unpack(Kind.ELEMENT, [msgspec.msgpack.encode(1)] * count)
