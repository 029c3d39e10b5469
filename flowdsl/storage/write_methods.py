"""The ``write_...`` methods of Flow: sinks, one for each format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowdsl.effects import Finite
from flowdsl.nodes import E, FlowBase, T

if TYPE_CHECKING:
    from flowdsl.storage.compression import Compression


class WriteMethods(FlowBase[T, E]):
    """Operators that run a flow and write its elements to a file."""

    def write_lmdb(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        append: bool = False,
        trusted: bool = False,
    ) -> int:
        """Run one pass, write its elements to an LMDB file and return the number of rows.

        ``path`` is the file to write. If it ends in ``/``, or is a folder that is empty or contains
        a store, the file is written as ``data.mdb`` in this folder, as LMDB's own tools do. The
        file appears under its name only when it is complete; after an error there is no file. It
        grows as needed: no size has to be chosen.

        ``append=True`` adds rows to a file in place, or creates it. Rows are committed to disk in
        transactions, every 16 MB, 1,024 rows or 5 seconds. A writer that is stopped at any moment
        leaves the file unchanged, or incomplete with the first of the new rows: ``from_lmdb`` then
        refuses it and reports the number of rows. ``append=True`` continues after these rows with
        the elements of the flow: use ``rest = flow.skip(n)``, where ``n`` is
        ``len(fl.from_lmdb(path, partial=True))``. Passes that read the file in other processes
        continue to read; new ones can begin when it is complete.

        Elements may consist of numbers, text, bytes, None, arrays, and of lists, dicts, tuples and
        records of these. Arrays and NumPy scalars may have the dtypes of ml_dtypes, such as
        bfloat16. ``trusted=True`` also pickles other Python objects, such as an ``OrderedDict``,
        which only ``from_lmdb(path, trusted=True)`` reads.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite`` or
        ``append``), if another writer appends to it, or if this process reads the file that it
        should append to; ``SpecMismatch``, with its row, for an element that cannot be written;
        ``SourceError`` if the disk refuses a write; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).write_lmdb(f"{folder}/three.lmdb")
        3

        Source: ``LMDBSerializer.save`` in tensorpack, which loses the rows of a full map.
        """
        from flowdsl.storage.lmdb.writing import write  # needs LMDB

        return write(self, path, overwrite, append, trusted)

    def write_text(
        self: FlowBase[str, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        r"""Run one pass of a flow of text, write each element as a line and return their number.

        The file is UTF-8, and each line ends with ``\n``. A name that ends with ``.gz`` is
        compressed by gzip. The file appears under its name only when it is complete; after an error
        there is no file.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that is not a str, contains ``\n``, or ends
        with ``\r``, as it would not be read back; ``SourceError`` if the disk refuses a write; any
        error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items(["to be", "or not"]).write_text(f"{folder}/two.txt")
        2

        Source: ``DataFrameWriter.text`` of Spark.
        """
        from flowdsl.storage.text.lines import write

        return write(self, path, overwrite)

    def write_csv(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        r"""Run one pass, write each element as a line of a CSV file and return their number.

        A NamedTuple, record, dataclass or dict is written below a header with the names of its
        components; a tuple has no names, so its file has no header. A component is text, a number,
        a bool, a date, a datetime, None, or a NumPy number, text or ``datetime64[us]``.
        ``from_csv(path, Sample)`` reads the same values back, including floats, which are written
        with enough digits; a time zone is read as its offset. None and ``""`` are both an empty
        cell, so a column may contain only one of the two. The file is UTF-8 as in RFC 4180: commas,
        lines that end with ``\r\n``, and quotes where a cell needs them. A name that ends with
        ``.gz`` is compressed by gzip. The file appears under its name only when it is complete;
        after an error there is no file.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row and component, for an array or any other value that a cell
        cannot hold, and for a row with other columns than the first; ``SourceError`` if the disk
        refuses a write; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items([{"x": 0.1, "name": "a, b"}]).write_csv(f"{folder}/one.csv")
        ...     Path(folder, "one.csv").read_text()
        1
        'x,name\n0.1,"a, b"\n'

        Source: RFC 4180.
        """
        from flowdsl.storage.csv.writing import write

        return write(self, path, overwrite)

    def write_tfrecord(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        compression: Compression | None = None,
        overwrite: bool = False,
    ) -> int:
        """Run one pass, write its elements to a TFRecord file and return the number of rows.

        ``bytes`` elements are written unchanged, one per record, as in TensorFlow: encode them
        before, e.g. with ``flow.map(fl.to_example)``. Other elements are encoded, as in
        ``write_lmdb``, and followed by one record with their spec; ``fl.from_tfrecord(path,
        Sample)`` reads them. If there are no elements, the flow's spec decides between the two. The
        file appears under its name only when it is complete; after an error there is no file. For
        several files, write the parts of ``flow.split`` or ``flow.shard``.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that cannot be written, or for bytes mixed
        with other elements; ``SourceError`` if the disk refuses a write; ``MissingLibrary`` if
        google-crc32c is not installed; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items([b"a", b"bc"]).write_tfrecord(f"{folder}/two.tfrecord")
        2

        Source: ``TFRecordSerializer.save`` in tensorpack; ``tf.io.TFRecordWriter``.
        """
        from flowdsl.storage.tfrecord.writing import write  # its imports are needed only here

        return write(self, path, compression, overwrite)

    def write_parquet(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        row_group: int = 4096,
    ) -> int:
        """Run one pass, write its elements to a Parquet file and return the number of rows.

        A component is a column of ``bool``, ``int``, ``float``, ``str`` or ``bytes``, of lists of
        these, of ``date``, of NumPy scalars (``np.datetime64`` for times), or of arrays.
        One-dimensional arrays may differ in length; others must have the shape of the first one,
        and become Arrow tensors. A value may be None, except for these tensors. All rows have the
        same columns; a file of no rows has those that the flow's spec determines. ``row_group``
        rows are read as a unit: small groups suit shuffled rows, large ones reading the whole
        table. A group also ends at 64 MiB.

        Other programs can read the file. flowdsl reads the same values back, with their dtypes, and
        verifies them with digests in the footer.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that cannot be written; ``SourceError`` if
        the disk refuses a write; ``MissingLibrary`` without pyarrow; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).write_parquet(f"{folder}/three.parquet")
        3

        Source: Apache Parquet, and ``pyarrow.parquet``.
        """
        from flowdsl.storage.parquet.writing import write  # needs msgspec

        return write(self, path, overwrite, row_group)

    def write_arrayrecord(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        group_size: int = 1,
    ) -> int:
        """Run one pass, write its elements to an ArrayRecord file and return the number of rows.

        ``bytes`` elements are written unchanged, for any reader of the format. Other elements are
        encoded, and ``from_arrayrecord(path, element)`` decodes them. A file cannot contain both.
        ``group_size`` records are compressed together: larger groups take less space, but reading a
        single record takes longer.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that cannot be written; ``SourceError`` if
        the disk refuses a write; ``MissingLibrary`` without array_record; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items([b"a", b"bc"]).write_arrayrecord(f"{folder}/two.arrayrecord")
        2

        Source: ``ArrayRecordWriter`` in ArrayRecord.
        """
        from flowdsl.storage.arrayrecord import write  # needs msgspec

        return write(self, path, overwrite, group_size)

    def write_webdataset(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass, write its samples to a WebDataset tar file and return their number.

        An element is a dict: ``"__key__"`` is the common name of its files, without a dot in its
        last part, and each other component is a file, named by its extension: ``bytes`` unchanged,
        ``str`` in UTF-8, ``int`` in digits. They are read back as bytes, or as declared. Each file
        has a checksum in its header, which other programs ignore.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that cannot be written and for a key that an
        earlier row has; ``SourceError`` if the disk refuses a write; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sample = {"__key__": "animals/cat", "txt": "a cat", "cls": 3}
        ...     fl.from_items([sample]).write_webdataset(f"{folder}/animals.tar")
        1

        Source: ``TarWriter`` in WebDataset.
        """
        from flowdsl.storage.webdataset.samples import write  # loads tarfile

        return write(self, path, overwrite)

    def write_hdf5(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        data_paths: str | Sequence[str],
        *,
        overwrite: bool = False,
    ) -> int:
        """Run one pass, write its elements to an HDF5 file and return the number of rows.

        ``data_paths`` names a dataset for each component of the tuples, NamedTuples or records; a
        single name is for elements without components. A component is an array, a number or text,
        has the same type, dtype and shape in all rows, and is read back unchanged. Rows are written
        in blocks, so they may exceed memory. Their checksums, which ``from_hdf5`` verifies, are in
        a dataset ``__flowdsl__``, which other readers may ignore. Without elements, the types of
        datasets are unknown: the file then has no datasets, only their names for ``from_hdf5``. The
        file appears under its name only when it is complete; after an error there is no file.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``) or
        ``data_paths`` is not a list of names; ``SpecMismatch``, with its row and component, for an
        element that cannot be written or differs from the first; ``SourceError`` if the disk
        refuses a write; ``MissingLibrary`` without h5py; any error of the flow.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).map(lambda i: (i, i / 2)).write_hdf5(f"{folder}/a.h5", ["x", "y"])
        3

        Source: ``HDF5Serializer.save`` in tensorpack, which keeps all rows in memory first.
        """
        from flowdsl.storage.arrays.hdf5_writing import write  # needs h5py

        return write(self, path, data_paths, overwrite)

    def write_npz(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass, write its elements to a ``.npz`` file and return the number of rows.

        There is an array for each component, with a row for each element, which ``np.load`` reads.
        Its name is the key of a dict, the field of a NamedTuple or record, or else ``arr_0``,
        ``arr_1``, as in ``np.savez``. A component is an array or a number, has the same type, dtype
        and shape in all rows, and is read back unchanged by ``from_npz``. Other programs find
        bfloat16, and other dtypes of ml_dtypes, as the bytes of each number (``|V2``). Rows are
        written to disk as they arrive, so they may exceed memory; at the end the disk briefly needs
        twice the space. The checksums of rows are in ``__flowdsl__``, which other readers may
        ignore. The file appears under its name only when it is complete; after an error there is no
        file.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row and component, for text, for an element that cannot be
        written, or for one that differs from the first; ``SourceError`` if the disk refuses a
        write; any error of the flow.

        >>> import flowdsl as fl, numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).map(lambda i: {"x": i}).write_npz(f"{folder}/a.npz")
        ...     np.load(f"{folder}/a.npz")["x"]
        3
        array([0, 1, 2])

        Source: ``NumpySerializer.save`` in tensorpack, which pickles, and ``numpy.savez``.
        """
        from flowdsl.storage.arrays.npz_writing import write

        return write(self, path, overwrite)
