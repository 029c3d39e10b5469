"""Sources defined by tests."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from flowdsl.elements.specs import Spec, ValueSpec
from flowdsl.nodes import IndexedSource


@attrs.frozen
class Numbers(IndexedSource[int]):
    """A source of the numbers of its rows, or of ``read`` applied to them."""

    n: int
    opened: Callable[[], Callable[[int], int]] = lambda: int

    @property
    def title(self) -> str:
        return f"numbers({self.n})"

    @property
    def length(self) -> int:
        return self.n

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(int)

    def open(self) -> Callable[[int], int]:
        return self.opened()
