"""A loop: the operators of a chain, each on one element at a time, as a person would write it.

To call a method for each operator, to ask each for its kind and to hand its element from generator
to generator costs several times what a small function does. So the lines that the operators spell
are put together in one function, such as

    def elements(columns, had, left_out, failed, spent):
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
it is: as long as nothing fails, that costs nothing. One function serves all chains that are spelled
alike.
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
from flowdsl.node import DROPPED, Addresses, Dropped, Positions

Path: TypeAlias = tuple[int, ...]
"""The way from a program's end down to an operator: which source to follow, at each."""


@attrs.frozen
class Step:
    """An operator in a loop."""

    path: Path
    at: Addresses
    """Where its elements stand."""
    ready: Callable[[str], Any]
    """Gives what a name in its line stands for, once the first element is asked for."""
    line: str = "x = {it}(x)"
    """See ``Elementwise.line``."""
    drops: bool = False
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

    def left_out(self, x: Dropped, path: Path, /) -> None:
        """The operator at ``path`` gave this in the place of an element."""
        ...


def names_in(line: str) -> tuple[str, ...]:
    """The names in a line that stand for what its operator has.

    >>> names_in("x = {func}(x, {epoch}) if x else {other}"), names_in("pass")
    (('func', 'other'), ())
    """
    fields = (field for _, field, _, _ in Formatter().parse(line) if field is not None)
    return tuple(name for name in dict.fromkeys(fields) if name not in ("epoch", "position"))


def elements(
    steps: Sequence[Step],
    base: Iterable[Any] | None,
    watcher: Watcher,
    *,
    places: Addresses | None,
    clock: bool,
) -> Iterator[Any]:
    """The steps, the first first, on each element of the base, or on the positions of the first.

    With ``places``, each element comes with its position there. With ``clock``, each step's calls
    and seconds are added to ``watcher.costs``.
    """
    spelled = tuple((step.line, step.drops) for step in steps)
    make, step_at = _loop(spelled, base is not None, places is not None, clock)
    positions = _values(steps[0].at.position)
    numbers = iter(positions)
    watcher.begins(numbers, steps[-1].path)
    columns: list[Iterable[Any]] = [numbers] if base is None else [numbers, base]
    for step in steps:
        fields = {"{epoch}": step.at.epoch, "{position}": step.at.position}
        columns += [_values(column) for field, column in fields.items() if field in step.line]
    if places is not None:
        columns.append(_values(places.position))

    def failed(error: Exception, x: Any) -> None:
        trace = error.__traceback__
        k = step_at.get(trace.tb_lineno) if trace is not None else None
        if k is not None:  # else it came from below, where it was told already
            step, row = steps[k], len(positions) - length_hint(numbers) - 1
            epoch, position = int(step.at.epoch[row]), int(step.at.position[row])
            given = None if step.given is None else step.given(x)
            raise watcher.error(step.path, epoch, position, given) from error

    def left_out(x: Dropped, k: int) -> None:
        watcher.left_out(x, steps[k].path)

    def spent(k: int, seconds: float) -> None:
        calls, before = watcher.costs.get(steps[k].path, (0, 0.0))
        watcher.costs[steps[k].path] = calls + 1, before + seconds

    had = (tuple(map(step.ready, names_in(step.line))) for step in steps)
    one = columns[0] if len(columns) == 1 else zip(*columns, strict=False)
    return make(one, had, left_out, failed, spent)


def _values(column: Positions) -> Sequence[int]:
    """The numbers of a column; consecutive ones are made as they are needed, which is faster."""
    first, last = int(column[0]), int(column[-1])
    if last - first == len(column) - 1 and bool((np.diff(column) == 1).all()):
        return range(first, last + 1)
    numbers: list[int] = column.tolist()
    return numbers


@lru_cache(maxsize=1024)
def _loop(
    steps: tuple[tuple[str, bool], ...], base: bool, places: bool, clock: bool
) -> tuple[Callable[..., Iterator[Any]], dict[int, int]]:
    """The function for these lines, each of which may drop, and the step in each of its lines."""
    columns, taken, body = ["number", "x"] if base else ["x"], list[str](), list[str]()
    step_at: dict[int, int] = {}
    for k, (line, drops) in enumerate(steps):
        names = {"epoch": f"epoch{k}", "position": f"position{k}"}
        columns += [name for field, name in names.items() if f"{{{field}}}" in line]
        own = {name: f"{name}_{k}" for name in names_in(line)}
        taken.append(f"({''.join(f'{name}, ' for name in own.values())}), ")
        if clock:
            body.append("began = now()")
        step_at[_FIRST + len(body)] = k
        body.append(line.format_map(names | own))
        if clock:
            body.append(f"spent({k}, now() - began)")
        if drops:
            test = "x is DROPPED" if "DROPPED" in line else "isinstance(x, Dropped)"
            body += [f"if {test}:", f"    left_out(x, {k})", "    continue"]
    columns += ["place"] if places else []
    lines = [
        "def elements(columns, had, left_out, failed, spent):",
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
    names_in_it: dict[str, Any] = {"DROPPED": DROPPED, "Dropped": Dropped, "now": perf_counter}
    exec(compile("\n".join(lines), "<the operators of a flow>", "exec"), names_in_it)
    return names_in_it["elements"], step_at


_FIRST = 6
"""The number of the first line in the loop's body."""
