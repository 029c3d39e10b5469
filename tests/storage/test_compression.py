"""Compressed content: read anywhere as if it were not compressed, with bounded memory."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import ElementError, InvalidFlow, SourceError
from flowdsl.nodes import IndexedSource
from flowdsl.storage import compression
from flowdsl.storage.byte_files import open_file
from flowdsl.storage.compression import Compression, Inflated
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines.txt.gz"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use pieces and reads of a few bytes, and few places."""
    monkeypatch.setattr(compression, "PIECE", 5)
    monkeypatch.setattr(compression, "_INPUT", 3)
    monkeypatch.setattr(compression, "_MAX_CHECKPOINTS", 16)


def opened(path: Path, kind: Compression = "gzip") -> Inflated:
    return Inflated("from_text", open_file("from_text", str(path)), kind)


def lines(count: int) -> list[str]:
    chosen = random.Random(count)
    return [f"{i} {chosen.random()}" for i in range(count)]


def write(path: Path, rows: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))


# -- bytes of the content --------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 40)), max_size=8),
)
def test_any_bytes_are_read_as_from_the_content(
    path: Path, members: list[bytes], reads: list[tuple[int, int]]
) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(b"".join(map(gzip.compress, members)))
    content, file = b"".join(members), opened(path)
    for start, count in reads:
        assert file.read(start, count) == content[start : start + count]
    assert file.size == len(content)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["gzip", "zlib"])
def test_a_file_that_is_cut_off_or_damaged_is_an_error(path: Path, kind: Compression) -> None:
    content = random.Random(0).randbytes(40)
    data = gzip.compress(content, mtime=0) if kind == "gzip" else zlib.compress(content)
    for k in range(len(data)):
        path.write_bytes(data[:k])
        with pytest.raises(SourceError, match=r"lines.txt.gz.* it is cut short"):
            _ = opened(path, kind).size
        path.write_bytes(data[:k] + bytes([data[k] ^ 0x41]) + data[k + 1 :])
        try:
            assert opened(path, kind).read(0, 50) == content
        except SourceError as error:
            assert "lines.txt.gz" in str(error)  # noqa: PT017  # some bytes have no meaning


@pytest.mark.usefixtures("small")
def test_damage_is_an_error_from_its_place_on(path: Path) -> None:
    path.write_bytes(gzip.compress(bytes(range(100)))[:-20])
    file, end = opened(path), 0
    for _ in range(3):
        with pytest.raises(SourceError, match="damaged, near byte"):
            file.read(95, 5)
        assert file.read(7, 5) == bytes(range(7, 12))
    with pytest.raises(SourceError, match="damaged, near byte"):
        _ = file.size
    with suppress(SourceError):
        while file.read(end, 1):  # all that comes before the damage is there
            end += 1
    assert 70 < end < 95


