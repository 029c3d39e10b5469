"""What a model promises to whoever writes one."""

from __future__ import annotations

from typing import Any

import pytest

from flowdsl.testing import models
from flowdsl.testing.model import Model


def fails(epoch: int) -> list[Any]:
    raise ValueError("row 101 is bad")


def test_of_which_nothing_is_taken_nothing_is_read() -> None:
    eager = models.rows("abc").then_anew(fails, 3)
    assert list(models.take(eager, 0).rows(0)) == []
    with pytest.raises(ValueError, match="row 101"):
        next(eager.rows(0))


def test_rows_of_an_operator_are_asked_for_late_too() -> None:
    eager: Model = models.rows("abc").then(lambda epoch: iter(fails(epoch)), 3)
    assert list(models.take(eager, 0).rows(0)) == []
