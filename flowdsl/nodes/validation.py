"""Checks and error messages for the arguments of all operators.

It also describes, for messages, functions and the elements on which an operator failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, unwrap
from reprlib import Repr
from types import FunctionType, MethodType
from typing import Any, Protocol, TypeVar, cast

import attrs
import numpy as np

from flowdsl.elements.specs import spec_of
from flowdsl.elements.structure import Component, components
from flowdsl.errors import InvalidFlow

F = TypeVar("F", bound=Callable[..., object])


class Titled(Protocol):
    """The part of a node that messages use."""

    @property
    def title(self) -> str: ...


POSITION_LIMIT = 2**62
"""Positions and epochs are below this limit: they are int64, with room for arithmetic."""


def at_least(
    minimum: int, below: int | None = POSITION_LIMIT
) -> Callable[[Titled, attrs.Attribute[int], object], None]:
    """An attrs validator: the field must be an int >= ``minimum`` and below ``below``."""

    def check(node: Titled, field: attrs.Attribute[int], value: object) -> None:
        if not is_int(value, minimum, below):
            raise _int_error(f"{method_name(node)}: {field.name}", value, minimum, below)

    return check


def checked_int(
    argument: str, value: object, minimum: int, below: int | None = POSITION_LIMIT
) -> int:
    """Return a Python or NumPy int >= ``minimum`` and below ``below`` as a Python int.

    >>> checked_int("QueueInput: capacity", np.int32(50), 1)
    50
    >>> checked_int("QueueInput: capacity", 1.5, 1)
    Traceback (most recent call last):
        ...
    flowdsl.errors.InvalidFlow: QueueInput: capacity must be an int >= 1, got 1.5

    Raises:
        InvalidFlow: It is something else; the message begins with ``argument``.
    """
    if not is_int(value, minimum, below):
        raise _int_error(argument, value, minimum, below)
    return int(cast("int", value))


def _int_error(argument: str, value: object, minimum: int, below: int | None) -> InvalidFlow:
    limit = ""
    if below is not None and is_int(value, minimum, below=None):  # then it is too large
        limit = f" and below 2**{below.bit_length() - 1}"
    return InvalidFlow(f"{argument} must be an int >= {minimum}{limit}, got {value!r}")


def validate_callable(node: Titled, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: the field must be callable, and its calls must return results."""
    if not callable(value):
        raise InvalidFlow(f"{method_name(node)}: {field.name} must be callable, got {value!r}")
    flags = _flags_of(value)
    if flags & CO_COROUTINE:
        name = name_of(value)
        raise InvalidFlow(
            f"{method_name(node)}: {field.name} must not be async, and {name} is: a call returns "
            f"a coroutine; write lambda x: asyncio.run({name}(x)), and .prefetch(threads=n) after "
            f"it for n at a time"
        )
    if flags & CO_ASYNC_GENERATOR:
        name = name_of(value)
        raise InvalidFlow(
            f"{method_name(node)}: {field.name} must not be async, and {name} is: a call returns "
            f"an async generator; collect it in a coroutine, and run that by asyncio.run"
        )


def called_with(*arguments: str) -> Callable[[Titled, attrs.Attribute[Any], object], None]:
    """An attrs validator: the field must be a function that can be called with these arguments.

    ``arguments`` describe them for messages, by position. A function that is not written in Python
    is not checked: its signature may be unknown.
    """

    def check(node: Titled, field: attrs.Attribute[Any], value: object) -> None:
        validate_callable(node, field, value)
        takes = _positional_arguments_of(value)
        if takes is None or takes[0] <= len(arguments) <= takes[1]:
            return
        least, most = takes
        expected = least if len(arguments) < least else most
        hint = (
            "; starmap passes the parts of a tuple as arguments, and random_map a generator as the "
            "second one"
            if least == 2 and len(arguments) == 1 and field.name == "func"
            else ""
        )
        raise InvalidFlow(
            f"{method_name(node)}: {field.name} is called with ({', '.join(arguments)}), and "
            f"{name_of(value)} takes {expected} positional argument{'' if expected == 1 else 's'}"
            f"{hint}"
        )

    return check


def _positional_arguments_of(function: object) -> tuple[int, float] | None:
    """The least and the greatest number of positional arguments of a function written in Python.

    None for any other function, and for one that needs keyword arguments.
    """
    bound = 0
    if isinstance(function, MethodType):
        function, bound = function.__func__, 1
    if type(function) is not FunctionType:
        return None
    code = function.__code__
    if code.co_kwonlyargcount > len(function.__kwdefaults__ or {}):
        return None
    most = code.co_argcount - bound
    least = most - len(function.__defaults__ or ())
    return max(0, least), math.inf if code.co_flags & CO_VARARGS else most


def _flags_of(function: object) -> int:
    """The flags of the code that a call runs; 0 if it is not written in Python."""
    # inspect.iscoroutinefunction fails for mocks, and does not look at ``__call__``.
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if not isinstance(function, FunctionType):
        function = type(function).__call__
    return function.__code__.co_flags if type(function) is FunctionType else 0


