"""The commands for stored files: inspect, convert."""

from __future__ import annotations

import ast
import glob
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature as inspect_signature
from typing import Any

import click
from typing_extensions import TypeIs

import flowdsl as fl
from flowdsl.cli.printing import element_text, json_option, print_json, print_lines
from flowdsl.cli.targets import BadInput, load_class
from flowdsl.elements.flattening import InSpecOrder
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, spec_of
from flowdsl.errors import ElementError, SourceError, SpecMismatch
from flowdsl.flow import Flow
from flowdsl.resources.file_names import Url, without_secrets
from flowdsl.storage.formats import FORMATS, StorageFormat, format_of
from flowdsl.storage.paths import all_paths

_READERS = {form.reader: form for form in FORMATS}
_ENCODED = ("from_tfrecord", "from_arrayrecord")
"""Readers that need a declaration for elements other than bytes."""


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a file is read."""
    reader = click.option(
        "--reader",
        type=click.Choice(list(_READERS)),
        metavar="NAME",
        help="The function that reads the file, such as from_lmdb_raw; by default its suffix says.",
    )
    element = click.option(
        "--element", help="The class of the rows: FILE.py:CLASS or MODULE:CLASS."
    )
    trusted = click.option(
        "--trusted", is_flag=True, help="Read pickled objects, which run code: you trust the file."
    )
    fill = click.option(
        "--fill",
        "fills",
        type=_filling,
        multiple=True,
        metavar="NAME=VALUE",
        help="The value of the empty cells or nulls of a column, as JSON or text; repeatable.",
    )
    return reader(element(trusted(fill(command))))


def _filling(text: str) -> tuple[str, str]:
    """Return the name of a column and the value of its empty cells, from ``NAME=VALUE``.

    Raises:
        BadInput: There is no name.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInput(f"--fill must be NAME=VALUE, such as age=0, got {text!r}")
    return name, value


