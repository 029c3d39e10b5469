"""Messages between a sender and a receiver, as frames of bytes; no sockets.

A message consists of a header and, for an element, a body in the same codec as files
(``flowdsl.storage.codec``): MessagePack, without pickle. Large arrays follow in separate frames,
which neither end copies, after a layout: the path of each array in the element, its dtype and its
shape.

    header   magic "FLOW", version, kind, attempt, sender, receiver, four numbers; 76 bytes
    body     the element, with None in place of each array that follows
    layout   [(path, an empty array of the dtype, shape), ...]; only where arrays follow
    arrays   their bytes in C order
    seal     xxh3 of all frames, 8 bytes; not on encrypted connections, which authenticate each byte

A TCP checksum of 16 bits misses some damage, and numbers with a flipped bit are valid numbers. A
message with a wrong seal counts as lost, and is sent again. Sealing takes 2 µs for 100 KB.

Decoding executes no code, and its memory is limited by the size of the frames, not by the sizes
they claim: arrays are views of the frames, and a body creates only the objects it contains, see
``storage.codec``. A pickled body has a separate kind, and is decoded only with ``trusted=True``.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import numpy as np
import xxhash
from numpy.typing import NDArray

from flowdsl.errors import SourceError, SpecMismatch
from flowdsl.storage.codec import array_of_bytes, decode, encode
from flowdsl.storage.values import components_to_store, spelling_of

Frame: TypeAlias = bytes | memoryview
Key: TypeAlias = int | str
"""The index of an item in a tuple or list, or the name of a component."""
Path: TypeAlias = tuple[Key, ...]


class Route(NamedTuple):
    """The way to a peer: a socket, and the socket's name for the peer."""

    socket: int
    """The number of the socket."""
    peer: bytes
    """Empty for a socket that has only one peer."""


VERSION: Final = 2
NO_RECEIVER: Final = bytes(16)
"""The id of an unknown receiver."""
MAX_ARRAY_FRAMES: Final = 64
"""The maximum number of arrays in separate frames; further arrays are part of the body."""
MAX_FRAME_BYTES: Final = 1 << 32
"""The maximum bytes of a frame, since ZMQ allocates the size that a frame claims to have."""
_WORTH_A_FRAME: Final = 1 << 14
_MAX_REASON_BYTES: Final = 2000
_MAX_NAME_BYTES: Final = 100
_MAGIC = b"FLOW"
_HEADER = struct.Struct("<4sBBxxI16s16sQQQQ")
_SEAL = struct.Struct("<Q")
_KINDS_IN_FRAMES = "iufc"
"""The kinds of dtypes whose arrays are sent in frames: any bytes are valid values."""


class Kind(IntEnum):
    """The kind of a message, with the fields of the header that it uses."""

    HELLO = 1
    """Sender: I have elements from ``number`` on, and have sent all before ``upto``. My name, for
    error messages and tallies, follows."""
    ELEMENT = 2
    """Sender: element ``number``."""
    PICKLED = 3
    """Sender: element ``number``, pickled."""
    END = 4
    """Sender: there were ``number`` elements. The end counts as one more item."""
    DONE = 5
    """Sender: I know that you have all elements, and I disconnect."""
    WANT = 6
    """Receiver: ``upto`` elements are delivered, and may be forgotten; the flow above holds the
    next ``held`` elements. I expect ``number`` next, and can store ``room`` elements that the flow
    above has not read."""
    AGAIN = 7
    """Receiver: like ``WANT``, but ``number`` is missing in this ``attempt``: go back to it."""
    LEAVE = 8
    """Receiver: ``upto`` elements are delivered, and I disconnect."""
    STOP = 9
    """Either end: I cannot continue with you; the reason follows."""
    REFUSE = 10
    """Sender: I serve another receiver; the reason follows."""
    FAILED = 11
    """Sender: my flow failed after ``number`` elements; the reason follows."""


