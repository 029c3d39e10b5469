"""The laws of storage formats: what is written is read back, or an error says why not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import attrs
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flowdsl.errors import FlowError, SourceError, SpecMismatch, StateMismatch
from flowdsl.nodes import IndexedSource
from flowdsl.ops.sources import from_items, from_iterable
from flowdsl.testing.checks import check_source
from flowdsl.testing.elements import same
from flowdsl.testing.outcomes import element_difference, require
from flowdsl.testing.recipes import AnyFlow

_SOME = [(i, np.full(3, i / 2, np.float32)) for i in range(12)]


def _rows(element: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(element, max_size=12)


_COMMON = st.sampled_from([np.dtype(name) for name in ("b1", "u1", "i4", "i8", "f4", "f8")])
_DTYPES = hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64))
_SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
_ARRAYS = hnp.arrays(_COMMON, _SHAPES) | hnp.arrays(_DTYPES, _SHAPES)
ARRAYS = _rows(_ARRAYS | st.tuples(_ARRAYS, _ARRAYS))
"""Rows of arrays, whose shapes and dtypes may differ: what any format should hold."""

ANY_ROWS = ARRAYS | _rows(
    st.recursive(
        st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats()
        | st.text(st.characters(codec="utf-8"))
        | _ARRAYS,
        lambda part: (
            st.lists(part, max_size=3)
            | st.tuples(part, part)
            | st.dictionaries(st.sampled_from(["x", "y"]), part, min_size=1)
        ),
        max_leaves=5,
    )
)
"""Rows of arrays, numbers, text, and of lists, tuples and dicts of them."""


@attrs.frozen
class Format:
    """A reader and a writer, and the rows to test them with."""

    write: Callable[[AnyFlow, Path], int]
    """Writes a flow's elements and returns their number: ``lambda f, p: f.write_mine(p)``."""
    read: Callable[[Path], AnyFlow]
    suffix: str = ""
    """The ending of file names."""
    rows: st.SearchStrategy[list[object]] = attrs.field(default=ANY_ROWS, repr=False)
    """Draws lists of elements that the format can hold."""
    refused: Sequence[object] = (object(),)
    """Elements that the format cannot hold; each is written after some that it can hold."""
    some: Sequence[object] = attrs.field(default=_SOME, repr=False)
    """Twelve rows, no two alike, for the laws that take the same rows each time."""
    checked: bool = True
    """Whether damage is found out. A text file has no checksum: a damaged line is another line, and
    one that is cut off has fewer lines. Then the rows before the damage are held to be right."""

    def written(self, rows: Sequence[object], path: Path) -> AnyFlow:
        """Write these rows to a file, and return a flow over it."""
        n = self.write(from_items(list(rows)), path)
        require(n == len(rows), f"of {len(rows)} rows, write counts {n}")
        return self.read(path)


FormatLaw: TypeAlias = Callable[[Format, Path], None]
"""A function that checks a format, in an empty folder."""


# -- what is written is read -----------------------------------------------------------------------


def rows_come_back(format_: Format, folder: Path) -> None:
    """What is read is what was written: the rows, their order, dtypes, shapes and number."""
    names = iter(range(10**9))

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(format_.rows)
    def check(rows: list[object]) -> None:
        path = folder / f"{next(names)}{format_.suffix}"
        _reads(format_.written(rows, path), rows)

    check()


def _reads(flow: AnyFlow, rows: Sequence[object]) -> None:
    length = flow.node.length
    found = element_difference(flow.collect(), rows)
    require(found is None, f"of what was written, {found}")
    require(length in (None, len(rows)), f"of {len(rows)} rows, the flow says {length}")


def it_is_a_source(format_: Format, folder: Path) -> None:
    """A flow over a file keeps the laws of flows, in several processes too."""
    path = _path(format_, folder)
    format_.written(format_.some, path)
    check_source(partial(format_.read, path), format_.some, examples=10)
    got = format_.read(path).prefetch(procs=2).collect()
    found = element_difference(got, format_.some)
    require(found is None, f"read by two processes, {found}")


def any_row_is_read_by_its_number(format_: Format, folder: Path) -> None:
    """A row that is read by its number is the row of a pass, in any order of reading."""
    some = format_.some
    node = format_.written(some, _path(format_, folder)).node
    if isinstance(node, IndexedSource):
        row = node.open()
        for i in (*reversed(range(len(some))), 3, 3, 0):
            require(same(row(i), some[i]), f"row {i} is {row(i)!r}, and not {some[i]!r}")


def a_position_tells_its_file(format_: Format, folder: Path) -> None:
    """A state that was saved over one file is refused over another one that holds other rows."""
    path = _path(format_, folder)
    flow = format_.written(format_.some, path)
    with flow.epoch(0) as run:
        next(run)
        state = run.state_dict()
    other = folder / "other"
    other.mkdir()
    changed = format_.written(_others(format_), _path(format_, other))
    try:
        with changed.resume(state):
            pass
    except StateMismatch:
        return
    raise AssertionError("a state was resumed over other rows")


