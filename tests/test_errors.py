"""The tree of errors: its documentation matches the classes."""

from __future__ import annotations

import pickle
import re
from inspect import getmembers, isclass

import pytest

import flowdsl as fl
from flowdsl import errors
from flowdsl.errors import ElementError, FlowError

DECLARED = {
    cls
    for name, cls in getmembers(errors, isclass)
    if issubclass(cls, FlowError) and cls.__module__ == errors.__name__ and name[0] != "_"
}


def pictured() -> dict[str, tuple[str, ...]]:
    """Return the name of each error in the documented tree, with the names of its bases."""
    lines = re.findall(r"^((?:│   )*)(?:[├└]── )?([A-Z]\w+)(?: +\((\w+)\))?", TREE, re.MULTILINE)
    (_, root, _), *branches = lines
    bases: dict[str, tuple[str, ...]] = {root: ("Exception",)}
    parents = [root]
    for indent, name, also in branches:
        depth = len(indent) // 4
        parents[depth + 1 :] = [name]
        bases[name] = (parents[depth], also) if also else (parents[depth],)
    return bases


TREE = (errors.__doc__ or "").split("\n\n")[1]


def test_the_documented_tree_matches_the_classes() -> None:
    classes = {cls.__name__: tuple(base.__name__ for base in cls.__bases__) for cls in DECLARED}
    assert pictured() == classes


def test_each_error_is_public_and_documented() -> None:
    for cls in DECLARED:
        assert getattr(fl, cls.__name__) is cls
        assert cls.__doc__, f"{cls.__name__} has no docstring of its own"


@pytest.mark.parametrize("cls", sorted(DECLARED - {ElementError}, key=str))
def test_each_error_is_a_flow_error_and_picklable(cls: type[FlowError]) -> None:
    error = pickle.loads(pickle.dumps(cls("row 3: got 4")))
    assert type(error) is cls
    assert str(error) == "row 3: got 4"
    assert isinstance(error, FlowError)


def test_an_element_error_keeps_its_parts_over_pickling() -> None:
    error = ElementError("map(f)", 7, 2, "row 5 of from_items(9 items)", "the element was 5")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert vars(copy) == {
        "operator": "map(f)",
        "position": 7,
        "epoch": 2,
        "origin": "row 5 of from_items(9 items)",
        "given": "the element was 5",
    }


def test_an_element_error_names_the_epoch_after_the_first() -> None:
    first = ElementError("map(f)", 7, 0, "row 5 of from_range(9)")
    assert str(first) == "map(f) failed on element 7 (row 5 of from_range(9))"
    later = ElementError("map(f)", 7, 3, "row 5 of from_range(9)")
    assert str(later) == "map(f) failed on element 7 of epoch 3 (row 5 of from_range(9))"


def test_endless_flow_is_not_a_type_error() -> None:
    # ``list`` swallows a TypeError of ``len``, and would then fill the memory.
    assert not issubclass(errors.EndlessFlow, (TypeError, AttributeError))
    with pytest.raises(errors.EndlessFlow):
        list(fl.from_range(3).repeat())
