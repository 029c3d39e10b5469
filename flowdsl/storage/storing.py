"""What keeps the elements of a flow: a method for each format."""

from __future__ import annotations

import os

from flowdsl.effects import Finite
from flowdsl.node import E, FlowBase, T


class Storing(FlowBase[T, E]):
    """Operators that run a flow and keep its elements."""

    def write_lmdb(
        self: FlowBase[T, Finite], path: str | os.PathLike[str], *, overwrite: bool = False
    ) -> int:
        """Run one pass and write its elements to an LMDB file; gives the number of rows.

        The file appears under its name only when it is complete; after an error there is none.
        It grows as needed: there is no size to guess.

        Errors: ``EndlessFlow``; ``InvalidFlow`` if the file exists (unless ``overwrite``);
        ``SpecMismatch`` for an element that cannot be written, with its row; ``SourceError`` if
        the disk refuses; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fl.from_range(3).write_lmdb(f"{folder}/three.lmdb")
        3

        Source: ``LMDBSerializer.save`` in tensorpack, which loses the rows of a full map.
        """
        from flowdsl.storage.lmdb import write  # with LMDB, which most do without

        return write(self, path, overwrite)

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
        from flowdsl.storage.parquet_writing import write  # with msgspec, which most do without

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
        ``SpecMismatch`` for an element that cannot be written, with its row, and for a key that is
        that of the row before; ``SourceError`` if the disk refuses; whatever the flow raises.

        >>> import flowdsl as fl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sample = {"__key__": "animals/cat", "txt": "a cat", "cls": 3}
        ...     fl.from_items([sample]).write_webdataset(f"{folder}/animals.tar")
        1

        Source: ``TarWriter`` in WebDataset.
        """
        from flowdsl.storage.webdataset import write  # with tarfile, which most do without

        return write(self, path, overwrite)
