"""LMDB files: rows are read back by index, and a damaged file or row is refused."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from weakref import finalize
from zlib import crc32

import attrs
import lmdb
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

import flowdsl as fl
from flowdsl.errors import (
    ElementError,
    EndlessFlow,
    InvalidFlow,
    SourceError,
    SpecMismatch,
    StateMismatch,
)
from flowdsl.nodes import IndexedSource
from flowdsl.storage.codec import encode
from tests.sampling import examples
from tests.storage.elements import ELEMENTS, identical


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.lmdb"


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: np.int64


@attrs.frozen
class PointBatch:
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: float
    y: float


class Segment(NamedTuple):
    start: Point
    name: str


class Labeled(TypedDict):
    x: float
    y: float


def sample(i: int) -> Sample:
    return Sample(np.full((2, 3), i, np.uint8), np.int64(i * i))


def row_of(source: Any, i: int) -> Any:
    assert isinstance(source.node, IndexedSource)
    return source.node.open()(i)


def output_of(program: str, *arguments: object) -> str:
    """Return the output of a Python program in another process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout


# -- writing and reading ---------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 2**40), st.text(st.characters(codec="utf-8")))))
def test_rows_are_read_back_in_order(tmp_path: Path, rows: list[tuple[int, str]]) -> None:
    path = tmp_path / "rows.lmdb"
    assert fl.from_items(rows).write_lmdb(path, overwrite=True) == len(rows)
    source = fl.from_lmdb(path, tuple[int, str])
    assert len(source) == len(rows)
    assert source.collect() == rows
    assert source.effects == frozenset()


def test_rows_are_read_by_index(path: Path) -> None:
    fl.from_range(3000).write_lmdb(path)
    assert [row_of(fl.from_lmdb(path), i) for i in (2999, 0, 1024, 1023, 7)] == [
        *(2999, 0, 1024, 1023, 7)
    ]


def test_file_grows_as_needed(path: Path) -> None:
    rows, side = 40, 1_000_000
    assert fl.from_range(rows).map(lambda i: np.full(side, i, np.uint8)).write_lmdb(path) == rows
    assert path.stat().st_size > 2 * (1 << 24)
    means = [(len(row), row[0], row[-1]) for row in fl.from_lmdb(path, NDArray[np.uint8])]
    assert means == [(side, i, i) for i in range(rows)]


def test_one_row_may_be_larger_than_the_first_map(path: Path) -> None:
    fl.from_items([np.zeros(1 << 25, np.uint8), np.ones(2, np.uint8)]).write_lmdb(path)
    assert [len(row) for row in fl.from_lmdb(path, NDArray[np.uint8])] == [1 << 25, 2]


def test_rows_are_encoded_as_they_come(path: Path) -> None:
    # Rows held back would be held in memory, or in slabs that the flow's workers are out of.
    ended: list[int] = []

    def rows() -> Iterator[NDArray[np.uint8]]:
        for i in range(50):
            array = np.zeros(10, np.uint8)
            finalize(array, ended.append, i)
            yield array
            del array
            assert len(ended) >= i - 1

    assert fl.from_iterable(rows).write_lmdb(path) == 50


def test_file_without_rows(path: Path) -> None:
    assert fl.from_items([]).write_lmdb(path) == 0
    assert fl.from_lmdb(path).collect() == []


def test_spec_is_the_join_of_all_rows(path: Path) -> None:
    rows = [(np.zeros((4, n)), "a" if n else 1) for n in (2, 3, 0)]
    fl.from_items(rows).write_lmdb(path)
    assert str(fl.from_lmdb(path).spec) == "(float64[4, ?], ?)"


def test_file_may_be_overwritten_with_its_own_rows(path: Path) -> None:
    fl.from_range(5).write_lmdb(path)
    assert fl.from_lmdb(path, int).map(lambda i: i + 1).write_lmdb(path, overwrite=True) == 5
    assert fl.from_lmdb(path).collect() == [1, 2, 3, 4, 5]


# -- declared forms --------------------------------------------------------------------------------


