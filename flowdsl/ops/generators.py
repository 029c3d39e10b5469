"""Random generators that a transform refers to: find them, seed them per element, restore them.

Problem: the draws of ``augment`` must depend on the element only, but a transform may draw from a
generator of its own or from a global one. Such a generator continues from element to element, so
its draws depend on the elements that a worker has made before, and two workers that start with
copies of it draw the same numbers. Asking users to pass generators fails for transforms of other
packages. So the generators that a transform refers to are searched for in its attributes, closures
and global names. They are seeded for each element, and restored after it.
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
"""Packages whose functions are not searched: their generators are known, or are arguments."""
_MAX_OBJECTS = 10_000
"""A search ends after this number of objects."""
_MAX_ITEMS = 1000
"""A container of more items contains data, and is not searched."""
_LEADING = 50
"""The first items of a larger container, up to this number, decide whether it contains data."""
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_CODE_TYPES = FunctionType, MethodType, staticmethod, classmethod, property, partial, type
"""Objects that are searched first: draws are in code, and there is less code than data."""
_DRAWS_OF_TENSOR = (
    r"bernoulli|multinomial|\w*(normal|uniform)_|(random|bernoulli|cauchy|exponential|geometric)_"
)
"""Methods of a tensor that draw from the global generator of torch."""
_DRAWS = (
    rf"{_DRAWS_OF_TENSOR}|rand\w*|normal|poisson|binomial|\w*dropout\w*|gumbel_softmax"
    r"|rrelu_?|fractional\w*|\w*attention\w*|\w*lowrank|lobpcg|orthogonal_|sparse_|distributions"
    r"|\w*seed|\w*rng\w*"
)
"""Names in torch that draw from its global generator, or set its state."""
_NO_STATE = frozenset({"cv2", "flowdsl", "jax", "keras", "numpy", "PIL", "tensorflow", "torch"})
"""Packages whose objects are not searched."""


@attrs.frozen(eq=False, repr=False)
class Seedable(ABC):
    """A generator whose state can be set."""

    generator: Any

    @abstractmethod
    def state(self) -> Any:
        """Its state, for ``restore``."""

    @abstractmethod
    def seed(self, number: int) -> None:
        """Set the state from a number below 2**63."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Set the state to one that ``state`` returned."""


class _Python(Seedable):
    """A ``Random`` of Python."""

    def state(self) -> Any:
        return self.generator.getstate()

    def seed(self, number: int) -> None:
        self.generator.seed(number)

    def restore(self, state: Any) -> None:
        self.generator.setstate(state)


class _Legacy(Seedable):
    """A ``RandomState`` of NumPy."""

    def state(self) -> Any:
        return self.generator.get_state()

    def seed(self, number: int) -> None:
        self.generator.seed(number % 2**32)

    def restore(self, state: Any) -> None:
        self.generator.set_state(state)


class _Bits(Seedable):
    """The bit generator of a NumPy ``Generator``."""

    def state(self) -> Any:
        return self.generator.state

    def seed(self, number: int) -> None:
        self.generator.state = type(self.generator)(number).state

    def restore(self, state: Any) -> None:
        self.generator.state = state


class _Torch(Seedable):
    """A ``Generator`` of torch."""

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
    """The global generators of the process: Python's, NumPy's and torch's."""
    import random  # here: it loads OpenSSL, which other flows do not need

    torch = sys.modules.get("torch")
    methods: list[Any] = [random.random, np.random.rand]  # bound methods of the generators
    of_python, of_numpy = (method.__self__ for method in methods)
    found: list[Seedable] = [_Python(of_python), _Legacy(of_numpy)]
    return found if torch is None else [*found, _Torch(torch.default_generator)]


