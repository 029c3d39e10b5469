"""WebDataset tar files: samples of any writer by index, and WebDataset reads ours."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import attrs
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset.tariterators import group_by_keys, tar_file_iterator
from webdataset.writer import TarWriter

import flowdsl as fl
from flowdsl.elements.specs import ValueSpec
from flowdsl.errors import ElementError, FlowError, InvalidFlow, SourceError, SpecMismatch
from flowdsl.storage.webdataset import samples as ours
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples.tar"


class Pet(TypedDict):
    __key__: str
    txt: str
    cls: int
    jpg: bytes | None


@attrs.frozen
class Text:
    txt: str


def write_tar(path: Path, files: list[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> None:
    with tarfile.open(path, "w", format=form) as file:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def read_by_webdataset(path: Path) -> list[dict[str, Any]]:
    """Read with WebDataset's functions that do not leave a file open."""
    with path.open("rb") as file:
        files = [{**one, "__url__": ""} for one in tar_file_iterator(file)]  # pyright: ignore[reportArgumentType]  # it says TarFile, and opens one
    samples = list(group_by_keys(files))
    for sample in samples:
        del sample["__url__"]
    return samples


NAMES = st.text("ab/é", min_size=1, max_size=4).filter(lambda s: "//" not in s and s[0] != "/")
FILES = st.dictionaries(st.sampled_from(["jpg", "cls", "seg.png"]), st.binary(max_size=700))


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(NAMES, FILES.filter(bool)), max_size=8, unique_by=lambda one: one[0]),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.booleans(),
)
def test_samples_equal_webdatasets(
    tmp_path: Path, samples: list[tuple[str, dict[str, bytes]]], form: int, by_us: bool
) -> None:
    path = tmp_path / "samples.tar"
    rows = [{"__key__": f"{key}x{'y' * 90}", **files} for key, files in samples]
    if by_us:
        fl.from_items(rows).write_webdataset(path, overwrite=True)
    else:
        parts = [(f"{r['__key__']}.{e}", c) for r in rows for e, c in r.items() if e != "__key__"]
        write_tar(path, parts, form)  # type: ignore[arg-type]  # only keys are text
    source = fl.from_webdataset(path)
    got = source.collect()
    assert got == rows
    assert got == read_by_webdataset(path)
    row = source.node.open()  # type: ignore[attr-defined]  # an IndexedSource
    assert [row(i) for i in reversed(range(len(rows)))] == rows[::-1]


def test_files_written_by_webdataset_are_read(path: Path) -> None:
    with TarWriter(str(path)) as writer:
        for i in range(3):
            writer.write({"__key__": f"a/{i}", "cls": i, "txt": f"text {i}"})
    assert fl.from_webdataset(path).collect() == [
        {"__key__": f"a/{i}", "cls": b"%d" % i, "txt": b"text %d" % i} for i in range(3)
    ]


LONG = "\u65e5\u672c\u8a9e\u306e\u9577\u3044\u540d" * 10


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
@pytest.mark.parametrize("form", ["posix", "gnu"])
def test_long_names_in_other_letters_that_tar_cuts_are_read(tmp_path: Path, form: str) -> None:
    folder = LONG[:70]
    (tmp_path / folder).mkdir()
    for extension in ("cls", "txt"):
        (tmp_path / folder / f"{LONG}.{extension}").write_text(extension)
    command = ["tar", f"--format={form}", "--sort=name", "-cf", "samples.tar", folder]
    subprocess.run(command, cwd=tmp_path, check=True)
    rows = fl.from_webdataset(tmp_path / "samples.tar").collect()
    assert rows == [{"__key__": f"{folder}/{LONG}", "cls": b"cls", "txt": b"txt"}]


