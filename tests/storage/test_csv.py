"""CSV files: RFC 4180 records by index, cells of declared types, and no guessing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, TypedDict

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.errors import ElementError, FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.nodes import IndexedSource
from flowdsl.storage.csv.reading import _size_allowed
from flowdsl.storage.text import blocks as text_blocks
from flowdsl.storage.text import indexing as text_indexing
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.csv"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks and reads of a few bytes, so that short files have many."""
    monkeypatch.setattr(text_indexing, "STRETCH", 5)
    monkeypatch.setattr(text_indexing, "_READ_BYTES", 7)


class Flower(NamedTuple):
    name: str
    petals: int
    height: float | None


@dataclass(frozen=True)
class Scored:
    score: np.float32
    is_good: bool


@attrs.frozen
class PointBatch:
    x: NDArray[np.float64]
    y: NDArray[np.float64]


@attrs.frozen
class Point(fl.Record[PointBatch]):
    x: float
    y: float

    def __attrs_post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class Labeled(TypedDict):
    text: str
    label: np.int64


class Nested(NamedTuple):
    flower: Flower


class Pixels(NamedTuple):
    image: NDArray[np.uint8]


def reader_of(flow: Any) -> Any:
    assert isinstance(flow.node, IndexedSource)
    return flow.node.open()


def message_of(flow: Any) -> str:
    with pytest.raises(FlowError) as failed:
        flow.collect()
    cause = failed.value.__cause__
    assert isinstance(cause, SourceError | SpecMismatch)
    return str(cause)


# -- records ---------------------------------------------------------------------------------------


def test_a_first_row_that_does_not_match_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "dirty.csv").write_text("n,x\n1,none\n2,2.5\n3,3.5\n")
    rows = fl.from_csv(path, tuple[int, float], header=True)
    with pytest.raises(ElementError, match="element 0") as failed:
        rows.collect()
    assert "line 2 (byte 4): column 'x': 'none' is not" in str(failed.value.__cause__)
    assert rows.prefetch(threads=1, on_error="skip").collect() == [(2, 2.5), (3, 3.5)]