def generators_in(root: object, but: Iterable[object] = ()) -> list[Seedable]:
    """The generators that an object refers to, except ``but``, each once and in a fixed order.

    The search follows closures, defaults, attributes, containers (except containers of data), and
    the global names that functions and methods use, recursively. A global generator is included if
    a draw from it is found or cannot be ruled out. The search does not call ``__getattr__``. It
    ends after 10,000 objects, code before data; then the global generators are included.

    >>> rng = np.random.default_rng(7)
    >>> some = {"own": rng, "again": [rng], "legacy": np.random.RandomState(7)}
    >>> [type(found.generator).__name__ for found in generators_in(some)]
    ['PCG64', 'RandomState']
    """
    found: dict[int, Seedable] = {}
    left_out = {id(x) for x in but}
    seen: dict[int, object] = {}
    to_do = deque([root])
    while to_do and len(seen) < _MAX_OBJECTS:
        x = to_do.popleft()
        if type(x) in PLAIN or id(x) in seen:
            continue
        seen[id(x)] = x
        seedable = _seedable(x)
        if seedable is None:
            for part in _parts(x):
                (to_do.appendleft if _is(part, _CODE_TYPES) else to_do.append)(part)
        elif not {id(x), id(seedable.generator)} & left_out:
            found.setdefault(id(seedable.generator), seedable)
    # If the search has not ended, any of the global generators may be used.
    for shared in global_generators() if to_do else _drawn_by_name(seen.values()):
        if id(shared.generator) not in left_out:
            found.setdefault(id(shared.generator), shared)
    return list(found.values())


def _is(x: object, kinds: type | tuple[type, ...]) -> bool:
    """Like ``isinstance``, but does not read ``__class__``, which may run a user's code."""
    return issubclass(type(x), kinds)


def _package(x: Any) -> str:
    return str(getattr(x, "__module__", None)).partition(".")[0]


def _parts(x: Any) -> Iterator[object]:
    """The objects that an object refers to."""
    if _is(x, FunctionType):
        yield from _parts_of_function(x)
    elif _is(x, type):
        yield from (*vars(x).values(), *x.__bases__) if _package(x) not in _NO_CODE else ()
    elif _is(x, ModuleType):
        yield from _global_generator(x.__name__)
    else:
        yield from _contents(x)
        yield from _attributes(x)


def _contents(x: Any) -> Iterable[object]:
    """The items of a container, or the objects in a method or a partial function."""
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
        owner = x.__self__
        is_method = owner is not None and not _is(owner, (ModuleType, type))
        return (owner,) if is_method else _drawn_from_torch(x)
    return ()


def _drawn_from_torch(function: Any) -> Iterator[object]:
    """The global generator of torch, if a function of torch draws from it."""
    # Some functions in C, such as ``torch.Tensor.normal_``, have no module, but an owner that has.
    home = function.__module__ or function.__self__
    package = home if isinstance(home, str) else getattr(home, "__module__", None)
    if str(package).partition(".")[0] == "torch" and re.fullmatch(_DRAWS, function.__name__):
        yield from _global_generator("torch.random")


def _unless_data(items: Iterable[object], n: int) -> Iterable[object]:
    """The items of a container; empty if there are too many, or if the first ones are plain."""
    if n > _MAX_ITEMS:
        return ()
    listed = list(items)
    return () if n > _LEADING and all(map(_is_data, listed[:_LEADING])) else listed


def _is_data(x: object) -> bool:
    """Return True for a plain value or an array, and for a tuple or list of these."""
    kind = type(x)
    if kind in (tuple, list):
        return all(map(_is_data_alone, cast("list[object]", x)[:_LEADING]))
    return _is_data_alone(x)


def _is_data_alone(x: object) -> bool:
    return type(x) in PLAIN or type(x) is np.ndarray


def _attributes(x: Any) -> Iterator[object]:
    """The attributes of an object, without its properties, and its class."""
    if _package(type(x)) in _NO_STATE:
        return
    with suppress(Exception):  # a property of this name may raise anything
        attributes = object.__getattribute__(x, "__dict__")
        yield from dict.values(attributes) if _is(attributes, dict) else ()
    for cls in type(x).__mro__:
        for slot in vars(cls).values():
            if _is(slot, MemberDescriptorType):
                with suppress(AttributeError):  # the slot is not set yet
                    yield slot.__get__(x)
    yield type(x)


