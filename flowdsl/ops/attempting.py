"""on_error: elements that can not be made are left out, and told.

A failure is a value in the place of the element. Operators that choose or reorder move it like
any other, the functions above it are not called, and the first operator that would look into it has
a ``LeaveOut`` below it. So late reading stays: a shuffled file whose row 7 is damaged is still read
by number, and what is left out is the element whose turn row 7 was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, ClassVar, Generic, Literal, TypeAlias

import attrs

from flowdsl.arguments import name_of, the_element
from flowdsl.effects import Effect, Resampled, Unsized
from flowdsl.errors import ElementError, InvalidFlow
from flowdsl.kinds import Aside, Elementwise, IndexedSource, Indexing, Joining, Merging
from flowdsl.node import DROPPED, A, AnyNode, Dropped, E, Failed, Node, Row, with_sources
from flowdsl.ops.ordering import Cache, Kept
from flowdsl.specs import UNKNOWN, Spec, spec_of

_MOST_PROBED = 1000
"""So many elements are tried before it is left open what one looks like."""

OnError: TypeAlias = Literal["raise", "skip"] | Callable[[ElementError], object]
"""What becomes of an element that can not be made: an error, nothing, or a call with its error."""

Handler: TypeAlias = Callable[[ElementError], object]


@attrs.frozen(eq=False)
class Skipped(Dropped):
    """An element that is left out since it failed."""

    failed: Failed


@attrs.frozen
class _Nothing(Node[Any, Effect]):
    """The place of the source in an operator that is kept for its function."""

    @property
    def title(self) -> str:
        return "nothing"

    @property
    def length(self) -> int | None:
        return None

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        raise AssertionError("an operator that is attempted is called element by element")


@attrs.frozen
class _Held:
    """An operator by itself: a planner that looks for sources does not see it."""

    node: Any

    @classmethod
    def of(cls, node: AnyNode) -> _Held:
        return cls(with_sources(node, (_Nothing(),) * len(node.sources)))


class _Attempted:
    """Goes by the name of what it attempts."""

    __slots__ = ()
    held: _Held

    @property
    def title(self) -> str:
        return str(self.held.node.title)

    @property
    def fingerprint(self) -> str:
        return str(self.held.node.fingerprint)


@attrs.frozen
class Attempt(_Attempted, Elementwise[A, Any, E], Generic[A, E]):
    """An operator on one element; a failure stands in the element's place."""

    held: _Held
    number: int

    @property
    def depth(self) -> int:
        return self.source.depth + int(self.held.node.depth) - 1  # as it would be by itself

    @property
    def unseen(self) -> AnyNode:
        return self.source if self.held.node.identity else self

    def apply(self, x: A, epoch: int, position: int) -> Any:
        if isinstance(x, Failed):
            return x
        try:
            return self.held.node.apply(x, epoch, position)
        except Exception as error:
            return Failed(self.number, epoch, position, error, the_element(x))

    def spec(self, probe: bool) -> Spec:
        source = _Makeable(self.source, self.held) if probe else self.source
        return with_sources(self.held.node, (source,)).spec(probe)


@attrs.frozen
class AttemptToFilter(Attempt[A, E | Unsized], Generic[A, E]):
    """The same for an operator that may leave an element out."""

    drops: ClassVar[bool] = True


@attrs.frozen
class AttemptToCount(Attempt[A, E], Generic[A, E]):
    """The same for one that looks at the element's number; those that failed have theirs."""

    counts: ClassVar[bool] = True


@attrs.frozen
class _Makeable(Elementwise[A, A, E | Unsized], Generic[A, E]):
    """The elements that an operator can make something of: those that a probe of it looks at."""

    drops: ClassVar[bool] = True
    held: _Held

    @property
    def title(self) -> str:
        return "what can be made"

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        if isinstance(x, Failed):
            return DROPPED
        try:
            self.held.node.apply(x, epoch, position)
        except Exception:
            return DROPPED
        return x

    def rows(self, epoch: int) -> Iterator[Row[A]]:
        for position, x in islice(self.source.rows(epoch), _MOST_PROBED):
            if not isinstance(self.apply(x, epoch, position), Dropped):
                yield position, x

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


