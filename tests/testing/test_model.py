"""Models are lazy."""

from __future__ import annotations

from typing import Any

import pytest

from flowdsl.testing import models
from flowdsl.testing.model import Model


def fails(epoch: int) -> list[Any]:
    raise ValueError("row 101 is bad")


def test_a_model_without_reads_reads_nothing() -> None:
    eager = models.rows("abc").then_renumbered(fails, 3)
    assert list(models.take(eager, 0).rows(0)) == []
    with pytest.raises(ValueError, match="row 101"):
        next(eager.rows(0))


def test_operator_rows_are_computed_lazily() -> None:
    eager: Model = models.rows("abc").then(lambda epoch: iter(fails(epoch)), 3)
    assert list(models.take(eager, 0).rows(0)) == []
