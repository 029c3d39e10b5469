"""Feeds the elements of a flow to a consumer of any framework."""

from __future__ import annotations
