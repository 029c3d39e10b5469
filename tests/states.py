"""States that no run returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowdsl.runtime.state import checksum_of


def changed(state: Mapping[str, Any], **values: object) -> dict[str, Any]:
    """Return a state with other values, and the checksum of these."""
    state = {**state, **values}
    return {**state, "checksum": checksum_of(state)}
