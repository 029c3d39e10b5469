"""Examples: TensorFlow's bytes, parsed into typed records."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypeAlias, TypedDict

import attrs
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements.specs import UNKNOWN
from flowdsl.errors import ElementError, InvalidFlow, MissingLibrary, SourceError, SpecMismatch
from tests.sampling import examples

F32: TypeAlias = NDArray[np.float32]
I64: TypeAlias = NDArray[np.int64]


class Sample(NamedTuple):
    image: bytes
    name: str
    label: int
    weight: float
    good: bool
    box: Annotated[F32, fl.Shape(None, 2)]
    ids: I64
    tags: list[str]
    parts: list[bytes]
    counts: list[int]
    marks: list[float]
    flags: list[bool]
    i: np.int64
    f: np.float32


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
INTS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32, allow_nan=False)
SAMPLES = st.builds(
    Sample,
    image=st.binary(max_size=9),
    name=TEXT,
    label=INTS,
    weight=FLOATS,
    good=st.booleans(),
    box=st.lists(st.tuples(FLOATS, FLOATS), max_size=3).map(
        lambda x: np.array(x, np.float32).reshape(-1, 2)
    ),
    ids=st.lists(INTS, max_size=3).map(lambda x: np.array(x, np.int64)),
    tags=st.lists(TEXT, max_size=3),
    parts=st.lists(st.binary(max_size=3), max_size=3),
    counts=st.lists(INTS, max_size=3),
    marks=st.lists(FLOATS, max_size=3),
    flags=st.lists(st.booleans(), max_size=3),
    i=INTS.map(np.int64),
    f=FLOATS.map(np.float32),
)


def flat(sample: Sample) -> bytes:
    return fl.to_example(sample._replace(box=sample.box.ravel()))


def typed(sample: tuple[Any, ...]) -> list[Any]:
    """Return the components with their types, in a comparable form."""
    return [
        (x.dtype, x.shape, x.tolist()) if isinstance(x, np.ndarray) else (type(x), x)
        for x in sample
    ]


@settings(max_examples=examples(200))
@given(SAMPLES)
def test_created_example_is_parsed(sample: Sample) -> None:
    got = fl.parse_example(Sample)(flat(sample))
    assert type(got) is Sample
    assert typed(got) == typed(sample)
    assert not got.box.flags.writeable


@settings(max_examples=examples(100))
@given(SAMPLES)
def test_examples_agree_with_tensorflow(sample: Sample) -> None:
    tf = pytest.importorskip("tensorflow")

    train: Any = tf.train  # our stubs have what flowdsl uses
    theirs = train.Example.FromString(flat(sample))
    feature = theirs.features.feature
    assert feature["image"].bytes_list.value[:] == [sample.image]
    assert feature["box"].float_list.value[:] == sample.box.ravel().tolist()
    assert feature["flags"].int64_list.value[:] == sample.flags
    assert typed(fl.parse_example(Sample)(theirs.SerializeToString())) == typed(sample)


class Pair(NamedTuple):
    ids: I64
    x: F32


def test_packed_and_unpacked_lists_are_parsed() -> None:
    entry = {
        "packed": (b"\x1a\x04\n\x02\x01\x07", b"\x12\x06\n\x04\x00\x00\x80?"),
        "unpacked": (b"\x1a\x04\x08\x01\x08\x07", b"\x12\x05\r\x00\x00\x80?"),
    }
    for ids, x in entry.values():
        features = b""
        for name, feature in ((b"ids", ids), (b"x", x)):
            both = b"\n" + bytes([len(name)]) + name + b"\x12" + bytes([len(feature)]) + feature
            features += b"\n" + bytes([len(both)]) + both
        got = fl.parse_example(Pair)(b"\n" + bytes([len(features)]) + features)
        assert (got.ids.tolist(), got.x.tolist()) == ([1, 7], [1.0])


class Features(TypedDict):
    label: int


@dataclass(frozen=True)
class Plain:
    label: int


@attrs.frozen
class LabelBatch:
    label: I64


@attrs.frozen
class Labeled(fl.Record[LabelBatch]):
    label: np.int64


@pytest.mark.parametrize(
    ("form", "row"),
    [(Features, {"label": 7}), (Plain, Plain(7)), (Labeled, Labeled(np.int64(7)))],
)
def test_any_class_with_named_fields(form: Any, row: Any) -> None:
    data = fl.to_example(row)
    assert data == fl.to_example({"label": 7})
    got = fl.parse_example(form)(data)
    assert got == row
    assert type(got) is type(row)


def test_order_of_components_does_not_change_the_bytes() -> None:
    names = [f"name {i}" for i in range(20)]
    one = fl.to_example({name: name for name in names})
    assert one == fl.to_example({name: name for name in reversed(names)})


def test_workers_parse_examples(tmp_path: Path) -> None:
    path = tmp_path / "labels.tfrecord"
    labels = [Labeled(np.int64(i)) for i in range(9)]
    assert fl.from_items(labels).map(fl.to_example).write_tfrecord(path) == 9
    flow = fl.from_tfrecord(path).map(fl.parse_example(Labeled))
    assert flow.prefetch(procs=2).collect() == labels
    assert str(flow.node.spec(False)) == "Labeled(label: int64[])"
    assert "parse_example(Labeled)" in flow.node.title
    parse = pickle.loads(pickle.dumps(fl.parse_example(Labeled)))
    assert parse(fl.to_example(labels[3])) == labels[3]
    batch = flow.batch(9).collect()[0]
    assert type(batch) is LabelBatch
    assert batch.label.tolist() == list(range(9))


# -- optional features -----------------------------------------------------------------------------


class Optional(NamedTuple):
    label: int | None
    names: list[str] | None
    box: F32 | None
    weight: float = 0.5


@dataclass(frozen=True)
class OfDataclass:
    label: int | None
    names: list[str] = field(default_factory=lambda: ["none"])


@attrs.frozen
class OfAttrs:
    label: int | None
    names: list[str] = attrs.field(factory=lambda: ["none"])


class OfStruct(msgspec.Struct, frozen=True, kw_only=True):
    names: list[str] = msgspec.field(default_factory=lambda: ["none"])
    label: int | None


class OfDict(TypedDict):
    label: int | None
    names: NotRequired[list[str]]


def test_missing_features_are_none_or_defaults() -> None:
    parse = fl.parse_example(Optional)
    assert parse(b"") == Optional(None, None, None, 0.5)
    given = parse(
        fl.to_example(
            {"label": 3, "names": ["a"], "box": np.array([1, 2], np.float32), "weight": 1.0}
        )
    )
    assert given[:2] == (3, ["a"])
    assert given.box is not None
    assert given.box.tolist() == [1, 2]
    assert given.weight == 1


@pytest.mark.parametrize("form", [OfDataclass, OfAttrs, OfStruct])
def test_a_missing_feature_is_the_default_of_its_class(form: Any) -> None:
    assert fl.parse_example(form)(b"") == form(label=None)
    assert fl.parse_example(form)(fl.to_example({"names": ["a"]})) == form(label=None, names=["a"])


def test_a_missing_feature_that_is_not_required_is_left_out() -> None:
    rows = [b"", fl.to_example({"names": ["a"]})]
    flow = fl.from_items(rows).map(fl.parse_example(OfDict))
    assert flow.prefetch(threads=1).collect() == [{"label": None}, {"label": None, "names": ["a"]}]
    assert flow.node.spec(False) == UNKNOWN


def test_an_optional_feature_without_values_is_missing() -> None:
    data = fl.to_example({"label": [], "names": []})
    got = fl.parse_example(Optional)(data)
    assert (got.label, got.names) == (None, [])
    with pytest.raises(SpecMismatch, match="it holds 2 values, but one was declared"):
        fl.parse_example(Optional)(fl.to_example({"label": [1, 2]}))


@settings(max_examples=examples(200))
@given(st.builds(OfAttrs, st.none() | INTS, st.lists(TEXT, max_size=2)))
def test_none_is_stored_as_no_feature(row: OfAttrs) -> None:
    assert fl.parse_example(OfAttrs)(fl.to_example(row)) == row


def test_a_sequence_example_is_named() -> None:
    step = b"\x0a\x04\x1a\x02\x08\x07"  # a FeatureList of one Feature, of one int64
    entry = b"\x0a\x01x\x12" + bytes([len(step)]) + step
    lists = b"\x0a" + bytes([len(entry)]) + entry
    data = fl.to_example({"label": 2}) + b"\x12" + bytes([len(lists)]) + lists
    assert fl.parse_example(Features)(data) == {"label": 2}
    message = "no feature 'x' in the context of a tf.train.SequenceExample; there are 'label'; its "
    with pytest.raises(SpecMismatch, match=f"{message}feature lists 'x' are not read: parse"):
        parser(list[int])(data)
    tf = pytest.importorskip("tensorflow")

    train: Any = tf.train
    theirs = train.SequenceExample.FromString(data)
    assert theirs.feature_lists.feature_list["x"].feature[0].int64_list.value[:] == [7]


# -- what is not as declared -----------------------------------------------------------------------


def parser(form: Any) -> Any:
    return fl.parse_example(TypedDict("Wanted", {"x": form}))  # type: ignore[operator]  # made here


BAD: dict[str, tuple[Any, Any, str]] = {
    "missing": (int, {"y": 1, "z": 2}, "no feature 'x'; there are 'y', 'z'"),
    "nothing": (int, {}, "no feature 'x'; there are no features"),
    "another kind": (int, {"x": b"a"}, "feature 'x' is declared int64, but holds bytes"),
    "numbers for bytes": (bytes, {"x": 1}, "feature 'x' is declared bytes, but holds int64"),
    "integers for floats": (float, {"x": 1}, "feature 'x' is declared float32, but holds int64"),
    "two for one": (int, {"x": [1, 2]}, "'x': it holds 2 values, but one was declared"),
    "none for one": (int, {"x": []}, "'x': it holds 0 values, but one was declared"),
    "no UTF-8": (str, {"x": b"\xff"}, "'x': 'utf-8' codec can't decode"),
    "no UTF-8 in a list": (list[str], {"x": [b"a", b"\xff"]}, "'x': 'utf-8' codec can't decode"),
    "no bool": (bool, {"x": 2}, "'x': 2 is neither 0 nor 1"),
    "another shape": (
        Annotated[F32, fl.Shape(2, 2)],
        {"x": [1.0, 2.0, 3.0]},
        r"'x': cannot reshape array of size 3 into shape \(2,2\)",
    ),
    "no number of rows": (
        Annotated[I64, fl.Shape(None, 2)],
        {"x": [1, 2, 3]},
        r"'x': cannot reshape array of size 3 into shape \(2\)",
    ),
}


@pytest.mark.parametrize(("form", "stored", "reason"), BAD.values(), ids=BAD)
def test_mismatch_with_the_declaration_is_named(form: Any, stored: Any, reason: str) -> None:
    with pytest.raises(SpecMismatch, match=f"parse_example: .*{reason}"):
        parser(form)(fl.to_example(stored))


def test_empty_list_leaves_the_column_type_open() -> None:
    data = fl.to_example({"x": []})
    assert parser(list[bytes])(data) == {"x": []}
    assert parser(F32)(data)["x"].shape == (0,)


@settings(max_examples=examples(200))
@given(st.binary(max_size=30))
def test_arbitrary_bytes_raise_an_error_or_parse(data: bytes) -> None:
    parse = fl.parse_example(Sample)
    with pytest.raises((SourceError, SpecMismatch), match="parse_example: "):
        parse(data)


def test_invalid_example_is_reported_with_its_row(tmp_path: Path) -> None:
    fl.from_items([fl.to_example({"label": 7}), b"\xff"]).write_tfrecord(tmp_path / "rows")
    run = iter(fl.from_tfrecord(tmp_path / "rows").map(fl.parse_example(Features)))
    assert next(run) == {"label": 7}
    with pytest.raises(ElementError, match=r"row 1 of from_tfrecord.*not a tf\.train\.Example"):
        next(run)


@pytest.mark.parametrize(
    "form",
    [
        *(np.int32, np.float64, NDArray[np.float64], NDArray[np.bytes_], np.ndarray, complex),
        *(dict, list, list[list[int]], list[np.int64], tuple[int, int], Any, bytes | str | None),
        *(Annotated[F32, fl.Shape(None, None)], Features),
    ],
    ids=str,
)
def test_field_of_an_unsupported_type_is_refused(form: Any) -> None:
    with pytest.raises(
        InvalidFlow, match=r"parse_example: the field 'x' is .*, and a feature hold"
    ):
        parser(form)


class Empty(NamedTuple):
    pass


@pytest.mark.parametrize("record", [int, tuple[int, int], dict[str, int], list[int], Empty, "X", 3])
def test_invalid_record_is_refused(record: Any) -> None:
    with pytest.raises(InvalidFlow, match="parse_example: record must be a NamedTuple"):
        fl.parse_example(record)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0.1, r"a feature stores float32, which 0\.1 is not"),
        (1e300, r"a feature stores float32, which 1e\+300 is not"),
        (2**63, "9223372036854775808 has more than 64 bits"),
        ([1, -(2**63) - 1], "-9223372036854775809 has more than 64 bits"),
        ("\ud800", "text that is not Unicode"),
        (np.zeros(2), r"an array float64\[2\] cannot be stored in a feature"),
        (
            np.zeros((2, 2), np.float32),
            r"an array float32\[2, 2\] cannot be stored in a feature: .*ravel",
        ),
        (np.int32(1), "int32 cannot be stored in a feature"),
        (np.ma.masked_array([1, 2], [False, True]), "MaskedArray cannot be stored in a feature"),
        ([None], "a list of NoneType cannot be stored in a feature"),
        ([1, "a"], "a list of int, str cannot be stored in a feature"),
        ([True, 2], "a list of bool, int cannot be stored in a feature"),
        ([np.int64(1)], "a list of int64 cannot be stored in a feature"),
        ([[1]], "a list of list cannot be stored in a feature"),
        ({"y": 1}, "dict cannot be stored in a feature"),
    ],
    ids=str,
)
def test_value_a_feature_cannot_hold_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(SpecMismatch, match=rf"to_example: element\.x: {reason}"):
        fl.to_example({"a": 1, "x": value})


@pytest.mark.parametrize("element", [1, b"a", (1, 2), [1], np.zeros(3)])
def test_an_element_without_names_is_refused(element: Any) -> None:
    with pytest.raises(SpecMismatch, match="has no names for features"):
        fl.to_example(element)


@pytest.mark.parametrize("name", [1, "\ud800"])
def test_invalid_feature_name_is_refused(name: Any) -> None:
    with pytest.raises(SpecMismatch, match=r"to_example: .*(must be str|not a valid)"):
        fl.to_example({name: 1})


def test_nan_and_infinity_are_float32() -> None:
    got = parser(list[float])(fl.to_example({"x": [float("nan"), float("inf"), -float("inf")]}))
    assert str(got["x"]) == "[nan, inf, -inf]"


def test_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from flowdsl.storage.tfrecord import example as tf_example

    tf_example._example.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(MissingLibrary, match=r'pip install "flowdsl\[tfrecord\]"'):
        fl.parse_example(Sample)
    with pytest.raises(MissingLibrary, match="to_example needs"):
        fl.to_example({"x": 1})
