"""The file of ``cache(path)``: a pass of a flow, written by one of the processes that need it.

The digest of the chain is in the file's header. A file with another digest is of an older chain,
and is written again; a file without one was not written by ``cache``, and is never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from filelock import FileLock, Timeout

from flowdsl.effects import Finite, Tag
from flowdsl.elements.declared_specs import has_only_classes, only_classes
from flowdsl.elements.specs import UNKNOWN, Spec, spec_of
from flowdsl.errors import FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import AnyNode, Node, Unordered, flow
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.logs import logger
from flowdsl.storage.chain_digest import chain_digest
from flowdsl.storage.lmdb.rows import LmdbHeader, RowsFile
from flowdsl.storage.lmdb.stacked_rows import open_stacked_rows
from flowdsl.storage.lmdb.writing import remove_lock, write_rows
from flowdsl.storage.paths import URL_REMEDY, OnePath, local_path
from flowdsl.storage.writing import write_file

_log = logger(__name__)


@attrs.frozen(eq=False)
class PassFile:
    """A file for the elements of epoch 0 of a flow."""

    name: str
    """The path as the user passed it."""
    path: str
    chain: str
    """The digest of the flow's operators, arguments and functions."""
    trusted: bool
    length: int | None
    """The number of elements; None if it is unknown until the file is written."""
    effects: frozenset[Tag]
    depth: int
    """The depth of the flow's node, which seeds the operators above it."""
    in_any_order: bool
    """True if another pass of the flow may have another order."""
    specs: tuple[Spec, Spec]
    """The spec of the elements: as declared, and as a probe finds it."""
    node: Node[Any, Any] | None = None
    """The flow; None in a worker, which only reads the file."""

    @classmethod
    def at(cls, path: OnePath, node: Node[Any, Any], trusted: bool) -> PassFile:
        """Return the file at ``path`` for a flow, which need not exist.

        Raises:
            InvalidFlow: A file cannot be written at the path.
        """
        real_path = os.path.realpath(local_path("cache", path, remedy=URL_REMEDY))
        if os.path.isdir(real_path):
            raise InvalidFlow(f"cache: {os.fspath(path)!r} is a folder; pass the path of a file")
        if not os.path.isdir(os.path.dirname(real_path)):
            raise InvalidFlow(f"cache: no folder {os.path.dirname(real_path)!r}; make it first")
        chain = chain_digest(node)
        header = _header(real_path)
        length = node.length
        if length is None and header is not None and header.chain == chain:
            length = header.length
        return cls(
            name=os.fspath(path),
            path=real_path,
            chain=chain,
            trusted=trusted,
            length=length,
            effects=node.effects,
            depth=node.depth,
            in_any_order=_is_in_any_order(node),
            specs=_specs(node),
            node=node,
        )

    def __reduce__(self) -> tuple[type[PassFile], tuple[Any, ...]]:
        return PassFile, (*attrs.astuple(self, recurse=False)[:-1], None)

    @property
    def is_written(self) -> bool:
        """True if the file has the elements of this flow."""
        header = _header(self.path)
        return header is not None and header.chain == self.chain

    def write(self) -> None:
        """Write the file, unless it has the elements of this flow.

        If another process is writing it, wait for that process.

        Raises:
            InvalidFlow: There is another file, which ``cache`` has not written.
            FlowError: The flow failed, or an element or the disk refused the write.
        """
        if self.is_written:
            return
        path = Path(self.path)
        lock = FileLock(path.with_name(f".flowdsl-{path.name}-lock"), thread_local=False)
        try:
            lock.acquire(timeout=1)
        except Timeout:
            _log.warning("cache: waiting for another process, which writes %r", self.name)
            lock.acquire()
        try:
            if not self.is_written:
                self._write()
        finally:
            remove_lock(lock)

    def _write(self) -> None:
        node: Node[Any, Finite] | None = self.node
        if node is None:
            raise SourceError(
                f"cache: {self.name!r} is not there, or has elements of another flow; another "
                f"program has removed or written it during the run"
            )
        if os.path.exists(self.path):
            try:
                header, _ = RowsFile(self.path, trusted=True).header()
            except SourceError as error:
                raise InvalidFlow(
                    f"cache: {self.name!r} exists, and cannot be read as a cache; delete it if it "
                    f"is a damaged one, or pass another path: {error}"
                ) from error
            if not header.chain:
                raise InvalidFlow(
                    f"cache: {self.name!r} exists, and cache has not written it; pass another path"
                )
            _log.info("cache: %r is of another flow, and is written again", self.name)

        def write(path: Path, elements: Iterable[object]) -> None:
            checked = map(partial(self._checked, self.classes), elements)
            write_rows(self.trusted, path, checked, chain=self.chain)

        write_file("cache", flow(node), self.path, overwrite=True, write=write)

    def _checked(self, classes: Spec, x: object) -> object:
        """Return an element of which a reader can restore the classes: the file has none."""
        if not has_only_classes(x, classes):
            seen = spec_of(x)
            known = self.specs[1]
            spec = "is unknown before a run" if known == UNKNOWN else f"says {known}"
            raise SpecMismatch(
                f"the element is {seen}, and the flow's spec {spec}; a file has no classes, so "
                f"they must be in the spec: annotate the function that makes the elements, or "
                f"pass a source that can be read again, as in from_iterable(lambda: ...)"
            )
        return x

    @property
    def classes(self) -> Spec:
        """The classes of the elements, and where; all else may differ from the first element."""
        return only_classes(self.specs[1])

    def open(self) -> tuple[RowsFile, LmdbHeader]:
        """Open the file for reading, after it was written; return it with its header."""
        self.write()
        file = RowsFile(self.path, self.trusted)
        header, _ = file.header()
        return file, header

    def open_spans(self) -> Callable[[int, int], Any] | None:
        """Return a reader of stacked elements, as in ``ReadsSpans``, if the file is written."""
        if not self.is_written:
            return None
        file = RowsFile(self.path, self.trusted)
        _, stored = file.header()
        return open_stacked_rows(file, stored, self.classes)


def _header(path: str) -> LmdbHeader | None:
    """Return the header of a complete LMDB file; None if the path has no such file."""
    try:
        header, _ = RowsFile(path, trusted=True).header()
    except SourceError:
        return None
    return header if header.complete else None


def _specs(node: AnyNode) -> tuple[Spec, Spec]:
    declared = node.spec(probe=False)
    try:
        return declared, node.spec(probe=True)
    except FlowError:  # its first element fails, which a run will report
        return declared, declared


@any_depth
def _is_in_any_order(node: AnyNode) -> bool:
    in_any_order = node.in_any_order or isinstance(node, Unordered)
    return in_any_order or any(map(_is_in_any_order, node.sources))
