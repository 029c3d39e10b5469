"""What feeds the elements of a flow to a consumer, of whatever framework."""

from __future__ import annotations
