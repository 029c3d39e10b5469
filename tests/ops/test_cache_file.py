"""cache(path): a pass in a file, for this and other programs."""

from __future__ import annotations

import copy
import functools
import operator
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import flowdsl as fl
from flowdsl import ElementError, Flow, InvalidFlow, SpecMismatch
from flowdsl.ops.caching import CacheRows, CacheStream
from flowdsl.storage.chain_digest import chain_digest
from flowdsl.testing import check_flow, check_source

OFFSET = 10


class Row(NamedTuple):
    number: int
    values: NDArray[np.float32]


class Reader:
    """A function that records the elements it was called with."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, i: int) -> Row:
        self.seen.append(i)
        return Row(i, np.full(3, i, np.float32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.lmdb"


def test_a_cache_in_a_file_is_a_source_that_keeps_the_laws(path: Path) -> None:
    rows = list(range(12))
    check_source(lambda: fl.from_items(rows).cache(path), rows, examples=8)


def halved(x: Any) -> Any:
    return x / 2


@attrs.frozen
class Halved:
    x: float = attrs.field(converter=halved)


def test_the_constructor_of_a_record_changes_no_stored_element(path: Path) -> None:
    flow = fl.from_range(3).map(lambda i: Halved(float(i))).cache(path)
    assert flow.collect() == flow.collect() == [*map(Halved, (0.0, 1.0, 2.0))]


@attrs.frozen
class Sentence:
    words: NDArray[np.int64]
    label: str | None = None


def words(i: int) -> NDArray[np.int64]:
    return np.arange(i)


VARYING: dict[str, Callable[[int], object]] = {
    "lengths": words,
    "dtypes": lambda i: np.float32(i) if i else np.float64(i),
    "types": lambda i: i or "none",
    "missing": lambda i: i or None,
    "lists": lambda i: [i] * i,
    "keys": lambda i: {"a": i} if i else {"b": words(i)},
    "order of keys": lambda i: {"a": i, "b": 2} if i else {"b": 2, "a": i},
    "named tuple": lambda i: Row(i, np.zeros(i, np.float32)),
    "record": lambda i: Sentence(words(i), "x" * i if i else None),
    "record or none": lambda i: Sentence(words(i)) if i != 2 else None,
    "records in a list": lambda i: (i, [Sentence(words(k)) for k in range(1, i + 2)]),
    "mixed list": lambda i: [1, "a", None, {"x": i}, (i, [words(i), None])],
    "record or none in a list": lambda i: [Sentence(words(i))] * (i + 1) + [None] * (i == 2),
    "record in a dict": lambda i: {"s": Sentence(words(i)), "more": i or None},
}


def described(x: object) -> object:
    """A value that is equal for elements of equal classes, dtypes, shapes and values."""
    if isinstance(x, np.ndarray | np.generic):
        return type(x), str(x.dtype), x.shape, x.tolist()
    if isinstance(x, Sentence):
        return Sentence, described((x.words, x.label))
    if isinstance(x, dict):
        return [(key, described(value)) for key, value in x.items()]
    if isinstance(x, tuple | list):
        return type(x), [described(part) for part in x]
    return type(x), x


@pytest.mark.parametrize("name", VARYING)
@pytest.mark.parametrize("filtered", [False, True])
def test_rows_may_differ_from_the_first_one(name: str, filtered: bool, path: Path) -> None:
    flow = fl.from_range(4).map(VARYING[name])
    expected = [described(x) for x in flow]
    cached = flow.filter(lambda x: True).cache(path) if filtered else flow.cache(path)
    for _ in range(2):
        assert [described(x) for x in cached] == expected
    assert [described(x) for x in cached.prefetch(procs=1)] == expected


def row_or(other: object, i: int) -> object:
    return Row(i, np.zeros(i, np.float32)) if i != 2 else other


def rows_once() -> Flow[Row, Any]:
    return fl.from_iterable(Row(i, np.zeros(i, np.float32)) for i in range(3))


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (
            fl.from_range(4).map(functools.partial(row_or, 5)),
            r"row 2: the element is int, .* Row\(",
        ),
        (fl.from_range(4).map(functools.partial(row_or, (1, 2))), r"row 2: the element is \(int"),
        (
            fl.from_range(4).map(lambda i: Sentence(words(i)) if i else None),
            r"row 1: .* is Sentence\(",
        ),
        (
            fl.from_range(4).map(lambda i: {"a": Sentence(words(i)) if i else 0}),
            r"row 1: .* is {a: Sentence",
        ),
        (fl.from_range(4).map(lambda i: [Sentence(words(i)), 1]), "row 0: .* is list"),
        (
            fl.from_range(4).map(lambda i: [Sentence(words(i)), Row(1, np.zeros(1, np.float32))]),
            "row 0: ",
        ),
        (fl.from_range(4).map(lambda i: Sentence(words(i)) if i else [1]), "row 1: .* is Sentence"),
        (fl.from_range(4).map(lambda i: [1] if i else Sentence(words(i))), "row 1: .* is list"),
        (fl.from_range(4).map(lambda i: {"l": [[1, Sentence(words(i))], [i]]}), "row 0: "),
        (rows_once(), "row 0: .* spec is unknown before a run; .* annotate the function"),
    ],
)
def test_a_class_that_a_reader_could_not_restore_is_refused(
    flow: Flow[object, fl.Finite], message: str, path: Path
) -> None:
    with pytest.raises(SpecMismatch, match=message):
        flow.cache(path).collect()
    assert os.listdir(path.parent) == []


def test_an_annotation_is_enough_to_restore_classes(path: Path) -> None:
    def same(row: Row) -> Row:
        return row

    cached = rows_once().map(same).cache(path)
    assert [type(row) for row in cached] == [Row] * 3


class TestRuns:
    def test_a_probe_writes_no_file(self, path: Path) -> None:
        rows = fl.from_range(20).map(reader := Reader())
        above = rows.cache(path).map(lambda row: row.number)
        assert str(above.spec) == "int"
        assert not path.exists()
        assert set(reader.seen) == {0}
        assert above.collect() == list(range(20))
        assert str(rows.cache(path).map(lambda row: row.values).spec) == "float32[3]"
        assert len(reader.seen) < 30

    def test_the_first_run_writes_the_file_and_others_read_it(self, path: Path) -> None:
        rows = fl.from_range(20).map(reader := Reader())
        flow = rows.cache(path)
        assert not path.exists()
        assert [row.number for row in flow.take(3)] == [0, 1, 2]
        assert sorted({*reader.seen}) == list(range(20))
        reader.seen.clear()
        again = fl.from_range(20).map(Reader()).cache(path)
        assert [row.number for row in flow.epoch(1)] == list(range(20))
        assert [type(row) for row in flow.take(1)] == [Row]
        assert reader.seen == []
        assert again.collect()[3].values.tolist() == [3, 3, 3]

    def test_rows_are_read_by_number_also_in_workers(self, path: Path) -> None:
        flow = fl.from_range(50).map(Reader()).cache(path).shuffle(seed=3)
        assert flow.node.indexable
        batches = flow.map(lambda row: row.number).batch(8).prefetch(procs=2)
        assert (
            batches.collect()[0].tolist()
            == flow.map(lambda row: row.number).batch(8).at(0).tolist()
        )
        assert check_flow(flow.batch(4), procs=(1,), resumes=3).ok

    def test_the_length_of_a_filtered_flow_is_known_once_it_is_written(self, path: Path) -> None:
        def build() -> Flow[int, Any]:
            return fl.from_range(20).filter(lambda i: i % 2 == 1).cache(path)

        flow = build()
        assert (type(flow.node), flow.node.length) == (CacheStream, None)
        assert flow.collect() == flow.collect() == list(range(1, 20, 2))
        assert (type(build().node), build().node.length) == (CacheRows, 10)
        assert build().shuffle(seed=1).at(0) in range(20)

    def test_a_state_continues_in_a_program_that_finds_the_file(self, path: Path) -> None:
        def build() -> Flow[int, Any]:
            return fl.from_range(20).filter(lambda i: i % 2 == 1).cache(path).map(abs)

        run = iter(build())
        assert [next(run) for _ in range(4)] == [1, 3, 5, 7]
        assert list(build().resume(run.state_dict())) == list(range(9, 20, 2))

    def test_a_source_of_one_pass_is_read_once(self, path: Path) -> None:
        flow = fl.from_iterable(iter("abc")).cache(path)
        assert flow.collect() == flow.collect() == ["a", "b", "c"]

    def test_an_element_that_fails_leaves_no_file(self, path: Path) -> None:
        flow = fl.from_range(9).map(lambda i: 1 // (i - 4)).cache(path)
        with pytest.raises(ElementError, match="row 4 of from_range"):
            flow.collect()
        assert os.listdir(path.parent) == []

    def test_workers_read_below_on_error_too(self, path: Path) -> None:
        flow = fl.from_range(9).cache(path).map(lambda i: 1 // (i - 4))
        assert len(flow.prefetch(procs=1, on_error="skip").collect()) == 8

    def test_an_element_that_cannot_be_stored_is_named(self, path: Path) -> None:
        flow = fl.from_range(3).map(lambda i: {1, i}).cache(path)
        with pytest.raises(SpecMismatch, match="row 0"):
            flow.collect()
        assert fl.from_range(3).map(lambda i: {1, i}).cache(path, trusted=True).collect()[2] == {
            1,
            2,
        }

    def test_explain_does_not_write_and_says_so(self, path: Path) -> None:
        flow = fl.from_range(3).map(abs).cache(path)
        text = str(flow.explain())
        assert "will have, after the first run, the elements of map(abs)" in text
        assert not path.exists()
        flow.collect()
        assert "has the elements of map(abs)" in str(flow.explain())


class TestChanges:
    def test_a_file_of_another_flow_is_written_again(self, path: Path) -> None:
        assert fl.from_range(3).map(lambda i: i + 1).cache(path).collect() == [1, 2, 3]
        assert fl.from_range(3).map(lambda i: i + 2).cache(path).collect() == [2, 3, 4]
        assert fl.from_range(4).map(lambda i: i + 2).cache(path).collect() == [2, 3, 4, 5]

    @pytest.mark.parametrize("content", [b"", b"hello" * 1000], ids=["empty", "text"])
    def test_a_file_that_cache_has_not_written_is_never_replaced(
        self, path: Path, content: bytes
    ) -> None:
        path.write_bytes(content)
        flow = fl.from_range(3).cache(path)
        with pytest.raises(InvalidFlow, match="exists, and cannot be read as a cache; delete it"):
            flow.collect()
        assert path.read_bytes() == content

    def test_a_damaged_file_is_never_replaced(self, path: Path) -> None:
        flow = fl.from_range(9_000).cache(path)
        flow.collect()
        half = path.read_bytes()[: path.stat().st_size // 2]
        path.write_bytes(half)
        with pytest.raises(InvalidFlow, match=r"cannot be read as a cache; .*page .* is missing"):
            flow.collect()
        assert path.read_bytes() == half

    def test_a_file_of_write_lmdb_is_never_replaced(self, path: Path) -> None:
        fl.from_range(5).write_lmdb(path)
        with pytest.raises(InvalidFlow, match="exists, and cache has not written it"):
            fl.from_range(5).cache(path).collect()
        assert fl.from_lmdb(path).collect() == list(range(5))


def adder(k: int) -> Callable[[int], int]:
    return lambda i: i + k


def helper(i: int) -> int:
    return i + OFFSET


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: int) -> float:
        return x * self.factor


def locked_by(lock: threading.Lock, i: int) -> int:
    with lock:
        return i


def digest(function: Callable[[int], Any]) -> str:
    return chain_digest(fl.from_range(3).map(function).node)


class TestDigests:
    def test_equal_chains_have_equal_digests(self) -> None:
        assert digest(adder(1)) == digest(adder(1))
        assert digest(Scale(2.0)) == digest(Scale(2.0))
        assert chain_digest(fl.from_range(3).node) == chain_digest(fl.from_range(3).node)

    def test_values_that_a_function_refers_to_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert digest(adder(1)) != digest(adder(2))
        assert digest(Scale(2.0)) != digest(Scale(3.0))
        before = digest(lambda i: helper(i))
        monkeypatch.setattr(sys.modules[__name__], "OFFSET", 11)
        assert digest(lambda i: helper(i)) != before

    def test_code_and_defaults_count(self) -> None:
        def shifted(i: int, k: int = 1) -> int:
            return i + k

        before = digest(shifted)
        shifted.__defaults__ = (2,)
        assert digest(shifted) != before
        assert digest(lambda i: i + 1) != digest(lambda i: i - 1)
        assert digest(lambda i: [j + 1 for j in range(i)]) != digest(
            lambda i: [j + 2 for j in range(i)]
        )

    def test_arrays_and_items_count(self) -> None:
        a, b = np.zeros(3), np.ones(3)
        assert digest(lambda i: a[i]) != digest(lambda i: b[i])
        assert chain_digest(fl.from_items([1, 2]).node) != chain_digest(fl.from_items([1, 3]).node)

    def test_values_of_the_programs_modules_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As of ``import helpers`` and ``helpers.scale * package.inner.f(i)``."""
        inner, helpers, package = ModuleType("inner"), ModuleType("helpers"), ModuleType("package")
        for module in (inner, helpers, package):
            monkeypatch.setitem(sys.modules, module.__name__, module)
            vars(module)["__file__"] = f"/home/me/{module.__name__}.py"
        vars(package).update(inner=inner, package=package)

        def program(scale: int, code: str, unused: int = 0) -> str:
            vars(helpers).update(scale=scale, unused=unused)
            exec(f"def f(i): return {code}", vars(inner))
            main: dict[str, Any] = {"helpers": helpers, "package": package, "__name__": "__main__"}
            exec("def g(i): return helpers.scale * package.inner.f(i)", main)
            return digest(main["g"])

        before = program(1, "i + 1")
        assert program(1, "i + 1", unused=5) == before
        assert program(2, "i + 1") != before
        assert program(1, "i + 2") != before

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"a": 1}.get, {"a": 2}.get),
            ([1, 2].__getitem__, [3, 4].__getitem__),
            (re.compile("a").findall, re.compile("b").findall),
            ("-".join, "+".join),
            (np.vectorize(adder(1)), np.vectorize(adder(2))),
            (functools.lru_cache(adder(1)), functools.lru_cache(adder(2))),
            (partial(adder(1), 1), partial(adder(2), 1)),
            (deque([adder(1)]).append, deque([adder(2)]).append),
            (Fraction(1, 2).__mul__, Fraction(1, 3).__mul__),
            (fl.parse_example(Row), fl.parse_example(Sentence)),
        ],
    )
    def test_values_within_installed_objects_count(self, one: Any, other: Any) -> None:
        assert digest(one) != digest(other)
        assert digest(one) == digest(copy.copy(one))

    @pytest.mark.parametrize("library", ["pyarrow", "pandas"])
    def test_values_of_tables_count(self, library: str) -> None:
        make = {"pyarrow": "table", "pandas": "DataFrame"}[library]
        table = getattr(pytest.importorskip(library), make)
        flows = [fl.from_items(table({"a": [1, k]})) for k in (2, 2, 3)]
        digests = [chain_digest(flow.node) for flow in flows]
        assert digests[0] == digests[1] != digests[2]

    def test_values_of_tensors_count(self) -> None:
        torch = pytest.importorskip("torch")
        weights = [torch.full((3,), k, requires_grad=True) for k in (1.0, 1.0, 2.0)]
        digests = [digest(partial(operator.getitem, w)) for w in weights]
        assert digests[0] == digests[1] != digests[2]
        data = torch.utils.data
        halves = [w.detach().bfloat16() for w in weights]  # which NumPy cannot have
        assert digest(partial(operator.getitem, halves[0])) != digest(
            partial(operator.getitem, halves[2])
        )
        sets = [data.Subset(data.TensorDataset(w.detach()), [0, 1]) for w in weights]
        digests = [chain_digest(fl.from_dataset(dataset).node) for dataset in sets]
        assert digests[0] == digests[1] != digests[2]

    def test_the_content_of_images_counts(self, tmp_path: Path) -> None:
        file = tmp_path / "image.png"
        digests = []
        for value in (1, 1, 200):
            if value != 1 or not file.exists():
                Image.new("RGB", (4, 4), (value, 0, 0)).save(file)
                os.utime(file, (value, value))
            digests.append(chain_digest(fl.from_images([file]).node))
        assert digests[0] == digests[1] != digests[2]
        flow = fl.from_images([file])
        file.unlink()
        assert chain_digest(flow.node) not in digests

    def test_functions_of_files_that_are_no_modules_count(self, tmp_path: Path) -> None:
        def loaded(text: str) -> Any:
            (tmp_path / "config.py").write_text(text)
            return runpy.run_path(str(tmp_path / "config.py"))["f"]

        one, again, other = map(loaded, ["def f(i): return i + 1"] * 2 + ["def f(i): return i + 2"])
        assert digest(one) == digest(again) != digest(other)

    def test_a_callable_that_cannot_be_compared_is_never_the_same(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        add = np.frompyfunc(adder(1), 1, 1)
        assert digest(add) != digest(add)
        assert "use the Python function that it is made of" in caplog.text
        locked = [partial(locked_by, threading.Lock()) for _ in range(2)]
        assert digest(locked[0]) == digest(locked[1])
        assert digest(np.sqrt) == digest(np.sqrt)

    def test_values_may_be_nested_to_any_depth(self) -> None:
        nested: list[Any] = []
        chain: fl.Flow[Any, Any] = fl.from_range(3)
        for _ in range(2000):
            nested = [nested]
            chain = chain.map(abs)
        assert digest(partial(operator.contains, nested)) == digest(
            partial(operator.contains, nested)
        )
        assert chain_digest(chain.node) != chain_digest(chain.map(abs).node)

    def test_functions_that_refer_to_each_other_have_a_digest(self) -> None:
        def even(i: int) -> bool:
            return i == 0 or odd(i - 1)

        def odd(i: int) -> bool:
            return i != 0 and even(i - 1)

        assert digest(even) == digest(even)

    def test_digests_are_equal_in_other_processes(self) -> None:
        program = (
            "import flowdsl as fl\nfrom flowdsl.storage.chain_digest import chain_digest\n"
            "names = {'a', 'b', 'c', 'd'}\n"
            "print(chain_digest(fl.from_items('abc').filter(lambda x: x in names).node))"
        )
        seen = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in (1, 2)
        }
        assert len(seen) == 1


