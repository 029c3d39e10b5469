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

``SameEpoch`` (UserWarning) warns of a second loop over the same epoch.

Every message names the operator, the argument or element, the value it got, and the valid values.
``except FlowError`` catches all of them.
"""

from __future__ import annotations

import os
import pickle
import re
import traceback
from contextlib import suppress
from typing import NoReturn, Self

import attrs


@attrs.frozen
class Location:
    """The file that a row was read from, and its first line in a text file.

    >>> print(Location("data/a.csv", 7))
    line 7 of 'data/a.csv'
    """

    path: str
    """The path, as the source has it; of a URL, without passwords and keys."""
    line: int | None = None
    """The number of the line, from 1; None if the file is not text."""

    def __str__(self) -> str:
        return repr(self.path) if self.line is None else f"line {self.line} of {self.path!r}"


class Where(str):
    """A readable place in a flow, e.g. ``row 7 of from_lmdb('digits.lmdb')``.

    It may be a range of rows:

    >>> Where("row 0").to(Where("row 3")).to(Where("row 8", "row 9"))
    'row 0 to row 9'
    """

    first: str
    last: str
    location: Location | None
    """The location of the only row; None for several rows, or if it is unknown."""

    def __new__(cls, first: str, last: str | None = None, location: Location | None = None) -> Self:
        last = first if last is None else last
        where = super().__new__(cls, first if first == last else f"{first} to {last}")
        where.first, where.last, where.location = first, last, location
        return where

    def to(self, other: Where) -> Where:
        """The range from the first row of this range to the last row of another."""
        return self if self == other else Where(self.first, other.last)


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


class SameEpoch(UserWarning):
    """A second loop over a flow has the order and the draws of the first.

    ``iter(flow)`` is always epoch 0, so that a flow means the same wherever it is read; training
    needs the further epochs, ``flow.epochs(n)``.
    """


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
    >>> fl.from_items([4, 2, 0]).map(lambda x: 8 / x).collect()
    Traceback (most recent call last):
        ...
    flowdsl.errors.ElementError: map(<lambda>) failed on element 2 (row 2 of from_items(3 items)): \
ZeroDivisionError('division by zero'); the element was 0
    """

    _kept_reason = ""

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

    def keep_reason(self) -> None:
        """Keep the cause in the text of the error, in case its ``__cause__`` is removed."""
        self._kept_reason = self._reason

    @property
    def _reason(self) -> str:
        cause = self.__cause__
        return self._kept_reason if cause is None else f": {_reason(cause)}{_advice(cause)}"

    @property
    def location(self) -> Location | None:
        """The file of the row on which it failed, and its line, if it is one row.

        Sources of text have it, and sources of several files; for any other it is None, and
        ``origin`` names the file.
        """
        return self.origin.location if isinstance(self.origin, Where) else None

    def __reduce__(self) -> tuple[object, ...]:
        cause = self.__cause__
        args = (self.operator, self.position, self.epoch, self.origin, self.given)
        return _caused, (args, None if cause is None else travelling(cause))

    @property
    def place(self) -> str:
        """The element, such as "element 2 (row 2 of from_items(3 items))"."""
        epoch = f" of epoch {self.epoch}" if self.epoch else ""
        return f"element {self.position}{epoch} ({self.origin})"

    def __str__(self) -> str:
        given = f"; {self.given}" if self.given else ""
        return f"{self.operator} failed on {self.place}{self._reason}{given}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


_MAX_REASON_LENGTH = 1000


def _reason(cause: BaseException) -> str:
    try:
        text = repr(cause)
        # TensorFlow's errors have a text, but the repr of an exception without arguments.
        if text == f"{type(cause).__name__}()" and str(cause):
            text = f"{type(cause).__name__}({str(cause)!r})"
    except Exception as error:  # an error message must not fail itself
        text = f"{type(cause).__name__}, whose repr raised {type(error).__name__}"
    return text if len(text) <= _MAX_REASON_LENGTH else f"{text[: _MAX_REASON_LENGTH - 3]}..."


def _advice(cause: BaseException) -> str:
    """Return the advice for a function that has written to a read-only array."""
    of_an_array = isinstance(cause, (ValueError, TypeError)) or type(cause).__module__ == "cv2"
    if not of_an_array or re.search(r"\bread-?only\b", _text(cause)) is None:
        return ""
    return "; copy it first, x = x.copy(), as other passes or elements share its memory"


