"""Elements and their components."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from flowdsl.elements.nbytes import nbytes_of
from flowdsl.elements.rebuilding import replaced, restored
from flowdsl.elements.specs import leaf_specs, spec_of
from flowdsl.elements.structure import (
    assemble,
    batch_type,
    c0,
    c1,
    c2,
    c3,
    components,
    form_of,
    leaves,
)
from flowdsl.testing.elements import same
from tests.rows import ELEMENTS, Derived, Point, PointBatch

if TYPE_CHECKING:
    pass


@given(ELEMENTS)
def test_leaves_and_their_specs_agree(element: object) -> None:
    named = leaf_specs(spec_of(element))
    assert [spec for _, spec in named] == [spec_of(leaf) for leaf in leaves(element)]
    for (name, _), leaf in zip(named, leaves(element), strict=True):
        part = element
        for step in name.split(".") if components(element) is not None else ():
            part = dict(components(part) or ())[step]
        assert part is leaf


@given(ELEMENTS)
def test_assemble_is_the_inverse_of_components(element: object) -> None:
    parts = components(element)
    if parts is not None:
        assert same(assemble(form_of(element), dict(parts)), element)


def test_a_record_names_its_batch_type() -> None:
    assert batch_type(Point) is PointBatch
    assert batch_type(Derived) is PointBatch


def test_a_selector_picks_by_position() -> None:
    picked: list[Callable[..., object]] = [c0, c1, c2, c3]
    assert [pick(("a", "b", "c", "d")) for pick in picked] == ["a", "b", "c", "d"]


class Sized:
    def __repr__(self) -> str:  # in the names of tests, which all processes need alike
        return "Sized()"

    nbytes = 100


class Broken:
    @property
    def nbytes(self) -> int:
        raise OSError


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (7, 8),
        (np.float32(7), 8),
        ("abc", 3),
        (np.zeros(5), 40),
        (np.array([bytes(100), 1], object), 108),
        (np.ma.zeros(5), 40),
        ([1, [2, 3], {"a": (b"abc", None)}], 35),
        (Point(np.zeros(3), 1), 32),
        (Sized(), 100),
        ((Sized(), 1), 108),
    ],
    ids=repr,
)
def test_bytes_of_values(value: object, nbytes: int) -> None:
    assert nbytes_of(value) == nbytes


def test_bytes_of_values_that_cannot_be_measured() -> None:
    """They count as little, quickly, and no exception is raised."""
    ring: list[object] = []
    ring += [ring, ring, Broken()]
    assert 0 < nbytes_of(ring) < 1_000_000


@dataclass
class Scaled:
    """A class that changes what it is called with."""

    image: NDArray[Any]
    seen: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.image = self.image / 2
        self.size = self.image.size


def halved(x: Any) -> Any:
    return x / 2


@attrs.frozen
class Converted:
    image: NDArray[Any] = attrs.field(converter=halved)
    seen: int = attrs.field(init=False, default=0)


class Struct(msgspec.Struct):
    image: Any
    seen: int = 0

    def __post_init__(self) -> None:
        self.image = self.image / 2


@dataclass
class Opened:
    """A class whose constructor has other arguments than its fields."""

    image: NDArray[Any]
    seen: int

    def __init__(self, path: str) -> None:
        self.image, self.seen = np.ones(2), len(path)


class Table(dict[str, Any]):
    def __init__(self, path: str) -> None:
        super().__init__(image=np.ones(2), seen=len(path))


RECORDS = [
    Scaled(np.ones(2)),
    Converted(np.ones(2)),
    Struct(np.ones(2)),
    Opened("x"),
    Table("x"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_copy_with_other_components_has_exactly_these(record: Any) -> None:
    image = np.arange(3)
    twin = replaced(record, {"image": image, "seen": 7})
    assert type(twin) is type(record)
    parts = dict(components(twin) or ())
    assert parts["image"] is image
    assert parts["seen"] == 7
    assert getattr(twin, "size", None) == getattr(record, "size", None)
    assert dict(components(record) or ())["seen"] != 7


@pytest.mark.parametrize(
    "record",
    [record for record in RECORDS if not isinstance(record, dict)],
    ids=lambda record: type(record).__name__,
)
def test_a_restored_value_has_exactly_its_components(record: Any) -> None:
    image = np.arange(3)
    made = restored(type(record), {"image": image, "seen": 7})
    assert type(made) is type(record)
    parts = dict(components(made) or ())
    assert parts["image"] is image
    assert parts["seen"] == 7
    assert hasattr(made, "size") == hasattr(record, "size")


def test_a_copy_of_a_dict_with_a_factory_keeps_it() -> None:
    twin = replaced(defaultdict(list, x=1), {"x": 2})
    assert twin == {"x": 2}
    assert twin["missing"] == []