def test_of_two_programs_one_writes_and_the_other_waits(path: Path) -> None:
    reader = Reader()

    def slow(i: int) -> int:
        reader(i)
        time.sleep(0.01)
        return i

    flows = [fl.from_range(30).map(slow).cache(path) for _ in range(2)]
    reader.seen.clear()
    got = list[Any]()
    threads = [threading.Thread(target=lambda f=f: got.append(f.collect())) for f in flows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [list(range(30))] * 2
    assert reader.seen == list(range(30))


def test_a_writer_that_is_killed_leaves_no_file(path: Path) -> None:
    program = (
        "import time, flowdsl as fl\n"
        "def slow(i):\n    print(i, flush=True)\n    time.sleep(0.02)\n    return i\n"
        f"fl.from_range(1000).map(slow).cache({str(path)!r}).collect()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    assert not path.exists()
    assert fl.from_range(3).cache(path).collect() == [0, 1, 2]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "is a folder; pass the path of a file"),
        ("missing/rows.lmdb", "no folder .*; make it first"),
    ],
)
def test_wrong_paths_are_refused(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(InvalidFlow, match=f"cache: {message}" if "folder " in message else message):
        fl.from_range(3).cache(tmp_path / where)


def test_trusted_needs_a_file() -> None:
    with pytest.raises(InvalidFlow, match="trusted=True is for a file"):
        fl.from_range(3).cache(trusted=True)


class Base:
    offset = 1

    def __call__(self, i: int) -> int:
        return i + self.offset


class Child(Base):
    pass


class Slotted:
    __slots__ = ("lock", "value")

    def __init__(self, value: int) -> None:
        self.lock, self.value = threading.Lock(), value

    def __call__(self, i: int) -> int:
        return i + self.value


def counting(k: int) -> Callable[[int], int]:
    @functools.lru_cache
    def counted(i: int) -> int:
        return i + k

    return counted


def dispatching(k: int) -> Callable[[int], int]:
    @functools.singledispatch
    def dispatched(i: object) -> int:
        raise TypeError

    @dispatched.register
    def _(i: int) -> int:
        return i + k

    return dispatched


class TestDigestsOfOtherFunctions:
    def test_what_functools_makes_of_a_function_counts(self) -> None:
        for make in (counting, dispatching):
            assert digest(make(1)) == digest(make(1))
            assert digest(make(1)) != digest(make(2))
        used, unused = dispatching(1), dispatching(1)
        used(1)
        assert digest(used) == digest(unused)

    def test_base_classes_and_their_values_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = digest(Child()), digest(lambda i: i + Child.offset)
        monkeypatch.setattr(Base, "offset", 2)
        assert digest(Child()) != before[0]
        assert digest(lambda i: i + Child.offset) != before[1]
        before = digest(Child()), ""
        monkeypatch.setattr(Base, "__call__", lambda self, i: i)
        assert digest(Child()) != before[0]

    def test_values_in_slots_count(self) -> None:
        assert digest(Slotted(1)) == digest(Slotted(1))
        assert digest(Slotted(1)) != digest(Slotted(2))

    @pytest.mark.parametrize(
        ("one", "other"), [([[], [[]]], [[[]], []]), ([[1], 2], [[1, 2]]), ([1, 2], [2, 1])]
    )
    def test_the_structure_of_values_counts(self, one: Any, other: Any) -> None:
        assert digest(lambda i: one) != digest(lambda i: other)

    def test_which_of_equal_values_are_one_object_does_not_count(self) -> None:
        a, b = [1], [1]
        same, equal = [a, a], [a, b]
        assert chain_digest(fl.from_items(same).node) == chain_digest(fl.from_items(equal).node)


def test_a_state_over_elements_in_any_order_is_refused(path: Path) -> None:
    cached = fl.from_range(5).merge(fl.from_range(5)).cache(path)
    for flow in (cached, cached.prefetch(0, on_error="skip")):
        with iter(flow) as run:
            next(run)
            with pytest.raises(fl.NotResumable, match="another order in each pass"):
                run.state_dict()