def _parts_of_function(function: FunctionType) -> Iterator[object]:
    if _package(function) in _NO_CODE:
        yield from _drawn_from_torch(function)
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the variable is not set yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()
    for code in _codes(function.__code__):
        yield from _named_in(code, function.__globals__)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _named_in(code: CodeType, names: Mapping[str, object]) -> Iterator[object]:
    """The objects that code names: globals, and attributes of modules, such as ``np.random.rand``.

    A module is yielded if it is used in another way, such as passed as an argument. So each object
    is yielded one instruction later: if that reads an attribute of a module, the attribute is the
    object that is named.
    """
    value: object = None  # what the last instruction has loaded, or None if that is not known
    imported: object = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _WITHOUT_EFFECT:
            continue
        if instruction.opname == "IMPORT_FROM":
            value = imported
        if instruction.opname in _READS_ATTRIBUTE and _is(value, ModuleType):
            module, name = cast("ModuleType", value), instruction.argval
            yield from _torch_generator_of(module.__name__, name)
            submodule = sys.modules.get(f"{module.__name__}.{name}")
            value = vars(module).get(name, submodule)
            continue
        yield value
        is_global = instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        value = names.get(instruction.argval) if is_global else None
        if instruction.opname == "IMPORT_NAME":
            value = imported = sys.modules.get(instruction.argval)


_WITHOUT_EFFECT = "CACHE", "EXTENDED_ARG", "PUSH_NULL"
_READS_ATTRIBUTE = "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"


def _torch_generator_of(module: str, name: str) -> Iterator[object]:
    """The global generator of torch, if this attribute of a module of torch draws from it."""
    if module.partition(".")[0] == "torch" and _draws_in_torch(name):
        yield from _global_generator("torch.random")


def _draws_in_torch(name: str) -> bool:
    """Return True for the name of a function that draws, or a layer, whose weights are drawn."""
    layer = name[:1].isupper() and hasattr(sys.modules.get("torch.nn"), name)
    return layer or re.fullmatch(_DRAWS, name) is not None


def _global_generator(module: str) -> Iterator[object]:
    """The global generator that the functions of a module draw from, if it has one."""
    kinds = {"random": _Python, "numpy.random": _Legacy, "torch.random": _Torch}
    if module in kinds:
        shared = global_generators()
        yield from (each.generator for each in shared if type(each) is kinds[module])


def _drawn_by_name(seen: Iterable[object]) -> list[Seedable]:
    """The global generators that may be used in ways that the search cannot follow.

    If a function stores, passes on or imports a module, or draws with a method of a tensor, the
    search sees only the attribute's name. So a module that was seen is assumed to be drawn from if
    any function reads an attribute with the name of a drawing function.
    """
    modules: set[str] = set()
    names: set[str] = set()
    for x in seen:
        if _is(x, ModuleType):
            modules.add(cast("ModuleType", x).__name__.partition(".")[0])
        elif _is(x, FunctionType) and _package(x) not in _NO_CODE:
            for code in _codes(cast("FunctionType", x).__code__):
                for instruction in dis.get_instructions(code):
                    if instruction.opname in _READS_ATTRIBUTE:
                        names.add(instruction.argval)
    draws = _draws_in_torch if "torch" in modules else partial(re.fullmatch, _DRAWS_OF_TENSOR)
    drawn = {  # without the generator of ``random``: who names that module draws from it
        _Legacy: "numpy" in modules and "random" in names,
        _Torch: any(map(draws, names)),
    }
    return [each for each in global_generators() if drawn.get(type(each))]


@contextmanager
def seeded(generators: Sequence[Seedable], numbers: Iterable[int]) -> Iterator[None]:
    """Seed generators for a block, and restore their states after it.

    If there are generators, only one thread at a time may run such a block: the draws of two
    threads would mix.
    """
    if not generators:
        yield
        return
    with _one_at_a_time:
        before = [each.state() for each in generators]
        try:
            for each, number in zip(generators, numbers, strict=False):
                each.seed(number)
            yield
        finally:
            for each, state in zip(generators, before, strict=True):
                each.restore(state)
