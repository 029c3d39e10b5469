"""Code generation: the operators of a chain as one loop, as a person would write it.

Problem: an operator's own cost per element must be small compared to the user's function. The naive
way is one generator per operator; but calling a method of each operator, testing its kind and
passing elements from generator to generator cost several times as much as a small function. So the
operators' lines of code are combined into one function, such as

    def elements(rows, attributes, left_out, raise_failure, failure_value, add_cost):
        (open_0,), (func_1,), (keep_2,), = attributes
        x = None
        try:
            for x in rows:
                x = open_0(x)
                x = func_1(x)
                x = x if keep_2(x) else DROPPED
                if x is DROPPED:
                    left_out(x, 2)
                    continue
                yield x
        except BaseException as error:
            raise_failure(error, x)
            raise

Each operator has its own line, so that the line number of an exception identifies the operator that
raised it. This costs nothing unless an operator fails, and neither does the ``try`` around an
operator under ``on_error`` (an *attempted* operator). All chains with the same lines share one
function.
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

from flowdsl.errors import raise_with_cause
from flowdsl.nodes import DROPPED, Dropped, Failed, Indices, Positions, describe_element

Path: TypeAlias = tuple[int, ...]
"""The path from a program's end down to an operator: the source to follow at each step."""


NO_ATTEMPT = -1
"""The number of an operator that is not attempted."""


@attrs.frozen
class Form:
    """The properties of an operator that define its code: equal forms share a loop function."""

    text: str = "x = {it}(x)"
    """A line as in ``CodeTemplate.loop_line``; each name in braces, such as ``it``, the operator's
    function, is looked up with ``Line.value_of``. Empty if the operator only looks for failures."""
    drops: bool = False
    """True if the operator may leave the element out."""
    attempted: bool = False
    """True if failures pass it unchanged, and its own failure takes the element's place."""


LEAVES_OUT = Form("", drops=True)
"""The form of ``SkipFailed``, which leaves failures out."""


@attrs.frozen
class Line:
    """An operator in a loop."""

    path: Path
    at: Indices
    """The addresses of the operator's elements."""
    value_of: Callable[[str], Any]
    """Returns the value of a name in the line; called when the first element is requested."""
    form: Form = Form()
    number: int = NO_ATTEMPT
    """The number that identifies the operator in its failures, if it is attempted."""
    describe: Callable[[Any], str] | None = describe_element
    """Describes the element on which it failed; None for a position, which the error has anyway."""


class Watcher(Protocol):
    """Receives the failures of a loop, and the elements that it leaves out."""

    costs: dict[Path, tuple[int, float]]

    def on_loop_start(self, positions: Iterator[int], path: Path, /) -> None:
        """Called when a loop starts: its last operator is at ``path``.

        The loop takes one number from ``positions`` for each element.
        """
        ...

    def error(self, path: Path, epoch: int, position: int, detail: str | None, /) -> Exception:
        """The exception to raise: the operator at ``path`` failed on what ``detail`` describes."""
        ...

    def left_out(self, x: Dropped | Failed, path: Path, /) -> None:
        """Called when the operator at ``path`` left an element out, or the failure ``x``."""
        ...


@lru_cache(maxsize=1024)
def names_in(text: str) -> tuple[str, ...]:
    """The names in a line that refer to its operator's attributes.

    >>> names_in("x = {func}(x, {epoch}) if x else {other}"), names_in("pass")
    (('func', 'other'), ())
    """
    fields = (field for _, field, _, _ in Formatter().parse(text) if field is not None)
    return tuple(name for name in dict.fromkeys(fields) if name not in ("epoch", "position"))


