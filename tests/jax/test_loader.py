"""to_jax: conversion of elements, their devices, and states saved by Orbax."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attrs
import jax
import ml_dtypes
import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

import flowdsl as fl

KEPT = [
    *("bool", "uint8", "uint16", "uint32", "int8", "int16", "int32"),
    *("float16", "float32", "complex64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
]


def array_of(array: object, **options: Any) -> Any:
    (element,) = fl.from_range(1).map(lambda _: array).to_jax(**options)
    return element


def output(program: str, *args: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class TestConverting:
    @pytest.mark.parametrize("dtype", KEPT, ids=str)
    def test_a_dtype_is_kept(self, dtype: Any) -> None:
        array = np.arange(6).reshape(2, 3).astype(dtype)
        got = array_of(array)
        assert isinstance(got, jax.Array)
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(got), array)

    @pytest.mark.parametrize(
        ("dtype", "kept"), [("int64", "int32"), ("uint64", "uint32"), ("float64", "float32")]
    )
    def test_64_bits_become_32_as_everywhere_in_jax(self, dtype: str, kept: str) -> None:
        assert array_of(np.arange(3).astype(dtype)).dtype == kept

    @pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
    def test_an_integer_that_would_overflow_is_an_error(self, number: int) -> None:
        elements = iter(fl.from_items([(np.int64(1),), (np.array([1, number]),)]).to_jax())
        next(elements)
        for _ in range(2):
            with pytest.raises(fl.SpecMismatch, match=r"component '0' of element 1.*keeps 32 bits"):
                next(elements)

    def test_with_64_bits_all_values_are_kept(self) -> None:
        jax.config.update("jax_enable_x64", True)
        try:
            got = array_of(np.array([2**62, -1]))
        finally:
            jax.config.update("jax_enable_x64", False)
        assert (got.dtype, got.tolist()) == ("int64", [2**62, -1])

    def test_values_other_than_numeric_arrays_are_unchanged(self) -> None:
        text = np.array(["a"])
        got = array_of({"x": np.float32(1), "t": text, "n": 3, "l": ["a", np.zeros(2)]})
        assert isinstance(got["x"], jax.Array)
        assert got["t"] is text
        assert got["n"] == 3
        assert isinstance(got["l"][1], jax.Array)

    def test_an_unsupported_dtype_is_an_error_with_its_position(self) -> None:
        with pytest.raises(fl.SpecMismatch, match=r"to_jax: element 0, an array of datetime64"):
            array_of(np.zeros(2, "M8[s]"))


class TestPlacing:
    def test_a_masked_array_is_refused(self) -> None:
        masked = np.ma.array([1.0, 2.0], mask=[False, True])
        for array in (masked, masked.astype("U4"), masked.astype(object)):
            with pytest.raises(fl.SpecMismatch, match=r"element 0, .* it is a masked array"):
                list(fl.from_items([array]).to_jax())

    @pytest.mark.parametrize("dtype", [">i2", ">u4", ">f2", ">f4", ">c8"])
    def test_values_do_not_depend_on_the_byte_order(self, dtype: str) -> None:
        rows = [np.arange(6, dtype=dtype).reshape(2, 3), np.array(7, dtype)]
        placed = next(iter(fl.from_items([rows]).to_jax()))
        assert [x.dtype for x in placed] == [row.dtype.newbyteorder("=") for row in rows]
        assert [x.tolist() for x in placed] == [row.tolist() for row in rows]

    def test_arrays_are_on_the_requested_device(self) -> None:
        (device,) = jax.devices()[:1]
        assert array_of(np.zeros(3), sharding=device).devices() == {device}

    @pytest.mark.parametrize("device", ["cpu", 0])
    def test_invalid_devices_are_refused_immediately(self, device: Any) -> None:
        with pytest.raises(
            fl.InvalidFlow, match="to_jax: sharding must be None, a sharding, or a device"
        ):
            fl.from_range(3).to_jax(device)

    def test_arguments_of_other_loaders_are_refused_with_advice(self) -> None:
        load: Any = fl.from_range(3).to_jax
        with pytest.raises(fl.InvalidFlow, match=r"no num_workers=; write \.prefetch\(procs=2\)"):
            load(num_workers=2)
        with pytest.raises(fl.InvalidFlow, match=r"no batch_size=; write \.batch\(8\)\.to_jax"):
            load(batch_size=8)

    def test_a_sharding_divides_each_array_among_its_devices(self) -> None:
        program = """