def test_a_declaration_that_none_of_the_first_rows_matches_is_refused_when_built(
    tmp_path: Path,
) -> None:
    (path := tmp_path / "other.csv").write_text("n,x\n" + "1,none\n" * 10 + "2,2.5\n")
    with pytest.raises(SpecMismatch, match=r"line 2 .*'none'.*none of the first 10 rows matches"):
        fl.from_csv(path, tuple[int, float], header=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"name,age\nM\xfcller,1\n", "pass encoding="), (b"name,age\nMeyer,Ann,31\n", "has 3 cells")],
)
def test_rows_that_no_declaration_can_match_have_no_advice_on_it(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (path := tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(SourceError, match=message) as failed:
        fl.from_csv(path, tuple[str, int], header=True)
    assert "declare" not in str(failed.value)


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("a\r\r")
@example('"\r\r",a\r\r\n')
@example("\n\na,b\n\r\n\n")
@example('a\n"\n\n"\n\r')
@given(
    st.text(st.sampled_from('a,"\n\r '), max_size=40)
    | st.lists(st.sampled_from(['"a",b\n', '"\n",\r\n', 'a,""""\n', 'a"b,c\n'])).map("".join)
)
def test_records_equal_the_csv_modules_or_raise_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "any.csv"
    path.unlink(missing_ok=True)
    path.write_bytes(content.encode())
    try:
        flow = fl.from_csv(path, header=False)
        rows = flow.collect()
    except FlowError:
        return
    expected = csv.reader(io.StringIO(content, newline=""), strict=True)
    assert rows == [tuple(row) for row in expected if row]
    read = reader_of(flow)
    assert [read(i) for i in range(len(rows))[::-1]] == rows[::-1]


OPTIONS: list[dict[str, Any]] = [
    {"escapechar": "\\"},
    {"skipinitialspace": True},
    {"comment": "#"},
    {"escapechar": "\\", "skipinitialspace": True, "comment": "#"},
    {"escapechar": "\\", "comment": "#", "quotechar": None},
]


def parsed(content: str, options: dict[str, Any]) -> list[tuple[str, ...]]:
    """Parse with the ``csv`` module, without the lines that begin a record as a comment does."""
    comment = options.get("comment")
    is_first = True

    def lines() -> Iterator[str]:
        nonlocal is_first
        for line in io.StringIO(content, newline="\n"):
            if not (is_first and comment and line.startswith(comment)):
                is_first = False
                yield line

    of_csv = {name: option for name, option in options.items() if name != "comment"}
    if "quotechar" in options:
        of_csv |= {"quoting": csv.QUOTE_NONE}
    rows = []
    for row in csv.reader(lines(), strict=True, **of_csv):
        is_first = True
        rows += [tuple(row)] if row else []
    return rows


def is_table(content: str, options: dict[str, Any]) -> bool:
    """Return True if a file is a table to the ``csv`` module."""
    try:
        return len(set(map(len, parsed(content, options)))) < 2
    except csv.Error:
        return False


PARTS = ["a", "a", ",", '"', "\n", "\r\n", " ", "\\", "#", '"a"', "\\\n", '#"', "\n#", '","', '""']


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example('# "\n#,"\n"\n#"\na\n')
@example("a\\\n#b\n# c\\\nd\n")
@example('#\na,  "b\n"\n  "c\\"",d\n# e')
@example('a,aaaa, "\n",aa\n')
@example("a\\\n#b\\\nc\n")
@example("aaaaaa\\\nb\n")
@example("a\\\\\nb\n")
@example("#aaaaaaaaaa\na\n")
@example("#aaaaa\n,#\na,a\n")
@given(st.lists(st.sampled_from(PARTS), max_size=18).map("".join))
def test_options_mean_what_they_mean_to_the_csv_module(
    tmp_path: Path, options: dict[str, Any], content: str
) -> None:
    path = tmp_path / "any.csv"
    path.unlink(missing_ok=True)
    path.write_bytes(content.encode())
    try:
        flow = fl.from_csv(path, header=False, **options)
        rows = flow.collect()
    except FlowError:
        assert "\r" in content or not is_table(content, options)
        return
    assert rows == parsed(content, options)
    read = reader_of(flow)
    assert [read(i) for i in range(len(rows))[::-1]] == rows[::-1]


TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.tuples(*[st.text(st.sampled_from('a\xe4,;"\n\r \t'), max_size=5)] * width), max_size=9
    )
)


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES, st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n"]))
def test_files_written_by_the_csv_module_are_read(
    tmp_path: Path, rows: list[tuple[str, ...]], delimiter: str, end: str
) -> None:
    path = tmp_path / "any.csv"
    path.unlink(missing_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(
            file,
            delimiter=delimiter,
            lineterminator=end,
            quoting=csv.QUOTE_ALL,  # Python before 3.13 leaves a carriage return without quotes
        ).writerows(rows)
    flow = fl.from_csv(path, header=False, delimiter=delimiter)
    assert flow.collect() == rows
    names = [str(i) for i in range(len(rows[0]))] if rows else ["0"]
    named = fl.from_csv(path, header=False, columns=names, delimiter=delimiter)
    assert named.collect() == [dict(zip(names, row, strict=True)) for row in rows]


def test_other_readers_read_written_files(path: Path) -> None:
    arrow: Any = import_module("pyarrow.csv")
    flowers = [Flower('a, "b"\nc', 3, 0.1), Flower("", -1, None)]
    assert fl.from_items(flowers).write_csv(path) == 2
    assert path.read_bytes() == b'name,petals,height\r\n"a, ""b""\nc",3,0.1\r\n,-1,\r\n'
    with path.open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ['a, "b"\nc', ""]
    table = arrow.read_csv(path, parse_options=arrow.ParseOptions(newlines_in_values=True))
    assert table.to_pydict()["height"] == [0.1, None]
    arrow.write_csv(table, path.with_suffix(".arrow.csv"))
    assert fl.from_csv(path.with_suffix(".arrow.csv"), Flower).collect() == flowers


def test_long_cell_is_read(path: Path) -> None:
    fl.from_items([("a" * 1_000_000, "b"), ("c", "d" * 200_000)]).write_csv(path)
    rows = fl.from_csv(path, header=False).collect()
    assert [len(cell) for row in rows for cell in row] == [1_000_000, 1, 1, 200_000]


def test_file_may_be_indexed_with_two_options(path: Path) -> None:
    path.write_text('a\n"b\nc"\n')
    for _ in range(2):  # each has an index of its own
        assert fl.from_text(path).collect() == ["a", '"b', 'c"']
        assert fl.from_csv(path).collect() == [{"a": "b\nc"}]
        assert len(fl.from_csv(path, quotechar=None)) == 2


def test_quotechar_none_reads_quotes_as_characters(path: Path) -> None:
    path.write_text("size,name\n\"5,it's\n6,'\n")
    with pytest.raises(SourceError, match="line 2 has a quote that is never closed; quotechar"):
        fl.from_csv(path)
    rows = [{"size": '"5', "name": "it's"}, {"size": "6", "name": "'"}]
    assert fl.from_csv(path, quotechar=None).collect() == rows
    path.write_text("a,b\n'x,\ny',z\n")
    assert fl.from_csv(path, quotechar="'").collect() == [{"a": "x,\ny", "b": "z"}]


# -- headers and columns ---------------------------------------------------------------------------


def test_rows_are_dicts_of_text(path: Path) -> None:
    path.write_text("\ufeffname,petals\nrose,5\nlily,\n")
    assert fl.from_csv(path).collect() == [
        {"name": "rose", "petals": "5"},
        {"name": "lily", "petals": ""},
    ]
    assert str(fl.from_csv(path).spec) == "{name: str, petals: str}"
    assert fl.from_csv(path, dict[str, str]).collect() == fl.from_csv(path).collect()
    assert len(fl.from_csv(path)) == 2
    chosen = fl.from_csv(path, columns=["petals"])
    assert chosen.collect() == [{"petals": "5"}, {"petals": ""}]
    assert chosen.node.fingerprint != fl.from_csv(path).node.fingerprint
    assert fl.from_csv(path, columns=["petals", "name"]).collect()[0] == {
        "petals": "5",
        "name": "rose",
    }


def test_file_without_a_header(path: Path) -> None:
    path.write_text("rose,5\nlily,6\n")
    assert fl.from_csv(path, header=False).collect() == [("rose", "5"), ("lily", "6")]
    named = fl.from_csv(path, header=False, columns=["name", "petals"])
    assert named.collect()[1] == {"name": "lily", "petals": "6"}
    assert fl.from_csv(path, tuple[str, int], header=False).collect()[0] == ("rose", 5)

    class Kind(NamedTuple):
        kind: str
        petals: int

    assert fl.from_csv(path, Kind, header=False).collect()[1] == Kind("lily", 6)
    turned = fl.from_csv(path, Kind, header=False, columns=["kind", "petals"])
    assert turned.collect()[0] == Kind("rose", 5)
    assert "the row has 2 cells, but there are 3 columns" in message_of(
        fl.from_csv(path, header=False, columns=["a", "b", "c"])
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty: it has no header"),
        ("\n\r\n", "has no header"),
        ("name,name,b,b,c\n", "names 'b', 'name' more than once"),
        ('a,b\n"x\ny,1\n', "line 2 has a quote that is never closed"),
        ('a"b,"x\nc\n', "line 1 has a quote that is never closed"),
        ('a,b\n"5,1\n2,2\n"6,1\n', "begins on line 2 has a quote that is closed on line 4, in"),
    ],
)
def test_invalid_table_is_refused_at_once(path: Path, content: str, reason: str) -> None:
    path.write_text(content)
    with pytest.raises(SourceError, match=reason) as failed:
        fl.from_csv(path)
    assert str(path) in str(failed.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a,b\n1,2\n3\n", "line 3 (byte 8): the row has 1 cell, but there are 2 columns"),
        ("a,b\n1,2\n3,4,5\n", "line 3 (byte 8): the row has 3 cells"),
        ("\na,b\n\n1,2\n\r\n3\n\n", "line 6 (byte 12): the row has 1 cell"),
        ('a,b\n"x\n\ny",2\n3\n', "line 5 (byte 13): the row has 1 cell,"),
        ('a,b\n"x"y,2\n', "line 2 (byte 4): a quoted cell in it has a quote that is not doubled"),
        ('a,b\r\n1,"6" x"\r\n', "not doubled; double the quotes in a quoted cell; quotechar=None"),
        ("a,b\n1,2\rx\n", "line 2 (byte 4): a carriage return in it is not in quotes"),
        ("a,b\n1,\xff\n", "line 2 (byte 4): byte 6 is not utf-8"),
    ],
)
def test_row_with_wrong_number_of_cells_is_named(path: Path, content: str, reason: str) -> None:
    path.write_bytes(content.encode("latin-1"))
    message = message_of(fl.from_csv(path))
    assert str(path) in message
    assert reason in message


