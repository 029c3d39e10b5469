"""A fuzzer: sends malformed frames to everything that reads messages, or states, of others.

    python -m tests.remote.fuzz --frames 100000 --seed 0

Each decoder gets so many messages: valid ones with bits flipped, cut short, made longer, with
pieces swapped or replaced, with huge sizes written into them; forged ones; and random bytes. Each
must give an element or a flowdsl error, in little time and in memory of the order of its frames.
Nothing is unpickled: what is sent as a pickle meets receivers that did not ask for any.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import pickle
import random
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from time import thread_time
from typing import Any, TypeAlias

import attrs
import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import flowdsl as fl
from flowdsl.errors import FlowError, SourceError
from flowdsl.remote import zmq_ops
from flowdsl.remote.message import (
    Kind,
    MessageHeader,
    Route,
    decode_reason,
    pack,
    pack_trusted,
    unpack,
)
from flowdsl.remote.receive_state import ReceiveState, Tally
from flowdsl.remote.send_buffer import SendBuffer
from flowdsl.storage import codec

Frames: TypeAlias = list[bytes]
Decoder: TypeAlias = Callable[[Frames], object]

MAX_BYTES_PER_BYTE = 100
"""The allowed memory of a frame, as a multiple of its size, plus this constant:"""
MAX_BYTES_BESIDES = 300_000
MAX_SECONDS = 2.0
_HANG_SECONDS = 60
_NUMBERS = [0, 1, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
_HERE = Route(0, b"peer")
_ME, _THEM = b"m" * 16, b"t" * 16


class PickleOpenedError(BaseException):
    """Raised when an untrusted pickle is opened; decoders must not catch it."""


def _boom() -> None:
    raise PickleOpenedError


class Bomb:
    """Raises when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _boom, ()


ELEMENTS: list[Any] = [
    *(None, True, -1, 2**63, 2.5, "text", b"bytes", [], (), {}, [1, [2, [3]]]),
    *((1, "a", None), {"a": 1, "b": [2.5, (3,)]}, np.arange(6).reshape(2, 3), np.float32(1.5)),
    (np.zeros((4, 4), np.uint8), np.int64(3)),
    {"flags": np.array([True, False]), "names": np.array(["a", "bc"]), "at": np.zeros(1, "M8[s]")},
]
LARGE: list[Any] = [
    np.arange(5000, dtype=np.float32),
    (np.zeros((100, 200), np.uint8), {"x": [np.ones(3000), None]}, "text"),
]
ARRAYS: list[Any] = [
    [np.arange(6).reshape(2, 3).astype(d)] for d in ("u1", "i8", "f4", "?", "c16")
] + [[], (1, 2.5), [np.zeros((2, 0)), np.float16(1)]]
_ENCODER = msgspec.msgpack.Encoder()


def _nested(depth: int, ext: bool) -> bytes:
    data = b"\x01"
    if not ext:
        return b"\x91" * depth + data
    for _ in range(min(depth, 300)):
        data = _ENCODER.encode(msgspec.msgpack.Ext(1, b"\x91" + data))
    return data