import jax, numpy as np, flowdsl as fl
jax.config.update("jax_num_cpu_devices", 4)
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
flow = fl.from_range(18).map(lambda i: (np.full(3, i, np.float32), i)).batch(8)
elements = iter(flow.to_jax(sharding))
for x, y in [next(elements), next(elements)]:
    print(x.sharding == sharding, [shard.data.shape for shard in x.addressable_shards])
    print([shard.data.tolist() for shard in y.addressable_shards])
try:
    next(elements)
except fl.SpecMismatch as error:
    print(error)
both = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 1), ("data", "model"))
wide = NamedSharding(both, PartitionSpec("data", "model"))
try:
    next(iter(flow.to_jax(wide)))
except fl.SpecMismatch as error:
    print(error)
try:
    next(iter(flow.map(lambda batch: (*batch, np.float32(1))).to_jax(sharding)))
except fl.SpecMismatch as error:
    print(error)
"""
        lines = output(program).splitlines()
        assert lines[0] == "True [(2, 3), (2, 3), (2, 3), (2, 3)]"
        assert lines[1] == "[[0, 1], [2, 3], [4, 5], [6, 7]]"
        assert lines[3] == "[[8, 9], [10, 11], [12, 13], [14, 15]]"
        assert "component '0' of element 2" in lines[4]
        assert "drop_remainder=True" in lines[4]
        assert "its sharding is for 2 axes or more, and it has 1" in lines[5]
        assert "its sharding is for 1 axis or more, and it has 0" in lines[6]

    def test_the_processes_of_jax_distributed_make_one_array_of_their_parts(self) -> None:
        program = """
import sys, jax, numpy as np, flowdsl as fl
rank, address = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, 2, rank)
from jax.sharding import NamedSharding, PartitionSpec
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
flow = fl.from_range(10).batch(2)
loader = flow.to_jax(sharding)
total = jax.jit(lambda x: x.sum())
print(len(loader), [(x.shape, int(total(x))) for x in loader])
"""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        started = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank), address],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        ended = [one.communicate(timeout=120) for one in started]
        for out, err in ended:
            assert out.splitlines()[-1] == "2 [((4,), 6), ((4,), 22)]", err


def test_orbax_keeps_a_state(tmp_path: Path) -> None:
    flow = fl.from_range(20).shuffle(seed=1).batch(3)
    loader = flow.to_jax()
    elements = iter(loader)
    for _ in range(3):
        next(elements)
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as saver:
        saved = ocp.args.Composite(input=ocp.args.JsonSave(loader.state_dict()))
        saver.save(tmp_path / "step", saved)
        restored = saver.restore(
            tmp_path / "step", ocp.args.Composite(input=ocp.args.JsonRestore())
        )
    other = flow.to_jax()
    other.load_state_dict(restored["input"])
    assert [x.tolist() for x in other] == [x.tolist() for x in elements]
    loader.close()


@attrs.frozen
class Labelled:
    image: Any
    label: Any = attrs.field(validator=attrs.validators.instance_of((int, jax.Array)))


@dataclass
class Pair:
    x: Any
    y: Labelled


def test_records_are_pytrees() -> None:
    def row(i: int) -> Pair:
        return Pair(np.full(2, i, np.float32), Labelled(np.float32(i), i))

    (first,) = fl.from_range(1).map(row).to_jax()
    assert isinstance(first, Pair)
    doubled = jax.jit(lambda pair: jax.tree.map(lambda x: 2 * x, pair))(first)
    assert isinstance(doubled, Pair)
    assert isinstance(doubled.y, Labelled)
    assert doubled.x.tolist() == [0.0, 0.0]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(first)]
    assert paths == [".x", ".y.image", ".y.label"]


class Packed(msgspec.Struct, frozen=True):
    x: Any


def test_structs_are_pytrees() -> None:
    (first,) = fl.from_range(1).map(lambda i: Packed(np.full(2, 3, np.float32))).to_jax()
    doubled = jax.jit(lambda packed: jax.tree.map(lambda x: 2 * x, packed))(first)
    assert isinstance(doubled, Packed)
    assert doubled.x.tolist() == [6.0, 6.0]


def test_records_that_are_pytrees_already_are_left_alone() -> None:
    @jax.tree_util.register_dataclass
    @dataclass
    class Known:
        x: Any
        name: str = field(metadata={"static": True})

    rows = fl.from_range(2).map(lambda i: Known(np.float32(i), "a"))
    assert [len(jax.tree.leaves(row)) for row in rows.to_jax()] == [1, 1]


def test_a_flow_that_is_divided_among_the_processes_is_not_divided_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    flow = fl.from_range(8).shard(2, 0)
    with pytest.raises(fl.InvalidFlow, match=r"to_jax: the flow contains shard\(2, 0\)"):
        flow.to_jax()
    assert list(flow.to_jax(shard=(1, 0))) == [0, 2, 4, 6]