_called_with_element = called_with("element")


def validate_condition(node: Titled, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: the field must be a function whose results are true or false."""
    _called_with_element(node, field, value)
    if _flags_of(value) & CO_GENERATOR:
        raise InvalidFlow(
            f"{method_name(node)}: {field.name} must return a condition, and {name_of(value)} "
            f"yields: a call returns a generator, which is always true"
        )


def validate_key(node: Titled, field: attrs.Attribute[Any], value: object) -> None:
    """An attrs validator: the field must be a function; a name of a component gets advice."""
    if isinstance(value, str):
        raise InvalidFlow(
            f"{method_name(node)}: {field.name} must be callable, got {value!r}; for a component "
            f"write lambda x: x[{value!r}]"
        )
    _called_with_element(node, field, value)


def validate_flag(node: Titled, field: attrs.Attribute[bool], value: object) -> None:
    """An attrs validator: the field must be True or False."""
    if not isinstance(value, bool):
        raise InvalidFlow(f"{method_name(node)}: {field.name} must be True or False, got {value!r}")


def checked_flag(argument: str, value: object) -> bool:
    """Return ``value`` if it is True or False.

    Raises:
        InvalidFlow: It is something else.
    """
    if not isinstance(value, bool):
        raise InvalidFlow(f"{argument} must be True or False, got {value!r}")
    return value


def plain_int(value: Any) -> Any:
    """An attrs converter: NumPy ints become Python ints, which never overflow and work in JSON."""
    return int(value) if isinstance(value, np.integer) else value


def deep_copied(value: Any) -> Any:
    """An attrs converter: copies dicts, in tuples too, so that callers cannot change them."""
    if isinstance(value, Mapping):
        return {name: deep_copied(part) for name, part in value.items()}
    return tuple(map(deep_copied, value)) if isinstance(value, tuple) else value


def is_int(value: object, minimum: int, below: int | None = POSITION_LIMIT) -> bool:
    """Return True if the value is an int (not a bool) >= ``minimum`` and below ``below``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return bool(value >= minimum and (below is None or value < below))


def rejects_keywords(**advice: str) -> Callable[[F], F]:
    """Decorate an operator so that keywords of other libraries raise an error with advice.

    In the advice, ``{name}`` is replaced by the operator, ``{}`` by the argument's value, and
    ``{n}`` by that value if it is a count (otherwise by ``n``). Other unknown keywords raise a
    ``TypeError``, which suggests a similar name.
    """

    def decorate(operator: F) -> F:
        known = _argument_names(operator)

        @wraps(operator)
        def called(*args: Any, **kw: Any) -> object:
            for name, value in kw.items():
                if name in advice:
                    hint = advice[name].replace("{name}", operator.__name__)
                    hint = hint.replace("{n}", str(value) if is_int(value, 0) else "n")
                    hint = hint.replace("{}", brief(value))
                    raise InvalidFlow(f"{operator.__name__}: there is no {name}=; {hint}")
                if name not in known:
                    raise TypeError(_unknown(operator.__name__, name, known))
            return operator(*args, **kw)

        return cast("F", called)  # it has the operator's signature

    return decorate


def _argument_names(operator: Any) -> tuple[str, ...]:
    code = unwrap(operator).__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(name for name in names if name != "self")


def _unknown(operator: str, name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # here: only a mistake needs it

    (similar, *_) = [*get_close_matches(name, known), ""]
    advice = f"did you mean {similar}=?" if similar else f"its arguments are {', '.join(known)}"
    return f"{operator}: there is no {name}=; {advice}"


_WORKERS_ADVICE = "set the number of workers once, with prefetch(procs={n}) after these operators"
PARALLEL_KEYWORD_ADVICE = {
    "num_parallel_calls": _WORKERS_ADVICE,
    "num_workers": _WORKERS_ADVICE,
    "num_proc": _WORKERS_ADVICE,
    "workers": _WORKERS_ADVICE,
    "n_jobs": _WORKERS_ADVICE,
    "max_workers": _WORKERS_ADVICE,
    "nr_proc": _WORKERS_ADVICE,
    "procs": _WORKERS_ADVICE,
    "threads": "set the number of threads once, with prefetch(threads={n}) after these operators",
    "on_error": "failures are left out below a prefetch: write prefetch(on_error={})",
    "deterministic": "the order is kept, unless you write prefetch(ordered=False)",
}
"""Advice for arguments that other libraries have on each operator, and flowdsl on ``prefetch``."""

BATCH_KEYWORD_ADVICE = {
    "batch_size": "write {name}({n})",
    "drop_last": "write drop_remainder={}",
    "remainder": "a smaller last batch is kept, unless drop_remainder=True leaves it out",
}
"""Advice for other libraries' names for the arguments of batching operators."""

_READERS_ADVICE = "read with several processes by prefetch(procs={n}) after it"
READER_KEYWORD_ADVICE = {
    "shuffle": "write {name}(...).shuffle(seed=...)",
    "batch_size": "write {name}(...).batch({n})",
    "transform": "write {name}(...).map(f)",
    "num_epochs": "loop over {name}(...).epochs({n})",
    "num_parallel_reads": _READERS_ADVICE,
    "num_workers": _READERS_ADVICE,
    "num_proc": _READERS_ADVICE,
    "procs": _READERS_ADVICE,
    "on_error": "failures are left out below a prefetch: write prefetch(on_error={})",
    "streaming": "leave it out, as rows are read when they are needed",
    "mmap_mode": "leave it out, as rows are read when they are needed",
    "allow_pickle": "pickled objects run code when they are read; convert them to arrays",
}
"""Advice for arguments that other libraries have on their readers of files."""


def method_name(node: Titled) -> str:
    """The name of the operator's method, taken from its title.

    Validators can use it, as attrs calls them when all fields are set.
    """
    return node.title.partition("(")[0]


def format_call(operator: str, *arguments: str) -> str:
    """The operator as it is written in a chain; empty ``arguments`` are left out.

    >>> format_call("shuffle", "buffer=8", keyword_unless_default("seed", 0, 0))
    'shuffle(buffer=8)'
    """
    return f"{operator}({', '.join(filter(None, arguments))})"


def keyword_unless_default(name: str, value: object, default: object) -> str:
    """The argument as ``name=value``; empty if the value is the default."""
    return "" if value == default else f"{name}={value!r}"


def name_of(function: object) -> str:
    """The name of a function in messages.

    >>> name_of(len), name_of(lambda x: x)
    ('len', '<lambda>')
    """
    if isinstance(function, Component):
        return f"c{function.index}"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]  # without the functions that define it


_MAX_CHARACTERS = 200


def describe_element(x: object) -> str:
    """Describe, for an error, the element on which a function failed.

    Arrays are shown by dtype and shape, all other values by their ``repr``, cut if it is long.

    >>> describe_element((np.zeros((224, 224, 3), np.uint8), "cat"))
    "the element was (uint8[224, 224, 3], 'cat')"
    """
    return f"the element was {brief(x)}"


def describe_group(xs: Sequence[object]) -> str:
    """Describe, for an error, the group of elements on which an operator failed.

    >>> describe_group((1, 2))
    'the group was [1, 2]'
    """
    return f"the group was {brief(list(xs))}"


def brief(x: object) -> str:
    """The repr of a value, cut if it is long; arrays are shown by dtype and shape."""
    try:
        text = _BRIEF_REPR.repr(x)
    except Exception as error:  # an error message must not fail itself
        text = f"of {type(x).__name__}, whose repr raised {type(error).__name__}"
    text = " ".join(text.splitlines())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


class BriefRepr(Repr):
    """A ``repr`` with a limited number of components and levels."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 8
        self.maxstring = self.maxlong = self.maxother = 80

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, np.ndarray):
            return str(spec_of(x))
        if isinstance(x, (bytes, bytearray)):
            return self.repr_instance(x[: self.maxother], level)
        parts = None if type(x) in (list, tuple) else components(x)
        if parts is None:
            return self._repr_or_reason(x, level)
        hidden = _not_in_repr(type(x))
        parts = [(name, part) for name, part in parts if name not in hidden]
        name = "" if isinstance(x, dict) else type(x).__name__
        begin, between, end = ("{", ": ", "}") if isinstance(x, dict) else (f"{name}(", "=", ")")
        if level <= 0:
            return f"{begin}...{end}"
        shown = [
            f"{repr(key)[: self.maxother] if isinstance(x, dict) else key}{between}"
            f"{self.repr1(part, level - 1)}"
            for key, part in parts[: self.maxdict]
        ]
        more = ["..."] if len(parts) > self.maxdict else []
        return f"{begin}{', '.join(shown + more)}{end}"

    def _repr_or_reason(self, x: Any, level: int) -> str:
        try:
            return super().repr1(x, level)
        except Exception as error:  # a message must not fail, or hide the rest
            return f"<{type(x).__name__}, whose repr raised {type(error).__name__}>"

    def repr_instance(self, x: Any, level: int) -> str:
        text = repr(x)  # it may raise: ``Repr`` would return a memory address instead
        return text if len(text) <= self.maxother else f"{text[: self.maxother - 3]}..."


def _not_in_repr(form: type) -> set[str]:
    """The fields of a class that its own repr leaves out, such as a password."""
    if attrs.has(form):
        return {field.name for field in attrs.fields(form) if field.repr is False}
    if hasattr(form, "__dataclass_fields__"):
        from dataclasses import fields  # here: not needed at import

        return {field.name for field in fields(form) if not field.repr}
    return set()


_BRIEF_REPR = BriefRepr()