def test_rows_have_the_declared_class(path: Path) -> None:
    fl.from_range(3).map(sample).write_lmdb(path)
    assert all(type(row) is tuple for row in fl.from_lmdb(path))
    row = fl.from_lmdb(path, Sample).collect()[2]
    assert type(row) is Sample
    assert row.image.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert int(row.label) == 4
    assert type(row.label) is np.int64
    assert str(fl.from_lmdb(path, Sample).spec) == "Sample(image: uint8[2, 3], label: int64[])"


@pytest.mark.parametrize("stored", [Point(1.0, 2.0), (1.0, 2.0), {"y": 2.0, "x": 1.0}], ids=str)
def test_record_is_built_by_name_or_position(path: Path, stored: object) -> None:
    fl.from_items([stored]).write_lmdb(path)
    assert fl.from_lmdb(path, Point).collect() == [Point(1.0, 2.0)]


def test_nested_classes(path: Path) -> None:
    segments = [Segment(Point(1.0, 2.0), "a"), Segment(Point(3.0, 4.0), "b")]
    fl.from_items(segments).write_lmdb(path)
    assert fl.from_lmdb(path).collect()[0] == ({"x": 1.0, "y": 2.0}, "a")
    assert fl.from_lmdb(path, Segment).collect() == segments
    assert fl.from_lmdb(path, tuple[Point, str]).collect() == segments
    assert type(fl.from_lmdb(path, tuple[Point, str]).collect()[0]) is tuple


@dataclass
class Box:
    corner: tuple[int, int]
    area: int = field(init=False)

    def __post_init__(self) -> None:
        self.area = self.corner[0] * self.corner[1]


@dataclass
class Caption:
    words: list[str]
    tokens: list[list[int]]
    boxes: list[Box]
    name: str
    raw: bytes


def caption(i: int) -> Caption:
    tokens = [list(range(k)) for k in range(i)]
    return Caption(["a", "日\0"] * i, tokens, [Box((i, 2))] * (i % 2), "x" * i, b"\0" * i)


def test_lists_text_and_dataclasses_are_read_back(path: Path) -> None:
    rows = [caption(i) for i in range(4)]
    fl.from_items(rows).write_lmdb(path)
    assert fl.from_lmdb(path, Caption).collect() == rows
    plain: Any = fl.from_lmdb(path).collect()[3]
    assert plain["tokens"] == rows[3].tokens
    assert plain["boxes"] == [{"corner": (3, 2), "area": 6}]
    assert str(fl.from_lmdb(path, Caption).map(lambda row: row.words).spec) == "list[?]"
    collate = {"tokens": list, "boxes": list}
    batch = fl.from_lmdb(path, Caption).batch(4, collate=collate).collect()[0]
    names, raw = [row.name for row in rows], [row.raw for row in rows]
    assert batch == (
        [row.words for row in rows],
        [row.tokens for row in rows],
        [row.boxes for row in rows],
        names,
        raw,
    )


def test_item_of_another_type_than_declared_is_refused(path: Path) -> None:
    rows: list[Any] = [[(1.0, 2.0)], [(1.0, 2.0), (3.0,)], [4]]
    fl.from_items(rows).write_lmdb(path)
    flow = fl.from_lmdb(path, list[tuple[float, float]])
    assert flow.take(1).collect() == rows[:1]
    points = fl.from_lmdb(path, list[Point])
    assert points.take(1).collect() == [[Point(1.0, 2.0)]]
    for i in (1, 2):
        with pytest.raises(ElementError) as caught:
            points.skip(i).collect()
        assert "Point(x: float, y: float)" in str(caught.value.__cause__)


def test_dict_columns_are_matched_by_name(path: Path) -> None:
    fl.from_items([{"name": "a", "start": {"y": 2.0, "x": 1.0}}]).write_lmdb(path)
    assert fl.from_lmdb(path, Segment).collect() == [Segment(Point(1.0, 2.0), "a")]


