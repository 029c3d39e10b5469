"""Flattening: the components of elements in a fixed order, for consumers without names."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.elements.flattening import flattener, flattener_of_first
from flowdsl.elements.matching_specs import differences, meet
from flowdsl.elements.specs import (
    ArraySpec,
    StructSpec,
    join,
    leaf_specs,
    spec_of,
    varying_axes,
    with_sizes,
)


class Pair(NamedTuple):
    image: int
    label: int


class Swapped(NamedTuple):
    label: int
    image: int


@attrs.frozen
class Sample:
    image: int
    label: int


@attrs.frozen
class SwappedSample:
    label: int
    image: int


_NAMES = st.text("abcd", min_size=1, max_size=2)
NESTED = st.recursive(
    st.integers(),
    lambda parts: st.dictionaries(_NAMES, parts, max_size=4) | st.tuples(parts, parts),
    max_leaves=8,
)


def in_other_order(element: Any, rng: random.Random) -> Any:
    """An equal element, whose dicts have their keys in some other order."""
    if isinstance(element, dict):
        keys = rng.sample([*element], len(element))
        return {key: in_other_order(element[key], rng) for key in keys}
    if isinstance(element, tuple):
        return tuple(in_other_order(part, rng) for part in element)
    return element


@given(NESTED, st.randoms(use_true_random=False))
def test_flattening_does_not_depend_on_the_order_of_keys(element: Any, rng: random.Random) -> None:
    other = in_other_order(element, rng)
    assert spec_of(other) == spec_of(element)
    assert hash(spec_of(other)) == hash(spec_of(element))
    flatten = flattener(spec_of(element))
    assert flatten(other) == flatten(element)


@given(NESTED, st.randoms(use_true_random=False))
def test_specs_with_keys_in_another_order_are_equal(element: Any, rng: random.Random) -> None:
    spec, other = spec_of(element), spec_of(in_other_order(element, rng))
    assert str(meet(spec, other)) == str(join(spec, other)) == str(spec)
    assert str(with_sizes(spec, other)) == str(spec)
    assert not list(differences(spec, other))


def test_sizes_are_matched_by_component_name() -> None:
    seen = spec_of({"image": np.zeros((2, 3)), "label": np.zeros(4)})
    known = StructSpec(
        dict, (("label", ArraySpec(None, (None,))), ("image", ArraySpec(None, (2, None))))
    )
    assert str(with_sizes(seen, known)) == "{image: float64[2, ?], label: float64[?]}"
    assert varying_axes(known, seen) == {(0, 4), (1, 3)}


@given(NESTED, st.randoms(use_true_random=False))
def test_given_names_define_the_order(element: Any, rng: random.Random) -> None:
    names = [name for name, _ in leaf_specs(spec_of(element))]
    values = dict(zip(names, flattener(spec_of(element))(element), strict=True))
    if isinstance(element, dict) and len(values) == len(names):
        wanted = rng.sample(names, len(names))
        assert flattener_of_first(wanted)(element) == [values[name] for name in wanted]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (Sample(1, 2), SwappedSample(4, 3)),
        (Sample(1, 2), {"label": 4, "image": 3}),
        ({"image": 1, "label": 2}, SwappedSample(4, 3)),
        (Pair(1, 2), (3, 4)),
        ((1, 2), Pair(3, 4)),
    ],
)
def test_dicts_and_records_match_by_name_and_tuples_by_position(
    first: object, other: object
) -> None:
    assert flattener(spec_of(first))(other) == [3, 4]


@pytest.mark.parametrize(
    ("first", "other", "says"),
    [
        ({"a": 1}, {"b": 2}, r"it is \{b: int\}, expected is \{a: int\}"),
        ({"x": {"a": 1}}, {"x": {"b": 2}}, r"in 'x' it is \{b: int\}, expected is \{a: int\}"),
        (Pair(1, 2), Swapped(1, 2), r"Swapped\(label.*\), expected is Pair\(image"),
        ({"a": 1, "b": 2}, (1, 2), r"it is \(int, int\), expected is \{a"),
        (Pair(1, 2), {"image": 1, "label": 2}, "it is {image.*expected is Pair"),
        (Sample(1, 2), {"image": 1}, r"it is \{image: int\}, expected is Sample"),
        ((1, 2), (1, 2, 3), r"it is \(int, int, int\), expected is \(int, int\)"),
    ],
)
def test_an_element_with_other_names_is_refused(first: object, other: object, says: str) -> None:
    with pytest.raises(fl.SpecMismatch, match=says):
        flattener(spec_of(first))(other)


def test_without_a_spec_keys_in_another_order_are_refused() -> None:
    flatten = flattener_of_first()
    assert flatten({"a": 1, "b": 2}) == [1, 2]
    with pytest.raises(fl.SpecMismatch, match=r"its keys are b, a, the keys of the first .* a, b"):
        flatten({"b": 2, "a": 1})


def different(a: Any, b: Any) -> list[str]:
    return [path for path, _, _ in differences(spec_of(a), spec_of(b))]


def test_differences_of_specs_name_the_component() -> None:
    assert different({"x": 1, "y": [2]}, {"x": 1, "y": [2, 3]}) == []
    assert different({"x": 1, "y": [2]}, {"x": 1.0, "y": ["a"]}) == ["element.x", "element.y"]
    assert different({"x": 1}, {"z": 1}) == ["element"]
    assert different((1, 2), (1, 2, 3)) == ["element"]
    assert different((1, (2, "a")), (1, (2, 3))) == ["element.1.1"]
