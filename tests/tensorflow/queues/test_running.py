"""Threads run only within ``running``, and an error that ends one is raised."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow import queues
from flowdsl.tensorflow.inputs import TensorInput
from tests.sampling import examples
from tests.waiting import eventually


def numbers(n: int, epochs: int | None = 1) -> Any:
    return queues.apply(queues.range_input_producer(n, epochs, shuffle=False).dequeue)


def all_of(batches: Any) -> list[Any]:
    got: list[Any] = []
    try:
        with queues.running(batches):
            while True:
                got.append(np.asarray(queues.evaluate(batches).numpy()).tolist())
    except tf.errors.OutOfRangeError:
        return got


def test_no_thread_runs_before_nor_after() -> None:
    before = {*threading.enumerate()}
    row = queues.batch([numbers(5, None)], 3, num_threads=3)
    assert {*threading.enumerate()} == before
    with queues.running(row):
        begun = {thread.name for thread in {*threading.enumerate()} - before} - {"Ctrl-C"}
        assert len(begun) == 4
        queues.evaluate(row)
    assert eventually(lambda: {*threading.enumerate()} <= before)


@pytest.mark.parametrize("threads", [1, 3])
def test_error_is_raised_at_the_end_of_the_data(threads: int) -> None:
    def fail(i: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(tf.not_equal(i, 7), ["seven is bad"])]):
            return tf.identity(i)

    row = queues.batch([queues.apply(fail, numbers(20))], 2, num_threads=threads)
    with pytest.raises(tf.errors.InvalidArgumentError, match="seven is bad"):
        all_of(row)


def test_error_inside_a_pipeline_reaches_its_end() -> None:
    names = queues.string_input_producer(queues.apply(lambda: tf.fill([0], "a")))
    row = queues.batch([queues.apply(names.dequeue)], 2)
    raises = pytest.raises(tf.errors.InvalidArgumentError, match="non-null")
    with raises, queues.running(row):
        queues.evaluate(row)


def test_error_of_the_block_is_raised_unchanged() -> None:
    row = queues.batch([numbers(5, None)], 2)
    with pytest.raises(KeyError), queues.running(row):
        raise KeyError("mine")


def test_a_pipeline_runs_once() -> None:
    row = queues.batch([numbers(5)], 5)
    with queues.running(row):
        assert queues.evaluate(row).numpy().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(fl.FlowError, match="has run already"), queues.running(row):
        pass


def test_tensors_of_one_evaluation_belong_together() -> None:
    index, row = queues.slice_input_producer([np.arange(50), np.arange(50) * 10], num_epochs=1)
    both = queues.shuffle_batch(
        {"index": index, "row": row, "sum": queues.apply(lambda a, b: a + b, index, row)},
        10,
        capacity=60,
        min_after_dequeue=20,
        num_threads=2,
    )

    @tf.function
    def step() -> Any:
        return queues.evaluate(both)

    seen: list[int] = []
    with queues.running(both):
        for _ in range(5):
            made = {name: part.numpy() for name, part in step().items()}
            assert (made["row"] == made["index"] * 10).all()
            assert (made["sum"] == made["index"] * 11).all()
            seen += made["index"].tolist()
    assert sorted(seen) == list(range(50))


@settings(max_examples=examples(60))
@given(st.integers(0, 20), st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_each_row_occurs_once_per_epoch(n: int, size: int, epochs: int, shuffle: bool) -> None:
    producer = queues.input_producer(np.arange(n), num_epochs=epochs, shuffle=shuffle)
    got = [x for one in all_of(queues.apply(producer.dequeue)) for x in [one]]
    for k in range(epochs):
        assert sorted(got[k * n : (k + 1) * n]) == list(range(n))
    assert len(got) == n * epochs
    batches = all_of(queues.batch([numbers(n)], size, allow_smaller_final_batch=True))
    assert batches == [list(range(k, min(k + size, n))) for k in range(0, n, size)]


def test_files_are_found_once(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name)
    names = queues.match_filenames_once(f"{tmp_path}/*.txt")
    (tmp_path / "d.txt").write_text("later")
    found = queues.apply(queues.string_input_producer(names, 1, shuffle=False).dequeue)
    assert [Path(name.decode()).name for name in all_of(found)] == ["a.txt", "b.txt"]
    several = queues.match_filenames_once([f"{tmp_path}/*.bin", f"{tmp_path}/d*"])
    assert len(several.numpy()) == 2


def test_cancel_op_is_called_at_the_end() -> None:
    called: list[int] = []
    names = queues.string_input_producer(["a"], cancel_op=lambda: called.append(1))
    with queues.running(names):
        assert names.dequeue().numpy() == b"a"
        assert not called
    assert called


def test_slices_have_equally_many_rows() -> None:
    with pytest.raises(ValueError, match="not compatible"):
        queues.slice_input_producer([np.arange(3), np.arange(4)])
    with pytest.raises(ValueError, match="takes text, got int32"):
        queues.string_input_producer([1, 2])
    of_any_size = queues.apply(lambda i: tf.fill([i, i], i), numbers(3))
    with pytest.raises(ValueError, match="element_shape"):
        queues.input_producer(of_any_size)


def test_its_own_evaluation_is_the_next_one() -> None:
    number = numbers(6)
    with queues.running(number):
        assert [int(number.value()) for _ in range(3)] == [0, 1, 2]
        assert [int(x) for x in queues.evaluate([number, number])] == [3, 3]


class Pair(NamedTuple):
    image: float
    label: float


class Swapped(NamedTuple):
    label: float
    image: float


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"^Expected at least one input in batch_join\(\)"),
        ([7], r"^batch_join\(\) takes a list or dict of tensors, got 7"),
        ([[]], r"^Expected at least one tensor in batch_join\(\)"),
        ([[1.0], {"x": 1.0}], r"^batch_join\(\): some inputs are dicts, and some are lists"),
        ([{"x": 1.0}, {"y": 1.0}], r"other keys: \['x'\] and \['y'\]"),
        ([[1.0], [1.0, 2.0]], r"^batch_join\(\): the inputs have other numbers of tensors"),
    ],
)
def test_inputs_of_different_structure_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        queues.batch_join(inputs, 1)


def test_a_producer_of_no_names_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^string_input_producer requires a non-null input tensor"
    ):
        queues.string_input_producer([])


def test_named_tuples_with_other_names_are_not_joined() -> None:
    with pytest.raises(ValueError, match=r"other names: \['image', 'label'\] and \['label', "):
        queues.batch_join([Pair(1.0, 2.0), Swapped(2.0, 1.0)], 1)


def test_a_queue_is_not_read_before_it_runs() -> None:
    numbers = queues.range_input_producer(9)
    batch = queues.batch([queues.apply(numbers.dequeue)], batch_size=3)
    for read in (numbers.dequeue, lambda: queues.evaluate(batch)):
        with pytest.raises(fl.FlowError, match=r"nothing fills this queue yet.*queues\.running"):
            read()
    with queues.running(batch):
        assert queues.evaluate(batch).shape == [3]


def test_a_traced_function_is_not_run_before_the_queue_is_filled() -> None:
    row = queues.batch([numbers(6)], batch_size=3)

    @tf.function
    def step() -> Any:
        return queues.evaluate(row)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"nothing fills this queue yet"):
        step()
    with queues.running(row):
        assert [step().numpy().tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]


def test_a_reader_of_tensorflow_1_fills_from_the_queue_of_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"text of {name}")
    names = queues.string_input_producer([f"{tmp_path}/a", f"{tmp_path}/b"], 1, shuffle=False)

    def read() -> list[tf.Tensor]:
        reader = tf.raw_ops.WholeFileReaderV2(shared_name=names.name)
        got = tf.raw_ops.ReaderReadV2(reader_handle=reader, queue_handle=names.queue_ref)
        return [got.key, got.value]

    texts = queues.batch(queues.apply(read), 1)
    assert all_of(texts[1]) == [[b"text of a"], [b"text of b"]]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("flags", [2, 6])
def test_a_vector_of_flags_has_one_for_each_row(flags: int, shuffled: bool) -> None:
    def rows(zero: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.range(zero, zero + 4), tf.fill([zero + flags], True)

    values, keep = queues.apply(rows, numbers(1, None))  # their lengths are known when it runs
    if shuffled:
        row = queues.maybe_shuffle_batch([values], 4, 20, 2, keep, enqueue_many=True)
    else:
        row = queues.maybe_batch([values], keep, 4, enqueue_many=True)
    raises = pytest.raises(tf.errors.InvalidArgumentError, match="a bool for each row")
    with raises, queues.running(row):
        queues.evaluate(row)


@pytest.mark.parametrize("kind", ["nothing kept", "none of a vector kept", "no rows"])
def test_a_source_that_enqueues_nothing_ends_with_the_block(kind: str) -> None:
    calls: list[int] = []

    def slowly(n: int) -> np.int64:
        calls.append(n)
        time.sleep(0.1)
        return np.int64(n)

    number = queues.apply(lambda: tf.numpy_function(slowly, [1], tf.int64))
    many = queues.apply(lambda n: tf.fill([n], n), number)
    row = {
        "nothing kept": lambda: queues.maybe_batch([number], False, 2, shapes=[[]]),
        "none of a vector kept": lambda: queues.maybe_batch(
            [many], queues.apply(lambda n: tf.fill([n], False), number), 2, enqueue_many=True
        ),
        "no rows": lambda: queues.batch(
            [queues.apply(lambda x: x[1:], many)], 2, enqueue_many=True, shapes=[[]]
        ),
    }[kind]()
    before = {*threading.enumerate()}
    with queues.running(row):
        assert eventually(lambda: bool(calls))
    assert {*threading.enumerate()} <= before
    assert len(calls) < 20


def test_one_evaluation_is_not_split_by_a_branch() -> None:
    number = numbers(9)

    @tf.function
    def step(flag: tf.Tensor) -> Any:
        first = tf.cond(flag, lambda: queues.evaluate(number), lambda: tf.constant(-1))
        return first, queues.evaluate(number)

    @tf.function
    def together(flag: tf.Tensor) -> Any:
        within = queues.apply(
            lambda: (tf.cond(flag, number.value, lambda: tf.constant(-1)), number.value())
        )
        return queues.evaluate(within)

    with queues.running(number):
        assert [int(x) for x in step(tf.constant(True))] == [0, 1]
        with pytest.raises(fl.FlowError, match=r"evaluate it before tf\.cond"):
            together(tf.constant(True))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: queues.batch([1], 0), ValueError, r"^batch\(\): batch_size must be at least 1"),
        (lambda: queues.batch([1], 1, 0), ValueError, "num_threads must be at least 1, got 0"),
        (lambda: queues.batch([1], 1, capacity=0), ValueError, "capacity must be at least 1"),
        (lambda: queues.batch([1], numbers(3)), TypeError, "batch_size must be an int, got Lazy"),
        (lambda: queues.batch([1], 1, shared_name="q"), ValueError, "cannot be shared"),
        (lambda: queues.batch([1], 1, capacity=2**31), ValueError, "less than 2,147,483,648"),
        (lambda: queues.batch([1], 1, shapes=[[], []]), ValueError, "each of 1 tensor"),
        (lambda: queues.shuffle_batch([1], 1, 4, 1, seed="a"), TypeError, "seed must be an int"),  # type: ignore[arg-type]  # what is tested
        (lambda: queues.maybe_batch([1], None, 1), ValueError, "keep_input must be a bool"),
        (lambda: queues.range_input_producer("a"), TypeError, "limit must be an int"),
        (lambda: queues.limit_epochs([1], "1"), TypeError, "num_epochs must be an int"),  # type: ignore[arg-type]  # what is tested
        (lambda: queues.maybe_batch([1], 1, 1), TypeError, "keep_input must be bool, got int32"),
        (lambda: queues.shuffle_batch([1], 1, 4, 4), ValueError, "min_after_dequeue, must be at"),
        (lambda: queues.range_input_producer(3, capacity=0), ValueError, "capacity must be at"),
        (lambda: queues.range_input_producer(3, shared_name="q"), ValueError, "cannot be shared"),
        (
            lambda: queues.batch([tf.ragged.constant([[1], [2, 3]])], 1),
            TypeError,
            "hold dense tensors, got RaggedTensor",
        ),
        (
            lambda: queues.apply(lambda: tf.SparseTensor([[0]], [1], [2])),
            TypeError,
            "hold dense tensors, got SparseTensor",
        ),
    ],
)
def test_arguments_are_checked(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("given", [5, None, "x"])
def test_only_queues_run(given: object) -> None:
    with pytest.raises(TypeError, match="running: it takes queues"), queues.running(given):
        pass


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2)])
def test_slices_whose_lengths_are_known_late_are_equally_many(lengths: tuple[int, int]) -> None:
    zero = numbers(1, None)
    tensors = [queues.apply(lambda z, n=n: tf.range(z, z + n), zero) for n in lengths]
    first, second = queues.slice_input_producer(tensors, num_epochs=1, shuffle=False)
    raises = pytest.raises(tf.errors.InvalidArgumentError, match="other numbers of rows")
    with raises, queues.running(first, second):
        queues.evaluate([first, second])


def test_keys_are_ordered_as_text() -> None:
    got = queues.batch({10: [1, 2], 2: "x", "a": 1.0}, 2, shapes=[[2], [], []])
    assert {key: tensor.shape.as_list() for key, tensor in got.items()} == {
        10: [2, 2],
        2: [2],
        "a": [2],
    }


def test_fills_do_not_count_what_stays_in_a_queue() -> None:
    row = queues.shuffle_batch([numbers(40)], 4, capacity=20, min_after_dequeue=10, name="drawn")
    source = TensorInput(lambda: [queues.evaluate(row)])
    assert len(source.specs) == 1
    with queues.running(row):
        assert eventually(lambda: source.scalars()["drawn/fraction_over_10_of_10_full"] == 1.0)


def test_a_running_queue_is_not_run_again() -> None:
    producer = queues.range_input_producer(9, shuffle=False)
    first, second = [queues.batch([producer], 3) for _ in range(2)]
    with queues.running(first):
        raises = pytest.raises(fl.FlowError, match="is running already, in another block")
        with raises, queues.running(second):
            pass
        assert queues.evaluate(first).numpy().tolist() == [0, 1, 2]
