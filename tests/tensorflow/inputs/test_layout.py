from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.elements.specs import spec_of
from flowdsl.elements.structure import assemble, components
from flowdsl.tensorflow.inputs import EndOfPass, QueueInput
from flowdsl.tensorflow.inputs.signature import signature_of, signature_of_tensors


class Labelled(NamedTuple):
    image: NDArray[np.uint8]
    label: int


class Nested(NamedTuple):
    image: NDArray[np.uint8]
    box: tuple[int, int]


def fed(flow: fl.Flow[object], spec: list[tf.TensorSpec] | None = None) -> list[list[Any]]:
    """Return the tensors that a step receives for every element."""
    with QueueInput(flow, spec=spec) as source:
        step = tf.function(input_signature=source.signature)(source.tensors)
        source.reset()
        seen: list[list[Any]] = []
        try:
            while True:
                seen.append([tensor.numpy() for tensor in step(*source.next_args())])
        except EndOfPass:
            return seen


def test_specs_carry_names_dtypes_and_shapes() -> None:
    rows = [(np.zeros((8, 8), np.uint8), np.int64(i)) for i in range(5)]
    flow = fl.from_items(rows).batch(2)
    image, label = QueueInput(flow).specs
    assert (image.name, image.dtype, image.shape.as_list()) == ("0", tf.uint8, [None, 8, 8])
    assert (label.name, label.dtype, label.shape.as_list()) == ("1", tf.int64, [None])


def test_python_numbers_have_the_dtypes_of_batch() -> None:
    rows = [(i % 2 == 0, i, i / 2, complex(i, 1), np.int32(i)) for i in range(-1, 3)]
    flow = fl.from_items(rows)
    source = QueueInput(flow)
    assert [s.dtype.as_numpy_dtype for s in source.specs] == [
        x.dtype for x in flow.batch(1).collect()[0]
    ]
    assert [tuple(x.item() for x in row) for row in fed(flow)] == [
        (*row[:4], int(row[4])) for row in rows
    ]


def test_a_python_number_that_does_not_fit_is_an_error_at_its_place() -> None:
    for bad, message in (
        (2**63, "is 9223372036854775808, which int64 cannot hold; map .* to np.uint64 if none"),
        (-(2**63) - 1, "is -9223372036854775809, which int64 cannot hold"),
        (10**5000, "is <int, .*>, which int64 cannot hold"),
        (True, r"is bool, but its spec is int64\[\]"),
        (1.0, "is float, .*int64"),
        (None, "is NoneType, .*int64"),
    ):
        flow: fl.Flow[Any] = fl.from_items([{"image": np.zeros(2), "label": x} for x in (3, bad)])
        with pytest.raises(fl.SpecMismatch, match=f"'label' of element 1 {message}"):
            fed(flow)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", ["i2", "u4", "f2", "f4", "f8", "c8", "U4"])
def test_values_do_not_depend_on_the_byte_order(code: str, order: str) -> None:
    rows = [{"x": np.array([k, 3 * k], code).astype(f"{order}{code}")} for k in range(3)]
    expected = [row["x"].astype("S4" if code == "U4" else code).tolist() for row in rows]
    got = [x for (x,) in fed(fl.from_items(rows))]
    assert [x.tolist() for x in got] == expected
    assert code == "U4" or {x.dtype for x in got} == {np.dtype(code)}


@pytest.mark.parametrize(
    ("element", "name"),
    [({0: 1, "0": 2}, "0"), ({"a": {"b": 1}, "a.b": 2}, "a.b"), ({1: (3,), "1.0": 2}, "1.0")],
)
def test_two_components_of_one_name_are_refused(element: Any, name: str) -> None:
    message = f"an element has two components named '{name}'; rename one with .map"
    with pytest.raises(fl.SpecMismatch, match=message):
        signature_of("QueueInput", spec_of(element))
    with pytest.raises(fl.SpecMismatch, match=message):
        signature_of("QueueInput", spec_of(element), [tf.TensorSpec((), tf.int64)] * 2)
    with pytest.raises(fl.SpecMismatch, match=message):
        signature_of_tensors("QueueInput", tf_specs_of(element))


def tf_specs_of(element: Any) -> Any:
    """Return the ``element_spec`` of a dataset of such elements of ints."""
    parts = components(element)
    if parts is None:
        return tf.TensorSpec((), tf.int64)
    return assemble(type(element), {name: tf_specs_of(part) for name, part in parts})


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ([1, 2], r"'element' is a Python list.*np\.asarray"),
        ([["a"], ["b"]], r"'element' is a Python list"),
        ((None,), r"'0' is a Python NoneType.*np\.asarray"),
        (np.array([object()]), r"array of objects, .* with \.padded_batch"),
        (np.zeros(2, "M8[s]"), r"dtype <M8\[s\], which TensorFlow lacks"),
    ],
)
def test_non_tensor_component_is_refused_by_name(element: object, says: str) -> None:
    with pytest.raises(fl.SpecMismatch, match=says):
        signature_of("QueueInput", spec_of(element))


