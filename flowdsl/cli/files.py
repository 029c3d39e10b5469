"""The commands for stored files: inspect, convert."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature as inspect_signature
from typing import Any

import click

import flowdsl as fl
from flowdsl.cli.printing import element_text, json_option, print_json, print_lines
from flowdsl.cli.targets import BadInput, load_attribute
from flowdsl.elements.flattening import InSpecOrder
from flowdsl.elements.specs import UNKNOWN, Spec, StructSpec, spec_of
from flowdsl.errors import ElementError, SourceError, SpecMismatch
from flowdsl.flow import Flow
from flowdsl.resources.file_names import Url, without_secrets
from flowdsl.storage.formats import FORMATS, StorageFormat, format_of

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
    return reader(element(trusted(command)))


@click.command()
@click.argument("file")
@reading_options
@json_option
def inspect(
    file: str, reader: str | None, element: str | None, trusted: bool, as_json: bool
) -> None:
    """Say what a stored file holds: its format, rows, spec, digest and first row."""
    form = _format("FILE", file, reader)
    flow = _read(form, file, element, trusted)
    rows = flow.node.length
    found = {
        "format": form.name,
        "reader": form.reader,
        "rows": rows,
        "spec": str(_spec(flow)),
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
    overwrite: bool,
) -> None:
    """Write the rows of a file in another format, which the suffix of OUT names."""
    before, after = _format("IN", source, reader), _format("OUT", destination, reader=None)
    if after.writer is None:
        raise BadInput(
            f"OUT: {after.name} files are read and not written; {_suffixes(written=True)}"
        )
    if os.path.exists(destination) and not overwrite:
        raise BadInput(f"{destination!r} exists; replace it with --overwrite")
    flow = _read(before, source, element, trusted)
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


def _read(form: StorageFormat, path: str, element: str | None, trusted: bool) -> Flow[Any, Any]:
    if "://" not in path and not os.path.exists(path):
        raise BadInput(f"the file {path!r} does not exist")
    function: Callable[..., Flow[Any, Any]] = getattr(fl, form.reader)
    if trusted:
        if "trusted" not in inspect_signature(function).parameters:
            raise BadInput(f"--trusted: {form.reader} reads no pickled objects; leave it out")
        function = partial(function, trusted=True)
    arguments = [_datasets_of(path)] if form.reader == "from_hdf5" else []
    if element is not None:
        return function(path, *arguments, load_attribute(element))
    if form.reader in _ENCODED:
        return _records(function, path)
    try:
        return function(path, *arguments)
    except SourceError as error:
        if form.reader != "from_lmdb":
            raise
        raise BadInput(f"{error}; for a file of another program: --reader from_lmdb_raw") from error


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
    return os.path.getsize(path) if os.path.isfile(path) else None


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