def elements(
    lines: Sequence[Line],
    loop_input: Iterable[Any] | None,
    watcher: Watcher,
    *,
    outputs: Indices | None,
    time_operators: bool,
) -> Iterator[Any]:
    """Run the lines in order on each element of ``loop_input``, or on the first line's positions.

    With ``outputs``, the addresses of the last line's elements, each element is yielded with its
    position in the output. With ``time_operators``, each line's calls and seconds are added to
    ``watcher.costs``.
    """
    forms = tuple(line.form for line in lines)
    loop, line_at = _loop(forms, loop_input is not None, outputs is not None, time_operators)
    positions = _values(lines[0].at.position)
    numbers = iter(positions)
    watcher.on_loop_start(numbers, lines[-1].path)
    columns: list[Iterable[Any]] = [numbers] if loop_input is None else [numbers, loop_input]
    for line in lines:
        fields = {"{epoch}": line.at.epoch, "{position}": line.at.position}
        columns += [_values(column) for name, column in fields.items() if name in line.form.text]
    if outputs is not None:
        columns.append(_values(outputs.position))

    def address_at(line: Line) -> tuple[int, int]:
        """The epoch and the position, at this line, of the current element."""
        row = len(positions) - length_hint(numbers) - 1
        return int(line.at.epoch[row]), int(line.at.position[row])

    def raise_failure(error: BaseException, x: Any) -> None:
        assert error.__traceback__ is not None
        k = line_at.get(error.__traceback__.tb_lineno)
        if k is not None:  # otherwise a loop below raised and reported it
            line = lines[k]
            described = None if line.describe is None else line.describe(x)
            raise_with_cause(watcher.error(line.path, *address_at(line), described), error)

    def failure_value(error: Exception, x: Any) -> Failed:
        assert error.__traceback__ is not None
        line = lines[line_at[error.__traceback__.tb_lineno]]
        described = None if line.describe is None else line.describe(x)
        return Failed(line.number, *address_at(line), error, described)

    def left_out(x: Dropped | Failed, k: int) -> None:
        watcher.left_out(x, lines[k].path)

    def add_cost(k: int, seconds: float) -> None:
        calls, before = watcher.costs.get(lines[k].path, (0, 0.0))
        watcher.costs[lines[k].path] = calls + 1, before + seconds

    # A generator, since ``value_of`` must not be called before the first element is requested.
    attributes = (tuple(map(line.value_of, names_in(line.form.text))) for line in lines)
    rows = columns[0] if len(columns) == 1 else zip(*columns, strict=False)
    return loop(rows, attributes, left_out, raise_failure, failure_value, add_cost)


def _values(column: Positions) -> Sequence[int]:
    """The numbers of a column; consecutive ones as a range, which is faster."""
    first, last = int(column[0]), int(column[-1])
    if last - first == len(column) - 1 and bool((np.diff(column) == 1).all()):
        return range(first, last + 1)
    numbers: list[int] = column.tolist()
    return numbers


@lru_cache(maxsize=1024)
def _loop(
    forms: tuple[Form, ...], has_input: bool, with_positions: bool, time_operators: bool
) -> tuple[Callable[..., Iterator[Any]], dict[int, int]]:
    """The function for these forms, and the index of the form at each line number."""
    variables = ["number", "x"] if has_input else ["x"]
    targets, body = list[str](), list[str]()
    line_at: dict[int, int] = {}
    attempting = False
    for k, form in enumerate(forms):
        names = {"epoch": f"epoch{k}", "position": f"position{k}"}
        variables += [name for field, name in names.items() if f"{{{field}}}" in form.text]
        own = {name: f"{name}_{k}" for name in names_in(form.text)}
        targets.append(f"({''.join(f'{name}, ' for name in own.values())}), ")
        if form.attempted and not attempting:
            body += ["if x.__class__ is not Failed:", "    try:"]
        elif attempting and not form.attempted:
            body += _END_OF_TRY
        attempting = form.attempted
        code = [form.text.format_map(names | own)] if form.text else []
        if time_operators and code:
            code = ["began = now()", *code, f"add_cost({k}, now() - began)"]
        line_at |= {_FIRST_LINE_OF_BODY + len(body) + i: k for i in range(len(code))}
        body += [f"        {line}" if attempting else line for line in code]
        if form.drops:
            if not form.text:
                test = "x.__class__ is Failed"
            else:  # a line that does not name DROPPED calls a method, which may return a copy of it
                test = "x is DROPPED" if "DROPPED" in form.text else "isinstance(x, Dropped)"
            leave = [f"if {test}:", f"    left_out(x, {k})", "    continue"]
            body += [f"        {line}" if attempting else line for line in leave]
    body += _END_OF_TRY if attempting else []
    variables += ["output_position"] if with_positions else []
    lines = [
        "def elements(rows, attributes, left_out, raise_failure, failure_value, add_cost):",
        f"    {''.join(targets)} = attributes",
        "    x = None",
        "    try:",
        f"        for {', '.join(variables)} in rows:",
        *(f"            {line}" for line in body),
        f"            yield {'output_position, x' if with_positions else 'x'}",
        "    except BaseException as error:",
        "        raise_failure(error, x)",
        "        raise",
    ]
    namespace: dict[str, Any] = {
        "DROPPED": DROPPED,
        "Dropped": Dropped,
        "Failed": Failed,
        "now": perf_counter,
    }
    exec(compile("\n".join(lines), "<the operators of a flow>", "exec"), namespace)
    return namespace["elements"], line_at


_FIRST_LINE_OF_BODY = 6
"""The number of the first line in the loop's body."""

_END_OF_TRY = ["    except Exception as error:", "        x = failure_value(error, x)"]
"""Consecutive attempts share a ``try``, since those after a failure do not run."""
