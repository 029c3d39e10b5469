"""from_tfdata: elements, length and spec, and refused arguments."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple, assert_type

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow

import flowdsl as fl
from flowdsl import ElementError, EndlessFlow, InvalidFlow, NotShippable, SourceError
from flowdsl.effects import Endless, Unsized
from flowdsl.tensorflow.inputs import dataflow_to_dataset
from flowdsl.testing import check_source
from flowdsl.testing.elements import same

tf: Any = tensorflow  # its stub has what flowdsl uses
DATA: Any = tf.data.Dataset


class Pair(NamedTuple):
    x: Any
    y: Any


def pairs(n: int) -> Any:
    return DATA.range(n).map(lambda i: (i * i, {"i": tf.fill([2], i)}))


def rows(n: int) -> list[Any]:
    return [(np.int64(i * i), {"i": np.full(2, i)}) for i in range(n)]


class TestLaws:
    def test_datasets_of_known_length_obey_the_laws(self) -> None:
        data = pairs(6)
        check_source(lambda: fl.from_tfdata(data), rows(6), examples=2)

    def test_datasets_of_unknown_length_obey_the_laws(self) -> None:
        kept = pairs(6).filter(lambda x, y: x >= 0)
        check_source(lambda: fl.from_tfdata(kept), rows(6), examples=2)


class TestElements:
    @pytest.mark.parametrize(
        ("element", "expected", "spec"),
        [
            (np.float32(2), np.float32(2), "float32[]"),
            (np.ones((2, 3), np.uint8), np.ones((2, 3), np.uint8), "uint8[2, 3]"),
            (b"text", b"text", "bytes"),
            ("text", b"text", "bytes"),
            (
                (1, (2.5, b"a")),
                (np.int32(1), (np.float32(2.5), b"a")),
                "(int32[], (float32[], bytes))",
            ),
            ({"b": 1, "a": 2}, {"b": np.int32(1), "a": np.int32(2)}, "{b: int32[], a: int32[]}"),
            (OrderedDict(b=1), OrderedDict(b=np.int32(1)), "{b: int32[]}"),
            (Pair(1, 2), Pair(np.int32(1), np.int32(2)), "Pair(x=int32[], y=int32[])"),
            ((1, None), (np.int32(1), None), "(int32[], NoneType)"),
            (True, np.True_, "bool[]"),
        ],
    )
    def test_keep_their_structure(self, element: Any, expected: Any, spec: str) -> None:
        flow = fl.from_tfdata(DATA.from_tensors(element))
        (got,) = flow.collect()
        assert same(got, expected)
        assert str(flow.node.spec(probe=False)).replace(": ", "=") == spec.replace(": ", "=")

    def test_texts_are_bytes_in_an_object_array(self) -> None:
        flow = fl.from_tfdata(DATA.from_tensors([["a", "bc"]]))
        assert str(flow.spec) == "object[1, 2]"
        assert flow.collect()[0].tolist() == [[b"a", b"bc"]]

    def test_are_read_only(self) -> None:
        (x,) = fl.from_tfdata(DATA.range(4).batch(4))
        assert not x.flags.writeable

    def test_varying_sizes_are_unknown_in_the_spec(self) -> None:
        flow = fl.from_tfdata(DATA.range(4).map(tf.range))
        assert str(flow.node.spec(probe=False)) == "int64[?]"
        ragged: Any = DATA.from_generator(
            lambda: iter([[1], [[2]]]), output_signature=tf.TensorSpec(None, tf.int32)
        )
        assert str(fl.from_tfdata(ragged).node.spec(probe=False)) == "int32[...]"
        assert [x.ndim for x in fl.from_tfdata(ragged)] == [1, 2]

    def test_bfloat16_keeps_its_dtype(self) -> None:
        flow = fl.from_tfdata(DATA.from_tensors(tf.ones(2, tf.bfloat16)))
        assert str(flow.spec) == "bfloat16[2]"
        assert flow.collect()[0].dtype.name == "bfloat16"

    def test_tensorflow_round_trip(self) -> None:
        flow = fl.from_range(7).map(lambda i: {"n": np.int64(i), "x": np.full(2, i)}).batch(3)
        back = fl.from_tfdata(dataflow_to_dataset(flow))
        assert same(back.collect(), flow.collect())
        assert len(back) == len(flow)


class TestLengthAndSpec:
    def test_the_spec_computes_no_element(self) -> None:
        def never() -> Iterator[int]:
            raise AssertionError("an element was made")

        spec = tf.TensorSpec([], tf.int32)
        flow = fl.from_tfdata(DATA.from_generator(never, output_signature=spec))
        assert str(flow.spec) == "int32[]"
        assert flow.batch(2).effects == {Unsized}

    def test_a_known_cardinality_is_the_length(self) -> None:
        flow = fl.from_tfdata(DATA.range(5))
        assert (len(flow), flow.effects) == (5, frozenset())
        assert sorted(flow.shuffle(seed=1)) == list(range(5))
        assert repr(flow) == "from_tfdata(_RangeDataset, 5 elements)"
        assert_type(flow, fl.Flow[Any, Any])

    def test_an_infinite_cardinality_is_endless(self) -> None:
        flow = fl.from_tfdata(DATA.range(3).repeat())
        assert flow.effects == {Endless}
        with pytest.raises(EndlessFlow):
            len(flow)
        with pytest.raises(InvalidFlow, match="never ends"):
            flow.shuffle()

    def test_an_infinite_dataset_that_ends_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = DATA.range(0)
        monkeypatch.setattr(dataset, "cardinality", lambda: tf.constant(-1))
        flow = fl.from_tfdata(dataset)
        with pytest.raises(SourceError, match=r"says that it never ends, and a pass gave 0$"):
            flow.take(3).collect()

    @pytest.mark.parametrize(("n", "message"), [(3, "more"), (9, "5")])
    def test_a_wrong_cardinality_is_an_error(
        self, n: int, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = DATA.range(5)
        monkeypatch.setattr(dataset, "cardinality", lambda: tf.constant(n))
        with pytest.raises(SourceError, match=rf"^from_tf.*says that it has {n}.*gave {message}$"):
            fl.from_tfdata(dataset).collect()
        checked = DATA.range(5).apply(tf.data.experimental.assert_cardinality(n))
        with pytest.raises(ElementError, match="FailedPrecondition"):
            fl.from_tfdata(checked).collect()


class TestPasses:
    def test_an_error_has_its_position(self) -> None:
        checked = DATA.range(5).map(
            lambda i: tf.debugging.check_numerics(1 / tf.cast(i - 3, tf.float32), "of the user")
        )
        run = iter(fl.from_tfdata(checked))
        assert len([next(run) for _ in range(3)]) == 3
        with pytest.raises(ElementError, match=r"failed on element 3 .*of the user"):
            next(run)

    def test_an_abandoned_pass_releases_the_dataset(self) -> None:
        dataset = DATA.range(100)
        alive = weakref.ref(dataset)
        run = iter(fl.from_tfdata(dataset))
        next(run)
        run.close()
        del dataset, run
        gc.collect()
        assert alive() is None

    def test_each_pass_reshuffles_if_the_dataset_does(self) -> None:
        flow = fl.from_tfdata(DATA.range(50).shuffle(50))
        assert flow.collect() != flow.collect()
        steady = DATA.range(50).shuffle(50, seed=1, reshuffle_each_iteration=False)
        kept = fl.from_tfdata(steady)
        assert kept.collect() == kept.collect()
        run = iter(kept)
        begun = [next(run) for _ in range(7)]
        assert begun + list(kept.resume(run.state_dict())) == kept.collect()
        run.close()

    def test_workers_run_the_operators_above(self) -> None:
        # no function of this module, of which each worker would import TensorFlow
        flow = fl.from_tfdata(pairs(20)).map(tuple).batch(3)
        assert same(flow.prefetch(procs=2).collect(), flow.collect())

    def test_the_dataset_is_not_sent_to_workers(self) -> None:
        with pytest.raises(NotShippable, match=r"^from_tfdata\(.*: dataset cannot be sent"):
            fl.from_tfdata(DATA.range(3)).replicate(procs=2).collect()


class TestRefusals:
    @pytest.mark.parametrize("given", [None, [1], tf.constant(1), tf.data.Dataset, iter([1])])
    def test_objects_that_are_not_datasets_are_refused(self, given: Any) -> None:
        with pytest.raises(InvalidFlow, match=r"^from_tfdata: dataset must be a tf\.data\.D"):
            fl.from_tfdata(given)

    @pytest.mark.parametrize(
        ("dataset", "message"),
        [
            (DATA.range(5).window(2), r"the element .* DatasetSpec.*x\.batch\(n\)"),
            (
                DATA.from_tensors({"x": (1, tf.ragged.constant([[1], [2, 3]]))}),
                r"component 'x\.1' .* RaggedTensorSpec.*x\.to_tensor\(\)",
            ),
            (
                DATA.from_tensors((1, tf.sparse.from_dense([[1, 0]]))),
                r"component '1' .* SparseTensorSpec.*tf\.sparse\.to_dense\(x\)",
            ),
        ],
    )
    def test_components_that_are_not_plain_tensors_are_refused(
        self, dataset: Any, message: str
    ) -> None:
        with pytest.raises(InvalidFlow, match=f"^from_tfdata: {message}"):
            fl.from_tfdata(dataset)


@pytest.mark.parametrize("seed", range(3))
def test_buckets_by_length_are_those_of_tf_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = [rng.integers(0, 9, n) for n in rng.integers(1, 30, 200)]
    boundaries, sizes = [8, 16, 24], [7, 5, 3, 2]
    dataset: Any = tf.data.Dataset.from_generator(
        lambda: iter(items), output_signature=tf.TensorSpec([None], tf.int64)
    )
    buckets = dataset.bucket_by_sequence_length(
        lambda x: tf.shape(x)[0], boundaries, sizes, drop_remainder=True
    )
    ours = fl.from_items(items).bucket_by_length(len, boundaries, sizes, drop_remainder=True)
    assert [x.tolist() for x in ours] == [x.tolist() for x in buckets.as_numpy_iterator()]
