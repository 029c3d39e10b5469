"""How fast flowdsl is, beside others, in one run: ``make bench``."""

from __future__ import annotations