def test_typed_dict_is_read(path: Path) -> None:
    fl.from_items([Point(1.0, 2.0)]).write_lmdb(path)
    assert fl.from_lmdb(path, Labeled).collect() == [{"x": 1.0, "y": 2.0}]


@pytest.mark.parametrize(
    ("stored", "declared", "said"),
    [
        (sample(1), tuple[NDArray[np.float32], np.int64], ["row.0", "float32[...]", "uint8[2, 3]"]),
        (
            sample(1),
            tuple[NDArray[np.uint8]],
            ["(uint8[...])", "(uint8[2, 3], int64[])"],
        ),
        (
            sample(1),
            Point,
            [
                "row: declared",
                "stored with the names image, label",
                "Point(x: float, y: float)",
                "(uint8[2, 3], int64[])",
            ],
        ),
        (sample(1), Labeled, ["{x: float, y: float}", "(uint8[2, 3], int64[])"]),
        (Point(1.0, 2.0), tuple[float, float], ["(float, float)", "{x: float, y: float}"]),
        ({"0": 1.0, "1": 2.0}, tuple[float, float], ["(float, float)", "{0: float, 1: float}"]),
        ((1.0, 2.0), Labeled, ["{x: float, y: float}", "(float, float)"]),
        (Point(1.0, 2.0), Segment, ["Segment(start:", "{x: float, y: float}"]),
        (3, str, ["str", "int"]),
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused_at_once(
    path: Path, stored: object, declared: Any, said: list[str]
) -> None:
    fl.from_items([stored]).write_lmdb(path)
    with pytest.raises(SpecMismatch) as caught:
        fl.from_lmdb(path, declared)
    assert [part for part in ["rows.lmdb", *said] if part not in str(caught.value)] == []


# -- files that are none ---------------------------------------------------------------------------


def header(**fields: object) -> bytes:
    whole = {"version": 2, "length": 0, "digest": 0, "spec": {"type": "int"}} | fields
    return sealed(0, msgspec.msgpack.encode(whole))


def sealed(i: int, data: bytes) -> bytes:
    return b"\0" + data + xxh3_64_digest(data, i)


def by_lmdb(path: Path, pairs: dict[bytes, bytes], margin: int = 1 << 17) -> None:
    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        for key, value in pairs.items():
            txn.put(key, value)
    os.truncate(path, path.stat().st_size + margin)


def forged(pairs: dict[bytes, bytes], margin: int = 1 << 17) -> Callable[[Path], None]:
    return lambda path: by_lmdb(path, pairs, margin)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file"),
    "empty": (lambda path: path.write_bytes(b""), "it is empty"),
    "text": (lambda path: path.write_text("x" * 10_000), "it is not an LMDB file"),
    "short text": (lambda path: path.write_text("x"), "has 1 bytes: it is cut short, or is not"),
    "a folder": (lambda path: path.mkdir(), "No such file"),
    "another program's": (
        forged({b"00000000": b"x"}, margin=0),
        r"cut short, or is not a file that.*; fl\.from_tensorpack_lmdb\(path\)",
    ),
    "another program's, large": (forged({b"00000000": b"x"}), "no valid flowdsl header"),
    "a header of text": (forged({b"__flowdsl__": b"hello"}), "no valid flowdsl header"),
    "a header of little": (forged({b"__flowdsl__": sealed(0, b"\x80")}), "no valid flowdsl header"),
    "a damaged header": (forged({b"__flowdsl__": b"\x84" + header()[1:-1]}), "no valid flowdsl"),
    "a header with a class": (forged({b"__flowdsl__": header(spec={"type": "Popen"})}), "no valid"),
    "a header with objects": (
        forged({b"__flowdsl__": header(spec={"dtype": "|O", "shape": []})}),
        "no valid flowdsl header",
    ),
    "a later version's": (forged({b"__flowdsl__": header(version=3, spec={})}), "version 3"),
    "rows missing": (forged({b"__flowdsl__": header(length=3)}), "says 3 rows, but it holds 0"),
}


@pytest.mark.parametrize(("make", "reason"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_at_once(
    path: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(path)
    with pytest.raises(SourceError, match=reason) as caught:
        fl.from_lmdb(path)
    assert str(path) in str(caught.value)


def test_file_without_read_permission_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    fl.from_range(2).write_lmdb(path)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match="Permission denied"):
        fl.from_lmdb(path)


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 9_000])
def test_damaged_size_in_a_page_is_refused(path: Path, size: int) -> None:
    # LMDB itself takes the size from the page, and reads past the end of the file.
    fl.from_items([bytes([i]) * size for i in range(3)]).write_lmdb(path)
    content, refused = bytearray(path.read_bytes()), 0
    for i in range(3):
        at = content.rindex(b"%010d" % i)  # before it: two halves of a size, flags, the key's size
        for byte, value in ((-8, 0xFF), (-5, 0x7F), (-4, 0x01), (-3, 0x01), (-2, 0xFF)):
            changed = bytearray(content)
            changed[at + byte] ^= value
            path.unlink()
            path.write_bytes(changed)
            try:
                assert fl.from_lmdb(path).at(i) == bytes([i]) * size
            except (SourceError, ElementError):
                refused += 1
    assert refused >= 12


READER = """
import os, pickle, random, sys
from pathlib import Path

import flowdsl as fl

whole, damaged, cuts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "cut"
expected = [pickle.dumps(row) for row in fl.from_lmdb(whole)]
content, draw = whole.read_bytes(), random.Random(sys.argv[4])
# The pages in use: beyond them is room for a damaged page's offsets to lead astray in.
pages = len(content) - (1 << 17)


def outcome():
    seen = []
    try:
        for row in fl.from_lmdb(damaged):
            seen.append(pickle.dumps(row))
    except fl.SourceError:
        return "refused at once" if not seen else "refused late"
    except fl.ElementError as error:
        number = error.position
        named = f"row {number} of from_lmdb" in str(error)
        named &= isinstance(error.__cause__, fl.SourceError) and f"row {number} " in str(
            error.__cause__
        )
        return "named" if named and seen == expected[:number] else "misnamed"
    return "whole" if seen == expected else "SILENT"


for _ in range(int(sys.argv[5])):
    bad = bytearray(content)
    if cuts:
        del bad[draw.randrange(len(bad)) :]
    else:
        at = draw.randrange(pages)
        for i in range(at, min(at + draw.choice([1, 4, 64]), pages)):
            bad[i] ^= draw.randrange(1, 256)
    damaged.unlink(missing_ok=True)
    damaged.write_bytes(bad)
    child = os.fork()
    if not child:
        os.write(1, (outcome() + "\\n").encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print("DIED", status, flush=True)
"""


def damage(path: Path, kind: str, trials: int) -> set[str]:
    outcomes = output_of(READER, path, path.with_name("damaged"), kind, 7, trials).splitlines()
    assert len(outcomes) == trials
    return set(outcomes)


@pytest.mark.parametrize("size", [1, 600, 5000], ids=lambda size: f"rows of {size} bytes")
def test_damage_raises_a_named_error_and_never_crashes(path: Path, size: int) -> None:
    # A row is in a page with others, in a page of its own, or in pages of its own.
    rows = fl.from_range(100).map(lambda i: (i, np.full(size, i, np.uint8)))
    rows.write_lmdb(path)
    found = damage(path, "flip", 20)
    assert "named" in found
    assert found <= {"named", "whole", "refused at once"}


def test_a_truncated_file_is_refused_at_once(path: Path) -> None:
    # LMDB maps the file: to read a page that is gone would end the process with SIGBUS.
    fl.from_range(200).map(lambda i: np.full(3000, i, np.uint8)).write_lmdb(path)
    assert damage(path, "cut", 20) == {"refused at once"}


def test_damaged_row_is_named_and_other_rows_are_read(path: Path) -> None:
    rows = 9
    fl.from_range(rows).map(lambda i: np.full(5000, i, np.uint8)).write_lmdb(path)
    content = bytearray(path.read_bytes())
    at = content.index(bytes([4]) * 5000)
    content[at + 2500] ^= 1
    path.write_bytes(content)
    source = fl.from_lmdb(path, NDArray[np.uint8])
    run = iter(source)
    assert [next(run)[0] for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ElementError, match=r"row 4 of from_lmdb\('rows\.lmdb'\)") as caught:
        next(run)
    assert isinstance(caught.value.__cause__, SourceError)
    assert "row 4 cannot be read: its bytes are not those that were written" in str(
        caught.value.__cause__
    )
    assert row_of(source, 5)[0] == 5


def test_swapped_rows_are_detected(path: Path) -> None:
    fl.from_range(3).write_lmdb(path)
    with lmdb.open(str(path), subdir=False, lock=False) as env, env.begin(write=True) as txn:
        stored = txn.get(b"0000000001")
        assert stored is not None
        txn.put(b"0000000002", stored)
    os.truncate(path, path.stat().st_size + (1 << 17))
    with pytest.raises(ElementError, match="row 2 of"):
        fl.from_lmdb(path).collect()


def test_a_row_under_another_number_is_missing(path: Path) -> None:
    by_lmdb(path, {b"0000000009": sealed(0, b"\x05"), b"__flowdsl__": header(length=1)})
    with pytest.raises(ElementError, match="row 0 of") as caught:
        fl.from_lmdb(path).collect()
    assert "row 0 cannot be read: it is missing" in str(caught.value.__cause__)


# -- refusals of the writer ------------------------------------------------------------------------


def test_an_existing_file_is_kept(path: Path) -> None:
    fl.from_range(2).write_lmdb(path)
    with pytest.raises(InvalidFlow, match=r"rows\.lmdb' exists; pass overwrite=True"):
        fl.from_range(3).write_lmdb(path)
    assert len(fl.from_lmdb(path)) == 2
    assert fl.from_range(3).write_lmdb(path, overwrite=True) == 3
    assert len(fl.from_lmdb(path)) == 3


def never() -> list[int]:
    raise AssertionError("the flow was run")


@pytest.mark.parametrize("overwrite", [False, True])
def test_folder_with_other_files_is_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(InvalidFlow, match="it is a folder that holds 'notes'"):
        fl.from_iterable(never).write_lmdb(tmp_path, overwrite=overwrite)
    with pytest.raises(InvalidFlow, match=r"no folder '.*gone'; make it first"):
        fl.from_iterable(never).write_lmdb(tmp_path / "gone" / "rows.lmdb", overwrite=overwrite)


def test_an_endless_flow_is_refused_before_it_runs(path: Path) -> None:
    endless: Any = fl.from_iterable(never).repeat()
    with pytest.raises(EndlessFlow, match=r"write_lmdb: repeat\(\) never ends.*take\(n\)"):
        endless.write_lmdb(path)
    assert os.listdir(path.parent) == []


def failing(i: int) -> int:
    if i == 1500:
        raise ValueError("half-way")
    return i


@pytest.mark.parametrize("before", [0, 3])
def test_failing_flow_leaves_the_store_unchanged(path: Path, before: int) -> None:
    if before:
        fl.from_range(before).write_lmdb(path)
    with pytest.raises(ElementError, match="element 1500"):
        fl.from_range(3000).map(failing).write_lmdb(path, overwrite=True)
    assert os.listdir(path.parent) == (["rows.lmdb"] if before else [])
    assert not before or len(fl.from_lmdb(path)) == before


def test_element_that_cannot_be_written_is_named(path: Path) -> None:
    rows = fl.from_range(5).map(lambda i: (i, {i} if i == 3 else i))
    with pytest.raises(SpecMismatch, match=r"^write_lmdb: row 3: element\.1: set cannot be"):
        rows.write_lmdb(path)
    assert os.listdir(path.parent) == []


def test_a_full_disk_is_an_error_that_names_the_file(path: Path) -> None:
    program = (
        "import resource, sys, flowdsl as fl, numpy as np\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "rows = fl.from_range(9).map(lambda i: np.zeros(1 << 20, np.uint8))\n"
        "try: rows.write_lmdb(sys.argv[1])\n"
        "except fl.SourceError as error: print(error)\n"
    )
    assert output_of(program, path).startswith(f"write_lmdb: '{path}' cannot be written: ")
    assert os.listdir(path.parent) == []


def test_file_mode_follows_the_umask(path: Path) -> None:
    before = os.umask(0o007)
    try:
        fl.from_range(2).write_lmdb(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o660


# -- one file, many readers ------------------------------------------------------------------------


def test_several_flows_and_runs_share_one_file(path: Path) -> None:
    fl.from_range(50).write_lmdb(path)
    a, b = fl.from_lmdb(path, int), fl.from_lmdb(path, int)
    runs = [iter(a), iter(a), iter(b), iter(b)]
    assert list(zip(*runs, strict=True)) == [(i,) * 4 for i in range(50)]


def test_one_run_outlives_another(path: Path) -> None:
    fl.from_range(9).write_lmdb(path)
    first, second = iter(fl.from_lmdb(path)), iter(fl.from_lmdb(path))
    assert (next(first), next(second)) == (0, 0)
    first.close()
    del first
    assert list(second) == list(range(1, 9))


def held(path: Path) -> int:
    """Return how many descriptors of this process refer to a file."""
    names = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(name) and os.readlink(name) == str(path) for name in names)


def test_file_is_closed_with_its_reader(path: Path) -> None:
    fl.from_range(9).write_lmdb(path)
    first, second = iter(fl.from_lmdb(path)), iter(fl.from_lmdb(path))
    assert next(first) == next(second) == 0
    assert held(path) == 2
    del first
    assert held(path) == 1
    del second
    assert held(path) == 0


def test_threads_open_and_close_one_file_at_once(path: Path) -> None:
    fl.from_range(20).write_lmdb(path)
    source = fl.from_lmdb(path, int)

    def read(_: int) -> bool:
        return all(row_of(source, i) == i for i in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(200)))