@pytest.mark.usefixtures("small")
def test_one_bad_row_does_not_hide_other_rows(path: Path) -> None:
    rows = [f"{i},{i * i}" for i in range(30)]
    rows[13] = "13"
    path.write_text("\n".join(["a,b", *rows]))
    got = fl.from_csv(path, tuple[int, int]).prefetch(on_error="skip").collect()
    assert got == [(i, i * i) for i in range(30) if i != 13]


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["1", "2", "x", '"3\n"', '"x\n"', "", "\r"]), max_size=30),
    st.data(),
)
def test_rows_read_in_any_order_are_right_beside_bad_rows(
    tmp_path: Path, cells: list[str], data: st.DataObject
) -> None:
    path = tmp_path / "any.csv"
    path.unlink(missing_ok=True)
    path.write_text("".join(f"{cell}\n" for cell in ["n", *cells]))
    rows = [cell for cell in cells if cell not in ("", "\r")]
    flow = fl.from_csv(path, tuple[str], header=True)
    assert flow.collect() == [(cell.strip('"'),) for cell in rows]
    if all("x" in cell for cell in rows[:10]):  # checked when the flow is built
        return
    read = reader_of(fl.from_csv(path, tuple[int], header=True))
    for i in data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=60)):
        if "x" in rows[i]:
            with pytest.raises(SpecMismatch, match=r"any\.csv', line"):
                read(i)
        else:
            assert read(i) == (int(rows[i].strip('"')),)


