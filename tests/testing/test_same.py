"""Elements are compared by all of their bytes, and NaN equals itself."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from flowdsl.testing.elements import same


@pytest.mark.parametrize("bits", [0x7F81, 0x7FC0, 0xFFFF, 0x3F80])
def test_every_bfloat16_equals_itself_without_a_warning(bits: int) -> None:
    value = np.array([bits, bits ^ 0x4000], np.uint16).view(ml_dtypes.bfloat16)
    assert same(value, value.copy())
    assert same(value[0], value[:1].copy()[0])
    assert not same(value, value[::-1].copy())


def test_zeros_of_either_sign_are_equal_and_nan_equals_other_nan() -> None:
    assert same(np.array([0.0, np.nan]), np.array([-0.0, -np.nan]))
    assert not same(np.array([0.0, 1.0]), np.array([-0.0, np.nan]))