@attrs.frozen
class AttemptToRead(_Attempted, IndexedSource[Any]):
    """A source that is read by number; a failure stands in the row's place."""

    held: _Held
    number: int

    @property
    def length(self) -> int:
        return int(self.held.node.length)

    @property
    def line(self) -> str:
        return "x = {open}(x, {epoch})"

    def open(self) -> Callable[..., Any]:
        read = self.held.node.open()

        def attempt(i: int, epoch: int = 0) -> Any:
            try:
                return read(i)
            except Exception as error:
                return Failed(self.number, epoch, i, error)

        return attempt

    def rows(self, epoch: int) -> Iterator[Row[Any]]:
        read = self.open()
        return ((i, read(i, epoch)) for i in range(self.length))

    def spec(self, probe: bool) -> Spec:
        try:
            known: Spec = self.held.node.spec(probe)
        except Exception:  # of the row that was read to see what one looks like
            known = UNKNOWN
            if probe:
                tried = map(self.open(), range(min(self.length, _MOST_PROBED)))
                known = next((spec_of(x) for x in tried if not isinstance(x, Failed)), UNKNOWN)
        return known


@attrs.frozen
class AttemptToReadHere(AttemptToRead):
    """The same for rows that lie in this process's memory."""

    portable: ClassVar[bool] = False


@attrs.frozen
class LeaveOut(Elementwise[A, A, E | Resampled | Unsized], Generic[A, E]):
    """The elements that could be made; of each other one, ``handler`` is given the error."""

    drops: ClassVar[bool] = True
    light: ClassVar[bool] = True
    handler: Handler | None
    spelled: str

    @property
    def title(self) -> str:
        return f"on_error={self.spelled}"

    @property
    def fingerprint(self) -> str:
        return 'on_error="skip"'  # the same elements, whoever is told

    @property
    def depth(self) -> int:
        return self.source.depth  # what is left out changes no other element's draws

    @property
    def unseen(self) -> AnyNode:
        return self if self.handler is None else attrs.evolve(self, handler=None)

    def apply(self, x: A, epoch: int, position: int) -> A | Dropped:
        return Skipped(x) if isinstance(x, Failed) else x

    def rows(self, epoch: int) -> Iterator[Row[A]]:
        for position, x in self.source.rows(epoch):
            if isinstance(x, Failed):
                self.tell(x)
            else:
                yield position, x

    def tell(self, failed: Failed | ElementError) -> None:
        """Tell the handler of an element that is left out."""
        if self.handler is not None:
            self.handler(self._error_of(failed) if isinstance(failed, Failed) else failed)

    def _error_of(self, failed: Failed) -> ElementError:
        """The error that names the operator and the element."""
        step = next(s for s in _attempts(self.source) if s.number == failed.step)
        error = step.failure(failed.epoch, failed.position, failed.given)
        error.__cause__ = failed.cause
        return error

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)


def _attempts(node: AnyNode) -> Iterator[Attempt[Any, Any] | AttemptToRead]:
    """The operators whose failures can stand among the elements of this one."""
    if isinstance(node, LeaveOut):
        return
    if isinstance(node, Attempt | AttemptToRead):
        yield node
    for source in node.sources:
        yield from _attempts(source)


def check_on_error(operator: str, on_error: object) -> None:
    """Refuse what is no answer to an element that can not be made."""
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise InvalidFlow(
            f'{operator}: on_error must be "raise", "skip" or a function of the error, '
            f"got {on_error!r}"
        )
    if callable(on_error):
        try:
            inspect.signature(on_error).bind("an ElementError")
        except TypeError as error:
            raise InvalidFlow(
                f"{operator}: on_error must take one argument, the error, but "
                f"{name_of(on_error)} can not be called so: {error}"
            ) from None
        except ValueError:  # a builtin that does not say what it takes
            pass


