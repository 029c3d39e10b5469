"""Recursion over flows of any depth.

Problem: a flow is a tree, and functions over it are recursive. Python allows about a thousand
nested calls, which a chain of three hundred operators exceeds. A loop with a stack of its own,
instead of each recursion, would hide what the function computes; a higher limit applies to the
whole program, and in some versions of Python not to calls through C, which then end the process. So
a recursive function continues in another thread, which begins with an empty stack, after a number
of nested calls. A chain of 5,000 operators needs a hundred threads, each for a millisecond.

Source: the crates stacker and recursive, which do so for the compilers of Rust and Polars.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

CALLS_PER_THREAD = 50
"""The number of nested calls of decorated functions in one thread. Each call may make several
others, and the program that builds the flow may have used a part of the stack."""


class _Calls(threading.local):
    nested = 0


_calls = _Calls()


def any_depth(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of a recursion, which then continues in another thread if it is deep.

    >>> @any_depth
    ... def length(nested):
    ...     return 0 if nested is None else 1 + length(nested[0])
    >>> nested = None
    >>> for _ in range(10_000):
    ...     nested = (nested,)
    >>> length(nested)
    10000
    """

    @wraps(function)
    def nesting(*args: P.args, **named: P.kwargs) -> R:
        if _calls.nested >= CALLS_PER_THREAD:
            return _in_new_thread(partial(function, *args, **named))
        _calls.nested += 1
        try:
            return function(*args, **named)
        finally:
            _calls.nested -= 1

    return nesting


def _in_new_thread(call: Callable[[], R]) -> R:
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(copied.run(call))
        except BaseException as error:
            errors.append(error)

    copied = copy_context()  # NumPy's error settings and the like
    thread = threading.Thread(target=run, name="flowdsl recursion", daemon=True)
    thread.start()
    thread.join()
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # the traceback refers to this frame
    return results[0]
