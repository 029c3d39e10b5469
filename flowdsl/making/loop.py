"""A loop: the operators of a chain, each on one element at a time, as a person would write it.

To call a method for each operator, to ask each for its kind and to hand its element from generator
to generator costs several times what a small function does. So the lines that the operators spell
are put together in one function, such as

    def elements(columns, had, left_out, failed, instead, spent):
        (open_0,), (func_1,), (keep_2,), = had
        x = None
        try:
            for x in columns:
                x = open_0(x)
                x = func_1(x)
                x = x if keep_2(x) else DROPPED
                if x is DROPPED:
                    left_out(x, 2)
                    continue
                yield x
        except Exception as error:
            failed(error, x)
            raise

Each operator has a line of its own, so that the line in which an exception was raised tells whose
it is: as long as nothing fails, that costs nothing. Nor does the ``try`` around the line of an
operator that is attempted. One function serves all chains that are spelled alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import length_hint
from string import Formatter
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np

from flowdsl.arguments import the_element
from flowdsl.node import DROPPED, Addresses, Dropped, Failed, Positions

Path: TypeAlias = tuple[int, ...]
"""The way from a program's end down to an operator: which source to follow, at each."""


@attrs.frozen
class Form:
    """What a loop is made of; one is made for all operators of these forms."""

    text: str = "x = {it}(x)"
    """See ``Spelled.line``; empty for what only looks for failures."""
    drops: bool = False
    """It may leave the element out."""
    attempted: bool = False
    """A failure is left alone, and one of its own stands in the place of the element."""


LEAVES_OUT = Form("", drops=True)
"""It leaves out what has failed."""


@attrs.frozen
class Line:
    """An operator in a loop."""

    path: Path
    at: Addresses
    """Where its elements stand."""
    ready: Callable[[str], Any]
    """Gives what a name in its text stands for, once the first element is asked for."""
    form: Form = Form()
    number: int = -1
    """Of the attempt, where it is one."""
    given: Callable[[Any], str] | None = the_element
    """Words for what it fails on; None where that is a number that the error names anyway."""


class Watcher(Protocol):
    """Who is told what becomes of elements that a loop does not yield."""

    costs: dict[Path, tuple[int, float]]

    def begins(self, to_come: Iterator[int], path: Path, /) -> None:
        """A loop that ends in the operator at ``path`` takes one of these for each element."""
        ...

    def error(self, path: Path, epoch: int, position: int, given: str | None, /) -> Exception:
        """What to raise where the operator at ``path`` failed, and on what, in words."""
        ...

    def left_out(self, x: Dropped | Failed, path: Path, /) -> None:
        """The operator at ``path`` gave this in the place of an element, or found it there."""
        ...


@lru_cache(maxsize=1024)
def names_in(text: str) -> tuple[str, ...]:
    """The names in a line that stand for what its operator has.

    >>> names_in("x = {func}(x, {epoch}) if x else {other}"), names_in("pass")
    (('func', 'other'), ())
    """
    fields = (field for _, field, _, _ in Formatter().parse(text) if field is not None)
    return tuple(name for name in dict.fromkeys(fields) if name not in ("epoch", "position"))


