"""What keeps the elements of a flow: a method for each format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowdsl.effects import Finite
from flowdsl.nodes import E, FlowBase, T

if TYPE_CHECKING:
    from flowdsl.storage.tfrecord.inflating import Compression


class WriteMethods(FlowBase[T, E]):
    """Operators that run a flow and keep its elements."""

    def write_lmdb(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        append: bool = False,
        trusted: bool = False,
    ) -> int:
        """Run one pass and write its elements to an LMDB store; gives the number of rows.

        ``path`` is the file to write; or a folder, as LMDB's own tools make it, where it ends in
        ``/`` or is one that is empty or holds a store. The store appears under its name only when
        it is complete; after an error there is none. It grows as needed: there is no size to guess.

        ``append=True`` adds rows to a store, or begins one, in its place: in transactions, each on
        the disk before the next begins, every 16 MB, 1,024 rows or 5 seconds. If this is stopped
        at any moment, the store has what it had before, or is incomplete and has the first of the
        new rows: ``from_lmdb`` refuses it then, and says how many rows there are. ``append=True``
        goes on after these, with the rows that the flow gives: ``rest = flow.skip(n)``, where ``n``
        is ``len(fl.from_lmdb(path, partial=True))``. Passes that read the store in other processes
        read on, and new ones begin when it is complete.

        Elements of numbers, text, bytes, None, arrays, and of lists, dicts, tuples and records of
        them are written. ``trusted=True`` also writes other Python objects, pickled, which only
        ``from_lmdb(path, trusted=True)`` reads.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the store exists (unless ``overwrite`` or
        ``append``), if another writer adds to it, or if this process reads what it is to add to;
        ``SpecMismatch`` for an element that cannot be written, with its row; ``SourceError`` if
        the disk refuses; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).write_lmdb(f"{folder}/three.lmdb")
        3

        Source: ``LMDBSerializer.save`` in tensorpack, which loses the rows of a full map.
        """
        from flowdsl.storage.lmdb.writing import write  # with LMDB, which most do without

        return write(self, path, overwrite, append, trusted)

    def write_text(
        self: FlowBase[str, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        r"""Run one pass of a flow of text and write each element as a line; gives their number.

        The file is UTF-8, and each line ends with ``\n``. It appears under its name only when it
        is complete; after an error there is none.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row, for an element that is no str, holds ``\n``, or ends with
        ``\r``, as it would not come back; ``SourceError`` if the disk refuses; whatever the flow
        raises.

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
        r"""Run one pass and write each element as a line of a CSV file; gives their number.

        A NamedTuple, record, dataclass or dict is written below a header with the names of its
        components; a tuple has no names, so its file has no header. A component is text, a number,
        a bool or None, or a NumPy scalar. ``from_csv(path, Sample)`` gives back the same values,
        floats too: each is written with as many digits as tell it from others. None is an empty
        cell, as is ``""``, so a column holds one of the two only. The file is UTF-8 as in RFC 4180:
        commas, lines that end with ``\r\n``, and quotes where a cell needs them. It appears under
        its name only when it is complete; after an error there is none.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row and component, for an array or anything else that no cell
        holds, and for a row of other columns than the first; ``SourceError`` if the disk refuses;
        whatever the flow raises.

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
        """Run one pass and write its elements to a TFRecord file; gives the number of rows.

        Elements that are ``bytes`` are written as they are, a record each, as TensorFlow does: map
        them before, as ``flow.map(fl.to_example)`` does. Any others are encoded, as in
        ``write_lmdb``, and followed by one record that says what they are; ``fl.from_tfrecord(path,
        Sample)`` reads them. If there are none, the flow's spec says whether it is of bytes. The
        file appears under its name only when it is complete; after an error there is none. For
        several files, write ``flow.split`` or ``flow.shard`` parts.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch`` for an element that cannot be written, or for bytes among others, with its
        row; ``SourceError`` if the disk refuses; ``MissingLibrary``, if google-crc32c is not
        installed; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items([b"a", b"bc"]).write_tfrecord(f"{folder}/two.tfrecord")
        2

        Source: ``TFRecordSerializer.save`` in tensorpack; ``tf.io.TFRecordWriter``.
        """
        from flowdsl.storage.tfrecord.writing import write  # with what only it needs

        return write(self, path, compression, overwrite)

    def write_parquet(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        row_group: int = 4096,
    ) -> int:
        """Run one pass and write its elements to a Parquet file; gives the number of rows.

        A component is a column: of ``bool``, ``int``, ``float``, ``str`` or ``bytes``, of NumPy
        scalars, of lists of the former, or of arrays. Arrays of one dimension may differ in length;
        those of more have the shape of the first one, and become tensors of Arrow. A value may be
        None, except for these tensors. All rows have the same columns. ``row_group`` rows are
        read as a whole: a small one is better for shuffled rows, a large one for the whole table;
        one of 64 MiB ends sooner.

        Other programs read the file too. flowdsl reads it back as it was, to the dtype, and checks
        it by digests that stand in its footer.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch`` for an element that cannot be written, with its row; ``SourceError`` if
        the disk refuses; ``MissingLibrary`` without pyarrow; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).write_parquet(f"{folder}/three.parquet")
        3

        Source: Apache Parquet, and ``pyarrow.parquet``.
        """
        from flowdsl.storage.parquet.writing import write  # with msgspec, which most do without

        return write(self, path, overwrite, row_group)

    def write_arrayrecord(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        group_size: int = 1,
    ) -> int:
        """Run one pass and write its elements to an ArrayRecord file; gives the number of rows.

        Elements that are ``bytes`` are written as they are, for any reader of the format; all
        others are encoded, and ``from_arrayrecord(path, element)`` decodes them. They do not mix.
        ``group_size`` records are compressed together: more of them take less space, and one by
        itself is read the slower.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch`` for an element that cannot be written, with its row; ``SourceError`` if
        the disk refuses; ``MissingLibrary`` without array_record; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_items([b"a", b"bc"]).write_arrayrecord(f"{folder}/two.arrayrecord")
        2

        Source: ``ArrayRecordWriter`` in ArrayRecord.
        """
        from flowdsl.storage.arrayrecord import write  # with msgspec, which most do without

        return write(self, path, overwrite, group_size)

    def write_webdataset(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass and write its samples to a WebDataset tar file; gives their number.

        An element is a dict: ``"__key__"`` is the name that its files have in common, without a dot
        in its last part, and each other component is a file by its extension: ``bytes`` as they
        are, ``str`` in UTF-8, ``int`` in digits. They are read back as bytes, or as declared. Each
        file has a checksum in its header, which other programs pass over.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch`` for an element that cannot be written, with its row, and for a key that an
        earlier row has; ``SourceError`` if the disk refuses; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sample = {"__key__": "animals/cat", "txt": "a cat", "cls": 3}
        ...     fl.from_items([sample]).write_webdataset(f"{folder}/animals.tar")
        1

        Source: ``TarWriter`` in WebDataset.
        """
        from flowdsl.storage.webdataset.samples import write  # with tarfile, which most do without

        return write(self, path, overwrite)

    def write_hdf5(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str],
        data_paths: str | Sequence[str],
        *,
        overwrite: bool = False,
    ) -> int:
        """Run one pass and write its elements to an HDF5 file; gives the number of rows.

        ``data_paths`` names a dataset for each component of the tuples, NamedTuples or records; a
        single name takes elements that have no components. A component is an array, a number or
        text, and has the same type, dtype and shape in all rows; it comes back as it was. Rows are
        written in blocks, so they need not fit into memory, and have checksums, which ``from_hdf5``
        verifies. They lie in a dataset ``__flowdsl__``, which other readers may ignore. Without
        elements nothing says what datasets hold: the file has none, and only ``from_hdf5`` knows
        their names. The file appears under its name only when it is complete; after an error there
        is none.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``) or
        ``data_paths`` are no names; ``SpecMismatch``, with its row and component, for an element
        that cannot be written or is unlike the first; ``SourceError`` if the disk refuses;
        ``MissingLibrary`` without h5py; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).map(lambda i: (i, i / 2)).write_hdf5(f"{folder}/a.h5", ["x", "y"])
        3

        Source: ``HDF5Serializer.save`` in tensorpack, which keeps all rows in memory first.
        """
        from flowdsl.storage.arrays.hdf5_writing import write  # with h5py, which most do without

        return write(self, path, data_paths, overwrite)

    def write_npz(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass and write its elements to a ``.npz`` file; gives the number of rows.

        There is an array for each component, with a row for each element: ``np.load`` reads it. Its
        name is the key of a dict, the field of a NamedTuple or record, or else ``arr_0``,
        ``arr_1``, as ``np.savez`` gives them. A component is an array or a number, and has the same
        type, dtype and shape in all rows; ``from_npz`` gives back what it was. Rows go to the disk
        as they come, so they need not fit into memory: for a moment the file is there twice. Their
        checksums lie in ``__flowdsl__``, which other readers may ignore. The file appears under its
        name only when it is complete; after an error there is none.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch``, with its row and component, for text, an element that cannot be written,
        or one unlike the first; ``SourceError`` if the disk refuses; whatever the flow raises.

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
