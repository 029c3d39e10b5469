"""flowdsl inspect and convert."""

from __future__ import annotations

import gzip
import json
import pickle
import shlex
from pathlib import Path
from typing import NamedTuple

import lmdb
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.cli.files import with_options
from flowdsl.storage.formats import FORMATS
from tests.cli.commands import Project


class Word(NamedTuple):
    text: str
    times: int


class Pair(NamedTuple):
    first: Word
    times: int
    second: Word


WORD = """
from typing import NamedTuple

class Word(NamedTuple):
    text: str
    times: int
"""
"""A file with the class."""

WORDS = [Word("to", 2), Word("be", 2), Word("or", 1)]


def write_words(suffix: str) -> str:
    """Write the words to a file of a format that can store text."""
    path = f"words.{suffix}"
    flow = fl.from_items(WORDS)
    if suffix == "h5":
        flow.write_hdf5(path, ["text", "times"])
    else:
        getattr(flow, f"write_{suffix}")(path)
    return path


SPECS = {"csv": "{text: str, times: str}", "arrayrecord": "(str, int)"}
TABLES = ["lmdb", "csv", "parquet", "tfrecord", "arrayrecord", "h5"]


@pytest.mark.parametrize("suffix", TABLES)
def test_inspect_says_what_a_file_holds(project: Project, suffix: str) -> None:
    found = json.loads(project.succeeds("inspect", write_words(suffix), "--json"))
    assert found["rows"] == 3
    assert found["reader"] in {one.reader for one in FORMATS}
    assert found["spec"] == SPECS.get(suffix, "(text: str, times: int)")
    assert "'to'" in found["first"]
    assert "3 rows" in found["digest"]


def test_inspect_prints_lines(project: Project) -> None:
    fl.from_items(["to be", "or not"]).write_text("two.txt")
    digest = fl.from_text("two.txt").node.fingerprint
    assert project.succeeds("inspect", "two.txt").splitlines() == [
        "format  text",
        "reader  from_text",
        "rows    2",
        "spec    str",
        f"digest  {digest}",
        "bytes   13",
        "first   'to be'",
    ]


def test_inspect_an_empty_file(project: Project) -> None:
    fl.from_items([b"a"]).take(0).write_tfrecord("none.tfrecord")
    assert "rows    0" in project.succeeds("inspect", "none.tfrecord")


def test_a_reader_and_a_class_can_be_named(project: Project) -> None:
    Path("notes.log").write_text("one\ntwo\n")
    project.write("rows.py", "from typing import NamedTuple\nclass W(NamedTuple):\n    n: int")
    fl.from_items([{"n": 7}]).write_csv("n.csv")
    assert "rows    2" in project.succeeds("inspect", "notes.log", "--reader", "from_text")
    assert "W(n=7)" in project.succeeds("inspect", "n.csv", "--element", "rows.py:W")
    assert "(bytes, bytes)" in project.succeeds(
        "inspect", write_words("lmdb"), "--reader", "from_lmdb_raw"
    )


@pytest.mark.parametrize("into", TABLES)
@pytest.mark.parametrize("suffix", ["lmdb", "h5", "parquet"])
def test_convert_keeps_rows(project: Project, suffix: str, into: str) -> None:
    printed = project.succeeds("convert", write_words(suffix), f"copy.{into}")
    assert printed.startswith(f"3 rows: words.{suffix} (")
    found = json.loads(project.succeeds("inspect", f"copy.{into}", "--json"))
    assert found["rows"] == 3
    assert "'to'" in found["first"]


@pytest.mark.parametrize("into", ["csv", "parquet"])
def test_convert_keeps_names(project: Project, into: str) -> None:
    project.succeeds("convert", write_words("lmdb"), f"copy.{into}")
    rows = getattr(fl, f"from_{into}")(f"copy.{into}", Word).collect()
    assert rows == WORDS


def test_convert_keeps_the_columns_of_a_table_without_rows(project: Project) -> None:
    Path("none.csv").write_text("text,times\n")
    assert project.succeeds("convert", "none.csv", "none.parquet").startswith("0 rows")
    found = json.loads(project.succeeds("inspect", "none.parquet", "--json"))
    assert found["spec"] == "{text: str, times: str}"
    project.write("el.py", WORD)
    project.succeeds("convert", "none.csv", "typed.parquet", "--element", "el.py:Word")
    found = json.loads(project.succeeds("inspect", "typed.parquet", "--json"))
    assert found["spec"] == "(text: str, times: int)"


