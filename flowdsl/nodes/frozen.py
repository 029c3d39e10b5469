"""``frozen_node``: ``attrs.frozen`` for a class of nodes, applied when its first node is created.

The problem: attrs compiles the methods of a class when the class is defined, in about 0.4 ms. For
the hundred operators, of which a program uses a few, this took a third of ``import flowdsl``. The
naive way, to import an operator when it is first used, fails: ``Flow`` has the families of
operators as base classes, so that ``help``, editors and type checkers see one class. The choice:
classes are defined at once, and ``Node.__new__`` has their methods compiled. Every way to create a
node calls it: the class, ``attrs.evolve``, ``copy`` and ``pickle``.

A user's class of nodes is decorated with ``attrs.frozen``, and its base classes are compiled
before it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import attrs

__all__ = ["compile_bases", "compile_methods", "compiled", "frozen_node"]

compiled: set[type] = set()
"""Classes of nodes that are ready to use: they and their base classes are compiled."""

_waiting: set[type] = set()
"""Decorated classes that attrs has not compiled yet."""

_compiling = threading.RLock()


def _after_fork() -> None:
    """Replace the lock, which a thread that the child does not have may hold."""
    global _compiling
    _compiling = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


def compile_methods(cls: type) -> None:
    """Compile the methods of a class of nodes and of its base classes, if they are not yet."""
    with _compiling:
        _compile_all(cls.__mro__)
        compiled.add(cls)  # last: another thread does not wait for a class that is in it


def compile_bases(cls: type) -> None:
    """Compile the methods of the base classes of a class of nodes."""
    with _compiling:
        _compile_all(cls.__mro__[1:])


def _compile_all(classes: tuple[type, ...]) -> None:
    for cls in reversed(classes):  # base classes first: attrs reads their fields
        if cls in _waiting:
            attrs.frozen(eq=False, repr=False, slots=False)(cls)
            _waiting.remove(cls)


if TYPE_CHECKING:
    from attrs import frozen as frozen_node
else:

    def frozen_node(cls: type | None = None, *, slots: bool = False) -> Any:
        """Decorate a class of nodes that has fields of its own.

        The class keeps the ``__eq__`` and ``__repr__`` of ``Node``. ``slots=True`` is for a class
        with a field that has the name of a property of a base class, and compiles it at once.
        """
        if cls is None:
            return lambda cls: frozen_node(cls, slots=slots)
        if not slots:
            _waiting.add(cls)
            return cls
        compile_bases(cls)
        return attrs.frozen(eq=False, repr=False, slots=True)(cls)
