"""Tests of workers begin without any: those of another test end with its flow, once collected."""

from __future__ import annotations

import gc

import pytest

from tests.children import workers_of


@pytest.fixture(autouse=True)
def no_workers_of_another_test() -> None:
    """An exception that was kept refers, by way of its traceback, to the flow of its test."""
    if workers_of():
        gc.collect()
    assert workers_of() == []