def leave_out(node: AnyNode, on_error: OnError) -> AnyNode:
    """The same flow without the elements that can not be made."""
    if on_error == "raise":
        return node
    return _Leaving(None if on_error == "skip" else on_error).whole(node)


@attrs.define
class _Leaving:
    """Puts the attempts into a flow, and leaves out what failed where it can stand no longer."""

    handler: Handler | None
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)
    _below: list[AnyNode] = attrs.field(factory=list[AnyNode], init=False)
    """The operators below which something is left out."""
    _kept: dict[int, Kept[Any]] = attrs.field(factory=dict[int, Kept[Any]], init=False)

    def whole(self, node: AnyNode) -> AnyNode:
        """The flow, without what can not be made, or what workers die on."""
        left = self._without(node)
        return left if _leaves_out(left) else self._left(left)

    def _without(self, node: AnyNode, above: AnyNode | None = None) -> AnyNode:
        tried = self._attempted(node)
        if not any(_attempts(tried)):
            return tried
        if above is not None:
            self._below.append(above)
        return self._left(tried)

    def _left(self, node: AnyNode) -> AnyNode:
        spelled = '"skip"' if self.handler is None else name_of(self.handler)
        return LeaveOut(node, self.handler, spelled)

    def _attempted(self, node: AnyNode) -> AnyNode:
        if isinstance(node, LeaveOut):
            return node  # what fails below it is left out there
        if isinstance(node, IndexedSource):
            kind = AttemptToRead if node.portable else AttemptToReadHere
            return kind(_Held(node), next(self._numbers))
        if isinstance(node, Elementwise):
            step = AttemptToFilter if node.drops else AttemptToCount if node.counts else Attempt
            return step(self._attempted(node.source), _Held.of(node), next(self._numbers))
        sources = tuple(self._source(node, source) for source in node.sources)
        try:
            over = with_sources(node, sources)
        except InvalidFlow as error:
            raise InvalidFlow(
                f"prefetch: with on_error, the number of rows is known at the end only; {error}"
            ) from None
        if isinstance(over, Cache) and over is not node:  # what the other one keeps is not as this
            return attrs.evolve(over, kept=self._kept.setdefault(id(over.kept), Kept()))
        return over

    def _source(self, node: AnyNode, source: AnyNode) -> AnyNode:
        if not isinstance(node, Indexing | Merging | Joining | Aside):
            return self._without(source, node)
        before = len(self._below)
        tried = self._attempted(source)
        if isinstance(node, Joining) and len(self._below) > before:
            where = self._below[before].title
            raise InvalidFlow(
                f"prefetch: on_error leaves rows out below {where}, so that {node.title} would "
                f"join elements that do not belong together; put {node.title} below {where}"
            )
        return tried


def _leaves_out(node: AnyNode) -> bool:
    return isinstance(node, LeaveOut) or any(map(_leaves_out, node.sources))


def told(node: AnyNode, note: Callable[[AnyNode, ElementError], bool]) -> AnyNode:
    """The same flow, of whose elements that are left out ``note`` is told first, and by whom.

    It says whether their own handlers are to be told.
    """
    leaving = node
    node = with_sources(node, tuple(told(source, note) for source in node.sources))
    if not isinstance(node, LeaveOut):
        return node
    handler = node.handler

    def both(error: ElementError) -> None:
        if note(leaving, error) and handler is not None:
            handler(error)

    return attrs.evolve(node, handler=both)


def untold(node: AnyNode) -> AnyNode:
    """The same flow with nobody to tell: as it travels to a worker."""
    node = with_sources(node, tuple(map(untold, node.sources)))
    return attrs.evolve(node, handler=None) if isinstance(node, LeaveOut) else node