def _as_json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _filled_once(fills: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the value of each column that is filled.

    Raises:
        BadInput: A column is named twice.
    """
    found = dict(fills)
    if len(found) < len(fills):
        names = [name for name, _ in fills]
        twice = next(name for name in found if names.count(name) > 1)
        raise BadInput(f"--fill: {twice!r} has two values; name each column once")
    return found


def with_options(message: str) -> str:
    """Return a reader's error with options of a command in the place of arguments.

    >>> with_options("declare int | None, or fill empty cells with fill={'age': ...}")
    'declare int | None, or fill empty cells with --fill age=VALUE'
    """

    def option(found: re.Match[str]) -> str:
        name = shlex.quote(ast.literal_eval(found[1])) if found[1] else "NAME"
        return f"--fill {name}=VALUE"

    message = re.sub(r"fill=\{(?:('.*?'|\".*?\"): )?\.\.\.\}", option, message)
    return message.replace("trusted=True", "--trusted")


@click.command()
@click.argument("file")
@reading_options
@json_option
def inspect(
    file: str,
    reader: str | None,
    element: str | None,
    trusted: bool,
    fills: Sequence[tuple[str, str]],
    as_json: bool,
) -> None:
    """Say what a stored file holds: its format, rows, spec, digest and first row.

    FILE may be a pattern, such as "part-*.csv", if the reader accepts patterns.
    """
    form = _format("FILE", file, reader)
    flow = _read(form, file, element, trusted, _filled_once(fills))
    rows = flow.node.length
    found = {
        "format": form.name,
        "reader": form.reader,
        "rows": rows,
        "spec": _spec_text(_spec(flow), _names(flow)),
        "digest": flow.node.fingerprint,
        "bytes": _size(file),
        "first": None if rows == 0 else element_text(flow.at(0)),
    }
    if as_json:
        print_json({"file": without_secrets(file), **found})
    else:
        print_lines({name: _text(value) for name, value in found.items() if value is not None})


@click.command()
@click.argument("source", metavar="IN")
@click.argument("destination", metavar="OUT")
@reading_options
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
def convert(
    source: str,
    destination: str,
    reader: str | None,
    element: str | None,
    trusted: bool,
    fills: Sequence[tuple[str, str]],
    overwrite: bool,
) -> None:
    """Write the rows of a file in another format, which the suffix of OUT names.

    IN may be a pattern, such as "part-*.csv", if the reader accepts patterns.
    """
    before, after = _format("IN", source, reader), _format("OUT", destination, reader=None)
    if after.writer is None:
        raise BadInput(
            f"OUT: {after.name} files are read and not written; {_suffixes(written=True)}"
        )
    if os.path.exists(destination) and not overwrite:
        raise BadInput(f"{destination!r} exists; replace it with --overwrite")
    flow = _read(before, source, element, trusted, _filled_once(fills))
    arguments = [_dataset_paths(flow)] if after.writer == "write_hdf5" else []
    write = getattr(_with_names(flow, after.writer), after.writer)
    rows = write(destination, *arguments, overwrite=overwrite)
    counted = "1 row" if rows == 1 else f"{rows:,} rows"
    click.echo(f"{counted}: {source} ({before.name}) to {destination} ({after.name})")


def _format(what: str, path: str, reader: str | None) -> StorageFormat:
    found = format_of(path) if reader is None else _READERS[reader]
    if found is None and os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "data.mdb")):
            raise BadInput(
                f"{what}: {path!r} is a folder without a data.mdb, so it is not an LMDB file; a "
                f"folder of files is read by fl.from_files, in a program"
            )
        found = _READERS["from_lmdb"]
    if found is None:
        raise BadInput(
            f"{what}: the end of {Url(path)!r} names no format; {_suffixes(written=what == 'OUT')}"
            f"{'' if what == 'OUT' else ', or name a reader: --reader from_text'}"
        )
    return found


def _suffixes(written: bool) -> str:
    forms = [form for form in FORMATS if form.suffixes and (form.writer or not written)]
    return f"expected one of {' '.join(form.suffixes[0] for form in forms)}"


def _read(
    form: StorageFormat,
    path: str,
    element: str | None,
    trusted: bool,
    fill: Mapping[str, str],
) -> Flow[Any, Any]:
    if not _is_pattern(path) and not os.path.exists(os.path.expanduser(path)):
        raise BadInput(f"the file {path!r} does not exist")
    function: Callable[..., Flow[Any, Any]] = getattr(fl, form.reader)
    if trusted:
        if "trusted" not in inspect_signature(function).parameters:
            raise BadInput(f"--trusted: {form.reader} reads no pickled objects; leave it out")
        function = partial(function, trusted=True)
    if fill:
        if "fill" not in inspect_signature(function).parameters:
            raise BadInput(f"--fill: {form.reader} fills no columns; leave it out")
        is_text = form.reader == "from_csv" and element is None  # all columns are
        value_of = str if is_text else _as_json_or_text
        function = partial(function, fill={name: value_of(value) for name, value in fill.items()})
    arguments = [_datasets_of(path)] if form.reader == "from_hdf5" else []
    if element is not None:
        return function(path, *arguments, load_class(element))
    if form.reader in _ENCODED:
        return _records(function, path)
    try:
        return function(path, *arguments)
    except SourceError as error:
        if form.reader != "from_lmdb":
            raise
        raise BadInput(f"{error}; for a file of another program: --reader from_lmdb_raw") from error


def _is_pattern(path: str) -> bool:
    """Return True if a path may name other files than the one of this name: a reader says which."""
    return "://" in path or glob.has_magic(path) or "{" in path


def _records(function: Callable[..., Flow[Any, Any]], path: str) -> Flow[Any, Any]:
    """Return the records of a file as bytes, or as elements if flowdsl encoded them."""
    try:
        flow = function(path)
        list(flow.take(1))
    except (SpecMismatch, ElementError) as error:
        if not isinstance(error.__cause__ or error, SpecMismatch):
            raise
        return function(path, object)
    return flow


def _datasets_of(path: str) -> str | list[str]:
    from flowdsl.storage.arrays.hdf5 import dataset_names

    names = dataset_names(path)
    return names[0] if len(names) == 1 else names


def _spec(flow: Flow[Any, Any]) -> Spec:
    """Return the spec of the rows, or of the first row if the format has none."""
    spec = flow.spec
    return spec_of(flow.at(0)) if flow.node.length and spec == UNKNOWN else spec


def _spec_text(spec: Spec, names: Sequence[str]) -> str:
    """Return a spec as text, with the names that the file has for the components of tuples."""
    if not isinstance(spec, StructSpec) or spec.form is not tuple or not names:
        return str(spec)
    parts = (
        _spec_text(part, [name for name, _ in part.fields] if _has_names(part) else [])
        for _, part in spec.fields
    )
    return f"({', '.join(f'{name}: {part}' for name, part in zip(names, parts, strict=True))})"


def _has_names(spec: Spec) -> TypeIs[StructSpec]:
    return isinstance(spec, StructSpec) and spec.has_names


_BY_NAME = ("write_csv", "write_npz", "write_parquet")
"""Writers that store the names of a dict's components."""


def _with_names(flow: Flow[Any, Any], writer: str) -> Flow[Any, Any]:
    """Return the rows in the form in which a writer stores the names that the reader knows."""
    spec, names = _spec(flow), _names(flow)
    if not isinstance(spec, StructSpec) or not names:
        return flow
    in_order = InSpecOrder(spec)
    if writer == "write_hdf5" and spec.form is dict:  # takes tuples, and the names as an argument
        return flow.map(lambda row: tuple(in_order(row)))
    if writer in _BY_NAME and spec.form is tuple:
        return flow.map(lambda row: dict(zip(names, row, strict=True)))
    return flow


def _names(flow: Flow[Any, Any]) -> Sequence[str]:
    """Return the names of a row's components; empty if it has none."""
    spec = _spec(flow)
    if not isinstance(spec, StructSpec):
        return ()
    from flowdsl.storage.arrays.hdf5 import FromHdf5

    if isinstance(flow.node, FromHdf5):  # its rows are tuples
        return flow.node.names
    return [name for name, _ in spec.fields if spec.has_names]


def _dataset_paths(flow: Flow[Any, Any]) -> str | Sequence[str]:
    """Return the names of the HDF5 datasets for the components of a row."""
    spec = _spec(flow)
    if not isinstance(spec, StructSpec):
        return "rows"
    return _names(flow) or [f"c{name}" for name, _ in spec.fields]


def _size(path: str) -> int | None:
    """Return the bytes of a file, or of the files of a pattern; None if they are not on a disk."""
    if "://" in path or os.path.isdir(path):
        return None
    return sum(map(os.path.getsize, all_paths("inspect", path)))


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
