"""Every input source through every law; a new one is one more entry."""

from __future__ import annotations

import pytest

from flowdsl.graph import QueueInput
from flowdsl.testing.inputs import INPUT_LAWS, InputLaw, MakeInput

INPUTS: dict[str, MakeInput] = {
    "queue": QueueInput,
    "small queue": lambda flow: QueueInput(flow, capacity=3),
}


@pytest.mark.parametrize("law", INPUT_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", INPUTS)
def test_input(name: str, law: InputLaw) -> None:
    law(INPUTS[name])