class Counting:
    """A parser of lines of digits, which counts the rows that it parses."""

    syntax: None = None
    keeps_empty_lines = True

    def __init__(self) -> None:
        self.count = 0

    def parse(self, data: bytes, skip: int = 0) -> list[int]:
        lines = data.split()[skip:]
        self.count += len(lines)
        return list(map(int, lines))


@pytest.mark.parametrize(("bad", "most"), [(0, 1), (1, 2), (200, 4), (5_000, 4)])
def test_bad_rows_do_not_parse_their_block_again_and_again(
    path: Path, bad: int, most: float
) -> None:
    count = 5_000
    path.write_text("".join("x\n" if k < bad else f"{k}\n" for k in range(count)))
    parser = Counting()
    read = text_blocks.reader(
        [text_indexing.text_file("from_csv", str(path))], 0, parser, "from_csv"
    )
    for i in range(count):
        if i < bad:
            with pytest.raises(SourceError, match=rf"line {i + 1} "):
                read(i)
        else:
            assert read(i) == i
    assert parser.count <= most * count


def test_rows_read_at_random_are_parsed_singly(path: Path) -> None:
    count = 20_000
    path.write_text("".join(f"{k}\n" for k in range(count)))
    parser = Counting()
    read = text_blocks.reader(
        [text_indexing.text_file("from_csv", str(path))], 0, parser, "from_csv"
    )
    order = np.random.default_rng(0).permutation(count)
    assert [read(i) for i in order.tolist()] == order.tolist()
    assert parser.count < 3 * count  # a few are near the row before, and parse their block


def test_files_have_the_same_columns(tmp_path: Path) -> None:
    for k, header in enumerate(["a,b", "a,b", "b,a"]):
        (tmp_path / f"{k}.csv").write_text(f"{header}\n{k},x\n")
    two = fl.from_csv([tmp_path / "1.csv", tmp_path / "0.csv"])
    assert two.collect() == [{"a": "1", "b": "x"}, {"a": "0", "b": "x"}]
    with pytest.raises(SourceError, match=r"2\.csv.*\['b', 'a'\].*0\.csv.*\['a', 'b'\]"):
        fl.from_csv(tmp_path / "*.csv")


@pytest.mark.filterwarnings("ignore")
def test_rows_are_read_from_a_url() -> None:
    fsspec: Any = import_module("fsspec")
    with fsspec.open("memory://tables/a.csv", "w") as file:
        file.write("a\n1\n2\n")
    assert fl.from_csv("memory://tables/a.csv", tuple[int]).collect() == [(1,), (2,)]


def test_other_encoding_is_read(path: Path) -> None:
    path.write_bytes("n\xe4me,b\n\xfc,1\n".encode("latin-1"))
    assert fl.from_csv(path, encoding="latin-1").collect() == [{"n\xe4me": "\xfc", "b": "1"}]
    with pytest.raises(SourceError, match=r"from_csv: .* line 1 .* is not utf-8"):
        fl.from_csv(path)


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "big5", "euc_kr"])
def test_text_of_several_bytes_a_character_is_read(path: Path, encoding: str) -> None:
    cells = [
        bytes([lead, trail]).decode(encoding, "ignore")
        for lead in range(129, 255)
        for trail in (0x41, 0x5C, 0x7C, 0xA1)
    ]
    rows = [f"{i},{cell}" for i, cell in enumerate(cells) if len(cell) == 1 and ord(cell) > 127]
    assert len(rows) > 80
    path.write_bytes("\n".join(["i,cell", *rows]).encode(encoding))
    flow = fl.from_csv(path, encoding=encoding)
    assert [f"{row['i']},{row['cell']}" for row in flow] == rows
    assert flow.at(50)["cell"] == rows[50].split(",")[1]


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        ("iso2022_jp", "'iso2022_jp' writes other characters with the bytes of ASCII characters"),
        ("iso2022_kr", "cannot be split into rows before it is decoded; convert the file first"),
        ("hz", "'hz' writes other"),
        ("utf-7", "'utf-7' writes other"),
        ("idna", "encoding 'idna': "),
    ],
)
def test_an_encoding_with_shifts_is_refused_by_name(path: Path, encoding: str, reason: str) -> None:
    path.write_text("a,b\n")
    with pytest.raises(InvalidFlow, match=reason):
        fl.from_csv(path, encoding=encoding)


