"""Every law of formats can fail: broken formats, and the laws that detect them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.errors import SourceError
from flowdsl.nodes import IndexedSource, flow
from flowdsl.testing import Format, check_format
from flowdsl.testing.formats import (
    FORMAT_LAWS,
    FormatLaw,
    a_file_that_is_cut_off_is_named,
    a_flow_that_fails_leaves_nothing,
    a_flow_that_never_ends_is_refused,
    a_missing_file_is_named,
    a_state_identifies_its_file,
    any_row_is_read_by_its_number,
    damage_is_never_another_row,
    it_is_a_source,
    rows_come_back,
    unsupported_elements_are_refused,
)
from flowdsl.testing.recipes import AnyFlow

pytestmark = pytest.mark.usefixtures("first_failure")


def write(rows: AnyFlow, path: Path) -> int:
    return rows.write_lmdb(path)


def read(path: Path) -> AnyFlow:
    return fl.from_lmdb(path)


def without_the_last(rows: AnyFlow, path: Path) -> int:
    return write(rows.take(len(rows) - 1) if len(rows) else rows, path)


def one_too_many(rows: AnyFlow, path: Path) -> int:
    return write(rows, path) + 1


def in_another_order(path: Path) -> AnyFlow:
    return read(path).shuffle(seed=1)


def each_twice(path: Path) -> AnyFlow:
    return read(path).repeat_each(2)


def in_another_dtype(path: Path) -> AnyFlow:
    def wider(x: Any) -> Any:
        return x.astype(np.complex128) if isinstance(x, np.ndarray) else x

    return read(path).map(wider)


def without_what_is_damaged(path: Path) -> AnyFlow:
    return read(path).prefetch(on_error="skip")


@attrs.frozen
class InTurn(IndexedSource[Any]):
    """Returns the next row, whatever index is requested."""

    path: str
    row_count: int

    @property
    def title(self) -> str:
        return "in_turn()"

    @property
    def length(self) -> int:
        return self.row_count

    def spec(self, probe: bool) -> Any:
        return read(Path(self.path)).spec

    def open(self) -> Callable[[int], Any]:
        rows = iter(read(Path(self.path)))
        return lambda i: next(rows)


def in_turn(path: Path) -> AnyFlow:
    return flow(InTurn(str(path), len(read(path))))


# What somebody may write in ten minutes: a pickle on each line.


def write_lines(rows: AnyFlow, path: Path) -> int:
    with path.open("w") as file:
        return sum(bool(file.write(pickle.dumps(x).hex() + "\n")) for x in rows)


def lines(path: Path) -> Iterator[Any]:
    with path.open() as file:
        for line in file:
            yield pickle.loads(bytes.fromhex(line))


def read_lines(path: Path) -> AnyFlow:
    return fl.from_items([*lines(path)]) if path.exists() else fl.from_items([])


LINES = Format(write_lines, read_lines)

# Lines of text have no checksum, and are held to less.

TEXTS = [f"line {i}" for i in range(12)]


def write_text(rows: AnyFlow, path: Path) -> int:
    return rows.write_text(path)


def from_below(path: Path) -> AnyFlow:
    lines = path.read_text(errors="replace").splitlines()
    return fl.from_items(lines[::-1])


def without_the_first(path: Path) -> AnyFlow:
    return fl.from_items(path.read_text(errors="replace").splitlines()[1:])


def with_more(path: Path) -> AnyFlow:
    if not path.exists():
        raise SourceError(f"{str(path)!r} is missing")
    return fl.from_items([*path.read_text().splitlines(), "one", "two"])


def unchecked(read: Callable[[Path], AnyFlow]) -> Format:
    return Format(write_text, read, some=TEXTS, checked=False)


@pytest.mark.parametrize(
    ("broken", "noticed_by"),
    [
        (Format(without_the_last, read), rows_come_back),
        (Format(one_too_many, read), rows_come_back),
        (Format(write, in_another_order), rows_come_back),
        (Format(write, in_another_order), it_is_a_source),
        (Format(write, each_twice), rows_come_back),
        (Format(write, in_another_dtype), rows_come_back),
        (Format(write, in_turn), any_row_is_read_by_its_number),
        (Format(write, in_turn), it_is_a_source),
        (Format(write, without_what_is_damaged), damage_is_never_another_row),
        (unchecked(with_more), a_missing_file_is_named),
        (unchecked(with_more), a_file_that_is_cut_off_is_named),
        (unchecked(without_the_first), a_file_that_is_cut_off_is_named),
        (unchecked(from_below), a_file_that_is_cut_off_is_named),
        (unchecked(from_below), damage_is_never_another_row),
        (unchecked(without_the_first), damage_is_never_another_row),
        (LINES, a_state_identifies_its_file),
        (LINES, a_missing_file_is_named),
        (LINES, a_file_that_is_cut_off_is_named),
        (LINES, damage_is_never_another_row),
        (LINES, unsupported_elements_are_refused),
        (LINES, a_flow_that_fails_leaves_nothing),
        (LINES, a_flow_that_never_ends_is_refused),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_implementation_is_detected(
    broken: Format, noticed_by: FormatLaw, tmp_path: Path
) -> None:
    with pytest.raises((AssertionError, ExceptionGroup, ValueError)):
        noticed_by(broken, tmp_path)


def test_every_law_can_fail() -> None:
    (mark,) = [
        mark
        for mark in test_broken_implementation_is_detected.pytestmark  # type: ignore[attr-defined]  # pytest's
        if mark.name == "parametrize"
    ]
    assert {noticed_by for _, noticed_by in mark.args[1]} == set(FORMAT_LAWS)


def test_check_format_names_the_violated_law() -> None:
    with pytest.raises(AssertionError, match="write returned") as failed:
        check_format(one_too_many, read)
    assert failed.value.__notes__[-1].startswith("the law: The rows read are the rows written")