def test_a_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_range(10).write_lmdb(path)
    run = iter(fl.from_lmdb(path, int).shuffle())
    next(run)
    state = run.state_dict()
    fl.from_range(10).map(lambda i: -i).write_lmdb(path, overwrite=True)
    with pytest.raises(StateMismatch, match=r"operator 1 is from_lmdb.* of 10 rows"):
        fl.from_lmdb(path, int).shuffle().resume(state)


@pytest.mark.parametrize("element", [dict, tuple, dict[str, int], tuple[int, ...], list[int]])
def test_declared_container_does_not_match_a_number(tmp_path: Path, element: Any) -> None:
    fl.from_range(3).write_lmdb(tmp_path / "rows.lmdb")
    with pytest.raises(SpecMismatch, match="stored int"):
        fl.from_lmdb(tmp_path / "rows.lmdb", element)


@pytest.mark.parametrize(
    ("row", "element"),
    [({"a": 1}, dict[str, Any]), ((1, 2), tuple[int, ...]), ((1, 2), tuple), ([1, 2], list[int])],
)
def test_container_is_encoded_unchanged(tmp_path: Path, row: Any, element: Any) -> None:
    fl.from_items([row]).write_lmdb(tmp_path / "rows.lmdb")
    assert fl.from_lmdb(tmp_path / "rows.lmdb", element).collect() == [row]