def test_a_delimiter_that_is_a_part_of_characters_is_refused(path: Path) -> None:
    path.write_text("a|b\n1|2\n")
    with pytest.raises(InvalidFlow, match=r"'\|' cannot be found .* encoding 'shift_jis'"):
        fl.from_csv(path, delimiter="|", encoding="shift_jis")
    assert fl.from_csv(path, delimiter="|", encoding="euc_jp").collect() == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"comment": "##"}, "comment must be one ASCII character, or None, got '##'"),
        ({"comment": ","}, "comment must be a character that is not the delimiter, got ','"),
        ({"escapechar": '"'}, "escapechar must be a character that is not the quotechar"),
        ({"escapechar": "#", "comment": "#"}, "escapechar must be .* not the comment"),
        ({"skipinitialspace": 1}, "skipinitialspace must be True or False, got 1"),
        ({"decimal": ";"}, r"decimal must be '\.' or ',', got ';'"),
        ({"decimal": ","}, "decimal=',' is for floats that an element declares"),
        ({"delimiter": ""}, "delimiter must be one ASCII character"),
        ({"delimiter": ";;"}, "delimiter must be"),
        ({"delimiter": "\n"}, "delimiter must be"),
        ({"delimiter": '"'}, "quotechar must be .* not the delimiter"),
        ({"quotechar": ""}, "quotechar must be"),
        ({"quotechar": "\u201c"}, "quotechar must be"),
        ({"encoding": "utf-16"}, "encoding must be"),
        ({"columns": []}, "columns must be a list"),
        ({"columns": "ab"}, "columns must be a list"),
        ({"columns": ["a", "a"]}, "columns must be .* each once"),
        ({"columns": ["a", "z"]}, r"columns has 'z'; the columns of .* are \['a', 'b'\]"),
    ],
)
def test_arguments_that_cannot_form_a_table_are_refused(
    path: Path, arguments: Any, reason: str
) -> None:
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidFlow, match=reason):
        fl.from_csv(path, **arguments)


def test_lines_of_comments_are_skipped(path: Path) -> None:
    path.write_text('# made by "us\na,b\n#1,2\n3,#4\n"\n# 5",6\n# end')
    flow = fl.from_csv(path, comment="#")
    assert flow.collect() == [{"a": "3", "b": "#4"}, {"a": "\n# 5", "b": "6"}]
    path.write_text("# one\n#two\na\n1\n# x\nx\n")
    with pytest.raises(ElementError, match=r"line 6 \(byte 19\): column 'a': 'x' is not"):
        fl.from_csv(path, tuple[int], comment="#", header=True).collect()


def test_escaped_quotes_delimiters_and_newlines_are_text(path: Path) -> None:
    path.write_text('a,b\n"5\\" wide",1\\,5\nx\\\ny,\\\\\n')
    flow = fl.from_csv(path, escapechar="\\")
    assert flow.collect() == [{"a": '5" wide', "b": "1,5"}, {"a": "x\ny", "b": "\\"}]
    assert len(flow) == 2
    assert "escapechar='\\\\' reads \\\" as a quote" in message_of(fl.from_csv(path, columns=["a"]))
    path.write_text("a,b\n1,2\\")
    unfinished = fl.from_csv(path, escapechar="\\", quotechar=None)
    assert "it ends with the escape character" in message_of(unfinished)


def test_an_escaped_quote_without_escapechar_is_an_error_with_the_argument(path: Path) -> None:
    for content in ('a,b\n"5\\"",1\n', 'a,b\n"x\n5\\" wide",1\n'):
        path.write_text(content)
        with pytest.raises(SourceError, match=r"escapechar='\\\\' those behind a backslash"):
            fl.from_csv(path)
        assert len(fl.from_csv(path, escapechar="\\")) > 0


def test_spaces_before_quotes_are_skipped(path: Path) -> None:
    path.write_text('a, b\n  "1", "x,\ny"\n2,  z \n')
    rows = fl.from_csv(path, skipinitialspace=True).collect()
    assert rows == [{"a": "1", "b": "x,\ny"}, {"a": "2", "b": "z "}]


class Measured(NamedTuple):
    place: str
    height: float
    width: np.float32 | None


def test_a_decimal_comma_is_read_where_floats_are_declared(path: Path) -> None:
    path.write_text("place;height;width\n1,5;-2,5e3;\nb;,5;1,25\n")
    flow = fl.from_csv(path, Measured, delimiter=";", decimal=",")
    assert flow.collect() == [Measured("1,5", -2500.0, None), Measured("b", 0.5, np.float32(1.25))]
    path.write_text("place;height;width\na;1.000,5;\n")
    with pytest.raises(SpecMismatch, match=r"'1\.000,5' is not .* float with decimal=','"):
        fl.from_csv(path, Measured, delimiter=";", decimal=",")


def test_options_are_in_the_fingerprint(path: Path) -> None:
    path.write_text("height\n1\n")
    flows = [
        fl.from_csv(path, tuple[float], header=True),
        fl.from_csv(path, tuple[float], header=True, decimal=","),
        *(fl.from_csv(path, tuple[float], header=True, **options) for options in OPTIONS),
    ]
    assert len({flow.node.fingerprint for flow in flows}) == len(flows)


