"""SVMlight files: samples equal scikit-learn's and tensorpack's, dense and by index."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.errors import InvalidFlow, MissingLibrary, SourceError
from flowdsl.storage.text import indexing as text_indexing
from flowdsl.storage.text import svmlight
from flowdsl.testing import check_source
from tests.sampling import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.svm"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use blocks of a few bytes and a small cache, so that short files have many blocks."""
    monkeypatch.setattr(text_indexing, "STRETCH", 9)
    monkeypatch.setattr(svmlight, "STRETCH", 9)
    monkeypatch.setattr(svmlight, "_KEPT_BYTES", 40)


def same_rows(got: list[Any], table: Any, labels: Any) -> None:
    assert len(got) == len(labels)
    for (x, y), row, label in zip(got, table, labels, strict=True):
        assert x.dtype == np.float64
        assert type(y) is float
        np.testing.assert_array_equal(x, row)
        assert y == label


TABLES = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([0.0, 0.0, 0.5, -3.0, 1e-9]), min_size=width, max_size=width),
        min_size=1,
        max_size=9,
    )
)


def scikit_learn() -> Any:
    """Return its formats, imported by the tests that use them: that takes a second."""
    return import_module("sklearn.datasets")


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES, st.booleans(), st.sampled_from([True, False, "auto"]))
def test_samples_equal_scikit_learns(
    tmp_path: Path, rows: list[list[float]], from_zero: bool, zero_based: bool | Literal["auto"]
) -> None:
    table, path = np.array(rows), tmp_path / "any.svm"
    labels = np.arange(len(rows)) - 1.5
    path.unlink(missing_ok=True)
    scikit_learn().dump_svmlight_file(
        table, labels, str(path), zero_based=from_zero, comment="made by hand"
    )
    try:
        expected, its_labels = scikit_learn().load_svmlight_file(str(path), zero_based=zero_based)
    except ValueError:  # a feature 0 in a file that has none
        with pytest.raises(SourceError, match="has a feature 0"):
            fl.from_svmlight(path, zero_based=zero_based)
        return
    flow: Any = fl.from_svmlight(path, zero_based=zero_based)
    # scikit-learn makes a table without any feature one or none wide, by where the file begins
    wide = expected.toarray() if expected.nnz else np.zeros((len(rows), 1))
    same_rows(flow.collect(), wide, its_labels)
    read = flow.node.open()
    order = [*range(len(rows))[::-1], *range(len(rows))]
    same_rows([read(i) for i in order], wide[order], its_labels[order])


def test_samples_equal_tensorpacks(path: Path) -> None:
    dataflow: Any = import_module("tensorpack.dataflow.format")
    rng = np.random.default_rng(0)
    table = rng.random((300, 40)) * (rng.random((300, 40)) < 0.2)
    scikit_learn().dump_svmlight_file(table, np.arange(300) % 3, str(path))
    data = dataflow.SVMLightData(str(path), shuffle=False)
    data.reset_state()
    theirs = list(data)
    ours = fl.from_svmlight(path).collect()
    same_rows(ours, [x for x, _ in theirs], [y for _, y in theirs])


def test_source_passes_the_laws(path: Path) -> None:
    path.write_text("".join(f"{i} 2:{i / 3} 5:1\n" for i in range(12)))
    rows = [(np.array([0, i / 3, 0, 0, 1.0]), float(i)) for i in range(12)]
    check_source(lambda: fl.from_svmlight(path), rows, examples=4)


@pytest.mark.usefixtures("small")
def test_comments_and_empty_lines_are_no_samples(path: Path) -> None:
    path.write_text("# of 2 rows\n\n\n1 1:2 # the first\n  \n# then\n\n-1 qid:3 2:1\r\n# end\n\n")
    flow = fl.from_svmlight(path)
    assert len(flow) == 2
    same_rows(flow.collect(), [[2, 0], [0, 1]], [1, -1])


@pytest.mark.usefixtures("small")
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=3), st.integers(-5, 2**40)), min_size=1)
)
def test_labels_and_query_ids_equal_scikit_learns(
    tmp_path: Path, rows: list[tuple[list[int], int]]
) -> None:
    lines = [f"{','.join(map(str, ys))} qid:{q} 2:{k}" for k, (ys, q) in enumerate(rows, 1)]
    path = tmp_path / "any.svm"
    path.write_text("\n".join(lines))
    _, labels, queries = scikit_learn().load_svmlight_file(
        str(path), multilabel=True, query_id=True
    )
    flow = fl.from_svmlight(path, multilabel=True, query_id=True)
    for (x, y, query), label, its_query in zip(flow, labels, queries, strict=True):
        assert x.shape == (2,)
        assert y.dtype == np.float64
        assert type(query) is int
        assert (y.tolist(), query) == (list(label), its_query)
    places = [int(x[1]) for x, *_ in flow.shuffle(seed=1).collect()]
    assert sorted(places) == list(range(1, len(rows) + 1))
    assert str(flow.node.spec(False)) == "(float64[2], float64[?], int)"


