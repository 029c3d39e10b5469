"""What the guided fuzzer gives bytes to: readers of files, decoders of messages, and states.

``tests.storage.fuzz``, ``tests.remote.fuzz`` and ``tests.workers.fuzz`` say which behaviour is
allowed. Plans are not among the targets: they are pickles, which may do anything, and a program
reads only its own.
"""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

import flowdsl as fl
from flowdsl.runtime.state import checksum_of
from flowdsl.storage.arrays.npz import COMMENT, DIGESTS, HEADER
from flowdsl.storage.parquet import files as parquet
from flowdsl.storage.webdataset import tar
from flowdsl.testing.outcomes import element_difference
from tests.remote import fuzz as remote
from tests.storage import fuzz as storage
from tests.workers import fuzz as workers


class Found(Exception):
    """Raised for behaviour that is not allowed."""


@attrs.frozen
class Target:
    """A reader of bytes, and bytes to begin with."""

    read: Callable[[bytes], object]
    """Raises an exception if the bytes lead to behaviour that is not allowed."""
    valid: Sequence[bytes]
    mutate: Callable[[bytes, random.Random], bytes]
    """Change bytes at random, in the ways in which their format goes wrong."""


_DECODERS = [target.name for target in remote.TARGETS if target.name != "resume"]  # as "states"
NAMES = (*storage.READERS, *_DECODERS, "states")


def target_of(name: str, folder: Path) -> Target:
    """The target with a name, which may write files in a folder."""
    if name in storage.READERS:
        return _reader(name, folder)
    if name == "states":
        return _states()
    (target,) = (target for target in remote.TARGETS if target.name == name)
    return _decoder(target)


# -- files -----------------------------------------------------------------------------------------


def _reader(name: str, folder: Path) -> Target:
    """The first byte chooses the file, if the format has several; the others are its content."""
    sample = storage.sample(storage.READERS[name], folder)

    def read(data: bytes) -> None:
        file, valid = sample.contents[(data[0] if data else 0) % len(sample.contents)]
        content = data[1:]
        if file.suffix == ".tar" and not any(content):
            return  # zeros are an archive without files
        is_marked = _IS_MARKED.get(file.suffix)
        if is_marked is not None and is_marked(valid) and not is_marked(content):
            return  # another program's file, which has no digests, and may have other types
        file.unlink()  # an open file must not be written to
        file.write_bytes(content)
        try:
            fault = storage.fault_of(sample, whole=content == valid)
        finally:
            file.unlink()
            file.write_bytes(valid)
        if fault is not None:
            raise Found(fault)

    return Target(
        read,
        [bytes([k]) + content for k, (_, content) in enumerate(sample.contents[:256])],
        lambda data, rng: data[:1] + storage.damaged(data[1:], rng),
    )


def _is_marked_npz(content: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.comment == COMMENT or bool({HEADER, DIGESTS} & {*archive.namelist()})
    except Exception:  # a reader says what is wrong with it
        return True


def _contains(*traces: bytes) -> Callable[[bytes], bool]:
    return lambda content: any(trace in content for trace in traces)


_IS_MARKED: dict[str, Callable[[bytes], bool]] = {
    ".npz": _is_marked_npz,
    ".parquet": _contains(*parquet.TRACES),
    ".tar": _contains(*tar.TRACES),
}
"""By suffix: whether a file has at least one of the marks of flowdsl's writer, whole or damaged."""


# -- messages --------------------------------------------------------------------------------------


def _decoder(target: remote.Target) -> Target:
    """The frames of a message follow each other, each with its size before it."""
    tracemalloc.start()
    figures = remote.Figures()

    def read(data: bytes) -> None:
        if frames := _frames_in(data):
            remote.throw(target, frames, figures)

    def mutate(data: bytes, rng: random.Random) -> bytes:
        frames = [bytearray(frame) for frame in _frames_in(data) if frame]
        if frames:
            rng.choice(remote.CHANGES)(rng.choice(frames), rng)
        return _joined(map(bytes, frames))

    return Target(read, list(map(_joined, target.valid)), mutate)


def _joined(frames: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)


def _frames_in(data: bytes) -> list[bytes]:
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        frames.append(data[4:end])
        data = data[end:]
    return frames


# -- states ----------------------------------------------------------------------------------------


def _states() -> Target:
    """The first byte chooses the flow; the others are a state as JSON."""
    flows = [make() for make in workers.FLOWS]
    states = [_states_of(flow) for flow in flows]
    texts = {json.dumps(state) for some in states for state in some}  # True is not 1 there
    rests = [
        [list(flow.resume(state)) for state in some]
        for flow, some in zip(flows, states, strict=True)
    ]

    def read(data: bytes) -> None:
        k = (data[0] if data else 0) % len(flows)
        try:
            state = json.loads(data[1:])
        except (ValueError, RecursionError):
            return
        try:
            got = list(flows[k].resume(state))
        except fl.FlowError:
            if json.dumps(state) in texts and state in states[k]:
                raise
            return
        if state["checksum"] == checksum_of(state):
            return  # libFuzzer sees what is compared, and writes the right checksum
        if all(element_difference(got, rest) is not None for rest in rests[k]):
            raise Found(f"an altered state was accepted: {state}")

    def mutate(data: bytes, rng: random.Random) -> bytes:
        try:
            state = json.loads(data[1:])
        except (ValueError, RecursionError):
            return data
        return data[:1] + json.dumps(workers.altered(state, rng)).encode()

    valid = [
        bytes([k]) + json.dumps(state).encode() for k, some in enumerate(states) for state in some
    ]
    return Target(read, valid, mutate)


def _states_of(flow: fl.Flow[Any, Any]) -> list[dict[str, Any]]:
    """The state after each element of a pass, as JSON returns it."""
    run = iter(flow)
    states = [run.state_dict()]
    for _ in run:
        states.append(run.state_dict())  # noqa: PERF401  # the run is at each element in turn
    some: list[dict[str, Any]] = json.loads(json.dumps(states))
    return some