def _others(format_: Format) -> list[object]:
    """As many other rows: the first one alone is in another place."""
    return [*format_.some[1:], format_.some[0]]


# -- what is no whole file -------------------------------------------------------------------------


def a_missing_file_is_named(format_: Format, folder: Path) -> None:
    """Reading a missing file is a SourceError that names it, at once or at the first row.

    Reading an empty file is too, or it has no rows, if the format is not checked.
    """
    path = _path(format_, folder)
    _fails(format_, path, "it is missing")
    path.write_bytes(b"")
    if format_.checked:
        _fails(format_, path, "it is empty")
    else:
        _gives(format_, path, [], 0, "it is empty")


def a_file_that_is_cut_off_is_named(format_: Format, folder: Path) -> None:
    """A file that ends too early is a SourceError that names it, and never fewer rows.

    If the format is not checked, it may also have the rows that are whole, and one that is not.
    """
    path = _path(format_, folder)
    ends = _ends(format_, path)
    format_.written(format_.some, path)
    for file, content in _contents(path):
        for size in _places(len(content)):
            _replace(file, content[:size])
            what = f"{file.name} was cut to {size} of {len(content)} bytes"
            if format_.checked:
                _fails(format_, path, what)
            else:
                _gives(format_, path, format_.some[: bisect_right(ends, size)], 1, what)
        _replace(file, content)


