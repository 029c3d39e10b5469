"""cache: keep the elements of a pass, in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Endless, Exact, Finite, Tag
from flowdsl.elements.declared_specs import restore_classes
from flowdsl.elements.read_only import read_only
from flowdsl.elements.rebuilding import restored
from flowdsl.elements.recycled import has_memory_of_its_own
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    E,
    FlowBase,
    IndexedSource,
    Indices,
    KeepsPass,
    Node,
    PassFactory,
    Provenance,
    ReadsSpans,
    Row,
    SkippedByProbe,
    StoresPass,
    T,
    Traceable,
    Unordered,
    cached_per_node,
    flow,
    frozen_node,
    rejects_keywords,
)
from flowdsl.resources.any_depth import any_depth

if TYPE_CHECKING:
    from flowdsl.flow import Flow
    from flowdsl.storage.cache_file import PassFile

A = TypeVar("A")


@attrs.define(eq=False, repr=False)
class Kept(Generic[A]):
    """The cached rows of the first complete pass, shared by all nodes of one ``cache()`` call."""

    rows: list[Row[A]] | None = None

    def keep(self, rows: list[Row[A]]) -> None:
        """Keep the rows of a complete pass, unless those of an earlier one are kept."""
        if self.rows is None:
            self.rows = rows

    def forget(self, rows: list[Row[A]]) -> None:
        """Drop these rows: their pass failed after the last row."""
        if self.rows is rows:
            self.rows = None

    def __reduce__(self) -> tuple[type[Kept[A]], tuple[()]]:
        return Kept, ()  # each process has its own cache


@frozen_node
class Cache(KeepsPass[T, E], Traceable[T, E], SkippedByProbe[T, E], Generic[T, E]):
    """Epoch 0 of its source in every pass: computed once, then kept in memory."""

    source: Node[T, E]
    kept: Kept[Any] = attrs.field(factory=Kept[Any], eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if Endless in self.source.effects:
            raise InvalidFlow(
                "cache: its source never ends, so its first pass is never complete; put cache() "
                "before the repeat, or take(n) before cache()"
            )

    order_varies_by_epoch: ClassVar[bool | None] = False

    @property
    def title(self) -> str:
        return "cache()"

    @property
    def note(self) -> str | None:
        return _about_draws(self.source)

    @property
    @cached_per_node
    def length(self) -> int | None:
        return self.source.length

    @property
    @cached_per_node
    def positions_are_contiguous(self) -> bool:
        return self.source.positions_are_contiguous

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    @property
    def looks_back(self) -> int | None:
        return 0

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        kept = self.kept.rows
        if kept is not None:
            for position, x in kept:
                yield position, read_only(x)
            return
        rows: list[Row[T]] = []
        try:
            for position, x in sources[0](0):
                rows.append((position, read_only(x, _array_to_keep)))
                if len(rows) == self.length:  # a take(n) above does not read to the end
                    self.kept.keep(rows)
                yield position, read_only(rows[-1][1])
        except Exception:
            self.kept.forget(rows)
            raise
        self.kept.keep(rows)

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        return sources[0](0)

    def made_of(self, addresses: Indices) -> Provenance:
        return Provenance.one_each(Indices(np.zeros_like(addresses.epoch), addresses.position))


def _about_draws(node: AnyNode) -> str | None:
    """Say how a cache changes operators below it that draw in each epoch; None if all draw once."""
    drawing = _varying(node)
    if drawing is None:
        return None
    return (
        f"has epoch 0 of {drawing.title} in every pass; to draw in each epoch, write "
        f"{drawing.title.partition('(')[0]} after it"
    )


@any_depth
def _varying(node: AnyNode) -> AnyNode | None:
    """The operator that makes the elements vary between epochs: this one, or one below."""
    if not node.varies_by_epoch:
        return None
    below = [source for source in node.sources if source.varies_by_epoch]
    is_cause = not below or node.draws or node.order_varies_by_epoch is True
    if is_cause and not isinstance(node, Unordered):
        return node
    return next(filter(None, map(_varying, below)), None)


def _array_to_keep(array: NDArray[Any]) -> NDArray[Any]:
    """The array for the cache, read-only: a copy if it is a view of other memory.

    A view keeps all of that memory alive. Arrays from workers are views of shared memory, and a
    process can keep only a limited number of shared memory blocks.
    """
    kept: NDArray[Any] = read_only(array if has_memory_of_its_own(array) else array.copy(order="K"))
    return kept


@frozen_node
class _CacheFile(StoresPass[T], SkippedByProbe[T, Exact], Generic[T]):
    """Epoch 0 of a flow in every pass, from a file that is written once.

    The flow is not among the sources of this node, so it does not run once the file exists.
    """

    resume_advice: ClassVar[str] = "; write_lmdb keeps one pass, which from_lmdb reads"
    kept: PassFile

    @property
    def in_any_order(self) -> bool:
        return self.kept.in_any_order

    @property
    def title(self) -> str:
        return f"cache({self.kept.name!r})"

    @property
    def note(self) -> str | None:
        written = "has" if self.kept.is_written else "will have, after the first run,"
        if self.kept.node is None:
            return f"{written} the elements"
        draws = _about_draws(self.kept.node)
        also = "" if draws is None else f", and {draws}"
        return f"{written} the elements of {self.kept.node.title}{also}"

    @property
    def fingerprint(self) -> str:
        return f"cache of {self.kept.chain}"

    @property
    def depth(self) -> int:
        return 1 + self.kept.depth

    def combined_effects(self) -> frozenset[Tag]:
        return self.kept.effects

    def spec(self, probe: bool) -> Spec:
        return self.kept.specs[probe]

    @property
    def node_to_probe(self) -> AnyNode:
        """The node below the cache until its file is written, as a probe must not write it."""
        return self if self.kept.node is None or self.kept.is_written else self.kept.node

    def store(self) -> None:
        self.kept.write()

    def _reader(self) -> tuple[int, Callable[[int], T]]:
        """The number of rows, and a function that returns a row by its number."""
        file, header = self.kept.open()
        classes = self.kept.classes
        if classes == UNKNOWN:
            return header.length, file.row
        return header.length, lambda i: cast("T", restore_classes(file.row(i), classes, restored))


class CacheRows(_CacheFile[T], IndexedSource[T], ReadsSpans[T, Exact], Generic[T]):
    """The rows of a pass whose length is known, by number."""

    @property
    def length(self) -> int:
        assert self.kept.length is not None
        return self.kept.length

    def open(self) -> Callable[[int], T]:
        _, read = self._reader()
        return read

    def open_spans(self) -> Callable[[int, int], Any] | None:
        return self.kept.open_spans()


class CacheStream(_CacheFile[T], Generic[T]):
    """The rows of a pass whose length is unknown until the file is written."""

    @property
    def length(self) -> None:
        return None

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        length, read = self._reader()
        return ((i, read(i)) for i in range(length))


class Caching(FlowBase[T, E]):
    """The operator that keeps elements."""

    @rejects_keywords(filename="write cache({!r})")
    def cache(
        self: FlowBase[T, Finite],
        path: str | os.PathLike[str] | None = None,
        *,
        trusted: bool = False,
    ) -> Flow[T, E]:
        """Keep the elements of a pass, in memory or in the file ``path``, for later passes.

        Every pass yields epoch 0 of the flow below: random operators below draw once, and operators
        above draw again in each epoch, as in ``cache().shuffle()``.

        **In a file.** The first run writes a whole pass to the file, and shows a progress bar on a
        terminal; the flow below may have a ``prefetch`` of its own. This and later runs, also of
        other programs, read the file, in workers too, and any row by its number. Of several
        programs that begin at the same time, one writes and the others wait. The file is complete,
        or it is not there: a program that is killed leaves none. It is written again if the flow
        below has changed: an operator, an argument, a file that it reads, the code of a function or
        a value that it refers to. (A change in an installed package is not noticed, nor one in data
        that a function or a dataset reads, in a module that a function imports itself, or in an
        object that ``copy`` refuses.) To know the types, each run also calls functions without
        annotations on the first element. It has the format of ``write_lmdb``, and holds the same
        elements; ``trusted=True`` also pickles other Python objects.

        **In memory.** The first complete pass is kept. A pass that was ended early or failed is not
        cached: write ``take(n).cache()``, and not ``cache().take(n)``. The elements are kept for
        this flow and all flows that are chained to it, in the consumer's process, as long as one of
        these flows exists; an array that is a view, of a batch or of a worker's result, is kept as
        a copy. Arrays are read-only, also in the first pass. Once the cache is full, no element is
        computed again: rows are read by number, ``cached.at(5)``, ``cached[10:20]``, and
        ``cached.shuffle()`` and ``cached.sample(n)`` collect references to the elements in each
        pass. Those two, and lists of numbers, need a flow of known length.

        Length: the source's. If that is unknown, flows that are built after the file was written
        know it.

        Effects: none.

        Errors: ``InvalidFlow`` for an endless flow, for a file that ``cache`` has not written, or a
        folder that does not exist; ``SpecMismatch``, with its row, for an element that cannot be
        written; ``SourceError`` if the disk refuses a write.

        >>> import flowdsl as fl, tempfile
        >>> calls = []
        >>> flow = fl.from_range(2).map(lambda i: calls.append(i) or -i).cache()
        >>> list(flow), list(flow), calls
        ([0, -1], [0, -1], [0, 1])

        >>> with tempfile.TemporaryDirectory() as folder:
        ...     squares = fl.from_range(4).map(lambda i: i * i).cache(f"{folder}/squares.lmdb")
        ...     squares.shuffle(seed=1).collect()
        [9, 1, 0, 4]

        Source: ``CacheData`` of tensorpack; ``cache(filename)`` of tf.data.

        Elsewhere: tensorpack ``CacheData``; tf.data ``cache``; Grain ``CacheIterDataset``;
        torchdata ``InMemoryCacheHolder``.
        """
        if path is None:
            if trusted:
                raise InvalidFlow("cache: trusted=True is for a file; pass its path")
            return flow(Cache[T, Any](self.node))
        from flowdsl.storage.cache_file import PassFile  # needs LMDB

        return flow(_rows_of(PassFile.at(path, self.node, trusted)))


def _rows_of(kept: PassFile) -> Node[Any, Any]:
    """The node that reads a file; its type leaves the effects of the stored flow open."""
    return CacheStream(kept) if kept.length is None else CacheRows(kept)
