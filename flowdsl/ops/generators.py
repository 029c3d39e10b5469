"""Random generators that a transform refers to: found, seeded for one element, and put back.

A generator of its own goes on from element to element, so its draws depend on which elements a
worker has made before, and two workers that begin with copies of it repeat each other. Seeded for
each element, it draws what belongs to the element.
"""

from __future__ import annotations

import dis
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, cast

import attrs
import numpy as np

from flowdsl.elements.structure import PLAIN

_one_at_a_time = threading.RLock()

_NO_CODE = frozenset(
    {"albucore", "albumentations", "cv2", "flowdsl", "jax", "keras", "numpy", "PIL", "scipy"}
    | {"skimage", "tensorflow", "torch", "torchvision"}
    | sys.stdlib_module_names
)
"""Packages whose functions are not searched: what they draw from is known, or given to them."""
_MOST_OBJECTS = 10_000
"""In a search."""
_MOST_ITEMS = 1000
"""In a container; one with more holds data."""
_LEADING = 50
"""Items of a container that decide whether it holds data."""
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_CODE = FunctionType, MethodType, staticmethod, classmethod, property, partial, type
"""Searched first: draws are in code, and there is less of it than of data."""
_DRAWS_OF_TENSOR = re.compile(
    r"bernoulli|multinomial|\w*(normal|uniform)_|(random|bernoulli|cauchy|exponential|geometric)_"
)
"""Methods of a tensor that draw from the global generator of torch."""
_DRAWS = re.compile(
    rf"{_DRAWS_OF_TENSOR.pattern}|rand\w*|normal|poisson|binomial|\w*dropout\w*|gumbel_softmax"
    r"|rrelu_?|fractional\w*|\w*attention\w*|\w*lowrank|lobpcg|orthogonal_|sparse_|distributions"
    r"|\w*seed|\w*rng\w*"
)
"""Names in torch that draw from its global generator, or set its state."""
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


def _seedable(x: Any) -> Seedable | None:
    if _is(x, np.random.Generator):
        return _Bits(x.bit_generator)
    if _is(x, np.random.BitGenerator):
        return _Bits(x)
    if _is(x, np.random.RandomState):
        return _Legacy(x)
    python = sys.modules.get("random")
    if python is not None and _is(x, python.Random):
        return _Python(x)
    torch = sys.modules.get("torch")
    return _Torch(x) if torch is not None and _is(x, torch.Generator) else None


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

    They are looked for in closures, defaults, attributes, containers (but those of data), and the
    global names that functions and methods use, and so on from there; a global generator is one of
    them, where a draw from it is found or cannot be ruled out. The search calls no ``__getattr__``.
    It ends after 10,000 objects, code before data; then the global generators count as found.

    >>> rng = np.random.default_rng(7)
    >>> some = {"own": rng, "again": [rng], "legacy": np.random.RandomState(7)}
    >>> [type(found.generator).__name__ for found in generators_in(some)]
    ['PCG64', 'RandomState']
    """
    found: dict[int, Seedable] = {}
    left_out = {id(x) for x in but}
    seen: dict[int, object] = {}
    to_do = deque([root])
    while to_do and len(seen) < _MOST_OBJECTS:
        x = to_do.popleft()
        if type(x) in PLAIN or id(x) in seen:
            continue
        seen[id(x)] = x
        one = _seedable(x)
        if one is None:
            for part in _parts(x):
                (to_do.appendleft if _is(part, _CODE) else to_do.append)(part)
        elif not {id(x), id(one.generator)} & left_out:
            found.setdefault(id(one.generator), one)
    for one in global_generators() if to_do else _drawn_by_name(seen.values()):
        if id(one.generator) not in left_out:
            found.setdefault(id(one.generator), one)
    return list(found.values())


def _is(x: object, kinds: type | tuple[type, ...]) -> bool:
    """As ``isinstance``, which also asks for ``__class__``, and so may run a user's code."""
    return issubclass(type(x), kinds)


def _package(x: Any) -> str:
    return str(getattr(x, "__module__", None)).partition(".")[0]


def _parts(x: Any) -> Iterator[object]:
    """What an object refers to."""
    if _is(x, FunctionType):
        yield from _parts_of_function(x)
    elif _is(x, type):
        yield from (*vars(x).values(), *x.__bases__) if _package(x) not in _NO_CODE else ()
    elif _is(x, ModuleType):
        yield from _everyones(x.__name__)
    else:
        yield from _held(x)
        yield from _attributes(x)