def test_attributes_of_files_may_be_any_bytes(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = {"SCHILY.xattr.user.x": "\udcff=\n"}  # a surrogate is a byte, here 255
        header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        assert b"\xff" in header
        file.fileobj.write(header)
        file.offset += len(header)
    assert fl.from_webdataset(path).collect() == [{"__key__": "a", "txt": b""}]


@pytest.mark.parametrize("key", ["SCHILY.xattr.user.xxh3", "OTHERSX.md5x", "user.xxh3"])
def test_attributes_of_files_may_have_any_names(path: Path, key: str) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo("a.txt")
        info.pax_headers = {key: "1234"}
        file.addfile(info)
    assert fl.from_webdataset(path).collect() == [{"__key__": "a", "txt": b""}]


def test_the_name_of_a_file_must_be_text(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT, encoding="latin-1") as file:
        folder = tarfile.TarInfo("\xe9")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
    assert fl.from_webdataset(path).collect() == []
    with tarfile.open(path, "a", format=tarfile.USTAR_FORMAT, encoding="latin-1") as file:
        file.addfile(tarfile.TarInfo("\xe9.txt"))
    with pytest.raises(SourceError, match="the name at byte 512 is not text"):
        fl.from_webdataset(path)


def test_braces_name_several_files(tmp_path: Path) -> None:
    for k in range(9, 12):
        fl.from_items([{"__key__": f"{k}", "cls": k}]).write_webdataset(tmp_path / f"s-{k:03}.tar")
    rows = fl.from_webdataset(tmp_path / "s-{009..011}.tar").collect()
    assert [row["cls"] for row in rows] == [b"9", b"10", b"11"]


class Captioned(TypedDict):
    jpg: bytes
    txt: NotRequired[str]


class Labeled(NamedTuple):
    jpg: bytes
    cls: int = -1
    txt: str | None = None


def test_a_file_that_is_not_required_may_be_missing(path: Path) -> None:
    rows = [{"__key__": "a", "jpg": b"1"}, {"__key__": "b", "jpg": b"2", "txt": "two"}]
    fl.from_items(rows).write_webdataset(path)
    captioned = fl.from_webdataset(path, Captioned)
    assert captioned.collect() == [{"jpg": b"1"}, {"jpg": b"2", "txt": "two"}]
    assert captioned.node.spec(False) == ValueSpec(dict)
    labeled = fl.from_webdataset(path, Labeled).prefetch(threads=1).collect()
    assert labeled == [Labeled(b"1"), Labeled(b"2", -1, "two")]


def test_members_outside_samples_are_skipped(path: Path) -> None:
    files = ["README", "a.JPG", "__about__/x.json", "a.txt", "b.v1/c.jpg"]
    write_tar(path, [(name, name.encode()) for name in files])
    with tarfile.open(path, "a") as file:
        for name, kind in [("d", tarfile.DIRTYPE), ("d/link.jpg", tarfile.SYMTYPE)]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "x" * 120
            file.addfile(info)
        info = tarfile.TarInfo("b.v1/c.txt")
        file.addfile(info)
    assert fl.from_webdataset(path).collect() == [
        {"__key__": "a", "jpg": b"a.JPG", "txt": b"a.txt"},
        {"__key__": "b.v1/c", "jpg": b"b.v1/c.jpg", "txt": b""},
    ]


def test_files_that_are_no_samples_alone_are_an_error(path: Path) -> None:
    write_tar(path, [("a/readme", b"x"), ("a/licence", b"y")])
    with pytest.raises(SourceError, match="no samples: 'a/readme' has no extension"):
        fl.from_webdataset(path)
    write_tar(path, [("__meta__/a.json", b"x")])
    assert fl.from_webdataset(path).collect() == []


def test_a_name_that_was_not_written_is_refused(path: Path) -> None:
    fl.from_items([{"__key__": "cat", "cls": b"3"}]).write_webdataset(path)
    with tarfile.open(path) as tar:
        (member,) = tar.getmembers()
        member.name = "cat_cls"
        content = tar.extractfile(member)
        assert content is not None
        data = content.read()
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(data))
    with pytest.raises(SourceError, match="'cat_cls' is not the name that was written there"):
        fl.from_webdataset(path)


