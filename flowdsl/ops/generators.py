"""Random generators that a transform refers to: found, seeded for one element, and put back.

A generator of its own goes on from element to element, so its draws depend on which elements a
worker has made before, and two workers that begin with copies of it repeat each other. Seeded for
each element, it draws what belongs to the element.
"""

from __future__ import annotations

import dis
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import attrs
import numpy as np

from flowdsl.elements import PLAIN

_one_at_a_time = threading.RLock()

_NO_CODE = frozenset(
    {"albucore", "albumentations", "cv2", "flowdsl", "jax", "keras", "numpy", "PIL", "scipy"}
    | {"skimage", "tensorflow", "torch", "torchvision"}
    | sys.stdlib_module_names
)
"""Packages whose functions are not searched: what they draw from is known, or given to them."""
_MOST_ITEMS = 1000
"""In a container; one with more holds data."""
_NO_STATE = frozenset({"cv2", "flowdsl", "jax", "keras", "numpy", "PIL", "tensorflow", "torch"})
"""Packages whose objects are not searched."""


@attrs.frozen(eq=False)
class Seedable(ABC):
    """A generator whose state can be set."""

    generator: Any

    @abstractmethod
    def state(self) -> Any:
        """Its state, for ``restore``."""

    @abstractmethod
    def seed(self, number: int) -> None:
        """Begin again, from a number below 2**63."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Go on from a state."""


class _Python(Seedable):
    def state(self) -> Any:
        return self.generator.getstate()

    def seed(self, number: int) -> None:
        self.generator.seed(number)

    def restore(self, state: Any) -> None:
        self.generator.setstate(state)


class _Legacy(Seedable):
    """A ``RandomState``."""

    def state(self) -> Any:
        return self.generator.get_state()

    def seed(self, number: int) -> None:
        self.generator.seed(number % 2**32)

    def restore(self, state: Any) -> None:
        self.generator.set_state(state)


class _Bits(Seedable):
    """What a ``Generator`` of NumPy draws from."""

    def state(self) -> Any:
        return self.generator.state

    def seed(self, number: int) -> None:
        self.generator.state = type(self.generator)(number).state

    def restore(self, state: Any) -> None:
        self.generator.state = state


class _Torch(Seedable):
    def state(self) -> Any:
        return self.generator.get_state()

    def seed(self, number: int) -> None:
        self.generator.manual_seed(number)

    def restore(self, state: Any) -> None:
        self.generator.set_state(state)


def _seedable(x: object) -> Seedable | None:
    if isinstance(x, np.random.Generator):
        return _Bits(x.bit_generator)
    if isinstance(x, np.random.BitGenerator):
        return _Bits(x)
    if isinstance(x, np.random.RandomState):
        return _Legacy(x)
    python = sys.modules.get("random")
    if python is not None and isinstance(x, python.Random):
        return _Python(x)
    torch = sys.modules.get("torch")
    return _Torch(x) if torch is not None and isinstance(x, torch.Generator) else None


def global_generators() -> list[Seedable]:
    """The generators that a process has one of: Python's, NumPy's and torch's."""
    import random  # here: it loads OpenSSL, for flows that may augment nothing

    torch = sys.modules.get("torch")
    methods: list[Any] = [random.random, np.random.rand]  # whose generator is asked
    python, numpys = (method.__self__ for method in methods)
    found: list[Seedable] = [_Python(python), _Legacy(numpys)]
    return found if torch is None else [*found, _Torch(torch.default_generator)]


