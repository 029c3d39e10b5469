"""A function that changes its argument changes no element but its own, wherever it runs."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.elements.structure import arguments_of
from flowdsl.plan.reference import interpret

Chain = Callable[[Any], Any]


class Named(NamedTuple):
    a: Any


@attrs.define
class Open:
    a: Any


@dataclass(frozen=True)
class Sealed:
    a: Any


class Packed(msgspec.Struct):
    a: Any


class Words(list[Any]):
    """A list of another class."""


def _structured(n: int) -> Any:
    return np.zeros(n, [("f", np.int32), ("g", np.float32)])


def _objects() -> Any:
    made = np.empty(2, object)
    made[:] = [[1], None]
    return made


FORMS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.zeros(2),
    "large array": lambda: np.zeros(2000),
    "array without axes": lambda: np.array(1.0),
    "every other column": lambda: np.zeros((4, 4))[:, ::2],
    "every other column of many": lambda: np.zeros((4000, 4))[:, ::2],
    "transposed": lambda: np.zeros((2, 3)).T,
    "dates": lambda: np.array(["2020-01-01"], "datetime64[D]"),
    "text": lambda: np.array(["a"]),
    "objects": _objects,
    "structured": lambda: _structured(2),
    "row of a structured array": lambda: _structured(2)[0],
    "masked": lambda: np.ma.masked_array([1, 2], [False, True]),
    "list": lambda: [1, 2],
    "lists": lambda: [[1], [2]],
    "list that ends otherwise": lambda: [None] * 10 + [[1], np.zeros(2)],
    "tuple": lambda: (np.zeros(2), [1]),
    "dict": lambda: {"a": [np.zeros(2)], "b": {1}},
    "OrderedDict": lambda: OrderedDict(a=[1]),
    "defaultdict": lambda: defaultdict(list, a=[1]),
    "Counter": lambda: Counter("ab"),
    "deque": lambda: deque([[1]], 5),
    "subclass of list": lambda: Words([[1]]),
    "set": lambda: {1},
    "bytearray": lambda: bytearray(b"ab"),
    "typed array": lambda: array("i", [1]),
    "buffer": lambda: BytesIO(b"ab"),
    "generator of random numbers": lambda: Random(1),
    "generator of NumPy": lambda: np.random.default_rng(1),
    "NamedTuple": lambda: Named([1]),
    "attrs record": lambda: Open(np.zeros(2)),
    "frozen dataclass": lambda: Sealed([1]),
    "Struct": lambda: Packed([1]),
}


def change(x: Any) -> None:
    """Write into a value, and into all that it consists of."""
    match x:
        case np.ndarray() | np.void() if x.dtype.names:
            x[x.dtype.names[0]] += 1
        case np.ndarray() if x.dtype.hasobject:
            for part in x.flat:
                change(part)
            x[:] = None
        case np.ndarray():
            x.reshape(-1)[:] = x.reshape(-1)[::-1] if x.dtype.kind in "MU" else x.reshape(-1) + 1
            x[...] = x
        case set() | Counter():
            x.update([len(x)])
        case bytearray() | array():
            x.append(1)
        case BytesIO():
            x.write(b"z")
        case Random() | np.random.Generator():
            x.random()
        case list() | deque() | tuple():
            for part in x:
                change(part)
            if not isinstance(x, tuple):
                x.append(1)
        case dict():
            for part in x.values():
                change(part)
            x[len(x)] = 1
        case _:
            for name in arguments_of(type(x)) or ():
                change(getattr(x, name))


def shown(x: Any) -> str:
    """Everything that ``change`` may have changed, as text."""
    match x:
        case BytesIO():
            return repr(x.getvalue())
        case Random() | np.random.Generator():
            return repr(x.random())
        case list() | deque() | tuple():
            return f"{type(x).__name__}{list(map(shown, x))}"
        case dict():
            return f"{type(x).__name__}{ {name: shown(part) for name, part in x.items()} }"
        case _:
            names = arguments_of(type(x)) or ()
            return f"{x!r}{[shown(getattr(x, name)) for name in names]}"


def changed(x: Any) -> str:
    """What a change made of an element, or the error that it met."""
    try:
        change(x)
    except ValueError as error:
        return f"{error}: {shown(x)}"
    return shown(x)


def all_forms() -> list[Any]:
    return [make() for make in FORMS.values()]


def numbered(i: int) -> Any:
    return all_forms()[i]


def streamed() -> Iterator[Any]:
    yield from all_forms()


SOURCES: dict[str, Callable[[], Any]] = {
    "items": lambda: fl.from_items(all_forms()),
    "results of a function": lambda: fl.from_range(len(FORMS)).map(numbered),
    "a stream": lambda: fl.from_iterable(streamed),
    "a collection": lambda: fl.from_iterable(all_forms()),
}
CHAINS: dict[str, Chain] = {
    "alone": lambda flow: flow,
    "repeat_each": lambda flow: flow.repeat_each(3),
    "window": lambda flow: flow.window(2),
    "filled windows": lambda flow: flow.window(2, 2, remainder="fill").map(fl.c0),
    "windows by key": lambda flow: flow.window(2, key=type),
    "concat": lambda flow: flow.concat(flow),
    "interleave": lambda flow: flow.interleave(flow),
    "zip": lambda flow: flow.enumerate().zip(flow.enumerate()),
    "cache": lambda flow: flow.cache(),
    "repeat": lambda flow: flow.repeat(2),
    "shuffle": lambda flow: flow.shuffle(buffer=4),
    "fixed_size": lambda flow: flow.take(1).fixed_size(3),
}
PLACES: dict[str, Chain] = {
    "in the consumer": lambda flow: flow.map(changed),
    "in a thread": lambda flow: flow.map(changed).prefetch(threads=1),
    "in a worker": lambda flow: flow.map(changed).prefetch(procs=1),
    "above a worker": lambda flow: flow.prefetch(procs=1).map(changed),
}


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("source", SOURCES)
def test_a_function_that_changes_its_argument_changes_no_other_element(
    source: str, chain: str
) -> None:
    expected = list(interpret(CHAINS[chain](SOURCES[source]()).map(changed).node))
    for place, put in PLACES.items():
        flow = put(CHAINS[chain](SOURCES[source]()))
        for _ in range(2):
            assert flow.collect() == expected, place


def test_the_items_of_a_source_are_never_changed() -> None:
    mine = all_forms()
    fl.from_items(mine).map(changed).collect()
    assert list(map(shown, mine)) == list(map(shown, all_forms()))


def write(x: Any) -> None:
    x[...] = 7


@pytest.mark.usefixtures("mortals")
@pytest.mark.parametrize("workers", [{"procs": 0}, {"threads": 1}, {"procs": 1}], ids=str)
def test_the_error_of_a_write_to_a_shared_array_says_to_copy_it(workers: Any) -> None:
    flow = fl.from_items([np.zeros(2)]).map(write).prefetch(**workers)
    with pytest.raises(fl.ElementError, match=r"map\(write\) failed on element 0 .*copy it first"):
        flow.collect()


@pytest.mark.parametrize(
    ("error", "advises"),
    [
        (ValueError("sort array is read-only"), True),
        (TypeError("cannot modify read-only memory"), True),
        (OSError(30, "Read-only file system"), False),
        (AttributeError("readonly attribute"), False),
        (ValueError("a date is read only once"), False),
    ],
    ids=str,
)
def test_only_an_error_of_a_write_to_memory_is_said_to_need_a_copy(
    error: Exception, advises: bool
) -> None:
    def fails(_: int) -> None:
        raise error

    with pytest.raises(fl.ElementError) as caught:
        fl.from_range(1).map(fails).collect()
    assert ("copy it first" in str(caught.value)) == advises