def test_the_programs_limit_on_cells_is_kept(path: Path) -> None:
    limit = csv.field_size_limit(3)
    try:
        path.write_text("a\nbcdef\n")
        assert fl.from_csv(path).collect() == [{"a": "bcdef"}]
        path.write_text('a\nbcd"ef\n"gh"ij\n')
        with pytest.raises(ElementError):
            fl.from_csv(path).collect()
        assert csv.field_size_limit() == 3
    finally:
        csv.field_size_limit(limit)


def test_a_thread_does_not_rely_on_the_limit_on_cells_of_another() -> None:
    entered, left = Event(), Event()

    def limit_in_another() -> int:
        with _size_allowed(3000):
            entered.set()
            left.wait()
            return csv.field_size_limit()

    limit = csv.field_size_limit(2000)
    try:
        with ThreadPoolExecutor(1) as thread:
            with _size_allowed(4000):
                other = thread.submit(limit_in_another)
                entered.wait(0.05)
            left.set()
            assert other.result() == 3000
        assert csv.field_size_limit() == 2000
    finally:
        csv.field_size_limit(limit)


# -- declared elements -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "content", "rows"),
    [
        (Flower, "petals,name,height\n5,rose,\n", [Flower("rose", 5, None)]),
        (Point, "y,x\n1,2.5\n", [Point(2.5, 1.0)]),
        (Labeled, "label,text\n7,a\n", [{"text": "a", "label": np.int64(7)}]),
        (Scored, "score,is_good\n0.1,TRUE\n", [Scored(np.float32(0.1), True)]),
        (tuple[int, str], "a,b\n1,2\n", [(1, "2")]),
    ],
)
def test_elements_are_of_the_declared_class(
    path: Path, form: Any, content: str, rows: list[Any]
) -> None:
    path.write_text(content)
    flow = fl.from_csv(path, form)
    got = flow.collect()
    assert got == rows
    assert [type(x) for x in got] == [type(x) for x in rows]


def test_records_can_be_batched(path: Path) -> None:
    fl.from_items([Point(1, 2), Point(3, 4)]).write_csv(path)
    (batch,) = fl.from_csv(path, Point).batch(2)
    assert type(batch) is PointBatch
    np.testing.assert_array_equal(batch.x, [1.0, 3.0])


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (int, " -12 ", -12),
        (int, "9" * 30, int("9" * 30)),
        (float, "1e-3", 1e-3),
        (float, "-inf", -np.inf),
        (float, "3", 3.0),
        (bool, "False", False),
        (bool, "1", True),
        (str, " a ", " a "),
        (str, "", ""),
        (str | None, "", None),
        (int | None, "", None),
        (int | None, "0", 0),
        (np.uint8, "255", np.uint8(255)),
        (np.float32, "16777217.0000001", np.float32("16777217.0000001")),
        (np.bool_, "true", np.True_),
    ],
)
def test_cells_are_parsed_by_their_declared_type(
    path: Path, form: Any, text: str, value: object
) -> None:
    path.write_text(f'a,b\n"{text}",0\n')
    pair: Any = tuple[form, int]
    ((got, _),) = fl.from_csv(path, pair).collect()
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *((int, text) for text in ["", "1.0", "1_0", "\u0663", "0x1", "a", "1e3", "1" * 5000]),
        *((float, text) for text in ["", "1,5", "1_0.0", "\u0663", "1e999", "a"]),
        *((bool, text) for text in ["", "yes", "2", "t"]),
        *((np.uint8, text) for text in ["256", "-1", "1.5"]),
        *((np.float16, text) for text in ["70000", "x"]),
        *((int | None, text) for text in ["None", "-"]),
    ],
)
def test_cell_of_another_type_is_named(path: Path, form: Any, text: str) -> None:
    path.write_text(f'text,cell\na,"{text}"\n')
    pair: Any = tuple[str, form]
    with pytest.raises(SpecMismatch, match=r"line 2 \(byte 10\): column 'cell': ") as failed:
        fl.from_csv(path, pair)
    assert text[:80] in str(failed.value)
    assert str(path) in str(failed.value)


def test_a_later_cell_of_another_type_is_named_when_it_comes(path: Path) -> None:
    path.write_text("a,b\n1,2\n3,x\n")
    flow = fl.from_csv(path, tuple[int, int])
    with pytest.raises(ElementError):
        flow.collect()
    assert message_of(flow) == (
        f"{str(path)!r}, line 3 (byte 8): column 'b': 'x' is not of the declared type, int"
    )
    path.write_text("y,x\n1,1\n1,-1\n")
    assert (
        "line 3 (byte 8): cannot construct Point from a row: ValueError('x is negative')"
        in message_of(fl.from_csv(path, Point))
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("name,petals\n", "it has no 'height'$"),
        ("Name,petals,height\n", "it has no 'name'; not declared: 'Name'$"),
    ],
)
def test_header_is_checked_against_the_declaration(path: Path, content: str, reason: str) -> None:
    path.write_text(content)
    with pytest.raises(SpecMismatch, match=reason):
        fl.from_csv(path, Flower)