@pytest.mark.parametrize("element", ["Sample", 3])
def test_declaration_that_cannot_be_checked_is_refused(tmp_path: Path, element: Any) -> None:
    fl.from_range(3).write_lmdb(tmp_path / "rows.lmdb")
    with pytest.raises(InvalidFlow, match="cannot be checked"):
        fl.from_lmdb(tmp_path / "rows.lmdb", element)


def test_replaced_file_is_detected(path: Path) -> None:
    fl.from_range(5).write_lmdb(path)
    old = fl.from_lmdb(path, int)
    under_way = iter(old)
    assert next(under_way) == 0
    fl.from_items([7, 8]).write_lmdb(path, overwrite=True)
    assert fl.from_lmdb(path).collect() == [7, 8]
    assert list(under_way) == [1, 2, 3, 4]
    assert fl.from_lmdb(path).collect() == [7, 8]
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        old.collect()


def test_replacement_with_equal_rows_is_accepted(path: Path) -> None:
    fl.from_range(5).write_lmdb(path)
    old = fl.from_lmdb(path)
    fl.from_range(5).write_lmdb(path, overwrite=True)
    assert old.collect() == [0, 1, 2, 3, 4]
    fl.from_items([9, 1, 2, 3, 4]).write_lmdb(path, overwrite=True)
    with pytest.raises(SourceError, match="has changed since this flow was built"):
        old.collect()


