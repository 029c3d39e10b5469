"""write_npz: one array per component, written as rows arrive, and zipped without compression."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import attrs
import msgspec
import numpy as np
from numpy.lib import format as npy
from xxhash import xxh3_64, xxh3_64_digest, xxh3_64_intdigest

from flowdsl.effects import Finite
from flowdsl.errors import SpecMismatch
from flowdsl.nodes import FlowBase
from flowdsl.storage.arrays.columns import Column, column_of, content_of, same_column
from flowdsl.storage.arrays.npy import known_to_numpy
from flowdsl.storage.arrays.npz import COMMENT, DIGESTS, HEADER, VERSION, NpzHeader
from flowdsl.storage.paths import OnePath
from flowdsl.storage.values import components_to_store, is_small
from flowdsl.storage.writing import write_file

_MAX_AXES = 63
"""NumPy reads an array of 64, of which the first counts the rows."""


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Run one pass of a flow, write its elements and return the number of rows.

    Raises:
        EndlessFlow: The flow never ends.
        InvalidFlow: The file exists, or its folder does not.
        SourceError: The disk refuses a write.
        SpecMismatch: An element cannot be written.
    """
    return write_file("write_npz", flow, path, overwrite, _write)


def _write(path: Path, elements: Iterable[object]) -> None:
    with ExitStack() as files:
        rows = _Parts(path, files)
        for element in elements:
            rows.add(element)
    rows.zip()


@attrs.define(eq=False)
class _Parts:
    """The arrays written so far, each in a file of its own."""

    path: Path
    files: ExitStack
    form: str = "tuple"
    names: list[str] = attrs.field(factory=list)
    columns: list[Column] = attrs.field(factory=list)
    length: int = 0
    _open: list[IO[bytes]] = attrs.field(factory=list)
    _digests: IO[bytes] = attrs.field(init=False)
    _digest: Any = attrs.field(factory=xxh3_64)

    def __attrs_post_init__(self) -> None:
        self._digests = self.files.enter_context(self._part(-1).open("wb"))

    def _part(self, k: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{k}.part")

    def add(self, element: object) -> None:
        """Add a row; raises SpecMismatch if it cannot be written."""
        form, names, values = _parts(element)
        plain = type(element) is tuple
        ats = [f"element.{k if plain else name}" for k, name in enumerate(names)]
        if form == "single":
            ats = ["element"]
        if not self.length:
            self.columns = [column_of(x, at) for x, at in zip(values, ats, strict=True)]
            self._begin(form, names, ats)
        if form == "dict" and names != self.names and {*names} == {*self.names}:
            by_name = dict(zip(names, values, strict=True))
            names, values = self.names, [by_name[name] for name in self.names]
            ats = [f"element.{name}" for name in names]
        if (form, names) != (self.form, self.names):
            raise SpecMismatch(
                f"element: a {form} of {', '.join(names)}; the first row is a {self.form} of "
                f"{', '.join(self.names)}: all must be alike"
            )
        digests = []
        for x, column, at, file in zip(values, self.columns, ats, self._open, strict=True):
            same_column(column, x, at)
            content = content_of(x, at)
            digests.append(xxh3_64_intdigest(content, self.length))
            file.write(content)
        data = np.array(digests, "<u8").tobytes()
        self._digest.update(data)
        self._digests.write(data)
        self.length += 1

    def _begin(self, form: str, names: list[str], ats: list[str]) -> None:
        for name, column, at in zip(names, self.columns, ats, strict=True):
            if column.form == "str":
                raise SpecMismatch(
                    f"{at}: text cannot be written: in an array, each takes as much space as the "
                    f"longest; write_hdf5 and write_lmdb can store text"
                )
            if len(column.shape) > _MAX_AXES:
                raise SpecMismatch(
                    f"{at}: an array of {len(column.shape)} axes cannot be written: at most "
                    f"{_MAX_AXES} can"
                )
            _check_name(name, at)
        self.form, self.names = form, names
        self._open = [self.files.enter_context(self._part(k).open("wb")) for k in range(len(names))]

    def zip(self) -> None:
        """Combine the arrays into one archive."""
        header = NpzHeader(
            *(VERSION, self.length, self._digest.intdigest()),
            *(self.form, self.names, [column.form for column in self.columns]),
            {
                name: column.dtype.name
                for name, column in zip(self.names, self.columns, strict=True)
                if is_small(column.dtype)
            },
        )
        encoded = msgspec.json.encode(header)
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED) as archive:
            for k, (name, column) in enumerate(zip(self.names, self.columns, strict=True)):
                shape = (self.length, *column.shape)
                self._add(archive, f"{name}.npy", k, known_to_numpy(column.dtype), shape)
            self._add(archive, DIGESTS, -1, np.dtype("<u8"), (self.length, len(self.names)))
            archive.comment = COMMENT
            archive.writestr(HEADER, xxh3_64_digest(encoded) + encoded)

    def _add(
        self,
        archive: zipfile.ZipFile,
        name: str,
        k: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
    ) -> None:
        part = self._part(k)
        with archive.open(name, "w", force_zip64=True) as out, part.open("rb") as file:
            described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(out, described)
            shutil.copyfileobj(file, out, 1 << 20)
        part.unlink()


def _parts(element: object) -> tuple[str, list[str], list[Any]]:
    """Return the form of a row, the names of its arrays and its components."""
    parts = components_to_store(element, "element")
    if parts is None:
        return "single", ["arr_0"], [element]
    if not parts:
        raise SpecMismatch("element: it has no components")
    values = [value for _, value in parts]
    if type(element) is tuple:
        return "tuple", [f"arr_{k}" for k in range(len(parts))], values
    return "tuple" if isinstance(element, tuple) else "dict", [name for name, _ in parts], values


def _check_name(name: object, at: str) -> None:
    """Refuse a name that cannot be the name of an archive member."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) < 1000:
        raise SpecMismatch(f"{at}: {name!r} cannot be the name of an array")
    if name.startswith("__flowdsl__"):
        raise SpecMismatch(f"{at}: {name!r} is reserved")