def damage_is_never_another_row(format_: Format, folder: Path) -> None:
    """Where bytes are changed, a row is what was written, or a SourceError that names the file.

    If the format is not checked, the rows before the changed byte are.
    """
    path, some = _path(format_, folder), format_.some
    ends = _ends(format_, path)
    format_.written(some, path)
    for file, content in _contents(path):
        used = [i for i, byte in enumerate(content) if byte]  # few others: most mean nothing
        for k in {*_places(len(content)), *used[:: max(1, len(used) // 150)]} - {len(content)}:
            changed = bytearray(content)
            changed[k] ^= 0x41
            _replace(file, bytes(changed))
            what = f"byte {k} of {file.name} was changed"
            if not format_.checked:
                _gives(format_, path, some[: bisect_right(ends, k)], None, what)
                continue
            got, error = _outcome(format_, path)
            found = element_difference(got, some[: len(got)])
            require(found is None, f"{what}: {found}")
            if error is None:
                require(len(got) == len(some), f"{what}: {len(got)} rows came without an error")
            else:
                _is_named(error, path, what)
        _replace(file, content)


def _ends(format_: Format, path: Path) -> list[int]:
    """Where each row ends in a file, if it is not checked: how large one of the first rows is."""
    if format_.checked:
        return []
    sizes: list[int] = []
    for n in range(len(format_.some)):
        format_.write(from_items(list(format_.some[: n + 1])), path)
        sizes.append(path.stat().st_size)
        path.unlink()
    return sizes


def _gives(
    format_: Format, path: Path, rows: Sequence[object], more: int | None, what: str
) -> None:
    """The file has these rows first, and at most so many more; or reading it is an error."""
    got, error = _outcome(format_, path)
    found = element_difference(got[: len(rows)], rows[: len(got)])
    require(found is None, f"{what}: before that, {found}")
    if error is not None:
        _is_named(error, path, what, SourceError, SpecMismatch)  # one character changes a type
        return
    require(len(got) >= len(rows), f"{what}: {len(got)} rows came, of {len(rows)} before that")
    least = more is None or len(got) <= len(rows) + more
    require(least, f"{what}: {len(got)} rows came, of {len(rows)} that were left")


def _outcome(format_: Format, path: Path) -> tuple[list[Any], FlowError | None]:
    got: list[Any] = []
    try:
        for row in format_.read(path):
            got.append(row)  # noqa: PERF402  # what came before an error counts too
    except FlowError as error:
        return got, error.with_traceback(None)
    return got, None


def _fails(format_: Format, path: Path, what: str) -> None:
    got, error = _outcome(format_, path)
    if error is None:
        raise AssertionError(f"{what}: {len(got)} rows came without an error")
    _is_named(error, path, what)


def _is_named(error: FlowError, path: Path, what: str, *kinds: type[FlowError]) -> None:
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    told = any(isinstance(one, kinds or SourceError) and str(path) in str(one) for one in causes)
    require(told, f"{what}: no SourceError names {str(path)!r}: {error!r}")


def _path(format_: Format, folder: Path) -> Path:
    return folder / f"rows{format_.suffix}"


def _contents(path: Path) -> list[tuple[Path, bytes]]:
    """The file, or the files in a folder, with their contents."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return [(file, file.read_bytes()) for file in files]


def _places(size: int) -> list[int]:
    """Some offsets in a file: its two ends, and some between them."""
    some = {0, 1, size // 2, size - 1, *range(0, size, max(1, size // 20))}
    return sorted(k for k in some if 0 <= k < size)


def _replace(file: Path, content: bytes) -> None:
    """Put a new file in the place of this one: an open file must not be written to."""
    file.unlink(missing_ok=True)
    file.write_bytes(content)


# -- what cannot be written ------------------------------------------------------------------------


def what_it_cannot_hold_is_refused(format_: Format, folder: Path) -> None:
    """An element that cannot be held is a SpecMismatch that names its row, and leaves nothing."""
    for element in format_.refused:
        flow = from_items([*format_.some[:2], element])
        error = _refusal(format_, flow, folder)
        what = f"{element!r} was to be refused"
        require(isinstance(error, SpecMismatch), f"{what}, with a SpecMismatch: {error!r}")
        require("row 2" in str(error), f"{what}, as row 2: {error}")


def a_flow_that_fails_leaves_nothing(format_: Format, folder: Path) -> None:
    """The writer raises what the flow raises, and leaves no file, whole or partial.

    A file that was there before is unchanged, if it was to be kept.
    """
    failing = from_iterable(partial(_failing, format_.some))
    error = _refusal(format_, failing, folder)
    require(isinstance(error, FlowError), f"the flow failed, and the writer raised {error!r}")
    path, others = _path(format_, folder), _others(format_)
    format_.written(format_.some, path)
    kept = _contents(path)
    try:
        format_.write(from_items(others), path)
    except FlowError:
        require(_contents(path) == kept, "what was refused changed the file that was there")
        _reads(format_.read(path), format_.some)
        return
    _reads(format_.read(path), others)


def a_flow_that_never_ends_is_refused(format_: Format, folder: Path) -> None:
    """An endless flow is refused before any row is made: no disk can hold it."""

    def made(x: object) -> object:
        raise RuntimeError("a row was made of a flow that never ends")

    error = _refusal(format_, from_items(list(format_.some)).map(made).repeat(), folder)
    told = isinstance(error, FlowError) and not isinstance(error.__cause__, RuntimeError)
    require(told, f"a flow that never ends was to be refused: {error!r}")


def _failing(rows: Sequence[object]) -> Iterator[object]:
    yield from islice(rows, 5)
    raise ValueError("the disk that is read is on fire")


def _refusal(format_: Format, flow: AnyFlow, folder: Path) -> Exception:
    """The error that the writer raises, after a check that it left no file."""
    before = sorted(folder.rglob("*"))
    try:
        format_.write(flow, _path(format_, folder))
    except Exception as error:
        left = sorted({*folder.rglob("*")} - {*before})
        require(not left, f"after {error!r} there is left: {', '.join(map(str, left))}")
        return error
    raise AssertionError("it was written")


FORMAT_LAWS: tuple[FormatLaw, ...] = (
    rows_come_back,
    it_is_a_source,
    any_row_is_read_by_its_number,
    a_position_tells_its_file,
    a_missing_file_is_named,
    a_file_that_is_cut_off_is_named,
    damage_is_never_another_row,
    what_it_cannot_hold_is_refused,
    a_flow_that_fails_leaves_nothing,
    a_flow_that_never_ends_is_refused,
)


def check_format(
    write: Callable[[AnyFlow, Path], int],
    read: Callable[[Path], AnyFlow],
    *,
    suffix: str = "",
    rows: st.SearchStrategy[list[object]] = ANY_ROWS,
    refused: Sequence[object] = (object(),),
    some: Sequence[object] = _SOME,
    checked: bool = True,
) -> None:
    """Check a storage format against all of its laws.

    ``write`` runs a pass and writes its elements to a path, and gives their number; ``read`` makes
    a flow over it. ``rows`` draws lists of elements that the format holds: ``formats.ARRAYS`` if
    it holds arrays and pairs of them only. ``refused`` are elements that it cannot hold. ``some``
    are twelve rows for a format that holds no arrays. With ``checked=False`` damage need not be
    found out, as in a text file without a checksum: the rows before it have to be right.

    >>> import flowdsl as fl
    >>> from flowdsl.testing import check_format
    >>> check_format(
    ...     lambda flow, path: flow.write_lmdb(path), lambda path: fl.from_lmdb(path)
    ... )

    Raises:
        AssertionError: A law is broken; a note says which.
    """
    format_ = Format(write, read, suffix, rows, refused, some, checked)
    for law in FORMAT_LAWS:
        with TemporaryDirectory() as folder:
            try:
                law(format_, Path(folder))
            except Exception as error:
                error.add_note(f"the law: {(law.__doc__ or law.__name__).splitlines()[0]}")
                raise