def test_unknown_dtype_is_refused_before_anything_runs() -> None:
    stream = (1 // i for i in range(3))  # its first element is an error
    with pytest.raises(fl.SpecMismatch, match=r"its dtype is not known.*spec="):
        QueueInput(fl.from_iterable(stream))


def test_spec_argument_adds_unknown_dtypes() -> None:
    def unknown() -> Iterator[Any]:
        return iter([(np.ones((2,), np.float32), np.int64(7))])

    spec = [tf.TensorSpec((None,), tf.float32, "x"), tf.TensorSpec((), tf.int64, "y")]
    flow = fl.from_iterable(unknown())
    with QueueInput(flow, spec=spec) as source:
        assert [tensor.name for tensor in source.specs] == ["x", "y"]
        source.reset()
        step = tf.function(input_signature=source.signature)(source.tensors)
        x, y = step(*source.next_args())
        assert (x.numpy().tolist(), int(y)) == ([1, 1], 7)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ([tf.TensorSpec((3,), tf.float32)], "lists 1 tensor.*2 component.*0, 1"),
        (
            [tf.TensorSpec((3,), tf.float64), tf.TensorSpec((), tf.int64)],
            "'0', by spec=: declared float64.*got float32",
        ),
        (
            [tf.TensorSpec((4,), tf.float32), tf.TensorSpec((), tf.int64)],
            r"'0', by spec=: declared float32\[4\], got float32\[3\]",
        ),
        (
            [tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.string)],
            "'1', by spec=: declared",
        ),
    ],
)
def test_a_declaration_against_the_flow_is_refused(spec: list[tf.TensorSpec], says: str) -> None:
    known = spec_of((np.zeros(3, np.float32), np.int64(0)))
    with pytest.raises(fl.SpecMismatch, match=says):
        signature_of("QueueInput", known, spec)


@pytest.mark.parametrize(
    ("element", "says"),
    [
        (
            (np.zeros(3, np.float32),),
            r"element 7: it is \(float32\[3\]\), expected is \(float32\[3\], int64\[\]\)",
        ),
        ((np.zeros(3, np.float64), np.int64(1)), r"'0' of element 7 is float64\[3\].*float32\[3\]"),
        ((np.zeros(4, np.float32), np.int64(1)), r"'0' of element 7 is float32\[4\].*float32\[3\]"),
        ((np.zeros(3, np.float32), 1.0), r"'1' of element 7 is float, but its spec is int64\[\]"),
        ((np.zeros((3, 1), np.float32), np.int64(1)), r"'0' of element 7 is float32\[3, 1\]"),
        ((np.zeros(3, ">f8"), np.int64(1)), "'0' of element 7 is >f8"),
    ],
)
def test_element_that_contradicts_its_spec_is_named(element: object, says: str) -> None:
    layout = signature_of("QueueInput", spec_of((np.zeros(3, np.float32), np.int64(0))))
    with pytest.raises(fl.SpecMismatch, match=says):
        layout.arrays(element, 7)


def test_a_masked_array_is_refused_by_name() -> None:
    signature = signature_of("QueueInput", spec_of({"x": np.zeros(2)}))
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(fl.SpecMismatch, match="component 'x' of element 3 is a masked array"):
        signature.arrays({"x": masked}, 3)


def test_keys_of_any_kind_name_components() -> None:
    signature = signature_of("QueueInput", spec_of({0: 1.0, 1: {2: 3.0}}))
    assert [slot.name for slot in signature.slots] == ["0", "1.2"]
    assert signature.arrays({1: {2: 7.0}, 0: 5.0}, 0) == [5.0, 7.0]


@pytest.mark.parametrize("element", [{}, ()])
def test_an_element_without_components_is_refused(element: object) -> None:
    with pytest.raises(fl.SpecMismatch, match="QueueInput: an element has no components"):
        signature_of("QueueInput", spec_of(element))


def test_arrays_are_not_copied_and_scalars_become_arrays() -> None:
    element = (np.zeros(3, np.float32), np.int64(7))
    array, scalar = signature_of("QueueInput", spec_of(element)).arrays(element, 0)
    assert array is element[0]
    assert isinstance(scalar, np.ndarray)  # one NumPy scalar slows the whole element down
    assert scalar.shape == ()


def test_mismatched_element_fails_in_the_training_loop() -> None:
    flow = fl.from_items([np.float32(1), np.float32(2), np.float64(3)])
    with QueueInput(flow, spec=[tf.TensorSpec((), tf.float32)]) as source:
        source.reset()
        source.next_args(2)
        with pytest.raises(fl.SpecMismatch, match="element 2"):
            source.next_args()