def test_only_declared_columns_are_read(path: Path) -> None:
    path.write_text("age,name,petals,x,height\n?,rose,5,?,1.5\n?,lily,6,?,\n")
    rows = [Flower("rose", 5, 1.5), Flower("lily", 6, None)]
    assert fl.from_csv(path, Flower).collect() == rows
    names = ["age", "name", "petals", "x", "height"]
    other = path.with_name("other.csv")
    other.write_text("?,rose,5,?,1.5\n?,lily,6,?,\n")
    assert fl.from_csv(other, Flower, header=False, columns=names).collect() == rows
    columns = ["age", "name", "petals", "height"]
    with pytest.raises(SpecMismatch, match="not declared: 'age', choose with columns="):
        fl.from_csv(path, Flower, columns=columns)
    message = r"from_csv: columns is \['name'\], but .*; columns has no 'petals', 'height'$"
    with pytest.raises(SpecMismatch, match=message):
        fl.from_csv(path, Flower, columns=["name"])
    moved = path.with_name("moved.csv")
    moved.write_text("name,age,petals,x,height\nrose,?,5,?,1.5\n")
    with pytest.raises(SourceError, match=r"the same columns in the same order$"):
        fl.from_csv([path, moved], Flower)
    moved.write_text("name,age,petals,y,height\nrose,?,5,?,1.5\n")
    with pytest.raises(SourceError, match=r"the same columns$"):
        fl.from_csv([path, moved], Flower)


def test_columns_limit_the_declared_components(path: Path) -> None:
    path.write_text("age,name,petals,height\nx,rose,5,1\n")
    flow = fl.from_csv(path, Flower, columns=["name", "petals", "height"])
    assert flow.collect() == [Flower("rose", 5, 1.0)]
    assert fl.from_csv(path, tuple[int], columns=["petals"]).collect() == [(5,)]
    with pytest.raises(SpecMismatch, match="has 4 columns"):
        fl.from_csv(path, tuple[int])


@pytest.mark.parametrize("form", [int, str, Nested, Pixels, tuple[int | str, int], list[int]])
def test_declaration_a_cell_cannot_hold_is_refused(path: Path, form: Any) -> None:
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidFlow, match=r"from_csv: (component|element)"):
        fl.from_csv(path, form)


# -- writing ---------------------------------------------------------------------------------------


def test_columns_are_written_by_name(path: Path) -> None:
    rows = [{"a": 1, "b": True}, {"b": False, "a": np.int8(2)}]
    fl.from_items(rows).write_csv(path)
    assert path.read_bytes() == b"a,b\r\n1,true\r\n2,false\r\n"
    fl.from_items([Scored(np.float32(0.1), True)]).write_csv(path, overwrite=True)
    assert path.read_bytes() == b"score,is_good\r\n0.1,true\r\n"


def test_tuples_have_no_header(path: Path) -> None:
    rows = [(1, "a", 0.1), (2, "b", 1e300)]
    fl.from_items(rows).write_csv(path)
    assert path.read_bytes() == b"1,a,0.1\r\n2,b,1e+300\r\n"
    assert fl.from_csv(path, tuple[int, str, float], header=False).collect() == rows