def test_inspect_shows_the_names_of_nested_components(project: Project) -> None:
    pairs = fl.from_items([Word("to", 2)]).map(lambda word: Pair(word, 1, word))
    pairs.write_lmdb("pairs.lmdb")
    found = json.loads(project.succeeds("inspect", "pairs.lmdb", "--json"))
    inner = "(text: str, times: int)"
    assert found["spec"] == f"(first: {inner}, times: int, second: {inner})"


@pytest.mark.parametrize("pattern", ["part-*.csv", "part-{1..2}.csv", "*/part.csv"])
def test_a_pattern_is_inspected_and_converted(project: Project, pattern: str) -> None:
    for k in (1, 2):
        Path(f"{k}").mkdir()
        for name in (f"part-{k}.csv", f"{k}/part.csv"):
            fl.from_items(WORDS).map(Word._asdict).write_csv(name)
    found = json.loads(project.succeeds("inspect", pattern, "--json"))
    assert (found["rows"], found["bytes"]) == (6, 2 * Path("part-1.csv").stat().st_size)
    assert project.succeeds("convert", pattern, "all.parquet").startswith("6 rows")


def test_a_pattern_without_files_is_refused(project: Project) -> None:
    assert "no file matches" in project.refuses("inspect", "part-*.csv")
    assert "reads one file and expands no pattern" in project.refuses("inspect", "part-*.npz")


def test_empty_cells_are_filled(project: Project) -> None:
    Path("rows.csv").write_text("text,times\nto,2\n,\n")
    project.write("el.py", WORD)
    reading = "rows.csv", "rows.parquet", "--element", "el.py:Word"
    failed = project.run("convert", *reading)
    assert failed.exit_code == 1
    assert "fill empty cells with --fill NAME=VALUE" in failed.output
    project.succeeds("convert", *reading, "--fill", "times=7", "--fill", "text=none")
    assert fl.from_parquet("rows.parquet", Word).collect() == [("to", 2), ("none", 7)]
    assert "first   Word(text='to', times=2)" in project.succeeds(
        "inspect", "rows.csv", "--element", "el.py:Word", "--fill", "times=7"
    )
    project.succeeds("convert", "rows.csv", "texts.parquet", "--fill", "times=7")
    assert fl.from_parquet("texts.parquet").at(1) == {"text": "", "times": "7"}


def test_nulls_are_filled(project: Project) -> None:
    Path("rows.csv").write_text("text,times\nto,2\nbe,\n")
    gap = "class Gap(NamedTuple):\n    text: str\n    times: int | None\n"
    project.write("el.py", f"{WORD}\n{gap}")
    project.succeeds("convert", "rows.csv", "rows.parquet", "--element", "el.py:Gap")
    reading = "rows.parquet", "again.csv", "--element", "el.py:Word"
    assert "--fill times=VALUE" in project.run("convert", *reading).output
    project.succeeds("convert", *reading, "--fill", "times=7")
    assert Path("again.csv").read_text() == "text,times\nto,2\nbe,7\n"


def test_an_option_that_is_advised_is_quoted_for_the_shell() -> None:
    advised = with_options("write fill={'a b': ...}, or fill={\"it's\": ...}")
    assert shlex.split(advised)[1:] == ["--fill", "a b=VALUE,", "or", "--fill", "it's=VALUE"]