def _held(x: Any) -> Iterable[object]:
    """What is in a container, or behind a method or a function with arguments."""
    if _is(x, dict):
        return _unless_data(dict.values(x), dict.__len__(x))
    for kind in _CONTAINERS:
        if _is(x, kind):
            return _unless_data(kind.__iter__(x), kind.__len__(x))
    if _is(x, partial):
        return x.func, x.args, x.keywords
    if _is(x, property):
        return (x.fget,)
    if _is(x, MethodType):
        return x.__self__, x.__func__
    if _is(x, (staticmethod, classmethod)):
        return (x.__func__,)
    if _is(x, (BuiltinFunctionType, MethodWrapperType)):  # such as np.random.rand
        own = x.__self__
        return _drawn_from_torch(x) if own is None or _is(own, (ModuleType, type)) else (own,)
    return ()


def _drawn_from_torch(function: Any) -> Iterator[object]:
    home = function.__module__ or function.__self__
    package = home if isinstance(home, str) else getattr(home, "__module__", None)
    if str(package).partition(".")[0] == "torch" and _DRAWS.fullmatch(function.__name__):
        yield from _everyones("torch.random")


def _unless_data(items: Iterable[object], n: int) -> Iterable[object]:
    """The items of a container, or none if there are too many, or the first ones are plain."""
    if n > _MOST_ITEMS:
        return ()
    kept = list(items)
    return () if all(map(_is_data, kept[:_LEADING])) and n > _LEADING else kept


def _is_data(x: object) -> bool:
    kind = type(x)
    if kind in (tuple, list):
        return all(map(_is_data_alone, cast("list[object]", x)[:_LEADING]))
    return _is_data_alone(x)


def _is_data_alone(x: object) -> bool:
    return type(x) in PLAIN or type(x) is np.ndarray


def _attributes(x: Any) -> Iterator[object]:
    if _package(type(x)) in _NO_STATE:
        return
    with suppress(Exception):  # a property of this name may raise anything
        attributes = object.__getattribute__(x, "__dict__")
        yield from dict.values(attributes) if _is(attributes, dict) else ()
    for cls in type(x).__mro__:
        for slot in vars(cls).values():
            if _is(slot, MemberDescriptorType):
                with suppress(AttributeError):  # nothing is in it yet
                    yield slot.__get__(x)
    yield type(x)


def _parts_of_function(function: FunctionType) -> Iterator[object]:
    if _package(function) in _NO_CODE:
        yield from _drawn_from_torch(function)
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
    """What code names: globals, and what it takes out of modules, such as ``np.random.rand``.

    A module is given if it is used in another way, such as passed on.
    """
    value: object = None
    imported: object = None
    for step in dis.get_instructions(code):
        if step.opname in _BETWEEN:
            continue
        if step.opname == "IMPORT_FROM":
            value = imported
        if step.opname in _TAKES and _is(value, ModuleType):
            module = cast("ModuleType", value)
            yield from _taken_draws(module.__name__, step.argval)
            within = sys.modules.get(f"{module.__name__}.{step.argval}")
            value = vars(module).get(step.argval, within)
            continue
        yield value
        value = names.get(step.argval) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else None
        if step.opname == "IMPORT_NAME":
            value = imported = sys.modules.get(step.argval)


_BETWEEN = "CACHE", "EXTENDED_ARG", "PUSH_NULL"
_TAKES = "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"


def _taken_draws(module: str, name: str) -> Iterator[object]:
    """The generator of torch, if what is taken from a module of its draws from it."""
    if module.partition(".")[0] == "torch" and _draws_in_torch(name):
        yield from _everyones("torch.random")


def _draws_in_torch(name: str) -> bool:
    """Whether a function has such a name, or a layer, whose weights are drawn as it is made."""
    layer = name[:1].isupper() and hasattr(sys.modules.get("torch.nn"), name)
    return layer or _DRAWS.fullmatch(name) is not None


def _everyones(module: str) -> Iterator[object]:
    """The global generator that the functions of a module draw from, if it has one."""
    kinds = {"random": _Python, "numpy.random": _Legacy, "torch.random": _Torch}
    if module in kinds:
        yield from (one.generator for one in global_generators() if type(one) is kinds[module])


def _drawn_by_name(seen: Iterable[object]) -> list[Seedable]:
    """The global generators that may be drawn from where a module or a tensor is not followed.

    A module that is held, passed on or imported in a function has a draw taken from it if any
    function that was searched takes an attribute with the name of one.
    """
    modules: set[str] = set()
    names: set[str] = set()
    for x in seen:
        if _is(x, ModuleType):
            modules.add(cast("ModuleType", x).__name__.partition(".")[0])
        elif _is(x, FunctionType) and _package(x) not in _NO_CODE:
            for code in _codes(cast("FunctionType", x).__code__):
                steps = dis.get_instructions(code)
                names.update(step.argval for step in steps if step.opname in _TAKES)
    draws = _draws_in_torch if "torch" in modules else _DRAWS_OF_TENSOR.fullmatch
    drawn = {
        _Legacy: "numpy" in modules and "random" in names,
        _Torch: any(map(draws, names)),
    }
    return [one for one in global_generators() if drawn.get(type(one))]


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
