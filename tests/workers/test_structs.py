"""Structs of msgspec that a script defines are elements of its workers too."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.testing.elements import same

pytestmark = pytest.mark.usefixtures("mortals")


def local_structs() -> dict[str, Any]:
    """Return classes that no other process can import, each with what its statement may say."""

    class Plain(msgspec.Struct):
        x: int
        y: float = 0.5

    class Sealed(msgspec.Struct, frozen=True, kw_only=True, gc=False, order=True):
        y: float = 1.5
        x: int

    class Renamed(msgspec.Struct, rename="camel", tag="r", omit_defaults=True):
        x: int
        long_name: list[int] = msgspec.field(default_factory=list)
        other: int = msgspec.field(default=3, name="o")

        def doubled(self) -> int:
            return 2 * self.x

        @property
        def tripled(self) -> int:
            return 3 * self.x

    class Derived(Plain, kw_only=True):
        z: str
        made: int = 0

        def __post_init__(self) -> None:
            self.made = 1

    return {
        "plain": lambda i: Plain(i),
        "sealed": lambda i: Sealed(x=i),
        "renamed": lambda i: Renamed(i, [i]),
        "derived": lambda i: Derived(i, z="z"),
    }


@pytest.mark.parametrize("name", local_structs())
def test_a_struct_of_a_script_is_an_element_in_workers(name: str) -> None:
    make = local_structs()[name]
    rows = [make(i) for i in range(5)]
    sent = fl.from_items(rows).map(lambda row: row).prefetch(procs=1).collect()
    made = fl.from_range(5).map(make).prefetch(procs=1).collect()
    assert sent == made == rows
    assert {type(row) for row in [*sent, *made]} == {type(rows[0])}
    batches = fl.from_items(rows).batch(2)
    assert [batch.x.tolist() for batch in batches.prefetch(procs=1)] == [[0, 1], [2, 3], [4]]
    assert msgspec.json.encode(sent[0]) == msgspec.json.encode(rows[0])


def test_methods_of_a_struct_are_sent() -> None:
    make = local_structs()["renamed"]
    flow = fl.from_items([make(2)])
    assert flow.map(lambda r: (r.doubled(), r.tripled)).prefetch(procs=1).collect() == [(4, 6)]


def test_a_worker_knows_a_class_again() -> None:
    make = local_structs()["plain"]
    rows = [make(i) for i in range(2000)]  # several messages
    batches: Any = fl.from_items(rows).batch(500).prefetch(procs=2).collect()
    assert same([batch.x.sum() for batch in batches], [np.int64(n) for n in _sums(500)])


def _sums(n: int) -> list[int]:
    return [sum(range(i, i + n)) for i in range(0, 2000, n)]