FORGED: Frames = [
    *(
        _nested(100_000, False),
        _nested(300, True),
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ),
    *(b"\xdd\x7f\xff\xff\xff" * 500, b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x02", b""),
    *(pickle.dumps(Bomb()), pickle.dumps(Bomb(), 0), b"\xd7\xff" + b"\xff" * 8),
    *(struct.pack("<i", 2**31 - 1), struct.pack("<iii", 1, 1, 2**31 - 1), b"FLOW", b"FLOW\x01"),
]


@attrs.frozen
class Target:
    """A decoder of frames, and valid frames to mutate."""

    name: str
    decode: Decoder
    valid: list[Frames]


def _bytes_of(frames: Sequence[bytes | memoryview]) -> Frames:
    return [bytes(frame) for frame in frames]


def _header(kind: Kind, receiver: bytes = _ME, number: int = 0, upto: int = 0) -> bytes:
    return MessageHeader(kind, _THEM, receiver, 1, number, upto, 50).encode()


def _untrusted(frames: Frames) -> object:
    return unpack(Kind.PICKLED, frames)


def _safe(trusted: bool) -> Decoder:
    return lambda frames: unpack(Kind.ELEMENT, frames, trusted)


def _received(frames: Frames) -> object:
    """Pass frames through a receiver's state that knows the sender."""
    receive_state = ReceiveState(1, 50, Tally(), _ME)
    receive_state.receive(_HERE, [_header(Kind.HELLO)])
    list(receive_state.replies())
    receive_state.receive(_HERE, list(frames))
    opened = []
    while receive_state.ready:
        item = receive_state.take()
        if item.kind in (Kind.ELEMENT, Kind.PICKLED):
            opened.append(unpack(item.kind, item.frames))
    list(receive_state.replies())
    list(receive_state.farewells())
    receive_state.describe_senders()
    return opened


def _heard(frames: Frames) -> object:
    """Pass frames to a sender that knows a receiver."""
    buffer = SendBuffer(4, True, lambda _: True, _THEM)
    for x in range(3):
        buffer.put(pack(x))
    buffer.receive(_HERE, [MessageHeader(Kind.WANT, _THEM, _ME, room=2).encode()])
    buffer.mark_sent()
    answer = buffer.receive(_HERE, list(frames))
    assert buffer.base <= buffer.cursor <= buffer.base + len(buffer.items)
    assert buffer.base + len(buffer.items) == 3
    return answer


_FLOW = fl.from_range(40).filter(lambda i: i % 3 > 0).batch(2)


def _states() -> list[dict[str, Any]]:
    run, states = iter(_FLOW), list[dict[str, Any]]()
    for _ in range(3):
        next(run)
        states.append(run.state_dict())
    return states


_STATES = _states()


def _resumed(frames: Frames) -> object:
    """Resume from a state that is damaged; an undamaged one resumes where it says."""
    try:
        state = json.loads(frames[0])
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not JSON: {error}") from error
    run = _FLOW.resume(state)
    ours = {name: value for name, value in state.items() if name in _STATES[0]}  # may have more
    assert ours in _STATES, "a damaged state was accepted"
    return next(run)


_BODIES = [_bytes_of(pack(x).frames) for x in ELEMENTS + LARGE]
_PICKLES = [_bytes_of(pack_trusted(x).frames) for x in [Bomb(), *LARGE]]
_REASON = [b"no \xff reason" * 20]
TARGETS = [
    Target("codec.decode", lambda f: codec.decode(f[0]), [[codec.encode(x)] for x in ELEMENTS]),
    Target(
        "MessageHeader.decode",
        lambda f: MessageHeader.decode(f[0]),
        [[_header(kind)] for kind in Kind],
    ),
    Target("unpack, safe", _safe(trusted=False), _BODIES),
    Target("unpack, safe to who trusts", _safe(trusted=True), _BODIES),
    Target("unpack, pickled to who does not", _untrusted, _PICKLES),
    Target("decode_reason", decode_reason, [_REASON]),
    Target(
        "ReceiveState.receive, to the element",
        _received,
        [[_header(Kind.ELEMENT), *body] for body in _BODIES]
        + [[_header(Kind.PICKLED), *body] for body in _PICKLES]
        + [[_header(kind), *_REASON] for kind in Kind],
    ),
    Target(
        "SendBuffer.receive",
        _heard,
        [[_header(kind, number=1, upto=1), *_REASON] for kind in Kind]
        + [[_header(kind, _THEM)] for kind in Kind],
    ),
    Target("resume", _resumed, [[json.dumps(state).encode()] for state in _STATES]),
    Target("zmq_ops.decode", lambda f: zmq_ops.decode(f[0]), [[zmq_ops.encode(x)] for x in ARRAYS]),
]


# -- mutations -------------------------------------------------------------------------------------


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + rng.randint(1, 9)] = rng.randbytes(rng.randint(0, 9))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _lengthen(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randint(1, 40))


def _swap(data: bytearray, rng: random.Random) -> None:
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    data[:] = data[b:] + data[a:b] + data[:a]


def _claim(data: bytearray, rng: random.Random) -> None:
    """Write a wrong size."""
    code = rng.choice(["<i", "<q", ">I", ">Q", ">H", "B"])
    size = struct.calcsize(code)
    at = rng.randrange(max(1, len(data) - size))
    bits = 8 * size - code[-1].islower() * (code != "B")
    data[at : at + size] = struct.pack(code, rng.choice(_NUMBERS) % 2**bits)