@attrs.frozen
class MessageHeader:
    """The first frame of a message.

    >>> header = MessageHeader(Kind.ELEMENT, b"s" * 16, number=7)
    >>> MessageHeader.decode(header.encode()) == header
    True
    """

    kind: Kind
    sender: bytes
    receiver: bytes = NO_RECEIVER
    attempt: int = 0
    """The number of times the sender went back; ``AGAIN`` repeats it, so old ones are ignored."""
    number: int = 0
    upto: int = 0
    room: int = 0
    held: int = 0

    def encode(self) -> bytes:
        """Encode the header as the bytes of a frame."""
        return _HEADER.pack(
            *(_MAGIC, VERSION, self.kind, self.attempt, self.sender, self.receiver),
            *(self.number, self.upto, self.room, self.held),
        )

    @classmethod
    def decode(cls, frame: Frame) -> MessageHeader:
        """Decode a header.

        Raises:
            SourceError: The bytes are not a header, or a header of another version.
        """
        size = len(frame)
        if size < 5 or frame[:4] != _MAGIC:
            raise SourceError(
                f"not a flowdsl message: it begins with {bytes(frame[:4])!r}, not {_MAGIC!r}; is "
                f"the other end flow.send_zmq or fl.from_zmq, with the format= of this one?"
            )
        if frame[4] != VERSION:
            raise SourceError(
                f"a message of version {frame[4]}, this flowdsl reads version {VERSION}; both ends "
                f"need flowdsl in one version"
            )
        if size != _HEADER.size:
            raise SourceError(f"a header of {size} bytes, not {_HEADER.size}")
        _, _, code, attempt, sender, receiver, number, upto, room, held = _HEADER.unpack(frame)
        try:
            kind = Kind(code)
        except ValueError as error:
            raise SourceError(f"a message of unknown kind {code}") from error
        return cls(kind, sender, receiver, attempt, number, upto, room, held)


def seal(frames: Sequence[Frame]) -> bytes:
    """Return the checksum of a message, which is its last frame."""
    digest = xxhash.xxh3_64()
    for frame in frames:
        digest.update(_SEAL.pack(len(frame)))  # so that moving a byte between frames is detected
        digest.update(frame)
    return _SEAL.pack(digest.intdigest())


def is_sealed(frames: Sequence[Frame]) -> bool:
    """Return True if the last frame of a message is the checksum of the others."""
    return len(frames) > 1 and bytes(frames[-1]) == seal(frames[:-1])


def may_be_sealed(frames: Sequence[Frame]) -> bool:
    """Return True if a message begins like one of this version, which has a seal."""
    return bytes(frames[0][:5]) == _MAGIC + bytes([VERSION])