def elements(
    lines: Sequence[Line],
    base: Iterable[Any] | None,
    watcher: Watcher,
    *,
    places: Addresses | None,
    clock: bool,
) -> Iterator[Any]:
    """The lines, the first first, on each element of the base, or on the positions of the first.

    With ``places``, each element comes with its position there. With ``clock``, each line's calls
    and seconds are added to ``watcher.costs``.
    """
    forms = tuple(line.form for line in lines)
    make, line_at = _loop(forms, base is not None, places is not None, clock)
    positions = _values(lines[0].at.position)
    numbers = iter(positions)
    watcher.begins(numbers, lines[-1].path)
    columns: list[Iterable[Any]] = [numbers] if base is None else [numbers, base]
    for line in lines:
        fields = {"{epoch}": line.at.epoch, "{position}": line.at.position}
        columns += [_values(column) for name, column in fields.items() if name in line.form.text]
    if places is not None:
        columns.append(_values(places.position))

    def place_of(line: Line) -> tuple[int, int]:
        """The epoch and the position there of the element under way."""
        row = len(positions) - length_hint(numbers) - 1
        return int(line.at.epoch[row]), int(line.at.position[row])

    def failed(error: Exception, x: Any) -> None:
        assert error.__traceback__ is not None
        k = line_at.get(error.__traceback__.tb_lineno)
        if k is not None:  # else it came from below, where it was told already
            line = lines[k]
            given = None if line.given is None else line.given(x)
            raise watcher.error(line.path, *place_of(line), given) from error

    def instead(error: Exception, x: Any) -> Failed:
        assert error.__traceback__ is not None
        line = lines[line_at[error.__traceback__.tb_lineno]]
        given = None if line.given is None else line.given(x)
        return Failed(line.number, *place_of(line), error, given)

    def left_out(x: Dropped | Failed, k: int) -> None:
        watcher.left_out(x, lines[k].path)

    def spent(k: int, seconds: float) -> None:
        calls, before = watcher.costs.get(lines[k].path, (0, 0.0))
        watcher.costs[lines[k].path] = calls + 1, before + seconds

    had = (tuple(map(line.ready, names_in(line.form.text))) for line in lines)
    one = columns[0] if len(columns) == 1 else zip(*columns, strict=False)
    return make(one, had, left_out, failed, instead, spent)


def _values(column: Positions) -> Sequence[int]:
    """The numbers of a column; consecutive ones are made as they are needed, which is faster."""
    first, last = int(column[0]), int(column[-1])
    if last - first == len(column) - 1 and bool((np.diff(column) == 1).all()):
        return range(first, last + 1)
    numbers: list[int] = column.tolist()
    return numbers


@lru_cache(maxsize=1024)
def _loop(
    forms: tuple[Form, ...], base: bool, places: bool, clock: bool
) -> tuple[Callable[..., Iterator[Any]], dict[int, int]]:
    """The function for these forms, and which of them is in each of its lines."""
    columns, taken, body = ["number", "x"] if base else ["x"], list[str](), list[str]()
    line_at: dict[int, int] = {}
    attempting = False
    for k, form in enumerate(forms):
        names = {"epoch": f"epoch{k}", "position": f"position{k}"}
        columns += [name for field, name in names.items() if f"{{{field}}}" in form.text]
        own = {name: f"{name}_{k}" for name in names_in(form.text)}
        taken.append(f"({''.join(f'{name}, ' for name in own.values())}), ")
        if form.attempted and not attempting:
            body += ["if x.__class__ is not Failed:", "    try:"]
        elif attempting and not form.attempted:
            body += _CAUGHT
        attempting = form.attempted
        code = [form.text.format_map(names | own)] if form.text else []
        if clock and code:
            code = ["began = now()", *code, f"spent({k}, now() - began)"]
        line_at |= {_FIRST + len(body) + i: k for i in range(len(code))}
        body += [f"        {line}" if attempting else line for line in code]
        if form.drops:
            gone = "x is DROPPED" if "DROPPED" in form.text else "isinstance(x, Dropped)"
            test = gone if form.text else "x.__class__ is Failed"
            left = [f"if {test}:", f"    left_out(x, {k})", "    continue"]
            body += [f"        {line}" if attempting else line for line in left]
    body += _CAUGHT if attempting else []
    columns += ["place"] if places else []
    lines = [
        "def elements(columns, had, left_out, failed, instead, spent):",
        f"    {''.join(taken)} = had",
        "    x = None",
        "    try:",
        f"        for {', '.join(columns)} in columns:",
        *(f"            {line}" for line in body),
        f"            yield {'place, x' if places else 'x'}",
        "    except Exception as error:",
        "        failed(error, x)",
        "        raise",
    ]
    known: dict[str, Any] = {
        "DROPPED": DROPPED,
        "Dropped": Dropped,
        "Failed": Failed,
        "now": perf_counter,
    }
    exec(compile("\n".join(lines), "<the operators of a flow>", "exec"), known)
    return known["elements"], line_at


_FIRST = 6
"""The number of the first line in the loop's body."""

_CAUGHT = ["    except Exception as error:", "        x = instead(error, x)"]
"""The end of what is attempted: of several operators together, since one that fails is the last."""