CHANGES = [_flip, _flip, _overwrite, _cut, _lengthen, _swap, _claim, _claim]


def mutated(target: Target, rng: random.Random) -> Frames:
    """Return mutated frames."""
    kind = rng.random()
    if kind < 0.05:
        return [rng.randbytes(rng.randint(0, 200)) for _ in range(rng.randint(1, 4))]
    frames = list(rng.choice(target.valid))
    if kind < 0.1:
        frames[rng.randrange(len(frames))] = rng.choice(FORGED)
    if rng.random() < 0.15:  # of another message, in another order, or one too few
        other = rng.choice(target.valid)
        frames = rng.choice(
            [frames[::-1], [*frames, *other], frames[:1] + other[1:], frames[:-1], frames * 40]
        ) or [b""]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(frames))
        data = bytearray(frames[at])
        if data:
            rng.choice(CHANGES)(data, rng)
        frames[at] = bytes(data)
    return frames


# -- the run ---------------------------------------------------------------------------------------


@attrs.define
class Figures:
    """The outcomes of the frames of one decoder."""

    outcomes: Counter[str] = attrs.field(factory=Counter[str])
    slowest: float = 0.0
    most_memory: int = 0
    """The additional memory in bytes."""
    most_a_byte: float = 0.0
    """The same for each byte of frames of 1 KB or more."""

    @property
    def valid(self) -> int:
        return self.outcomes["element"]


def throw(target: Target, frames: Frames, figures: Figures) -> None:
    """Decode one message; raise an AssertionError if the outcome is wrong."""
    size = sum(map(len, frames))
    allowed = MAX_BYTES_BESIDES + MAX_BYTES_PER_BYTE * size
    outcome, said, seconds, memory = _decoded(target, frames)
    if memory > allowed:  # the first use of a part of NumPy may have imported it
        outcome, said, seconds, memory = _decoded(target, frames)
    figures.outcomes[outcome] += 1
    figures.slowest = max(figures.slowest, seconds)
    figures.most_memory = max(figures.most_memory, memory)
    if size >= 1000:
        figures.most_a_byte = max(figures.most_a_byte, memory / size)
    assert 0 < len(said) < 5000, "an error without a message, or one as long as the frame"
    assert memory <= allowed, "too much memory"
    assert seconds < MAX_SECONDS, "too slow"


def _decoded(target: Target, frames: Frames) -> tuple[str, str, float, int]:
    """Return the outcome, the message of an error, the seconds and the bytes of memory."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    began = thread_time()  # a busy machine makes no decoder slow
    outcome, said = "element", "nothing"
    try:
        target.decode(frames)
    except FlowError as error:
        outcome, said = type(error).__name__, str(error)
    seconds = thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    return outcome, said, seconds, peak - before


def fuzz(
    target: Target, count: int, seed: int, step: Callable[[], object] = lambda: None
) -> Figures:
    """Send this many messages to a decoder."""
    rng, figures = random.Random(f"{seed} {target.name}"), Figures()
    tracemalloc.start()
    try:
        for number in range(count):
            frames = mutated(target, rng)
            if number % 1000 == 0:
                faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
            try:
                throw(target, frames, figures)
            except BaseException as error:
                error.add_note(f"{target.name}, seed {seed}, message {number}: {frames!r:.2000}")
                raise
            step()
    finally:
        faulthandler.cancel_dump_traceback_later()
        tracemalloc.stop()
    return figures


def main() -> None:
    """Fuzz every decoder, and print the outcomes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=100_000, help="for each decoder")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        for target in TARGETS:
            task = progress.add_task(target.name, total=args.frames)
            figures = fuzz(target, args.frames, args.seed, partial(progress.advance, task))
            outcomes = ", ".join(f"{n} {what}" for what, n in figures.outcomes.most_common())
            progress.print(
                f"{target.name}: {outcomes}; slowest {1000 * figures.slowest:.1f} ms; memory at "
                f"most {figures.most_memory:,} bytes, {figures.most_a_byte:.1f} a byte"
            )
    Console().print(f"{args.frames * len(TARGETS):,} messages, no crash, no hang")


if __name__ == "__main__":
    main()