@attrs.frozen(eq=False)
class Packed:
    """An encoded element or end: its message without the header."""

    kind: Kind
    frames: tuple[Frame, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of the frames."""
        return sum(map(len, self.frames))


def pack(element: object) -> Packed:
    """Encode an element as frames; frames of large arrays are the arrays' own memory.

    Raises:
        SpecMismatch: A component has an unsupported type or value; the message names it.
    """
    separate: dict[Path, NDArray[Any]] = {}
    try:
        skeleton = _without_arrays(element, (), separate)
    except RecursionError as error:
        raise SpecMismatch("element: nested too deeply to be sent") from error
    if not separate:
        return Packed(Kind.ELEMENT, (encode(element),))
    arrays = [np.ascontiguousarray(array) for array in separate.values()]
    layout = [
        (list(path), np.empty(0, array.dtype), list(array.shape))
        for path, array in zip(separate, arrays, strict=True)
    ]
    contents = (array.reshape(-1).view(np.uint8).data.toreadonly() for array in arrays)
    return Packed(Kind.ELEMENT, (encode(skeleton), encode(layout), *contents))


def pack_trusted(element: object) -> Packed:
    """Encode an element as a pickle (protocol 5, with out-of-band buffers).

    Raises:
        SpecMismatch: The element cannot be pickled.
    """
    buffers: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        content = buffer.raw()
        if content.nbytes < _WORTH_A_FRAME or len(buffers) == MAX_ARRAY_FRAMES:
            return True
        buffers.append(content.toreadonly())
        return False

    try:
        body = pickle.dumps(element, 5, buffer_callback=in_band)
    except Exception as error:  # a user's class may raise anything
        raise SpecMismatch(f"element: it cannot be pickled: {error}") from error
    return Packed(Kind.PICKLED, (body, *buffers))


def pack_numbered(dump: Callable[[object], Packed], element: object, i: int) -> Packed:
    """Encode element ``i`` with ``dump``.

    Raises:
        SpecMismatch: The element cannot be sent; the message contains its number.
    """
    try:
        message = dump(element)
    except SpecMismatch as error:
        raise SpecMismatch(f"send_zmq: element {i}: {error}") from error
    largest = max(map(len, message.frames))
    if largest >= MAX_FRAME_BYTES:
        raise SpecMismatch(
            f"send_zmq: element {i}: an array or body of {largest} bytes, and at most "
            f"{MAX_FRAME_BYTES - 1} can be sent; split the element"
        )
    return message


def unpack(kind: Kind, frames: Sequence[Frame], trusted: bool = False) -> Any:
    """Decode an element from frames without the header; its arrays are read-only views.

    Raises:
        SourceError: The frames are not an element; or are a pickle, without ``trusted=True``.
    """
    if kind is Kind.PICKLED and not trusted:
        raise SourceError(
            "the sender pickles its elements, and opening a pickle can run any code; pass "
            "trusted=True here too if you trust all who can reach this address, or remove "
            "trusted=True from the sender"
        )
    if not 1 <= len(frames) <= MAX_ARRAY_FRAMES + 2:
        raise SourceError(f"not an element: {len(frames)} frames")
    if kind is Kind.PICKLED:
        try:
            buffers = [memoryview(frame).toreadonly() for frame in frames[1:]]
            return pickle.loads(frames[0], buffers=buffers)
        except Exception as error:  # a user's class may raise anything
            raise SourceError(f"not an element: its pickle cannot be opened: {error}") from error
    element = decode(frames[0])
    if len(frames) == 1:
        return element
    layout, contents = decode(frames[1]), frames[2:]
    if type(layout) is not list or len(layout) != len(contents):
        raise SourceError(
            f"not an element: the layout does not describe its {len(contents)} arrays"
        )
    try:
        for described, content in zip(layout, contents, strict=True):
            path, dtype, shape = _checked_layout(described)
            element = _with_array(element, path, array_of_bytes(dtype, shape, content))
    except (*(ValueError, TypeError, OverflowError), LookupError, RecursionError) as error:
        raise SourceError(f"not an element: {error}") from error
    return element


def encode_reason(text: str) -> bytes:
    """Encode a reason as the frame after a ``STOP``."""
    return text.encode("utf-8", "replace")[:_MAX_REASON_BYTES]


def decode_reason(frames: Sequence[Frame]) -> str:
    """Decode a peer's reason as one printable line of limited length."""
    reason = bytes(frames[0][:_MAX_REASON_BYTES]).decode("utf-8", "replace") if frames else ""
    return "".join(c if c.isprintable() else " " for c in reason) or "no reason given"


def encode_name(name: str) -> bytes:
    """Encode a sender's name as the frame after a ``HELLO``."""
    return name.encode("utf-8", "replace")[:_MAX_NAME_BYTES]


def decode_name(frames: Sequence[Frame]) -> str:
    """Decode a sender's name as printable text of limited length; empty if it says none."""
    name = bytes(frames[0][:_MAX_NAME_BYTES]).decode("utf-8", "ignore") if frames else ""
    return "".join(filter(str.isprintable, name))


def _without_arrays(x: Any, path: Path, separate: dict[Path, NDArray[Any]]) -> Any:
    """Replace the large arrays of an element by None, and add them to ``separate``."""
    kind = type(x)
    if kind is np.ndarray or kind is np.memmap:
        large = x.nbytes >= _WORTH_A_FRAME and x.dtype.kind in _KINDS_IN_FRAMES
        if large and len(separate) < MAX_ARRAY_FRAMES and spelling_of(x.dtype):
            separate[path] = x
            return None
        return x
    if kind is list:
        return [_without_arrays(v, (*path, i), separate) for i, v in enumerate(x)]
    parts = components_to_store(x, ".".join(["element", *map(str, path)]))
    if parts is None:
        return x
    if isinstance(x, tuple):
        return tuple(_without_arrays(v, (*path, i), separate) for i, (_, v) in enumerate(parts))
    return {name: _without_arrays(v, (*path, name), separate) for name, v in parts}


def _checked_layout(described: Any) -> tuple[list[Key], np.dtype[Any], list[int]]:
    """Check the entry of an array in a layout, and return its path, dtype and shape."""
    path, empty, shape = described
    wrong = (
        type(path) is not list
        or not isinstance(empty, np.ndarray)
        or empty.dtype.kind not in _KINDS_IN_FRAMES
        or type(shape) is not list
        or any(type(side) is not int or side < 0 for side in shape)
    )
    if wrong:
        raise ValueError("the layout of an array is a path, an empty array and a shape")
    return path, empty.dtype, shape


def _with_array(x: Any, path: list[Key], array: NDArray[Any]) -> Any:
    """Replace the None at ``path`` of an element by the array."""
    if not path:
        if x is not None:
            raise ValueError("an array in the place of something else")
        return array
    key, rest = path[0], path[1:]
    if type(x) is dict and isinstance(key, str):
        x[key] = _with_array(x[key], rest, array)
        return x
    if type(x) not in (tuple, list) or type(key) is not int or key < 0:
        raise ValueError(f"no place {key!r} in a {type(x).__name__}")
    changed = _with_array(x[key], rest, array)
    if type(x) is tuple:
        return (*x[:key], changed, *x[key + 1 :])
    x[key] = changed
    return x