DTYPES = ["bool", "u1", "u2", "i1", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_every_dtype_survive(dtype: str) -> None:
    rows = [np.array([0, 1, 100], dtype), np.array([1, 0, 1], dtype)]
    for got, row in zip(fed(fl.from_items(rows)), rows, strict=True):
        np.testing.assert_array_equal(got[0], row, strict=True)


def test_text_of_any_length_survives() -> None:
    rows = [np.array(["a", "bcd"]), np.array(["efghij", ""])]
    assert [got[0].tolist() for got in fed(fl.from_items(rows))] == [
        [b"a", b"bcd"],
        [b"efghij", b""],
    ]
    assert fed(fl.from_items([np.bytes_(b"xyz")])) == [[b"xyz"]]


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


TEXTS: list[list[Any]] = [
    ["", "abc", "日本 ä\0", "a\0\0"],
    [b"", b"abc\0\0", b"\xff\x00", b"\0"],
    [np.str_("ab"), np.str_("日")],
    [np.bytes_(b"ab"), np.bytes_(b"c")],
]


@pytest.mark.parametrize("rows", TEXTS)
def test_text_arrives_unchanged(rows: list[Any]) -> None:
    flow = fl.from_items([{"i": np.int64(i), "text": text} for i, text in enumerate(rows)])
    wanted = list(map(as_bytes, rows))
    assert [(int(i), text) for i, text in fed(flow)] == list(enumerate(wanted))
    batches = fed(flow.batch(3))
    assert [text for _, texts in batches for text in texts.tolist()] == wanted
    assert [texts.shape for _, texts in batches] == [(len(i),) for i, _ in batches]


def test_a_list_of_text_is_a_vector_of_strings() -> None:
    flow = fl.from_items([["a", "b\0"], ["c"], []])
    seen = fed(flow, [tf.TensorSpec((None,), tf.string)])
    assert [got[0].tolist() for got in seen] == [[b"a", b"b\0"], [b"c"], []]
    (spec,) = QueueInput(flow.map(lambda row: row[:1])).specs
    assert (spec.dtype, spec.shape.as_list()) == (tf.string, [1])
    with pytest.raises(fl.SpecMismatch, match=r"is list\[\?\], but its spec is bytes\[1\]"):
        fed(flow.map(lambda row: row[:1]))


def test_text_is_declared_as_strings() -> None:
    flow = fl.from_range(3).map(lambda i: "x" * i)
    assert fed(flow, [tf.TensorSpec((), tf.string)]) == [[b""], [b"x"], [b"xx"]]
    (batch,) = fed(flow.batch(3), [tf.TensorSpec((None,), tf.string)])
    assert batch[0].tolist() == [b"", b"x", b"xx"]
    with pytest.raises(fl.SpecMismatch, match=r"'element', by spec=: declared int64\[\]"):
        QueueInput(flow, spec=[tf.TensorSpec((), tf.int64)])
    with pytest.raises(fl.SpecMismatch, match=r"by spec=: declared bytes\[\?\], got bytes\[\]"):
        QueueInput(fl.from_items(["a"]), spec=[tf.TensorSpec((None,), tf.string)])


def test_text_of_any_width_can_be_queued() -> None:
    flow = fl.from_items([np.array(["a"]), np.array(["bcd"])])
    assert fed(flow.batch(2))[0][0].tolist() == [[b"a"], [b"bcd"]]


class Tensor:
    """A tensor of another library, in CPU memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_tensors_of_another_library_are_arrays() -> None:
    rows = [Tensor(np.full(2, i, np.float32)) for i in range(3)]
    assert [got[0].tolist() for got in fed(fl.from_items(rows))] == [[i, i] for i in range(3)]


Ragged = Annotated[NDArray[np.int32], fl.Shape(None, 2)]


def ragged(i: int) -> Ragged:
    return np.full((i, 2), i, np.int32)


def rank(i: int) -> NDArray[np.int32]:
    return np.full((1,) * i, i, np.int32)


def test_shapes_may_vary_where_they_are_unknown() -> None:
    assert [got[0].shape for got in fed(fl.from_range(3).map(ragged))] == [(0, 2), (1, 2), (2, 2)]


def test_rank_may_vary() -> None:
    spec = [tf.TensorSpec(None, tf.int32)]
    shapes = [got[0].shape for got in fed(fl.from_range(3).map(rank), spec)]
    assert shapes == [(), (1,), (1, 1)]


def test_shape_that_contradicts_the_spec_is_refused() -> None:
    with pytest.raises(
        fl.SpecMismatch, match=r"element 1 is int32\[1\], but its spec is int32\[\].*spec="
    ):
        fed(fl.from_range(3).map(rank))  # announced by its first element


def test_any_memory_layout_is_accepted() -> None:
    column = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(fed(fl.from_items([column]))[0][0], column)