def test_flow_without_rows_writes_a_header_if_names_are_known(path: Path) -> None:
    rows = fl.from_items([Flower("a", 1, 2)])
    for empty in (rows.take(0), rows.filter(lambda row: row.name == "b")):
        assert empty.write_csv(path, overwrite=True) == 0
        assert fl.from_csv(path, Flower).collect() == []
    assert fl.from_items([]).write_csv(path, overwrite=True) == 0
    assert fl.from_csv(path, header=False).collect() == []


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.none() | st.just("a"), st.just("")), min_size=1, max_size=3))
def test_single_empty_cell_is_a_row(tmp_path: Path, rows: list[tuple[str | None, str]]) -> None:
    path = tmp_path / "any.csv"
    forms: list[Any] = [tuple[str | None], tuple[str]]
    for column, form in enumerate(forms):
        items = [(row[column],) for row in rows]
        fl.from_items(items).write_csv(path, overwrite=True)
        assert fl.from_csv(path, form, header=False).collect() == items


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(1,), (np.zeros(2),)], r"row 1: element\.0: .* got an array float64\[2\]"),
        (
            [{"a": 1}, {"b": 1}],
            r"row 1: element: its columns are \['b'\], the columns of earlier rows are \['a'\]",
        ),
        ([{"a": 1}, (1,)], "row 1: element: its columns are"),
        ([{"0": 1}, (1,)], "row 1: element: its columns are"),
        ([(1, 2), (1,)], "row 1: element: its columns are"),
        ([(1,), 3], "row 1: element: a row is a NamedTuple, .* got int"),
        ([()], "row 0: element: a row is"),
        ([{1: 2}], "row 0: element: columns are named by text"),
        ([(b"a",)], r"row 0: element\.0: .* got bytes"),
        ([Nested(Flower("a", 1, 2))], r"row 0: element\.flower: .* got Flower"),
        ([("", None), (None, None)], r"row 1: element\.0: .* both None and ''"),
        ([("\ufeffa",)], r"row 0: element\.0: the first cell must not begin"),
        ([("a", "\ud800")], r"row 0: element\.1: .* cannot be encoded as UTF-8"),
        ([(10**5000,)], r"row 0: element\.0: Exceeds the limit"),
        ([(datetime(2024, 10, 27, 2, 30, fold=1),)], r"row 0: element\.0: .* cannot hold fold=1"),
        ([(np.datetime64("NaT", "us"),)], r"row 0: element\.0: .* got NaT of datetime64\[us\]"),
    ],
)
def test_value_a_cell_cannot_hold_is_refused(path: Path, rows: list[Any], reason: str) -> None:
    with pytest.raises(SpecMismatch, match=reason):
        fl.from_items(rows).write_csv(path)
    assert list(path.parent.iterdir()) == []


def test_first_line_that_may_be_a_row_requires_header_argument(path: Path) -> None:
    rows = [(10, 1.5), (20, 2.5)]
    fl.from_items(rows).write_csv(path)
    with pytest.raises(InvalidFlow, match=r"is \['10', '1.5'\], which may be a header or a row"):
        fl.from_csv(path, tuple[int, float])
    assert fl.from_csv(path, tuple[int, float], header=False).collect() == rows
    assert fl.from_csv(path, tuple[int, float], header=True).collect() == rows[1:]
    path.write_text("a,b\n10,1.5\n")
    assert fl.from_csv(path, tuple[int, float]).collect() == rows[:1]


@pytest.mark.parametrize("header", [0, "infer", 1])
def test_file_with_or_without_a_header(path: Path, header: Any) -> None:
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidFlow, match="header must be True or False, got "):
        fl.from_csv(path, header=header)


@pytest.mark.parametrize("where", ["in one piece", "over pieces"])
def test_quote_within_a_cell_does_not_lose_rows(
    path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "over pieces":
        monkeypatch.setattr(text_indexing, "_READ_BYTES", 7)
    lines = [
        '5",1',
        *(f"{i},2" for i in range(1000)),
        '6",3',
        '"a ""b""\n",4',
        '7" by 8",""',
        "9,5",
    ]
    path.write_text("\n".join(["size,n", *lines, ""]))
    with path.open(newline="") as file:
        expected = list(csv.DictReader(file))
    flow = fl.from_csv(path)
    assert len(expected) == 1005
    assert flow.collect() == expected
    read = reader_of(flow)
    assert [read(i) for i in reversed(range(1005))] == expected[::-1]
    assert flow.prefetch(on_error="skip").collect() == expected


def test_failing_row_of_several_lines_is_reported_with_all_lines(path: Path) -> None:
    path.write_text('a,b\n1,2\n"5,1\n2,2\n6",1,3\n3,4\n')
    rows = iter(fl.from_csv(path))
    next(rows)
    with pytest.raises(ElementError, match=r"lines 3 to 5 \(byte 8\): the row has 3 cells"):
        next(rows)


class NamedNumber(NamedTuple):
    name: str
    number: int


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_a_delimiter_that_gives_the_declared_columns_is_suggested(
    tmp_path: Path, delimiter: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"name{delimiter}number\none{delimiter}1\n")
    with pytest.raises(SpecMismatch, match=re.escape(f"delimiter={delimiter!r}") + "$"):
        fl.from_csv(path, NamedNumber)
    rows = fl.from_csv(path, NamedNumber, delimiter=delimiter)
    assert rows.collect() == [NamedNumber("one", 1)]


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (b"PK\x03\x04", "zip archive"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"SQLite format 3\0", "SQLite"),
        (b"\x93NUMPY", "NumPy"),
    ],
)
def test_a_file_that_is_not_text_is_named(tmp_path: Path, begin: bytes, what: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(begin + b"a,b\n1,2\n")
    for read in (fl.from_csv, fl.from_text):
        with pytest.raises(SourceError, match=f"is not text but .*{what}"):
            read(path)


def test_text_that_begins_with_the_name_of_a_format_is_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for begin in ("PAR1", "SQLite", "PK", "ARROW1"):
        path.write_text(f"{begin},b\n1,2\n")
        assert fl.from_csv(path).collect() == [{begin: "1", "b": "2"}]
