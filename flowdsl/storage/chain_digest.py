"""A digest of a chain: its operators, their arguments, and the code of their functions.

The problem: a file that keeps the elements of a chain is out of date when the chain changes, and
the change may be a line in a function. The fingerprint of an operator has only the function's name.
A pickle has the code of a function only if it is of the main program, and its bytes differ between
processes.

The choice: follow what a function refers to. A function is its bytecode, its defaults, the values
in its closure, and the global names that it uses: functions and values of the user's program, also
those that it reads from a module, as in ``helpers.f(x)``. An object is what ``copy`` and ``pickle``
ask it for (``__reduce_ex__``), so a data set of an installed class counts with the user's functions
in it. Of an installed module only the name counts. So a digest may change although the elements do
not, for another version of Python for example, which costs one computation.

An object that neither can be reduced nor is one of the kinds below, such as a lock, counts with its
class alone; if it can be called, the digest differs in each run.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import os
import pickle
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.elements.structure import is_tensor
from flowdsl.nodes import AnyNode, Node
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.logs import logger

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))
_CACHED = type(functools.lru_cache(len))
_PROTOCOL = 4
"""The protocol of ``__reduce_ex__``: from 5 on, arrays are reduced to views of their memory."""
_WRAPPED = ("__wrapped__", "__func__", "func", "fget", "fset", "fdel", "dispatcher")
"""Attributes that hold the function of a method, a property or a wrapper of ``functools``."""
_WRAPPERS = (
    *(staticmethod, classmethod, property, functools.cached_property, _CACHED),
    functools.singledispatchmethod,
)
_MOST_NESTED = 100
"""The limit on reductions within each other, which never end for some objects: an object that is
nested deeper counts with its pickle."""
_IGNORED_IN_CLASSES = ("__dict__", "__weakref__", "__doc__", "__annotations__", "_abc_impl")
"""Attributes of a class that do not affect its objects, or differ between processes."""


@runtime_checkable
class Stamped(Protocol):
    """A source whose fingerprint has the names of its files alone."""

    def stamp(self) -> str:
        """Return a text that changes with the content of the files."""
        ...


def chain_digest(node: AnyNode) -> str:
    """Return a digest of a flow: it differs if an operator, an argument or a function does.

    >>> import flowdsl as fl
    >>> flows = [fl.from_range(3).map(partial(pow, base)) for base in (2, 2, 3)]
    >>> digests = [chain_digest(flow.node) for flow in flows]
    >>> digests[0] == digests[1], digests[0] == digests[2]
    (True, False)
    """
    return _Digests().of(node).hex()


class _Digests:
    """The digests of values; a value that refers to itself counts once."""

    def __init__(self) -> None:
        # It keeps each value, so that the id stays its own.
        self._known = dict[int, tuple[Any, bytes]]()
        self._reductions = 0

    @any_depth
    def of(self, x: Any) -> bytes:
        if id(x) in self._known:
            return self._known[id(x)][1]
        kind = type(x)
        found = hashlib.blake2b(f"{kind.__module__}.{kind.__qualname__}".encode(), digest_size=16)
        self._known[id(x)] = x, b"itself"
        for part in self._parts(x, kind):
            found.update(len(part).to_bytes(8, "little") + part)
        if kind in _PLAIN:
            del self._known[id(x)]
            return found.digest()
        self._known[id(x)] = x, found.digest()
        return found.digest()

    def _parts(self, x: Any, kind: type) -> Iterable[bytes]:
        if kind in _PLAIN:
            return [repr(x).encode()]
        if isinstance(x, Node):
            stamp = x.stamp() if isinstance(x, Stamped) else ""
            return [x.fingerprint.encode(), stamp.encode(), *self._attributes(x)]
        if isinstance(x, np.ndarray):
            content = pickle.dumps(x) if x.dtype.hasobject else np.ascontiguousarray(x).tobytes()
            return [repr((x.dtype, x.shape)).encode(), content]
        if isinstance(x, FunctionType):
            return self._function(x)
        if isinstance(x, CodeType):
            return self._code(x)
        if isinstance(x, MethodType):
            return self._all([x.__func__, x.__self__])
        if isinstance(x, partial):
            return self._all([x.func, x.args, x.keywords])
        if isinstance(x, BuiltinFunctionType):  # also a method such as ``words.get``
            return [f"{x.__module__}.{x.__name__}".encode(), self.of(x.__self__)]
        if isinstance(x, ModuleType):
            return [x.__name__.encode()]
        if isinstance(x, type):
            return self._class(x)
        if isinstance(x, _WRAPPERS):
            return self._all(getattr(x, name, None) for name in _WRAPPED)
        if isinstance(x, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):
            return []  # a cache
        if isinstance(x, list | tuple):
            return self._all(x)
        if isinstance(x, Mapping):
            return self._all(part for item in x.items() for part in item)
        if isinstance(x, AbstractSet):
            return sorted(self._all(x))
        if isinstance(x, memoryview):
            return [bytes(x)]
        if is_tensor(kind) and (array := _array_of(x)) is not None:
            return [self.of(array)]
        return self._object(x)

    def _all(self, parts: Iterable[Any]) -> Iterator[bytes]:
        return map(self.of, parts)

    def _attributes(self, x: Any) -> Iterator[bytes]:
        for field in attrs.fields(type(x)):
            if field.eq is not False:
                yield field.name.encode()
                yield self.of(getattr(x, field.name))

    def _function(self, x: FunctionType) -> Iterator[bytes]:
        yield x.__qualname__.encode()
        for cell in x.__closure__ or ():  # an installed function may wrap one of the user
            try:
                yield self.of(cell.cell_contents)
            except ValueError:  # it has no value yet
                yield b"empty"
        if _is_installed(x.__module__):
            return
        yield from self._code(x.__code__)
        # The attributes of a function of ``singledispatch`` have its implementations.
        yield from self._all([x.__defaults__, x.__kwdefaults__, vars(x)])
        yield from self._named(x.__globals__, sorted(_names(x.__code__)), set())

    def _named(
        self, namespace: dict[str, Any], names: list[str], modules: set[str]
    ) -> Iterator[bytes]:
        """The values of these names in a module, and in the user's modules that it has by name."""
        for name in names:
            if name not in namespace:
                continue
            value = namespace[name]
            yield name.encode()
            yield self.of(value)
            if isinstance(value, ModuleType) and value.__name__ not in modules:
                modules.add(value.__name__)
                if not _is_installed(value.__name__):
                    yield from self._named(vars(value), names, modules)

    def _code(self, x: CodeType) -> Iterator[bytes]:
        yield x.co_code
        yield repr((x.co_names, x.co_varnames, x.co_freevars, x.co_argcount)).encode()
        yield from self._all(x.co_consts)

    def _class(self, x: type) -> Iterator[bytes]:
        for base in x.__mro__:
            yield f"{base.__module__}.{base.__qualname__}".encode()
            if not _is_installed(base.__module__):
                for name, value in sorted(vars(base).items()):
                    if name not in _IGNORED_IN_CLASSES:
                        yield name.encode()
                        yield self.of(value)

    def _object(self, x: Any) -> Iterator[bytes]:
        yield self.of(type(x))
        if attrs.has(type(x)):
            yield from self._attributes(x)
            return
        slots = [name for base in type(x).__mro__ for name in vars(base).get("__slots__", ())]
        values = dict(getattr(x, "__dict__", {}))
        values |= {name: getattr(x, name) for name in slots if hasattr(x, name)}
        if values and not _is_installed(type(x).__module__):
            yield self.of(dict(sorted(values.items())))
            return
        if (wrapped := getattr(x, "__wrapped__", None)) is not None:  # as of ``jax.jit``
            yield self.of(wrapped)
            return
        try:
            reduce = copyreg.dispatch_table.get(type(x))
            reduced = reduce(x) if reduce is not None else x.__reduce_ex__(_PROTOCOL)
            if isinstance(reduced, str) or self._reductions >= _MOST_NESTED:
                yield pickle.dumps(x)
                return
        except Exception:
            if callable(x):  # as of ``np.frompyfunc``
                logger(__name__).warning(
                    "cache: the file is written in every run, as %r cannot be compared with that "
                    "of an earlier run; use the Python function that it is made of",
                    x,
                )
                yield os.urandom(16)
            return  # such as a lock: only its class counts
        self._reductions += 1
        # A function, its arguments, a state, and iterators of items.
        yield from self._all(list(part) if isinstance(part, Iterator) else part for part in reduced)
        self._reductions -= 1


def _array_of(tensor: Any) -> NDArray[Any] | None:
    """The values of another library's tensor; None if NumPy cannot have them."""
    try:
        return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)
    except Exception:  # each library has its own errors
        return None


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and the functions in it may read from their module."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= _names(const)
    return names


def _is_installed(module: str | None) -> bool:
    """Return True for a module of Python or of an installed package."""
    if module is None or module == "__main__":
        return False
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if top == "flowdsl":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)  # None of a module made by a program
    return file is not None and ("site-packages" in file or "dist-packages" in file)
