"""Helpers of the laws."""

from __future__ import annotations

import signal
import threading

import pytest

from flowdsl.testing.endings import is_interrupted


def test_a_call_that_waits_is_interrupted() -> None:
    assert is_interrupted(threading.Event().wait)


def test_a_call_that_ends_is_not_interrupted_nor_is_its_caller() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert not is_interrupted(lambda: None)
    assert signal.getsignal(signal.SIGINT) == before


def test_an_error_of_the_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        is_interrupted(lambda: 1 // 0)