def test_convert_arrays(project: Project) -> None:
    np.save("a.npy", np.arange(6).reshape(3, 2))
    project.succeeds("convert", "a.npy", "a.h5")
    project.succeeds("convert", "a.h5", "a.npz")
    assert np.load("a.npz")["arr_0"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_convert_overwrites_when_asked(project: Project) -> None:
    path = write_words("csv")
    Path("b.txt").write_text("kept")
    assert project.refuses("convert", path, "b.txt") == (
        "'b.txt' exists; replace it with --overwrite"
    )
    assert Path("b.txt").read_text() == "kept"
    project.succeeds("convert", path, "b.parquet")
    project.succeeds("convert", path, "b.parquet", "--overwrite")


REFUSED = {
    ("inspect", "words.csv", "--element", "el.py:Nope"): "el.py has no 'Nope'; the classes of "
    "el.py are Word",
    ("inspect", "words.csv", "--element", "el.py"): "expected FILE.py:NAME or MODULE:NAME, such as "
    "train.py:Word, got 'el.py'; the classes of el.py are Word",
    ("inspect", "words.csv", "--element", "no.py:Nope"): "no.py has no 'Nope'; no.py has no "
    "classes",
    ("inspect", "words.csv", "--fill", "times"): "--fill must be NAME=VALUE, such as age=0, got "
    "'times'",
    ("inspect", "words.csv", "--fill", "times=1", "--fill", "times=2"): "--fill: 'times' has two "
    "values; name each column once",
    ("inspect", "words.lmdb", "--fill", "times=1"): "--fill: from_lmdb fills no columns; leave it "
    "out",
    ("inspect", "none.csv"): "the file 'none.csv' does not exist",
    ("inspect", "x.unknown"): "FILE: the end of 'x.unknown' names no format; expected one of "
    ".lmdb .tfrecord .arrayrecord .tar .parquet .h5 .npz .npy .csv .txt .svm .jpg, or name a "
    "reader: --reader from_text",
    ("convert", "words.csv", "x.npy"): "OUT: NPY files are read and not written; expected one of "
    ".lmdb .tfrecord .arrayrecord .tar .parquet .h5 .npz .csv .txt",
    ("convert", "words.csv", "x.unknown"): "OUT: the end of 'x.unknown' names no format; expected "
    "one of .lmdb .tfrecord .arrayrecord .tar .parquet .h5 .npz .csv .txt",
}


@pytest.mark.parametrize(("command", "sentence"), REFUSED.items())
def test_bad_input_is_a_sentence(project: Project, command: tuple[str, ...], sentence: str) -> None:
    write_words("csv")
    write_words("lmdb")
    project.write("el.py", WORD)
    project.write("no.py", "from pathlib import Path")
    assert project.refuses(*command) == sentence


def test_a_folder_of_files_is_not_opened_as_a_store(project: Project) -> None:
    Path("photos").mkdir()
    assert project.refuses("inspect", "photos").startswith(
        "FILE: 'photos' is a folder without a data.mdb"
    )


def test_pickled_rows_are_read_if_the_file_is_trusted(project: Project) -> None:
    with lmdb.open("tp.lmdb", subdir=False) as store, store.begin(write=True) as transaction:
        transaction.put(b"00000000", pickle.dumps([1, "a"]))
        transaction.put(b"__keys__", pickle.dumps([b"00000000"]))
    reading = "inspect", "tp.lmdb", "--reader", "from_tensorpack_lmdb"
    assert "--trusted" in project.refuses(*reading)
    assert "rows    1" in project.succeeds(*reading, "--trusted")
    write_words("csv")
    assert project.refuses("inspect", "words.csv", "--trusted") == (
        "--trusted: from_csv reads no pickled objects; leave it out"
    )


def test_a_store_of_another_program_names_the_reader(project: Project) -> None:
    Path("other.lmdb").write_bytes(b"nothing")
    assert project.refuses("inspect", "other.lmdb").endswith(
        "for a file of another program: --reader from_lmdb_raw"
    )


def test_rows_that_a_format_cannot_store_are_status_1(project: Project) -> None:
    result = project.run("convert", write_words("csv"), "x.txt")
    assert result.exit_code == 1
    assert "write_text: row 0: element: a line must be a str, got dict" in result.output
    assert not Path("x.txt").exists()


def test_suffixes_belong_to_one_format() -> None:
    suffixes = [suffix for one in FORMATS for suffix in one.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert all(one.suffixes for one in FORMATS if one.writer)


def test_a_compressed_table_is_inspected_and_converted(project: Project) -> None:
    with gzip.open("a.csv.gz", "wt", encoding="utf-8") as file:
        file.write("x,y\n1,2\n3,4\n")
    assert "rows    2" in project.succeeds("inspect", "a.csv.gz")
    assert "2 rows" in project.succeeds("convert", "a.csv.gz", "b.csv")
    assert Path("b.csv").read_text(encoding="utf-8").split() == ["x,y", "1,2", "3,4"]


def test_convert_keeps_names_of_a_column_with_none(project: Project) -> None:
    Path("rows.csv").write_text("a,b\n1,\n2,y\n")
    Path("el.py").write_text(
        "from typing import NamedTuple\nclass Row(NamedTuple):\n    a: int\n    b: str | None\n"
    )
    project.succeeds("convert", "rows.csv", "rows.parquet", "--element", "el.py:Row")
    project.succeeds("convert", "rows.parquet", "again.csv")
    assert Path("again.csv").read_text() == "a,b\n1,\n2,y\n"
