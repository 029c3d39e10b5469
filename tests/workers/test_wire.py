"""The wire format: classes, dtypes, shapes and writability are preserved."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl import NotShippable
from flowdsl.effects import Effect
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.executor.program import Program
from flowdsl.nodes import Elementwise, Indices
from flowdsl.resources.worker_kinds import PROCESSES
from flowdsl.testing.elements import FORMS, make, same
from flowdsl.workers.slabs import WORTH_SHARING
from flowdsl.workers.wire import (
    classes_of_main,
    frames_of_rows,
    load,
    pack,
    pack_into,
    ship,
    unpack,
)
from tests.workers.test_slabs import Pair

BIG = WORTH_SHARING  # elements: of any dtype, so many are worth it


def by_message(elements: list[Any]) -> Any:
    """Send values as a task input does."""
    data, *beside = frames_of_rows([elements])
    (received,) = unpack(bytes(data), [bytearray(content) for content in beside])
    return received


def by_slab(elements: list[Any]) -> Any:
    """Send values as a result does."""
    pair = Pair()
    pair.slabs.begin()
    data, places = pack_into(pair.slabs, elements, frozenset())
    return unpack(data, pair.window.buffers(places))


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


ways = pytest.mark.parametrize("way", [by_message, by_slab])
ARRAYS: dict[str, Any] = {
    "small": np.arange(6.0).reshape(2, 3),
    "empty": np.zeros((0, 3), np.int8),
    "scalar": np.array(3.0),
    "big": np.arange(BIG, dtype=np.int16),
    "big with axes": np.arange(BIG * 2.0).reshape(4, 2, -1),
    "bool": np.arange(BIG) % 3 == 0,
    "complex": np.arange(BIG) * 1j,
    "times": np.arange(BIG).astype("datetime64[s]"),
    "big-endian": np.arange(BIG, dtype=">i4"),
    "text": np.array(["a", "bcd"] * BIG),
    "structured": np.zeros(BIG, [("a", np.int8), ("b", np.float32, (2,))]),
    "objects": np.array(["a", 1, None], object),
    "every other": np.arange(BIG * 4)[::2],
    "backwards": np.arange(BIG)[::-1],
    "transposed": np.arange(BIG * 2.0).reshape(2, -1).T,
    "cut out": np.arange(BIG * 4).reshape(4, -1)[1:3, 5:-5],
    "fortran": np.asfortranarray(np.arange(BIG * 2.0).reshape(2, -1)),
    "read-only": _read_only(np.arange(BIG)),
    "small read-only": _read_only(np.arange(3)),
}


@ways
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_restored(way: Callable[[list[Any]], Any], name: str) -> None:
    array = ARRAYS[name]
    (got,) = way([array])
    assert same(got, array)
    assert got.flags.writeable == array.flags.writeable


@ways
@pytest.mark.parametrize("form", FORMS)
def test_elements_are_restored(way: Callable[[list[Any]], Any], form: str) -> None:
    elements = [make(form, i) for i in range(5)]
    assert same(way(elements), elements)


@ways
def test_other_values_are_restored(way: Callable[[list[Any]], Any]) -> None:
    values = [None, "text", b"bytes", 2**80, {"a": [1, (2,)]}, frozenset({3}), slice(1, 2)]
    assert way(values) == values
    assert way([]) == []


@ways
def test_repeated_arrays_are_sent_once(way: Callable[[list[Any]], Any]) -> None:
    array = np.arange(BIG)
    a, b = way([array, array])
    assert a is b


@ways
def test_local_functions_and_classes_are_restored(way: Callable[[list[Any]], Any]) -> None:
    offset = 3

    class Local(NamedTuple):
        a: int
        b: Any

    add, local = way([lambda x: x + offset, Local(1, np.arange(BIG))])
    assert add(4) == 7
    assert type(local) is Local
    assert np.array_equal(local.b, np.arange(BIG))


class TestOutOfBand:
    def test_large_arrays_are_sent_out_of_band(self) -> None:
        small, big = np.zeros(WORTH_SHARING - 1, np.uint8), np.zeros(WORTH_SHARING, np.uint8)
        data, beside = pack([small, big])
        assert [content.nbytes for content in beside] == [WORTH_SHARING]
        assert len(data) < WORTH_SHARING + 300

    def test_arrays_in_a_slab_are_not_copied(self) -> None:
        pair = Pair()
        pair.slabs.begin()
        batch = pair.slabs.allocate((BIG,), np.dtype(np.float64))
        data, places = pack_into(pair.slabs, [(batch, 1)], frozenset())
        batch[:] = 7.0
        ((seen, _),) = unpack(data, pair.window.buffers(places))
        assert (seen == 7.0).all()
        assert seen.ctypes.data % 64 == 0

    def test_a_retried_pickle_sends_arrays_once(self) -> None:
        _, beside = pack([np.zeros(BIG), lambda: 0])
        assert len(beside) == 1


NAMES = frozenset({"OfTheScript"})


class TestClassesOfAScript:
    """A worker receives them by value, and returns elements by class name."""

    @pytest.fixture
    def script_class(self, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
        made = attrs.make_class("OfTheScript", ["x"], frozen=True)
        made.__module__ = "__main__"
        monkeypatch.setattr(sys.modules["__main__"], "OfTheScript", None, raising=False)
        monkeypatch.delattr(sys.modules["__main__"], "OfTheScript")
        return made

    @pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (1, {"a": x})], ids=["it", "inside"])
    def test_are_pickled_by_name(self, script_class: type[Any], wrap: Callable[[Any], Any]) -> None:
        data, _ = pack_into(Pair().slabs, [wrap(script_class(3))], NAMES)
        assert b"cloudpickle" not in data
        try:
            assert vars(sys.modules["__main__"])["OfTheScript"] is script_class
            assert unpack(data) == [wrap(script_class(3))]
        finally:
            del vars(sys.modules["__main__"])["OfTheScript"]

    def test_do_not_replace_existing_names(
        self, script_class: type[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys.modules["__main__"], "OfTheScript", 7, raising=False)
        data, _ = pack_into(Pair().slabs, [script_class(3)], NAMES)
        assert vars(sys.modules["__main__"])["OfTheScript"] == 7
        assert type(unpack(data)[0]) is script_class


@attrs.frozen(eq=False)
class WithTable(Elementwise[Any, Any, Effect]):
    table: np.ndarray[Any, Any]

    @property
    def title(self) -> str:
        return "look_up"

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        return self.table[x]

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN


class TestShip:
    def test_closures_are_restored(self) -> None:
        offset = 10

        def add(i: int) -> int:
            return i + offset

        node = fl.from_range(5).map(add).filter(lambda i: i != 12).node
        got = Program(load(ship(node, PROCESSES).content)).rows(Indices.span(0, 0, 5))
        assert [x for _, x in got] == [10, 11, 13, 14]

    def test_errors_name_the_operator_and_the_argument(self) -> None:
        lock = threading.Lock()

        def locked(i: int) -> int:
            with lock:
                return i

        node = fl.from_range(5).map(str).map(int).map(locked).batch(2).node
        with pytest.raises(NotShippable) as caught:
            ship(node, PROCESSES)
        assert str(caught.value) == (
            "map(locked): func cannot be sent to a worker process: cannot pickle '_thread.lock' "
            "object; make what it needs inside the function, or run without prefetch(procs=...)"
        )
        assert isinstance(caught.value.__cause__, TypeError)

    def test_open_files_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "words.txt"
        path.write_text("a\nb\n")
        with path.open() as words, pytest.raises(NotShippable) as caught:
            ship(fl.from_range(2).map(lambda _: words.readline()).node, PROCESSES)
        assert str(caught.value).startswith(
            f"map(<lambda>): func cannot be sent to a worker process: cannot pickle the open file "
            f"'{path}'; make what it needs inside the function"
        )

    def test_errors_name_the_argument_beside_an_array(self) -> None:
        table, lock = np.arange(3), threading.Lock()
        node = WithTable(fl.from_range(3).map(lambda i: lock).node, table)
        with pytest.raises(NotShippable, match=r"map\(.*func cannot be sent"):
            ship(node, PROCESSES)
        locked = WithTable(fl.from_range(3).node, np.array([lock]))
        with pytest.raises(NotShippable, match="look_up: table cannot be sent"):
            ship(locked, PROCESSES)


def test_proxies_among_the_globals_of_a_script_are_not_asked_for_their_class() -> None:
    def fail(proxy: object) -> type:
        raise RuntimeError("working outside of a request")

    proxy = type("LocalProxy", (), {"__class__": property(fail)})()  # as werkzeug has them
    with mock.patch.object(sys.modules["__main__"], "current", proxy, create=True):
        assert "current" not in classes_of_main()
