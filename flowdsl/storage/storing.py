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