def collect(node: bytes) -> list[object]:
    source: IndexedSource[object] = pickle.loads(node)
    return [row for _, row in source.reference(0)]


def test_node_can_be_sent_to_another_process(path: Path) -> None:
    fl.from_range(5).write_lmdb(path)
    source = fl.from_lmdb(path)
    under_way = iter(source)
    assert next(under_way) == 0
    with get_context("spawn").Pool(1) as pool:
        assert pool.apply(collect, (pickle.dumps(source.node),)) == [0, 1, 2, 3, 4]
    assert next(under_way) == 1


def test_forked_child_continues_reading(path: Path) -> None:
    program = """
import os, sys, flowdsl as fl
run = iter(fl.from_lmdb(sys.argv[1]))
first = next(run)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(first, *run, *fl.from_lmdb(sys.argv[1]), flush=True)
"""
    fl.from_range(3).write_lmdb(path)
    assert output_of(program, path).splitlines() == ["0 1 2 0 1 2"] * 2


@pytest.mark.parametrize("path", [None, 3, b"rows.lmdb"])
def test_invalid_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_lmdb(path)
    assert str(caught.value) == f"from_lmdb: path must be a str or path, got {path!r}"


# -- what rows may hold ----------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.lists(ELEMENTS, max_size=6), st.booleans())
def test_any_elements_are_read_back(tmp_path: Path, rows: list[Any], trusted: bool) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_items(rows).write_lmdb(path, overwrite=True, trusted=trusted)
    got = fl.from_lmdb(path).collect()
    assert len(got) == len(rows)
    assert all(map(identical, got, rows))