def generators_in(root: object, but: Iterable[object] = ()) -> list[Seedable]:
    """The generators that an object refers to, without some, each once and in a fixed order.

    They are looked for in closures, defaults, attributes, containers (but large ones, of data), and
    the global names that functions and methods use, and so on from there; a global generator is one
    of them.

    >>> rng = np.random.default_rng(7)
    >>> some = {"own": rng, "again": [rng], "legacy": np.random.RandomState(7)}
    >>> [type(found.generator).__name__ for found in generators_in(some)]
    ['PCG64', 'RandomState']
    """
    found: dict[int, Seedable] = {}
    left_out = {id(x) for x in but}
    seen: dict[int, object] = {}
    to_do = deque([root])
    while to_do:
        x = to_do.popleft()
        if type(x) in PLAIN or id(x) in seen:
            continue
        seen[id(x)] = x
        one = _seedable(x)
        if one is None:
            to_do.extend(_parts(x))
        elif not {id(x), id(one.generator)} & left_out:
            found.setdefault(id(one.generator), one)
    return list(found.values())


def _package(x: Any) -> str:
    return str(getattr(x, "__module__", None)).partition(".")[0]


def _parts(x: Any) -> Iterator[object]:
    """What an object refers to."""
    if isinstance(x, FunctionType):
        yield from _parts_of_function(x)
    elif isinstance(x, type):
        yield from (*vars(x).values(), *x.__bases__) if _package(x) not in _NO_CODE else ()
    elif not isinstance(x, ModuleType):
        yield from _held(x)
        yield from _attributes(x)


def _held(x: Any) -> Iterable[object]:
    """What is in a container, or behind a method or a function with arguments."""
    if isinstance(x, Mapping):
        return x.values() if len(x) <= _MOST_ITEMS else ()
    if isinstance(x, list | tuple | set | frozenset | deque):
        return x if len(x) <= _MOST_ITEMS else ()
    if isinstance(x, partial):
        return x.func, x.args, x.keywords
    if isinstance(x, property):
        return (x.fget,)
    # a bound method, one in C such as np.random.rand, a static one or one of a class
    return getattr(x, "__self__", None), getattr(x, "__func__", None)


def _attributes(x: Any) -> Iterator[object]:
    if _package(type(x)) in _NO_STATE:
        return
    yield from getattr(x, "__dict__", {}).values()
    for cls in type(x).__mro__:
        names = vars(cls).get("__slots__", ())
        yield from (
            getattr(x, name, None) for name in ([names] if isinstance(names, str) else names)
        )
    yield type(x)


def _parts_of_function(function: FunctionType) -> Iterator[object]:
    if _package(function) in _NO_CODE:
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    for code in _codes(function.__code__):
        yield from _named(code, function.__globals__)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of those within it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _named(code: CodeType, names: Mapping[str, object]) -> Iterator[object]:
    """What code names: globals, and what it takes out of modules, such as ``np.random.rand``."""
    value: object = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and isinstance(value, ModuleType):
            yield from _everyones(value) if value.__name__ == "torch" else ()
            within = sys.modules.get(f"{value.__name__}.{step.argval}")
            value = vars(value).get(step.argval, within)
        elif step.opname not in _BETWEEN:
            yield from _everyones(value) if isinstance(value, ModuleType) else [value]
            value = names.get(step.argval) if step.opname == "LOAD_GLOBAL" else None
        if step.opname == "IMPORT_NAME":  # where, and by which name, is not followed
            yield from _everyones(sys.modules.get(step.argval))


_BETWEEN = "CACHE", "EXTENDED_ARG", "PUSH_NULL"


def _everyones(module: object) -> Iterator[object]:
    """The global generator that the functions of a module draw from, if it has one."""
    name = getattr(module, "__name__", "")
    kinds = {"random": _Python, "numpy": _Legacy, "numpy.random": _Legacy, "torch": _Torch}
    if name in kinds:
        yield from (one.generator for one in global_generators() if type(one) is kinds[name])


@contextmanager
def seeded(generators: Sequence[Seedable], numbers: Iterable[int]) -> Iterator[None]:
    """Seeds generators for a block, after which they are as before.

    One thread at a time, if there are any: the draws of two would mix.
    """
    if not generators:
        yield
        return
    with _one_at_a_time:
        before = [one.state() for one in generators]
        try:
            for one, number in zip(generators, numbers, strict=False):
                one.seed(number)
            yield
        finally:
            for one, state in zip(generators, before, strict=True):
                one.restore(state)
