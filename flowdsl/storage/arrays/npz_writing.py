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
from flowdsl.storage.arrays.npy import dtype_in_npy_file
from flowdsl.storage.arrays.npz import COMMENT, DIGESTS, HEADER, VERSION, NpzHeader
from flowdsl.storage.paths import OnePath
from flowdsl.storage.values import components_to_store, is_ml_dtype
from flowdsl.storage.writing import write_file

_MAX_AXES = 63
"""NumPy reads arrays of at most 64 axes; the first is the rows."""


def write(flow: FlowBase[object, Finite], path: OnePath, overwrite: bool = False) -> int:
    """Write the elements of a flow, as its method ``write_npz`` does."""
    return write_file("write_npz", flow, path, overwrite, _write)


def _write(path: Path, elements: Iterable[object]) -> None:
    with ExitStack() as files:
        rows = _ArrayFiles(path, files)
        for element in elements:
            rows.add(element)
    rows.zip()


@attrs.define(eq=False)
class _ArrayFiles:
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
        self._digests = self.files.enter_context(self._digest_file.open("wb"))

    @property
    def _digest_file(self) -> Path:
        return self.path.with_name(f"{self.path.name}.digests")

    def _file_of(self, k: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{k}")

    def add(self, element: object) -> None:
        """Add a row; raises SpecMismatch if it cannot be written."""
        form, names, values = _layout(element)
        is_unnamed = type(element) is tuple
        labels = [f"element.{k if is_unnamed else name}" for k, name in enumerate(names)]
        if form == "single":
            labels = ["element"]
        if not self.length:
            self.columns = [column_of(x, label) for x, label in zip(values, labels, strict=True)]
            self._begin(form, names, labels)
        if form == "dict" and names != self.names and {*names} == {*self.names}:
            by_name = dict(zip(names, values, strict=True))
            names, values = self.names, [by_name[name] for name in self.names]
            labels = [f"element.{name}" for name in names]
        if (form, names) != (self.form, self.names):
            raise SpecMismatch(
                f"element: a {form} of {', '.join(names)}; the first row is a {self.form} of "
                f"{', '.join(self.names)}: all must be alike"
            )
        digests = []
        for x, column, label, file in zip(values, self.columns, labels, self._open, strict=True):
            same_column(column, x, label)
            content = content_of(x, label)
            digests.append(xxh3_64_intdigest(content, self.length))
            file.write(content)
        data = np.array(digests, "<u8").tobytes()
        self._digest.update(data)
        self._digests.write(data)
        self.length += 1

    def _begin(self, form: str, names: list[str], labels: list[str]) -> None:
        for name, column, label in zip(names, self.columns, labels, strict=True):
            if column.form == "str":
                raise SpecMismatch(
                    f"{label}: text cannot be written: in an array, each takes as much space as "
                    f"the longest; write_hdf5 and write_lmdb can store text"
                )
            if len(column.shape) > _MAX_AXES:
                raise SpecMismatch(
                    f"{label}: an array of {len(column.shape)} axes cannot be written: at most "
                    f"{_MAX_AXES} can"
                )
            _check_name(name, label)
        self.form, self.names = form, names
        paths = map(self._file_of, range(len(names)))
        self._open = [self.files.enter_context(path.open("wb")) for path in paths]

    def zip(self) -> None:
        """Combine the arrays into one archive."""
        columns = list(zip(self.names, self.columns, strict=True))
        header = NpzHeader(
            version=VERSION,
            length=self.length,
            digest=self._digest.intdigest(),
            form=self.form,
            names=self.names,
            forms=[column.form for column in self.columns],
            dtypes={name: c.dtype.name for name, c in columns if is_ml_dtype(c.dtype)},
        )
        encoded = msgspec.json.encode(header)
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_STORED) as archive:
            for k, (name, column) in enumerate(columns):
                dtype, shape = dtype_in_npy_file(column.dtype), (self.length, *column.shape)
                _move_array(self._file_of(k), archive, f"{name}.npy", dtype, shape)
            shape = (self.length, len(self.names))
            _move_array(self._digest_file, archive, DIGESTS, np.dtype("<u8"), shape)
            archive.comment = COMMENT
            archive.writestr(HEADER, xxh3_64_digest(encoded) + encoded)


def _move_array(
    path: Path, archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> None:
    """Add the bytes in a file to the archive, as an array, and remove the file."""
    with archive.open(name, "w", force_zip64=True) as out, path.open("rb") as file:
        described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(out, described)
        shutil.copyfileobj(file, out, 1 << 20)
    path.unlink()


def _layout(element: object) -> tuple[str, list[str], list[Any]]:
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