def test_array_at_the_end_of_a_row_is_read_without_a_copy(path: Path) -> None:
    rows = [np.arange(n, dtype=np.float64) for n in range(20)]
    fl.from_items([("a" * i, row) for i, row in enumerate(rows)]).write_lmdb(path)
    for _, array in fl.from_lmdb(path, tuple[str, NDArray[np.float64]]):
        assert array.flags.aligned
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_rows_outlive_their_file(path: Path) -> None:
    fl.from_range(9).map(lambda i: np.full(5000, i, np.uint8)).write_lmdb(path)
    rows = fl.from_lmdb(path, NDArray[np.uint8]).collect()
    assert held(path) == 0
    path.unlink()
    assert [row.tolist() for row in rows] == [[i] * 5000 for i in range(9)]


class Opened:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


def test_a_pickled_object_is_read_only_where_it_is_trusted(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    rows = fl.from_items([(0, None), (1, Opened(str(made)))])
    with pytest.raises(SpecMismatch, match=r"row 1: element\.1: Opened cannot be written"):
        rows.write_lmdb(path)
    rows.write_lmdb(path, trusted=True)
    run = iter(fl.from_lmdb(path))
    assert next(run) == (0, None)
    with pytest.raises(ElementError) as caught:
        next(run)
    assert "row 1 cannot be read: it holds a pickled Python object" in str(caught.value.__cause__)
    assert "pass trusted=True" in str(caught.value.__cause__)
    assert not made.exists()
    fl.from_lmdb(path, trusted=True).collect()[1][1].close()  # type: ignore[index]  # rows are pairs
    assert made.exists()


def test_objects_are_read_back_if_trusted(path: Path) -> None:
    rows: list[Any] = [{1: {2, 3}}, (2**70, "\ud800"), [lambda x: x + 1, np.zeros(2, "i4,f4")]]
    fl.from_items(rows).write_lmdb(path, trusted=True)
    got: list[Any] = fl.from_lmdb(path, trusted=True).prefetch(procs=2).collect()
    assert got[:2] == rows[:2]
    assert got[2][0](1) == 2
    assert got[2][1].tolist() == rows[2][1].tolist()


# -- version 1 -------------------------------------------------------------------------------------


def sealed_1(i: int, data: bytes) -> bytes:
    return data + crc32(data, i).to_bytes(4, "little")


def of_version_1(path: Path, rows: list[Any]) -> None:
    stored = [sealed_1(i, encode(row)) for i, row in enumerate(rows)]
    digest = 0
    for row in stored:
        digest = crc32(row[-4:], digest)
    spec = {
        "form": "tuple",
        "fields": [["0", {"type": "int"}], ["1", {"dtype": "<f4", "shape": [3]}]],
    }
    header = {"version": 1, "length": len(rows), "digest": digest, "spec": spec}
    pairs = {b"%010d" % i: row for i, row in enumerate(stored)}
    by_lmdb(path, pairs | {b"__flowdsl__": sealed_1(0, msgspec.msgpack.encode(header))})


def test_a_file_of_version_1_is_read(path: Path) -> None:
    rows = [(i, np.full(3, i, np.float32)) for i in range(50)]
    of_version_1(path, rows)
    flow = fl.from_lmdb(path)
    assert all(map(identical, flow, rows))
    assert str(flow.spec) == "(int, float32[3])"
    with pytest.raises(InvalidFlow, match="format version 1, to which nothing is added"):
        flow.write_lmdb(path, append=True)
    digest = flow.node.fingerprint
    flow.write_lmdb(path, overwrite=True)
    assert all(map(identical, fl.from_lmdb(path), rows))
    assert fl.from_lmdb(path).node.fingerprint != digest


def test_a_damaged_row_of_version_1_is_named(path: Path) -> None:
    of_version_1(path, [(i, np.full(3, 77, np.float32)) for i in range(5)])
    content = path.read_bytes()
    at = content.index(np.full(3, 77, np.float32).tobytes())
    path.write_bytes(content[:at] + b"\1" + content[at + 1 :])
    with pytest.raises(ElementError) as caught:
        fl.from_lmdb(path).collect()
    assert "the checksum differs" in str(caught.value.__cause__)


@pytest.mark.parametrize("element", [int, Sample, NDArray[np.uint8], list[int]])
def test_rows_of_several_types_are_each_checked(path: Path, element: Any) -> None:
    rows: list[Any] = [1, 2, sample(1), np.zeros(3, np.uint8), np.zeros(3), [1], ["a"], None]
    fl.from_items(rows).write_lmdb(path)
    flow = fl.from_lmdb(path, element)
    fits = [[0, 1], [2], [3], [5]][[int, Sample, NDArray[np.uint8], list[int]].index(element)]
    for i in range(len(rows)):
        if i in fits:
            assert identical(flow.at(i), rows[i])
        else:
            with pytest.raises(ElementError) as caught:
                flow.at(i)
            assert isinstance(caught.value.__cause__, SpecMismatch)
            assert f"{str(path)!r}: row {i}: " in str(caught.value.__cause__)


def test_appended_rows_are_checked_too(path: Path) -> None:
    fl.from_range(2).write_lmdb(path, append=True)
    fl.from_items(["x"]).write_lmdb(path, append=True)
    flow = fl.from_lmdb(path, int)
    assert flow.take(2).collect() == [0, 1]
    with pytest.raises(ElementError, match="declared int, got str"):
        flow.collect()


def test_declared_names_must_match_stored_names(path: Path) -> None:
    class Swapped(NamedTuple):
        label: np.int64
        image: NDArray[np.uint8]

    fl.from_items([sample(1)]).write_lmdb(path)
    message = r"declared Swapped\(label.*stored with the names image, label"
    with pytest.raises(SpecMismatch, match=message):
        fl.from_lmdb(path, Swapped)