def test_labels_and_query_ids_are_read_one_without_the_other(path: Path) -> None:
    path.write_text("1 qid:7 1:2\n")
    (row,) = fl.from_svmlight(path, query_id=True).collect()
    assert row[1:] == (1.0, 7)
    path.write_text("2,1 1:2\n1:3\n")
    first, second = fl.from_svmlight(path, multilabel=True).collect()
    assert first[1].tolist() == [1, 2]
    assert second[1].tolist() == []
    assert (
        len(
            {fl.from_svmlight(path, multilabel=True, n_features=n).node.fingerprint for n in (1, 2)}
        )
        == 2
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("line", "options", "mistake"),
    [
        ("1,2 1:2", {}, "it has several labels; read them with multilabel=True; got '1,2 1:2'"),
        ("1:2 2:1", {}, "it has no label; multilabel=True reads rows with any number of labels"),
        ("qid:3 2:1", {}, "it has no label"),
        ("1 2:1", {"query_id": True}, "it has no query id, such as qid:3"),
        ("2:1", {"query_id": True, "multilabel": True}, "it has no query id"),
        ("1 qid:x 2:1", {"query_id": True}, "invalid literal"),
        ("1,x 2:1", {"multilabel": True}, "could not convert string to float"),
    ],
)
def test_a_line_with_other_labels_or_query_ids_is_refused(
    path: Path, line: str, options: Any, mistake: str
) -> None:
    path.write_text(f"1 qid:3 1:2\n0 qid:4 1:3\n{line}\n")
    with pytest.raises(SourceError, match=rf"rows\.svm', line 3: {mistake}"):
        fl.from_svmlight(path, **options)


@pytest.mark.parametrize("option", ["multilabel", "query_id"])
def test_options_for_labels_are_bools(path: Path, option: str) -> None:
    path.write_text("1 1:2\n")
    options: dict[str, Any] = {option: 1}
    with pytest.raises(InvalidFlow, match=f"{option} must be True or False, got 1"):
        fl.from_svmlight(path, **options)


def test_a_file_without_samples(path: Path) -> None:
    path.write_text("# nothing\n")
    assert fl.from_svmlight(path).collect() == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "line", ["x 1:2", "1 1:x", "1 2", "1 3:1 2:1", "1 -1:2", "1 99999999999:1", "1,2 1:1", "\x00"]
)
def test_invalid_sample_is_named_with_its_line(path: Path, line: str) -> None:
    path.write_text(f"1 1:2\n# of it\n0 1:3\n{line}\n1 1:2\n")
    with pytest.raises(SourceError, match=r"rows\.svm', line 4: ") as failed:
        fl.from_svmlight(path)
    assert repr(line) in str(failed.value)


def test_n_features_may_exceed_the_files_features(path: Path) -> None:
    path.write_text("1 1:2 3:1\n")
    same_rows(fl.from_svmlight(path, n_features=5).collect(), [[2, 0, 1, 0, 0]], [1])
    assert str(fl.from_svmlight(path).spec) == "(float64[3], float)"
    with pytest.raises(InvalidFlow, match="n_features must be at least 3"):
        fl.from_svmlight(path, n_features=2)


@pytest.mark.parametrize("n_features", [0, -1, 1.5, True, "3"])
def test_n_features_must_be_an_int(path: Path, n_features: Any) -> None:
    path.write_text("1 1:2\n")
    with pytest.raises(InvalidFlow, match="n_features must be an int >= 1"):
        fl.from_svmlight(path, n_features=n_features)


@pytest.mark.parametrize("zero_based", [0, 1, None, "no"])
def test_zero_based_accepts_only_documented_values(path: Path, zero_based: Any) -> None:
    path.write_text("1 1:2\n")
    with pytest.raises(InvalidFlow, match="zero_based must be True, False or 'auto'"):
        fl.from_svmlight(path, zero_based=zero_based)


def test_huge_feature_number_is_refused(path: Path) -> None:
    path.write_text("1 1:2 2147483647:1\n")
    with pytest.raises(SourceError, match="a feature 2147483647, so that a row takes 17,"):
        fl.from_svmlight(path)


def test_files_share_the_number_of_features(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:2\n")
    (tmp_path / "b.svm").write_text("0 0:1 3:1\n")
    flow = fl.from_svmlight([tmp_path / "b.svm", tmp_path / "a.svm"])
    same_rows(flow.collect(), [[1, 0, 0, 1], [0, 2, 0, 0]], [0, 1])


def test_a_file_is_parsed_once_to_find_its_samples(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("1 1:2\n")
    os.utime(path, (1, 1))  # an index is trusted that is younger than its file
    before = fl.from_svmlight(path)
    monkeypatch.setattr(svmlight, "_scan", None)
    again = fl.from_svmlight(path)
    assert again.node.fingerprint == before.node.fingerprint
    assert again.node.fingerprint != fl.from_svmlight(path, zero_based=True).node.fingerprint


def test_read_blocks_are_cached(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("".join(f"{i} 1:{i}\n" for i in range(5_000)))
    flow: Any = fl.from_svmlight(path)
    parsed: list[int] = []
    loaded = svmlight._loaded

    def counted(form: Any, data: bytes) -> Any:
        parsed.append(len(data))
        return loaded(form, data)

    monkeypatch.setattr(svmlight, "_loaded", counted)
    read = flow.node.open()
    order = np.random.default_rng(0).permutation(5_000)
    assert [read(int(i))[1] for i in order] == order.tolist()
    assert sum(parsed) == os.path.getsize(path)


def test_a_file_that_changed_is_an_error(path: Path) -> None:
    path.write_text("1 1:2\n")
    flow = fl.from_svmlight(path)
    path.unlink()
    path.write_text("1 1:3\n")
    with pytest.raises(SourceError, match="has changed since"):
        flow.collect()


def test_missing_scikit_learn_error_has_the_install_command(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("1 1:2\n")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingLibrary, match=r'pip install "flowdsl\[svmlight\]"'):
        fl.from_svmlight(path)


def test_damaged_gzip_is_refused(path: Path) -> None:
    path.write_bytes(b"\x1f\x8b" + BytesIO(b"1 1:2").read())
    with pytest.raises(SourceError, match="cannot be read as gzip"):
        fl.from_svmlight(path)