def _caused(
    args: tuple[str, int, int, str, str | None], cause: BaseException | None
) -> ElementError:
    error = ElementError(*args)
    error.__cause__ = cause
    return error


def with_cause(error: Exception, cause: BaseException) -> BaseException:
    """Return the exception that ends a run because an operator raised ``cause``.

    It is ``error`` with its cause, if that is an ``Exception``. ``KeyboardInterrupt`` and
    ``SystemExit`` are not errors of an element: they end the program, and may come from a signal
    handler that was called within a function. They are returned as they are, with a note that names
    operator and element. Python prints neither note nor traceback of ``SystemExit``, so it is
    logged.
    """
    if isinstance(cause, Exception) or not isinstance(error, ElementError):
        error.__cause__ = cause
        return error
    cause.add_note(f"raised by {error.operator} on {error.place}")
    if isinstance(cause, SystemExit):
        import logging  # here: it takes a twentieth of ``import flowdsl``

        with suppress(ValueError):  # the standard error stream may be closed
            log = logging.getLogger("flowdsl")
            log.error("%s raised %r on %s", error.operator, cause, error.place)
    return cause


def raise_with_cause(error: Exception, cause: BaseException) -> NoReturn:
    """Raise ``error`` with its cause; raise ``SystemExit`` and ``KeyboardInterrupt`` themselves."""
    try:
        raise with_cause(error, cause)
    finally:
        del error, cause  # or the traceback, which has this frame, would keep the exception alive


_FROM = "\nTraceback in process "


def travelling(error: BaseException) -> BaseException:
    """The exception in a form that can be sent to another process, with its traceback as a note.

    It arrives with its class, its text and what can be pickled of its arguments and attributes. If
    pickling does not restore it, it is created there without its ``__init__``; if its text would
    then differ, or its class cannot be sent, it arrives as a ``RuntimeError`` that names it.
    """
    trace = "".join(traceback.format_exception(error))
    text = _text(error)
    sent = error
    if not _arrives(sent, type(error), text):
        sent = _WithoutInit(error)
    if not _arrives(sent, type(error), text):
        sent = RuntimeError(f"{type(error).__qualname__}: {text}")
    sent.__traceback__ = None
    notes = getattr(sent, "__notes__", None)
    if not isinstance(notes, list):
        sent.__notes__ = notes = []
    if not any(isinstance(note, str) and note.startswith(_FROM) for note in notes):
        sent.add_note(f"{_FROM}{os.getpid()}:\n{trace}")
    return sent


def _arrives(sent: BaseException, kind: type[BaseException], text: str) -> bool:
    """Return True if the exception, sent to another process, has this class and text there."""
    import cloudpickle  # here: needed only when a flow fails or is sent to a process

    try:
        copy = pickle.loads(cloudpickle.dumps(sent))
    except Exception:
        return False
    return type(copy) is kind and _text(copy) == text


class _WithoutInit(Exception):
    """Unpickles to an exception whose ``__init__`` cannot be called with its ``args`` alone."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.kind = type(error)
        self.arguments: tuple[object, ...]
        if isinstance(error, BaseExceptionGroup):
            group: BaseExceptionGroup[BaseException] = error
            self.arguments = (group.message, [travelling(part) for part in group.exceptions])
        else:
            self.arguments = tuple(x if _is_sendable(x) else _shown(x) for x in error.args)
        self.attributes = {k: x for k, x in vars(error).items() if _is_sendable(x)}

    def __reduce__(self) -> tuple[object, ...]:
        attributes = self.attributes
        if notes := getattr(self, "__notes__", None):
            attributes = attributes | {"__notes__": notes}
        return _without_init, (self.kind, self.arguments, attributes)


def _without_init(
    kind: type[BaseException], arguments: tuple[object, ...], attributes: dict[str, object]
) -> BaseException:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    vars(error).update(attributes)
    return error


def _is_sendable(value: object) -> bool:
    import cloudpickle  # as above

    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:  # whatever the object's own methods raise
        return False
    return True


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as failed:  # whatever the object's own method raises
        return f"<{type(value).__name__}, whose repr raised {type(failed).__name__}>"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failed:  # whatever the object's own method raises
        return f"its text cannot be read: str() raised {type(failed).__name__}"


class WorkerDied(FlowError):
    """A worker process ended with work left; the message has its exit status and that work."""


class StateMismatch(FlowError, ValueError):
    """A state was saved by another flow, or by another version of this flow."""
