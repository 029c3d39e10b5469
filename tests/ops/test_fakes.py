"""fake: arrays have the requested properties, and are the same in every process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flowdsl as fl
from flowdsl import InvalidFlow
from flowdsl.testing.elements import same

FLOATS = ["float16", "float32", "float64", ">f4", "longdouble"]
WHOLE = ["uint8", "int8", "int16", "uint32", "int64", "uint64", ">i4", "bool"]
shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def bounds(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype) if dtype != np.bool_ else None
    return (int(info.min), int(info.max)) if info else (0, 1)


class TestElements:
    @given(st.lists(shapes, min_size=1, max_size=3), st.sampled_from(FLOATS + WHOLE), st.data())
    def test_fake_elements_have_the_shapes_dtypes_and_domains(
        self, dims: list[tuple[int, ...]], name: str, data: st.DataObject
    ) -> None:
        dtype = np.dtype(name)
        if dtype.kind == "f":
            ends = st.floats(-60000, 60000, width=16)
        else:
            ends = st.integers(bounds(dtype)[0], bounds(dtype)[1] + 1)
        low, high = sorted([data.draw(ends), data.draw(ends)])
        assume(low < high)
        flow = fl.fake(dims, 3, dtype=name, domain=(low, high), seed=data.draw(st.integers(0, 9)))
        for row in flow:
            assert [x.shape for x in row] == list(dims)
            for x in row:
                assert type(x) is np.ndarray
                assert x.dtype == dtype
                assert all(low <= value < high for value in x.ravel().tolist())

    def test_fake_arrays_may_have_different_dtypes_and_domains(self) -> None:
        flow = fl.fake(
            [(2, 3), (), (4,)],
            dtype=["float32", np.uint8, np.dtype(bool)],
            domain=[(-1, 0), (200, 256), (0, 2)],
        )
        image, label, _ = next(iter(flow))
        assert (image < 0).all()
        assert label >= 200
        assert str(flow.spec) == "(float32[2, 3], uint8[], bool[4])"

    def test_fake_values_fill_the_domain(self) -> None:
        (x,) = next(iter(fl.fake([(4000,)], domain=(-2, 3), dtype="float64")))
        assert x.min() < -1.99
        assert x.max() > 2.99
        assert abs(x.mean() - 0.5) < 0.15
        (n,) = next(iter(fl.fake([(4000,)], domain=(-2, 3), dtype="int8")))
        assert set(n.tolist()) == {-2, -1, 0, 1, 2}
        (b,) = next(iter(fl.fake([(100,)], domain=(0, 2), dtype=np.bool_)))
        assert set(b.tolist()) == {False, True}

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "uint8"])
    def test_fake_values_reach_the_ends_of_the_dtype(self, dtype: str) -> None:
        low, high = bounds(np.dtype(dtype))
        (x,) = next(iter(fl.fake([(50,)], dtype=dtype, domain=(high - 1, high + 1))))
        assert set(x.tolist()) == {high - 1, high}
        (x,) = next(iter(fl.fake([(50,)], dtype=dtype, domain=(low, low + 2))))
        assert set(x.tolist()) == {low, low + 1}

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_fake_values_stay_below_the_end_despite_rounding(self, dtype: str) -> None:
        kind = np.dtype(dtype).type
        above = float(np.nextafter(kind(1), kind(2)))
        (x,) = next(iter(fl.fake([(2000,)], dtype=dtype, domain=(1, above))))
        assert set(x.tolist()) == {1.0}

    def test_fake_domains_may_be_wider_than_the_largest_float(self) -> None:
        most = float(np.finfo(np.float64).max)
        (x,) = next(iter(fl.fake([(100,)], dtype="float64", domain=(-most, most))))
        assert np.isfinite(x).all()
        assert x.min() < -most / 2 < most / 2 < x.max()


class TestRandomness:
    @given(st.integers(0, 2**70), st.integers(0, 9), st.integers(0, 5))
    def test_draws_depend_only_on_the_seed_and_the_row(self, seed: int, i: int, epoch: int) -> None:
        flow = fl.fake([(2,), (3,)], 10, seed=seed)
        rows = flow.collect()
        assert same(list(flow.epoch(epoch)), rows)
        assert same(
            fl.fake([(2,), (3,)], 100, seed=seed).skip(i).take(1).collect(), rows[i : i + 1]
        )
        assert not same(next(fl.fake([(2,), (3,)], 10, seed=seed + 1).epoch(0)), rows[0])

    def test_draws_differ_between_rows_and_arrays(self) -> None:
        rows = fl.fake([(8,), (8,)], 20).collect()
        assert len({x.tobytes() for row in rows for x in row}) == 40

    def test_draws_are_the_same_in_every_release(self) -> None:
        row = next(fl.fake([(2,), (2,)], dtype=["float32", "uint8"], domain=(0, 200)).epoch(0))
        assert [x.tolist() for x in row] == GOLDEN

    def test_without_randomness_all_rows_are_the_same(self) -> None:
        rows = fl.fake([(2, 2)], 3, random=False, seed=4).collect()
        assert len(rows) == 3
        assert all(row is rows[0] for row in rows)
        assert same(rows[0], fl.fake([(2, 2)], seed=4).take(1).collect()[0])
        with pytest.raises(ValueError, match="read-only"):
            rows[0][0][0] = 1
        assert fl.fake([(2, 2)], random=True).collect()[0][0].flags.writeable

    @pytest.mark.parametrize("random", [True, False])
    def test_draws_are_the_same_in_workers(self, random: bool) -> None:
        flow = fl.fake([(50, 50)], 20, random=random)
        assert same(flow.prefetch(procs=2).collect(), flow.collect())


GOLDEN = [[1.5437722206115723, 173.99365234375], [17, 148]]


class TestPromises:
    @given(st.integers(0, 30))
    def test_fake_has_length_and_no_effects(self, size: int) -> None:
        flow = fl.fake([()], size)
        assert len(flow) == len(flow.collect()) == size
        assert flow.effects == frozenset()

    def test_defaults_are_as_in_tensorpack(self) -> None:
        flow = fl.fake([[28, 28]])
        assert len(flow) == 1000
        assert str(flow.spec) == "(float32[28, 28])"
        (x,) = next(iter(flow))
        assert 0 <= x.min() < 0.1 < 0.9 < x.max() < 1

    def test_only_requested_elements_are_made(self) -> None:
        assert fl.fake([(2,)], 10**12).shuffle().node.indexable
        assert len(fl.fake([(2,)], 10**12).shuffle().take(3).collect()) == 3

    def test_a_state_distinguishes_all_arguments(self) -> None:
        flows: list[fl.Flow[Any, Any]] = [
            fl.fake([(2,)]),
            fl.fake([(3,)]),
            fl.fake([(2,)], 1001),
            fl.fake([(2,)], random=False),
            fl.fake([(2,)], dtype="float64"),
            fl.fake([(2,)], domain=(0, 2)),
            fl.fake([(2,)], domain=(-1, 1)),
            fl.fake([(2,)], seed=1),
        ]
        assert len({flow.node.fingerprint for flow in flows}) == len(flows)
        assert repr(flows[0]) == "fake([(2,)])"
        assert repr(flows[3]) == "fake([(2,)], random=False)"


class TestRefusals:
    @pytest.mark.parametrize("dims", [3, (), [], (28, 28), [3], [(2, -1)], [(2.0,)], "ab", None])
    def test_invalid_shapes_are_refused(self, dims: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.fake(dims)
        assert str(caught.value) == (
            f"fake: shapes must be a list of one shape or more, e.g. [(28, 28), ()], got {dims!r}"
        )

    @pytest.mark.parametrize("dtype", ["float33", "U5", object, "complex64", None, "M8[s]", 3])
    def test_invalid_dtypes_are_refused(self, dtype: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.fake([(2,)], dtype=dtype)
        assert str(caught.value) == (
            f"fake: dtype must be of booleans, integers or floats, got {dtype!r}"
        )

    @pytest.mark.parametrize(
        ("dtype", "domain"),
        [
            ("uint8", (0, 257)),
            ("uint8", (-1, 5)),
            ("uint8", (300, 400)),
            ("uint8", (0, 0.5)),
            ("uint64", (0, 2**64 + 1)),
            ("bool", (0, 3)),
            ("float16", (0, 1e6)),
            ("float32", (0, 1e39)),
            ("float32", (0, 10**400)),
            ("float32", (0, float("inf"))),
            ("float32", (float("nan"), 1)),
            ("float32", (0, 1e-60)),
            ("float32", (1, 1)),
            ("int64", (1, 0)),
            ("int64", (3, 3)),
            ("float32", (0, True)),
            ("int64", (False, 3)),
            ("float32", ("0", "1")),
            ("float32", (0,)),
            ("float32", (0, 1, 2)),
            ("float32", ()),
        ],
    )
    def test_invalid_domains_are_refused(self, dtype: str, domain: Any) -> None:
        with pytest.raises(InvalidFlow) as caught:
            fl.fake([(2,)], dtype=dtype, domain=domain)
        assert str(caught.value) == (
            f"fake: domain must be (low, high) with low < high, between which {dtype} has values, "
            f"got {domain!r}"
        )

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("dtype", ["float32"]),
            ("dtype", ["float32"] * 3),
            ("dtype", []),
            ("domain", [(0, 1)]),
            ("domain", 3),
            ("domain", None),
        ],
    )
    def test_a_number_of_dtypes_other_than_of_shapes_is_refused(
        self, name: str, value: Any
    ) -> None:
        options: dict[str, Any] = {name: value}
        with pytest.raises(InvalidFlow) as caught:
            fl.fake([(2,), (3,)], **options)
        assert str(caught.value) == (
            f"fake: {name} must be one for all, or a list with one for each of the 2 shapes, got "
            f"{value!r}"
        )

    @pytest.mark.parametrize(
        ("name", "value", "rule"),
        [
            ("size", -1, "an int >= 0"),
            ("size", 2.0, "an int >= 0"),
            ("seed", -1, "an int >= 0"),
            ("random", 1, "True or False"),
        ],
    )
    def test_invalid_options_are_refused(self, name: str, value: Any, rule: str) -> None:
        options: dict[str, Any] = {name: value}
        with pytest.raises(InvalidFlow) as caught:
            fl.fake([(2,)], **options)
        assert str(caught.value) == f"fake: {name} must be {rule}, got {value!r}"
