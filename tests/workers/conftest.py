"""Each test of workers begins without workers: garbage of earlier tests is collected first."""

from __future__ import annotations

import gc
import sys

import pytest

from tests.children import workers_of


@pytest.fixture(autouse=True)
def no_workers_of_another_test() -> None:
    """An exception that is kept refers, by way of its traceback, to the flow of its test.

    pytest keeps that of the last test that failed, for a debugger: without its workers, the tests
    after it tell of themselves only.
    """
    if workers_of():
        sys.last_value = sys.last_traceback = None
        gc.collect()
    assert workers_of() == []
