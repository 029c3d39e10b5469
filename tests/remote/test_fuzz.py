"""A short run of the fuzzer; ``python -m tests.remote.fuzz`` runs it completely."""

from __future__ import annotations

import pytest

from flowdsl.remote.message import Kind, unpack
from tests.remote.fuzz import _PICKLES, TARGETS, Figures, PickleOpenedError, Target, fuzz, throw


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_malformed_frames_yield_an_element_or_an_error(target: Target) -> None:
    figures = fuzz(target, 500, seed=0)
    assert sum(figures.outcomes.values()) == 500


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_frames_are_valid(target: Target) -> None:
    figures = Figures()
    says_no = target.name == "unpack, pickled to who does not"
    for frames in target.valid:
        try:
            target.decode(frames)
        except Exception:
            figures.outcomes["error"] += 1
        else:
            figures.outcomes["element"] += 1
    assert (figures.valid == 0) == says_no


def test_the_test_pickle_executes_code() -> None:
    with pytest.raises(PickleOpenedError):
        unpack(Kind.PICKLED, _PICKLES[0], trusted=True)


def test_broken_decoders_are_detected() -> None:
    import time
    import tracemalloc

    def large(_: object) -> object:
        return bytearray(10_000_000)

    def other(_: object) -> object:
        raise KeyError(1)

    tracemalloc.start()
    try:
        with pytest.raises(AssertionError, match="too much memory"):
            throw(Target("large", large, []), [b"abc"], Figures())
        with pytest.raises(KeyError):
            throw(Target("other", other, []), [b"abc"], Figures())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.remote.fuzz.MAX_SECONDS", 0.0)
            with pytest.raises(AssertionError, match="too slow"):
                throw(Target("slow", lambda _: time.perf_counter(), []), [b"abc"], Figures())
    finally:
        tracemalloc.stop()