def test_a_file_that_lost_its_digest_is_refused(path: Path) -> None:
    key, other = b"FLOWDSL.xxh3", b"other.record"
    fl.from_items([{"__key__": name, "cls": 3} for name in ("cat", "dog")]).write_webdataset(path)
    start, first, second = path.read_bytes().split(key)
    for damaged in (b"FL/WDSL.xxh3", b"FLOWDSL.XXH3", b"FLOWDSL=xxh3"):
        path.write_bytes(start + damaged + first + key + second)
        with pytest.raises(SourceError, match="the extended header at byte 0 is damaged"):
            fl.from_webdataset(path)
    for keys, message in [((key, other), "has no digest"), ((other, key), "has a digest")]:
        path.write_bytes(start + keys[0] + first + keys[1] + second)
        with pytest.raises(SourceError, match=f"'dog.cls' {message}, unlike the files before it"):
            fl.from_webdataset(path)


def test_files_are_converted_to_the_declared_types(path: Path) -> None:
    rows = [
        {"__key__": "cat", "txt": "Kätzchen", "cls": -3, "jpg": b"\xff"},
        {"__key__": "dog", "txt": "", "cls": 10**20},
    ]
    fl.from_items(rows).write_webdataset(path)
    assert fl.from_webdataset(path, Pet).collect() == [rows[0], {**rows[1], "jpg": None}]
    fl.from_items([{"__key__": "a", "txt": "b"}]).write_webdataset(path, overwrite=True)
    assert fl.from_webdataset(path, Text).collect() == [Text("b")]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"cls": 1}, "'txt' is missing"),
        ({"txt": "a", "cls": "one"}, "'cls' is not int"),
        ({"txt": b"\xff", "cls": 1}, "'txt' is not str"),
        ({"txt": "a", "cls": 1, "png": b""}, "has more than is declared: png"),
    ],
)
def test_sample_that_contradicts_its_declaration_fails_at_its_position(
    path: Path, sample: dict[str, Any], message: str
) -> None:
    good = {"__key__": "a", "txt": "a", "cls": 1}
    fl.from_items([good, {"__key__": "b", **sample}]).write_webdataset(path)
    rows = iter(fl.from_webdataset(path, Pet))
    assert next(rows) == {**good, "jpg": None}
    with pytest.raises(ElementError, match="row 1 of") as raised:
        next(rows)
    assert isinstance(raised.value.__cause__, SpecMismatch)
    assert message in str(raised.value.__cause__)


@pytest.mark.parametrize("element", [int, tuple[int, str], list[int], TypedDict("F", {"x": float})])  # type: ignore[operator]  # a class made here
def test_unsupported_declaration_is_refused(path: Path, element: Any) -> None:
    fl.from_items([{"__key__": "a", "x": 1}]).write_webdataset(path)
    with pytest.raises(InvalidFlow, match="from_webdataset: "):
        fl.from_webdataset(path, element)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 2), "row 1: element: tuple is not a sample"),
        ({"jpg": b""}, "row 1: element: it has no '__key__'"),
        ({"__key__": None, "jpg": b""}, "row 1: element.__key__: None cannot"),
        ({"__key__": "a.b", "jpg": b""}, "row 1: element.__key__: 'a.b' cannot"),
        ({"__key__": "/a", "jpg": b""}, "row 1: element.__key__: '/a' cannot"),
        ({"__key__": "a/../../b", "jpg": b""}, "leads out of the folder"),
        ({"__key__": "same", "jpg": b""}, "'same' is the key of an earlier row too"),
        ({"__key__": "a"}, "row 1: element: sample 'a' has no files"),
        ({"__key__": "a", "JPG": b""}, "row 1: element: 'JPG' cannot be a file's extension"),
        ({"__key__": "a", "x/y": b""}, "row 1: element: 'x/y' cannot be a file's extension"),
        ({"__key__": "a", "_x": b""}, "row 1: element: '_x' cannot be a file's extension"),
        ({"__key__": "a", "x": 1.5}, "row 1: element.x: float cannot be written"),
        ({"__key__": "a", "x": True}, "row 1: element.x: bool cannot be written"),
        ({"__key__": "a", "x": "\ud800"}, "row 1: element.x: not Unicode"),
    ],
)
def test_invalid_sample_is_refused(path: Path, row: Any, message: str) -> None:
    with pytest.raises(SpecMismatch, match=message):
        fl.from_items([{"__key__": "same", "x": 1}, row]).write_webdataset(path)
    assert not list(path.parent.iterdir())


