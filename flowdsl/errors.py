"""The errors that flowdsl raises, as a tree.

FlowError
├── InvalidFlow (ValueError)       the chain cannot be built, such as for an invalid argument
│   └── InvalidArgument            an argument outside a chain: of a trainer, an input source, a run
├── NotShippable (TypeError)       a function or value cannot be sent to a worker process
├── UnknownLength (TypeError)      the flow's length is known only at the end of a pass
├── EndlessFlow                    a length or all elements were requested of an endless flow
├── NotResumable                   a state was requested of a flow that cannot be resumed
├── SpecMismatch (TypeError)       elements differ from their declaration, or do not stack
├── SourceError                    a file or queue is missing, damaged or of the wrong format
├── MissingLibrary (ImportError)   a format's library is not installed; the message says how to
├── ElementError                   a function failed on one element; ``__cause__`` is its exception
├── WorkerDied                     a worker process ended before its work was done
└── StateMismatch (ValueError)     a saved state belongs to another flow

Every message names the operator, the argument or element, the value it got, and the valid values.
``except FlowError`` catches all of them.
"""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Self


class Where(str):
    """A readable place in a flow, e.g. ``row 7 of from_lmdb('digits.lmdb')``.

    It may be a range of rows:

    >>> Where("row 0").to(Where("row 3")).to(Where("row 8", "row 9"))
    'row 0 to row 9'
    """

    first: str
    last: str

    def __new__(cls, first: str, last: str | None = None) -> Self:
        last = first if last is None else last
        where = super().__new__(cls, first if first == last else f"{first} to {last}")
        where.first, where.last = first, last
        return where

    def to(self, other: Where) -> Where:
        """The range from the first row of this range to the last row of another."""
        return Where(self.first, other.last)


class FlowError(Exception):
    """The base class of every error that flowdsl raises on purpose."""


FORKED = (
    "this run belongs to the process that began it, and this process is a fork of that one; "
    "iterate the flow here, which begins a new run"
)
"""The error message for a forked process that continues a run of its parent process."""


class InvalidFlow(FlowError, ValueError):
    """The chain cannot be built; raised by the operator's method, before anything runs.

    >>> import flowdsl as fl
    >>> fl.from_range(10).batch(0)
    Traceback (most recent call last):
        ...
    flowdsl.errors.InvalidFlow: batch: n must be an int >= 1, got 0
    """


class InvalidArgument(InvalidFlow):
    """An argument outside a chain is invalid: of a trainer, an input source, a callback or a run.

    It is an ``InvalidFlow`` so that one ``except`` catches every wrong argument.
    """


class NotShippable(FlowError, TypeError):
    """A plan contains something that cannot be sent to a worker process, such as a lock."""


class UnknownLength(FlowError, TypeError):
    """The length of the flow is known only after a pass: it filters, or reads a stream."""


class EndlessFlow(FlowError):
    """The flow never ends, so it has no length and no list of all its elements.

    Not a ``TypeError``: ``list`` swallows those when it asks for a length, and would then fill the
    memory.
    """


class NotResumable(FlowError):
    """The flow cannot be resumed: its order is unknown, or a source yields elements only once."""


class SpecMismatch(FlowError, TypeError):
    """Elements differ from their declaration, or from each other where they must be alike."""


class SourceError(FlowError):
    """A source cannot be opened or read; the message names the path and the reason."""


class MissingLibrary(FlowError, ImportError):
    """The library that reads or writes a format is not installed; the message has the command."""


class ElementError(FlowError):
    """An operator failed on one element.

    The exception of the user's function is the ``__cause__``; when it was raised in a worker
    process it carries the remote traceback as a note.

    >>> import flowdsl as fl
    >>> fl.from_items([4, 2, 0]).map(lambda x: 8 // x).collect()
    Traceback (most recent call last):
        ...
    flowdsl.errors.ElementError: map(<lambda>) failed on element 2 (row 2 of from_items(3 items)): \
ZeroDivisionError('integer division or modulo by zero'); the element was 0
    """

    def __init__(
        self, operator: str, position: int, epoch: int, origin: str, given: str | None = None
    ) -> None:
        """``operator`` is its title in the chain; ``position`` counts from 0 within ``epoch``.

        ``given`` describes the element on which it failed, such as "the element was 0". It is text,
        as an error may be kept for longer than the element should be.
        """
        super().__init__(operator, position, epoch, origin, given)
        self.operator = operator
        self.position = position
        self.epoch = epoch
        self.origin = origin
        self.given = given

    def __reduce__(self) -> tuple[object, ...]:
        cause = self.__cause__
        args = (self.operator, self.position, self.epoch, self.origin, self.given)
        return _caused, (args, None if cause is None else travelling(cause))

    def __str__(self) -> str:
        epoch = f" of epoch {self.epoch}" if self.epoch else ""
        reason = f": {_reason(self.__cause__)}" if self.__cause__ is not None else ""
        given = f"; {self.given}" if self.given else ""
        return (
            f"{self.operator} failed on element {self.position}{epoch} ({self.origin})"
            f"{reason}{given}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


_MAX_REASON_LENGTH = 1000


def _reason(cause: BaseException) -> str:
    try:
        text = repr(cause)
        if text == f"{type(cause).__name__}()" and str(
            cause
        ):  # the reprs of TensorFlow's errors are empty
            text = f"{type(cause).__name__}({str(cause)!r})"
    except Exception as error:  # an error message must not fail itself
        text = f"{type(cause).__name__}, whose repr raised {type(error).__name__}"
    return text if len(text) <= _MAX_REASON_LENGTH else f"{text[: _MAX_REASON_LENGTH - 3]}..."


def _caused(
    args: tuple[str, int, int, str, str | None], cause: BaseException | None
) -> ElementError:
    error = ElementError(*args)
    error.__cause__ = cause
    return error


_FROM = "\nTraceback in process "


def travelling(error: BaseException) -> BaseException:
    """The exception in a form that can be sent to another process, with its traceback as a note.

    An exception that cannot be pickled and restored becomes a ``RuntimeError`` that names it.
    """
    import cloudpickle  # here: needed only when a flow fails or is sent to a process

    trace = "".join(traceback.format_exception(error))
    try:
        copy: BaseException = pickle.loads(cloudpickle.dumps(error))
        sent = error if type(copy) is type(error) else RuntimeError(repr(error))
    except Exception:
        sent = RuntimeError(f"{type(error).__qualname__}: {error}")
    sent.__traceback__ = None
    if not any(note.startswith(_FROM) for note in getattr(sent, "__notes__", ())):
        sent.add_note(f"{_FROM}{os.getpid()}:\n{trace}")
    return sent


class WorkerDied(FlowError):
    """A worker process ended with work left; the message has its exit status and that work."""


class StateMismatch(FlowError, ValueError):
    """A state was saved by another flow, or by another version of this flow."""