def test_places_are_kept_only_for_reads_that_go_back(path: Path) -> None:
    content = random.Random(0).randbytes(20 * compression.PIECE)
    path.write_bytes(gzip.compress(content, 1))
    file = opened(path)
    for _ in range(2):  # two passes
        for start in range(0, len(content), 100_000):
            assert file.read(start, 100_000) == content[start : start + 100_000]
    assert len(file._checkpoints) == 1
    file.read(len(content) // 2, 1)
    file.read(len(content) - 1, 1)
    assert len(file._checkpoints) == 20


def test_files_share_the_limit_of_places(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "PIECE", 100)
    monkeypatch.setattr(compression, "_MAX_CHECKPOINTS", 64)
    content = random.Random(0).randbytes(20_000)
    path.write_bytes(gzip.compress(content, 1))
    before = len(compression._open)
    files = [opened(path) for _ in range(2)]
    for file in files:
        for start in (*range(19_999, 0, -1_313), 19_999):
            assert file.read(start, 10) == content[start : start + 10]
    most = 64 // (before + 2)
    assert all(most // 2 <= len(file._checkpoints) <= max(8, most) for file in files)
    files += [opened(path) for _ in range(2)]
    assert all(len(file._checkpoints) <= max(8, 64 // (before + 4)) for file in files)


# -- files of text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt.gz", "a.TXT.GZ", "a.txt"])
def test_the_name_or_the_content_says_that_a_file_is_compressed(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, ["one", "two"])
    for given_ in ("infer", "gzip"):
        assert fl.from_text(tmp_path / name, compression=given_).collect() == ["one", "two"]
    with pytest.raises(SourceError, match=r"compressed by gzip; pass compression='infer'"):
        fl.from_text(tmp_path / name, compression=None)


def test_a_name_that_is_wrong_is_an_error_that_says_so(path: Path) -> None:
    path.write_text("one\n")
    with pytest.raises(SourceError, match=r"cannot be read as gzip: .* another .*, or None"):
        fl.from_text(path)
    assert fl.from_text(path, compression=None).collect() == ["one"]


def test_other_compressions_are_refused(path: Path) -> None:
    path.write_bytes(gzip.compress(b"BZh91AY&SY"))
    with pytest.raises(SourceError, match=r"compressed by bzip2, .* with bunzip2, or compress it"):
        fl.from_text(path)
    path.write_bytes(gzip.compress(gzip.compress(b"a\n")))
    with pytest.raises(SourceError, match="compressed by gzip twice: decompress it once"):
        fl.from_text(path)
    with pytest.raises(InvalidFlow, match="must be 'infer', 'gzip' or None, got 'bz2'"):
        fl.from_text(path, compression="bz2")  # type: ignore[arg-type]


def test_the_name_of_tf_data_is_an_error_with_advice(path: Path) -> None:
    from_csv: Any = fl.from_csv
    with pytest.raises(InvalidFlow, match="or write compression='gzip'"):
        from_csv(path, compression_type="GZIP")


def test_a_file_without_content_has_no_lines(path: Path) -> None:
    path.write_bytes(gzip.compress(b""))
    assert fl.from_text(path).collect() == []
    path.write_bytes(b"")  # a download that was cut off at its beginning
    with pytest.raises(SourceError, match="it is cut short"):
        fl.from_text(path)


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_truncated_file_is_an_error_when_the_flow_is_built(path: Path, cut: int) -> None:
    write(path, lines(1000))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(SourceError, match=r"from_csv: .*lines.txt.gz' is damaged, near byte \d+: "):
        fl.from_csv(path, header=False)


def test_rows_are_those_of_the_plain_file_wherever_they_are_read(tmp_path: Path) -> None:
    rows = lines(30_000)
    for k in range(3):
        write(tmp_path / f"{k}.csv.gz", rows[k::3])
        (tmp_path / f"{k}.csv").write_text("".join(f"{row}\n" for row in rows[k::3]))
    plain = fl.from_csv(tmp_path / "*.csv", header=False)
    packed = fl.from_csv(tmp_path / "*.csv.gz", header=False)
    assert len(packed) == len(plain)
    changes: tuple[Callable[[Any], Any], ...] = (
        lambda flow: flow,
        lambda flow: flow.shuffle(seed=1).take(500),
        lambda flow: flow.shuffle(seed=1, block=100).take(5000),
        lambda flow: flow.shard(4, 1),
        lambda flow: flow.prefetch(procs=2),
        lambda flow: flow.shuffle(seed=2).take(500).prefetch(procs=2),
    )
    for change in changes:
        assert change(packed).collect() == change(plain).collect()


def test_a_run_resumes_within_a_compressed_file(path: Path) -> None:
    rows = lines(10_000)
    write(path, rows)
    flow = fl.from_text(path).shuffle(seed=3)
    run = iter(flow)
    first = [next(run) for _ in range(100)]
    with flow.resume(run.state_dict()) as rest:
        assert first + list(rest) == flow.collect()


def test_a_bad_row_has_its_line_and_byte_in_the_content(path: Path) -> None:
    rows = [*map(str, range(3000)), "x", *map(str, range(3000))]
    write(path, rows)
    flow = fl.from_csv(path, tuple[int], header=False)
    with pytest.raises(ElementError) as caught:
        flow.collect()
    assert f"lines.txt.gz', line 3001 (byte {sum(len(row) + 1 for row in rows[:3000])})" in str(
        caught.value.__cause__
    )
    assert len(flow.prefetch(on_error="skip").collect()) == 6000


def test_a_compressed_file_is_read_over_a_url(tmp_path: Path) -> None:
    rows = lines(2000)
    fs = fsspec.filesystem("memory")
    write(tmp_path / "a.gz", rows)
    fs.pipe("/compressed/a.txt.gz", (tmp_path / "a.gz").read_bytes())
    flow = fl.from_text("memory://compressed/*.txt.gz")
    assert flow.collect() == rows
    assert sorted(flow.shuffle(seed=1)) == sorted(rows)


def test_svmlight_files_are_decompressed(tmp_path: Path) -> None:
    text = b"1 1:0.5 3:2\n-1 2:1.5\n"
    (tmp_path / "a.svm").write_bytes(text)
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress(text))
    plain, packed = (fl.from_svmlight(tmp_path / name) for name in ("a.svm", "a.svm.gz"))
    for (x, y), (x2, y2) in zip(plain, packed, strict=True):
        assert np.array_equal(x, x2)
        assert y == y2


def test_a_file_that_changed_is_an_error(path: Path) -> None:
    rows = lines(5000)
    write(path, rows)
    flow = fl.from_text(path)
    write(path, rows[::-1])
    with pytest.raises((ElementError, SourceError), match="has changed"):
        flow.collect()


def test_writers_compress_by_the_name(tmp_path: Path) -> None:
    fl.from_items(["one", "two"]).write_text(tmp_path / "a.txt.gz")
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()) == b"one\ntwo\n"
    fl.from_items([("a", 1)]).write_csv(tmp_path / "a.csv.gz")
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == b"a,1\r\n"


def test_a_large_compressed_file_is_shuffled_in_blocks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flowdsl.storage.text import blocks

    write(path, lines(20_000))
    flow: Any = fl.from_text(path)
    assert isinstance(flow.node, IndexedSource)
    assert flow.node.rows_together is None  # a process caches it
    monkeypatch.setattr(blocks, "_UNPARSED_BYTES", 100_000)
    monkeypatch.setattr(blocks, "PIECE", 1000)
    together = flow.node.rows_together
    assert together == pytest.approx(1000 / 24, rel=0.1)
    assert f"block={together}" in str(flow.shuffle(seed=1).explain())
