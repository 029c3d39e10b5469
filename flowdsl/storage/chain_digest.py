"""A digest of a chain: its operators, their arguments, and the code of their functions.

The problem: a file that keeps the elements of a chain is out of date when the chain changes, and
the change may be a line in a function. The fingerprint of an operator has only the function's name.
A pickle has the code of a function only if it is of the main program, and its bytes differ between
processes.

The choice: follow what a function refers to. A function is its bytecode, its defaults, the values
in its closure, and the global names that it uses: other functions of the user's program and plain
values. Of an installed module only the name counts. So a digest may change although the elements do
not, for another version of Python for example, which costs one computation.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import attrs
import numpy as np

from flowdsl.nodes import AnyNode, Node

_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(...))


def chain_digest(node: AnyNode) -> str:
    """Return a digest of a flow: it differs if an operator, an argument or a function does.

    >>> import flowdsl as fl
    >>> flows = [fl.from_range(3).map(lambda i: i + k) for k in (1, 1, 2)]
    >>> digests = [chain_digest(flow.node) for flow in flows]
    >>> digests[0] == digests[1], digests[0] == digests[2]
    (True, False)
    """
    found = hashlib.blake2b(digest_size=16)
    for text in _Parts().of(node):
        found.update(len(text).to_bytes(8, "little") + text)
    return found.hexdigest()


class _Parts:
    """The bytes that a value is made of; a value that refers to itself is entered once."""

    def __init__(self) -> None:
        self._seen = dict[int, Any]()  # with the values, so that no other has the same id

    def of(self, x: Any) -> Iterator[bytes]:
        kind = type(x)
        yield f"{kind.__module__}.{kind.__qualname__}".encode()
        if kind in _PLAIN:
            yield repr(x).encode()
            return
        if id(x) in self._seen:
            return
        self._seen[id(x)] = x
        if isinstance(x, Node):
            yield x.fingerprint.encode()
            for field in attrs.fields(type(x)):
                if field.eq is not False:
                    yield from self.of(getattr(x, field.name))
        elif isinstance(x, np.ndarray):
            yield repr((x.dtype, x.shape)).encode()
            yield pickle.dumps(x) if x.dtype.hasobject else np.ascontiguousarray(x).tobytes()
        elif isinstance(x, FunctionType):
            yield from self._function(x)
        elif isinstance(x, CodeType):
            yield from self._code(x)
        elif isinstance(x, MethodType):
            yield from self.of((x.__func__, x.__self__))
        elif isinstance(x, partial):
            yield from self.of((x.func, x.args, x.keywords))
        elif isinstance(x, BuiltinFunctionType | ModuleType):
            yield f"{getattr(x, '__module__', '')}.{x.__name__}".encode()
        elif isinstance(x, type):
            yield from self._class(x)
        elif isinstance(x, list | tuple):
            yield from self._all(x)
        elif isinstance(x, Mapping):
            yield from self._all(part for item in x.items() for part in item)
        elif isinstance(x, AbstractSet):
            yield from sorted(b"".join(_Parts().of(part)) for part in x)
        else:
            yield from self._object(x)

    def _all(self, parts: Any) -> Iterator[bytes]:
        for part in parts:
            yield from self.of(part)

    def _function(self, x: FunctionType) -> Iterator[bytes]:
        yield x.__qualname__.encode()
        if _is_installed(x.__module__):
            return
        yield from self._code(x.__code__)
        yield from self.of((x.__defaults__, x.__kwdefaults__))
        for cell in x.__closure__ or ():
            try:
                yield from self.of(cell.cell_contents)
            except ValueError:  # it has no value yet
                yield b"empty"
        for name in sorted(_names(x.__code__)):
            if name in x.__globals__:
                yield name.encode()
                yield from self.of(x.__globals__[name])

    def _code(self, x: CodeType) -> Iterator[bytes]:
        yield x.co_code
        yield repr((x.co_names, x.co_varnames, x.co_freevars, x.co_argcount)).encode()
        for part in x.co_consts:
            yield from self.of(part)

    def _class(self, x: type) -> Iterator[bytes]:
        yield f"{x.__module__}.{x.__qualname__}".encode()
        if not _is_installed(x.__module__):
            for name, value in sorted(vars(x).items()):
                if isinstance(value, FunctionType | staticmethod | classmethod | property):
                    yield name.encode()
                    yield from self.of(getattr(value, "__func__", getattr(value, "fget", value)))

    def _object(self, x: Any) -> Iterator[bytes]:
        yield from self._class(type(x))
        if attrs.has(type(x)):
            parts = (
                (f.name, getattr(x, f.name)) for f in attrs.fields(type(x)) if f.eq is not False
            )
            yield from self._all(part for pair in parts for part in pair)
        elif hasattr(x, "__dict__") and not _is_installed(type(x).__module__):
            yield from self.of(dict(sorted(vars(x).items())))
        else:
            try:
                yield pickle.dumps(x)
            except Exception:  # such as a lock: only its class counts
                return


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
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or "site-packages" in file or "dist-packages" in file or top == "flowdsl"
