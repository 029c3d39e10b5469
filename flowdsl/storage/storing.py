"""What keeps the elements of a flow: a method for each format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flowdsl.effects import Finite
from flowdsl.node import E, FlowBase, T

if TYPE_CHECKING:
    from flowdsl.storage.inflating import Compression


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
        from flowdsl.storage.tfrecord import write  # with what only it needs

        return write(self, path, compression, overwrite)