def test_file_without_an_end_mark_is_refused(path: Path) -> None:
    write_tar(path, [("a.jpg", b"x" * 1000), ("b.jpg", b"y")])
    whole = path.read_bytes()
    end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
    for size in (100, 512, 1000, end - 1024, end, end + 512):
        path.write_bytes(whole[:size])
        with pytest.raises(SourceError, match=r"samples\.tar' is damaged or is not a tar file"):
            fl.from_webdataset(path)
    path.write_bytes(whole + whole)
    with pytest.raises(SourceError, match="something follows its end"):
        fl.from_webdataset(path)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_an_end_instead_of_the_file_of_a_header_is_refused(path: Path, form: int) -> None:
    write_tar(path, [(f"{'long' * 30}.txt", b"x")], form)
    header = path.read_bytes()[:1024]  # the long name, for the file that follows
    path.write_bytes(header + bytes(1024))
    with pytest.raises(SourceError, match="no file follows the extended header at byte 0"):
        fl.from_webdataset(path)


def test_a_compressed_file_is_refused_with_the_reason(path: Path) -> None:
    for mode, name in [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")]:
        with tarfile.open(path, mode) as file:  # type: ignore[call-overload]  # one of three modes
            file.addfile(tarfile.TarInfo("a.jpg"))
        with pytest.raises(SourceError, match=f"is compressed by {name}, so no sample can be read"):
            fl.from_webdataset(path)


def test_two_files_of_one_name_are_an_error(path: Path) -> None:
    write_tar(path, [("a.jpg", b"x"), ("a.JPG", b"y")])
    with pytest.raises(SourceError, match=r"tar': sample 'a' has two components 'jpg'"):
        fl.from_webdataset(path)


def test_damaged_headers_of_other_writers_raise_an_error_or_yield_samples(path: Path) -> None:
    files = [(f"{'long' * 30}/{i}.{e}", b"%d" % i) for i in range(3) for e in ("jpg", "cls")]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        write_tar(path, files, form)
        content = path.read_bytes()
        used = [i for i, byte in enumerate(content) if byte]
        draw, outcomes = random.Random(7), Counter[str]()
        for _ in range(150):
            changed = bytearray(content)
            changed[draw.choice(used)] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            try:
                fl.from_webdataset(path).collect()
                outcomes["samples"] += 1
            except FlowError as error:
                outcomes["error"] += 1
                outcomes["named"] += str(path) in f"{error} {error.__cause__}"
        assert outcomes["named"] == outcomes["error"] > 10


def test_files_and_urls_are_read_in_the_listed_order(tmp_path: Path) -> None:
    for i in range(2):
        rows = [{"__key__": f"{i}", "cls": i}]
        fl.from_items(rows).write_webdataset(tmp_path / f"{i}.tar")
        content = (tmp_path / f"{i}.tar").read_bytes()
        MemoryFileSystem().pipe_file(f"/tars/{i}.tar", content)
    for pattern in (tmp_path / "*.tar", "memory://tars/*.tar"):
        assert [one["cls"] for one in fl.from_webdataset(pattern)] == [b"0", b"1"]
    order = [tmp_path / "1.tar", tmp_path / "0.tar"]
    assert [one["cls"] for one in fl.from_webdataset(order)] == [b"1", b"0"]


def test_headers_are_scanned_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fl.from_items([{"__key__": f"{i}", "cls": i} for i in range(5)]).write_webdataset(path)
    os.utime(path, (1, 1))  # an index is trusted that is younger than its file
    assert len(fl.from_webdataset(path)) == 5

    def again(file: Any) -> Any:
        raise AssertionError("the file is scanned again")

    monkeypatch.setattr(ours, "_scan", again)
    assert len(fl.from_webdataset(path).collect()) == 5


def test_large_size_in_gnu_form_is_read(path: Path) -> None:
    write_tar(path, [("a.jpg", b"x" * 3)])
    content = bytearray(path.read_bytes())
    content[124:136] = b"\x80" + (3).to_bytes(11, "big")
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    assert fl.from_webdataset(path).collect() == [{"__key__": "a", "jpg": b"xxx"}]
    content[124:136] = b"\x80" + (2**60).to_bytes(11, "big")
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    with pytest.raises(SourceError, match=f"has {2**60} bytes: it is cut off"):
        fl.from_webdataset(path)


def test_a_file_that_is_cut_in_mid_pass_is_an_error_with_the_file_and_the_sample(
    path: Path,
) -> None:
    rows = [{"__key__": f"{i}", "txt": b"%d" % i * 600} for i in range(4)]
    for write in (
        lambda: fl.from_items(rows).write_webdataset(path, overwrite=True),
        lambda: write_tar(path, [(f"{row['__key__']}.txt", row["txt"]) for row in rows]),  # type: ignore[misc]
    ):
        write()
        source = fl.from_webdataset(path)
        elements = iter(source)
        assert next(elements) == rows[0]
        os.truncate(path, path.stat().st_size // 3)
        with pytest.raises(ElementError, match=r"samples\.tar.* has changed since it was opened"):
            list(elements)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.jpg", "b.jpg", "a.txt"], "'a.txt' comes after"),
        (["a.jpg", "b.jpg", "a.jpg"], "'a.jpg' comes after"),
        (["a.jpg", "README", "b.jpg", "b.txt", "c.jpg", "a.json"], "'a.json' comes after"),
    ],
)
def test_separated_files_of_a_sample_are_an_error(
    path: Path, names: list[str], message: str
) -> None:
    write_tar(path, [(name, b"x") for name in names])
    with pytest.raises(
        SourceError, match=rf"samples\.tar': sample 'a' is in two places: {message}"
    ):
        fl.from_webdataset(path)


def test_repeated_key_is_refused(path: Path) -> None:
    rows = [{"__key__": key, "x": 1} for key in "xyx"]
    with pytest.raises(SpecMismatch, match=r"row 2: element.__key__: 'x' is the key of an earlier"):
        fl.from_items(rows).write_webdataset(path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"path": "b.txt"}, "names or sizes of all files are set at byte 512, which is not"),
        ({"comment": "by hand"}, None),
    ],
)
def test_headers_for_all_files(headers: dict[str, str], message: str | None, path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers=headers) as file:
        file.addfile(tarfile.TarInfo("a.txt"))
    if message is None:
        assert fl.from_webdataset(path).collect() == [{"__key__": "a", "txt": b""}]
    else:
        with pytest.raises(SourceError, match=rf"tar': {message}"):
            fl.from_webdataset(path)


def test_sparse_files_are_not_supported(path: Path) -> None:
    member = tarfile.TarInfo("a.txt")
    member.pax_headers = {"GNU.sparse.size": "9"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(member)
    with pytest.raises(
        SourceError, match=r"tar': 'a.txt' is a sparse file, which is not supported"
    ):
        fl.from_webdataset(path)
