"""A class with slots that a script defines is the same class in its workers."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import attrs
import pytest

import flowdsl as fl

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class Top:
    i: int


def local_classes() -> dict[str, Callable[[int], Any]]:
    """Return functions that make objects of classes that no other process can import."""

    @dataclasses.dataclass(slots=True)
    class Data:
        i: int
        text: str = "x"

    @dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
    class Referenced:
        i: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Referenced) and other.i == self.i

    class Base:
        __slots__ = ("__hidden", "left_empty")
        limit: ClassVar[int] = 3

        def __init__(self, i: int) -> None:
            self.__hidden = i

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and repr(other) == repr(self)

        def __repr__(self) -> str:
            parts = {n: getattr(self, n) for n in ("own", "further") if hasattr(self, n)}
            return f"{self.__hidden, hasattr(self, 'left_empty'), self.limit, parts}"

    class Derived(Base):
        __slots__ = "own"

        def __init__(self, i: int) -> None:
            super().__init__(i)
            self.own = -i

    class Open(Derived):
        """A class with slots in its bases, and with a dict."""

        def __init__(self, i: int) -> None:
            super().__init__(i)
            self.further = 2 * i

    class Described(Generic[T]):
        __slots__ = {"value": "what it holds"}

        def __init__(self, value: T) -> None:
            self.value = value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Described) and other.value == self.value

        def __repr__(self) -> str:
            return f"Described({self.value!r})"

    class Named(dict[str, int]):
        __slots__ = ("name",)
        name: str

    @attrs.define
    class Attrs:
        i: int

        def doubled(self) -> int:
            return super().__hash__() and 2 * self.i  # its cell has the class itself

    def named(i: int) -> Named:
        made = Named(i=i)
        made.name = f"n{i}"
        return made

    return {
        "dataclass": Data,
        "with weak references": Referenced,
        "base": Base,
        "derived": Derived,
        "with a dict too": Open,
        "documented slots": Described,
        "of a dict": named,
        "attrs": Attrs,
    }


def check(make: Callable[[int], Any]) -> None:
    """Check that objects of a class come and go, and have their attributes in a worker."""

    def described(i: int) -> tuple[bool, bool, str]:
        made = make(i)
        has_dict, slots = hasattr(made, "__dict__"), repr(type(made).__slots__)
        try:
            made.no_such_attribute = 1
        except AttributeError:
            return has_dict, False, slots
        return has_dict, True, slots

    rows = [make(i) for i in range(5)]
    made = fl.from_range(5).map(make).prefetch(procs=1).collect()
    assert made == rows
    assert {type(row) for row in made} == {type(rows[0])}
    assert fl.from_items(rows).filter(lambda _: True).prefetch(procs=1).collect() == rows
    assert fl.from_range(5).map(make).map(repr).prefetch(procs=1).collect() == [*map(repr, rows)]
    flow = fl.from_range(1).map(described)
    assert flow.prefetch(procs=1).collect() == flow.collect()


@pytest.mark.parametrize("name", [*local_classes(), "top"])
def test_a_class_with_slots_is_the_same_in_workers(name: str) -> None:
    script = [sys.executable, __file__, name]
    done = subprocess.run(script, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    check({**local_classes(), "top": Top}[sys.argv[1]])
