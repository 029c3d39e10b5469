"""The page of operators: it equals the generator's output, is complete, and has no empty cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

import flowdsl as fl
from docs.generate_operators import FAMILIES, PEERS, Operator, kind_of, page
from tests.docs.test_migrating import TENSORPACK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operators.md").read_text()
OPERATORS = [operator for family in FAMILIES.values() for operator in family]


def test_the_page_equals_the_generator_output() -> None:
    assert page() == PAGE, "docs/operators.md is not what the operators say: run make docs"


def _giving_flows(functions: dict[str, object]) -> Iterator[str]:
    for name, function in functions.items():
        hints: dict[str, str] = getattr(function, "__annotations__", {})
        if not name.startswith("_") and str(hints.get("return")).startswith(
            ("Flow[", "tuple[Flow[")
        ):
            yield name


def test_every_operator_and_source_is_listed() -> None:
    families = [vars(cls) for cls in fl.Flow.__mro__ if cls.__module__.startswith("flowdsl.")]
    methods = {name for family in families for name in _giving_flows(dict(family))}
    sources = set(_giving_flows({name: getattr(fl, name) for name in fl.__all__}))
    assert len(methods) > 25
    assert len(sources) > 5
    # What apply chains is a node of one's own: it has the row of that node.
    assert methods - {"apply"} | sources == {operator.name for operator in OPERATORS}
    assert len(OPERATORS) == len({operator.name for operator in OPERATORS})


def _rows(text: str) -> list[list[str]]:
    lines = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [re.split(r" (?<!\\)\| ", line) for line in lines]


def test_no_cell_is_empty() -> None:
    tables, _, names = PAGE.partition("## Elsewhere")
    described = [row for row in _rows(tables) if row[0].startswith("`")]
    named = [row for row in _rows(names) if row[0].startswith("`")]
    assert len(described) == len(named) == len(OPERATORS)
    assert {len(row) for row in described} == {5}
    assert {len(row) for row in named} == {1 + len(PEERS)}
    for cell in (cell for row in described + named for cell in row):
        assert cell.strip()


_NAMES = {row[0]: row[1:] for row in _rows(PAGE.partition("## Elsewhere")[2])[2:]}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_names_of_other_systems_exist(operator: Operator) -> None:
    cells = _NAMES[f"`{operator.name}`"]
    for cell in cells:
        assert cell == "none" or cell.startswith("`"), cell
    tensorpack, tf_data = (re.findall(r"`([^`]+)`", cell) for cell in cells[:2])
    options = {option for known in TENSORPACK.values() for option in known.split()}
    for name in tensorpack:
        assert name.split(".")[0].split("(")[0] in TENSORPACK or name.split("=")[0] in options
    for name in tf_data:
        homes = map(attrgetter, ("data.Dataset", "data", "data.experimental"))  # no stub has them
        assert any(hasattr(home(tf), name) for home in homes), name


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_each_listed_option_has_an_effect(operator: Operator) -> None:
    base = operator.base()
    plain, *others = (chain(base).node for chain in operator.chains.values())
    for other in others:
        assert (plain.effects, kind_of(plain)) != (other.effects, kind_of(other))


def _cells(name: str) -> list[str]:
    (row,) = (row for row in _rows(PAGE) if re.match(rf"`{name}\(", row[0]))
    return row


def test_some_rows_by_hand() -> None:
    assert _cells("filter") == [
        *("`filter(keep)`", "`T` → `T`", "`Unsized`"),
        *("unknown until the end of a pass", "elementwise"),
    ]
    assert _cells("take")[2] == "none, over `Reordered` also `Resampled`, takes away `Endless`"
    assert _cells("repeat")[2] == "`Resampled`; without `n` `Resampled`, `Endless`"
    assert _cells("shuffle")[2:] == [
        "`Reordered`, not over `Unsized`, `Endless`; with `buffer` `Reordered`",
        *("the source's; unknown if that is unknown", "indexing; with `buffer` in the consumer"),
    ]
    assert _cells("zip")[2] == "none, takes away `Endless`, not over `Reordered`"
    assert _cells("from_range") == [
        *("`from_range(n)`", "`int`", "none", "`n`", "indexed source"),
    ]
    assert _cells("from_iterable")[4] == "source"
    assert [_cells(name)[4] for name in ("batch", "zip", "mix", "prefetch", "cache")] == [
        *("grouping", "joining", "merging", "placement", "in the consumer"),
    ]
    assert _cells("batch")[1].startswith(
        "`Batchable[B]` → `B`<br>`Batchable[B]` → `tuple[B, NDArray[bool]]` with `remainder`<br>"
    )
