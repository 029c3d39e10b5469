"""Checks every consumer against every law; a new consumer is one more entry."""

from __future__ import annotations

import pytest

from flowdsl.testing.consumers import CONSUMER_LAWS, ConsumerLaw
from tests.feeding.kinds import KINDS


@pytest.mark.parametrize("law", CONSUMER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_each_consumer_obeys_the_laws(name: str, law: ConsumerLaw) -> None:
    law(KINDS[name])
