"""to_torch: conversion of elements, and use with PyTorch's data loaders."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import attrs
import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import flowdsl as fl
from flowdsl.testing.recipes import AnyFlow
from flowdsl.torch import loader as torch_loader
from flowdsl.torch.loader import pinned
from flowdsl.torch.loader import tensor_of as convert

KNOWN = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
]


def only(flow: AnyFlow, **options: Any) -> Any:
    (element,) = flow.to_torch(**options)
    return element


def tensor_of(array: object, **options: Any) -> Any:
    return only(fl.from_range(1).map(lambda _: array), **options)  # its memory, writable


@pytest.fixture
def pageable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocate pageable memory instead of pinned memory, which needs a GPU."""
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda x, pin_memory: empty_like(x))


class Pair(NamedTuple):
    x: Any
    y: Any


@attrs.frozen
class Point:
    x: Any
    name: str


def halved(x: Any) -> Any:
    return x / 2


@attrs.frozen
class Halved:
    x: Any = attrs.field(converter=halved)


class TestConverting:
    def test_a_masked_array_is_refused(self) -> None:
        masked = np.ma.array([1.0, 2.0], mask=[False, True])
        for array in (masked, masked.astype("U4"), masked.astype(object)):
            with pytest.raises(fl.SpecMismatch, match=r"of element 0, .* it is a masked array"):
                list(fl.from_items([{"x": array}]).to_torch())

    def test_the_constructor_of_a_record_is_not_called_again(self) -> None:
        flow = fl.from_items([Halved(np.full(2, 4.0))])
        (element,) = flow.to_torch()
        assert type(element) is Halved
        assert element.x.tolist() == [2.0, 2.0]

    @pytest.mark.parametrize("dtype", KNOWN, ids=str)
    def test_a_dtype_keeps_its_name_and_its_bits(self, dtype: Any) -> None:
        array = np.arange(6).reshape(2, 3).astype(dtype)
        tensor = tensor_of(array)
        assert str(tensor.dtype) == f"torch.{array.dtype.name}"
        assert tensor.shape == (2, 3)
        assert tensor.data_ptr() == array.ctypes.data
        assert bytes(tensor.flatten().view(torch.uint8)) == array.tobytes()

    @pytest.mark.parametrize("dtype", KNOWN, ids=str)
    @pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
    @pytest.mark.usefixtures("pageable")
    def test_a_copy_in_pinned_memory_has_the_same_bits(
        self, dtype: Any, shape: tuple[int, ...]
    ) -> None:
        array = np.arange(6).astype(dtype)[: np.prod(shape, dtype=int)].reshape(shape)
        copy = pinned(torch_loader.tensor_of(array))
        assert str(copy.dtype) == f"torch.{array.dtype.name}"
        assert copy.shape == shape
        assert copy.reshape(-1).view(torch.uint8).numpy().tobytes() == array.tobytes()

    @pytest.mark.usefixtures("pageable")
    def test_a_copy_in_pinned_memory_keeps_the_order_of_its_axes(self) -> None:
        tensor = torch.arange(24).reshape(2, 3, 4).permute(0, 2, 1)
        copy = pinned(tensor)
        assert copy.stride() == tensor.stride()
        assert torch.equal(copy, tensor)

    @pytest.mark.parametrize(
        "array",
        [
            np.arange(6.0)[::-1],
            np.arange(6, dtype=">i4"),
            np.broadcast_to(np.arange(3), (2, 3)),
            np.zeros(3, [("a", "u1"), ("b", "f4")])["b"],
        ],
        ids=["negative step", "other byte order", "read-only", "part of a record"],
    )
    def test_arrays_no_tensor_can_view_are_copied_unless_forbidden(
        self, array: np.ndarray[Any, Any]
    ) -> None:
        before = array.copy()
        tensor = tensor_of(array)
        np.testing.assert_array_equal(tensor.numpy(), array)
        tensor += 1
        np.testing.assert_array_equal(array, before)
        with pytest.raises(fl.SpecMismatch, match=r"element 0.*has to be copied, and copy=False"):
            tensor_of(array, copy=False)

    def test_copy_true_copies_all(self) -> None:
        array = np.arange(3)
        assert tensor_of(array, copy=True).data_ptr() != array.ctypes.data

    def test_an_empty_array_and_a_scalar_are_tensors(self) -> None:
        assert tensor_of(np.zeros((0, 4), np.float32)).shape == (0, 4)
        assert tensor_of(np.float32(3)).shape == ()
        assert tensor_of(np.array(7)).item() == 7

    def test_containers_keep_their_type(self) -> None:
        x = np.arange(2)
        element = {"pair": Pair(x, 3), "point": Point(x, "a"), "list": [x, "b", None], "n": 1.5}
        got = tensor_of(element)
        assert isinstance(got["pair"], Pair)
        assert isinstance(got["point"], Point)
        assert isinstance(got["pair"].x, torch.Tensor)
        assert isinstance(got["point"].x, torch.Tensor)
        assert isinstance(got["list"][0], torch.Tensor)
        assert (got["pair"].y, got["point"].name, got["list"][1:], got["n"]) == (
            *(3, "a"),
            *(["b", None], 1.5),
        )

    @pytest.mark.parametrize("dtype", ["U3", "S3", "O"])
    def test_text_and_objects_stay_arrays(self, dtype: str) -> None:
        array = np.array(["a", "b"], dtype)
        assert tensor_of((array,))[0] is array

    @pytest.mark.parametrize(
        "array",
        [np.zeros(2, "M8[s]"), np.zeros(2, [("a", "i4")]), np.zeros(2, np.longdouble)],
        ids=["dates", "records", "long doubles"],
    )
    def test_an_unsupported_dtype_is_an_error_with_its_position(self, array: Any) -> None:
        flow = fl.from_items([{"x": np.zeros(2)}, {"x": array}])
        elements = iter(flow.to_torch())
        next(elements)
        for _ in range(2):
            with pytest.raises(fl.SpecMismatch, match="component 'x' of element 1, an array of"):
                next(elements)

    def test_rows_of_a_mapped_file_can_be_written_to_and_the_file_stays(
        self, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "rows.npy", np.zeros((4, 3), np.float32))
        for row in fl.from_npy(tmp_path / "rows.npy").to_torch():
            row += 1
        assert not np.load(tmp_path / "rows.npy").any()

    @pytest.mark.parametrize(
        "placed",
        [
            lambda flow: flow,
            lambda flow: flow.prefetch(threads=1),
            lambda flow: flow.prefetch(procs=1),
        ],
        ids=["here", "threads", "processes"],
    )
    def test_a_step_writes_neither_to_a_file_nor_to_an_array_of_the_program(
        self, tmp_path: Path, placed: Callable[[AnyFlow], AnyFlow]
    ) -> None:
        np.zeros((4, 2), np.float32).tofile(tmp_path / "rows.bin")
        mapped = np.memmap(tmp_path / "rows.bin", np.float32, shape=(4, 2))  # writable
        array, tensor = np.zeros((4, 2)), torch.zeros(4, 2)

        def views(i: int) -> tuple[Any, ...]:
            part = slice(2 * i, 2 * i + 2)
            return mapped[part], array[part], array[i], tensor.numpy()[part], mapped[part].T

        for element in placed(fl.from_range(2).map(views)).to_torch():
            for x in element:
                x -= 1
        assert not mapped.any()
        assert not array.any()
        assert not tensor.any()

    @pytest.mark.parametrize(
        "made",
        [
            lambda: np.zeros((3, 4)),
            lambda: np.zeros((3, 4)).T,
            lambda: np.zeros(40)[:30].reshape(5, 6)[1:],
        ],
        ids=["array", "transposed", "part"],
    )
    def test_a_view_of_an_array_that_nobody_else_has_is_not_copied(
        self, made: Callable[[], NDArray[Any]]
    ) -> None:
        array = made()
        assert convert(array).data_ptr() == array.ctypes.data
        assert convert(array, copy=False).data_ptr() == array.ctypes.data

    def test_copy_false_shares_a_view(self) -> None:
        array = np.zeros((4, 2))
        assert convert(array[1:3], copy=False).data_ptr() == array[1:].ctypes.data

    def test_batches_are_not_copied(self) -> None:
        rows = fl.from_range(64).map(lambda i: np.full(9000, i, np.float32))
        for flow in (rows.batch(32), rows.batch(32).prefetch(procs=1)):
            elements = list(flow)
            for batch in elements:
                assert convert(batch).data_ptr() == batch.ctypes.data


class TestPlacing:
    def test_elements_are_transferred_to_a_device(self) -> None:
        x, name = only(fl.from_items([(np.zeros((2, 3), np.float32), "a")]), device="meta")
        assert (x.device.type, tuple(x.shape), x.dtype, name) == (
            "meta",
            (2, 3),
            torch.float32,
            "a",
        )

    @pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
    def test_the_cpu_device_transfers_nothing(self, device: Any) -> None:
        array = np.zeros(3)
        assert tensor_of(array, device=device).data_ptr() == array.ctypes.data

    def test_a_device_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(fl.InvalidFlow, match=r"no device 'cuda:63': PyTorch sees \d+ CUDA"):
            fl.from_range(3).to_torch("cuda:63")

    def test_pinning_without_an_accelerator_warns(self) -> None:
        with warnings.catch_warnings():  # PyTorch for GPUs warns where there is no driver
            warnings.simplefilter("ignore")
            has_accelerator = torch.accelerator.is_available()
        if has_accelerator:
            return
        with pytest.warns(UserWarning, match="pin_memory=True has no effect"):
            tensor_of(np.zeros(3), pin_memory=True)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"device": "gpu"}, "to_torch: device must be None or what torch.device takes"),
            ({"device": 1.5}, "to_torch: device must be None or what torch.device takes"),
            ({"pin_memory": "yes"}, "to_torch: pin_memory must be None or a bool, got 'yes'"),
            ({"copy": 1}, "to_torch: copy must be None or a bool, got 1"),
            ({"ahead": 0}, "to_torch: ahead must be an int >= 1, got 0"),
            ({"shard": (2, 2)}, r"shard must be \(number of ranks, rank\).* got \(2, 2\)"),
            ({"shard": 3}, r"shard must be \(number of ranks, rank\).* got 3"),
            ({"even": "keep"}, "even must be 'drop', 'pad' or None, got 'keep'"),
            ({"num_workers": 4}, r"write .prefetch\(procs=4\).to_torch\(\)"),
        ],
    )
    def test_wrong_arguments_are_refused_immediately(self, options: Any, message: str) -> None:
        with pytest.raises(fl.InvalidFlow, match=message):
            fl.from_range(3).to_torch(**options)


def numbers(elements: Any) -> list[Any]:
    return [x.tolist() for x in elements]


def shuffled() -> fl.Flow[Any, Any]:
    return fl.from_range(20).shuffle(seed=1).batch(3)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
class TestInADataLoader:
    def test_yields_the_elements_of_the_flow(self) -> None:
        loader = DataLoader(shuffled().to_torch(), batch_size=None)
        assert len(loader) == 7
        for epoch in range(2):
            assert numbers(loader) == numbers(shuffled().epoch(epoch))

    def test_rows_can_be_batched_by_the_data_loader(self) -> None:
        rows = fl.from_range(5).map(np.float32)
        loader = DataLoader(rows.to_torch(), batch_size=2)
        assert numbers(loader) == [[0, 1], [2, 3], [4]]

    def test_unknown_lengths_are_supported(self) -> None:
        flow = fl.from_range(9).filter(bool).batch(2)
        loader = DataLoader(flow.to_torch(), batch_size=None)
        assert numbers(loader) == numbers(flow)
        with pytest.raises(fl.UnknownLength):
            len(loader)

    @pytest.mark.filterwarnings("ignore:Got pickle error")  # and then raises it
    @pytest.mark.parametrize("start", ["fork", "spawn"])
    def test_workers_of_a_loader_are_refused(
        self, start: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The wait for a worker that could not be started.
        monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
        loader = DataLoader(
            fl.from_range(3).to_torch(),
            batch_size=None,
            num_workers=1,
            multiprocessing_context=start,
        )
        with pytest.raises((TypeError, fl.InvalidFlow), match=r"num_workers=0"):
            list(loader)

    def test_a_loader_is_not_copied(self) -> None:
        with pytest.raises(TypeError, match=r"to_torch: a loader cannot be copied"):
            pickle.dumps(fl.from_range(3).to_torch())

    @pytest.mark.parametrize("taken", [0, 1, 4, 7])
    @pytest.mark.parametrize("epoch", [0, 1])
    def test_a_stateful_data_loader_resumes_exactly(self, taken: int, epoch: int) -> None:
        loader = StatefulDataLoader(shuffled().to_torch(), batch_size=None)
        for _ in range(epoch):
            list(loader)
        elements = iter(loader)
        for _ in range(taken):
            next(elements)
        state = loader.state_dict()
        rest = numbers(elements)
        other = StatefulDataLoader(shuffled().to_torch(), batch_size=None)
        other.load_state_dict(state)
        assert numbers(other) == rest == numbers(shuffled().epoch(epoch))[taken:]
        assert numbers(other) == numbers(shuffled().epoch(epoch + 1))

    def test_a_stateful_data_loader_resumes_at_the_end_of_an_epoch(self) -> None:
        loader = StatefulDataLoader(shuffled().to_torch(), batch_size=None)
        list(loader)
        other = StatefulDataLoader(shuffled().to_torch(), batch_size=None)
        other.load_state_dict(loader.state_dict())
        for epoch in (1, 2):
            assert numbers(other) == numbers(shuffled().epoch(epoch))


class TestRanks:
    def test_ranks_divide_the_elements_and_end_together(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        flow = fl.from_range(11)
        parts = [list(flow.to_torch(shard=(3, i))) for i in range(3)]
        assert parts == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
        assert "2 of 11 elements of each pass are left out" in caplog.text
        assert [len(flow.to_torch(shard=(3, i))) for i in range(3)] == [3, 3, 3]

    def test_remaining_elements_can_be_kept(self) -> None:
        loaders = [fl.from_range(11).to_torch(shard=(3, i), even=None) for i in range(3)]
        assert [list(loader) for loader in loaders] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
        assert list(map(len, loaders)) == [4, 4, 3]

    def test_missing_elements_can_be_repeated(self, caplog: pytest.LogCaptureFixture) -> None:
        flow = fl.from_range(11).shuffle(seed=1)
        loaders = [flow.to_torch(shard=(3, i), even="pad") for i in range(3)]
        assert "elements are repeated 1 time(s) in each pass of 11," in caplog.text
        for epoch in range(2):
            whole = list(flow.epoch(epoch))
            padded = [*whole, whole[0]]
            assert [list(loader) for loader in loaders] == [padded[i::3] for i in range(3)]
        assert list(map(len, loaders)) == [4, 4, 4]
        assert loaders[2].state_dict() == flow.epoch(2).state_dict()

    @pytest.mark.parametrize("even", ["drop", "pad", None])
    @pytest.mark.parametrize("length", [5, 7, 8])
    def test_a_resumed_rank_gets_the_elements_it_would_have_got(
        self, even: Literal["drop", "pad"] | None, length: int
    ) -> None:
        flow = fl.from_range(length).shuffle(seed=1)
        for i in range(3):
            loader = flow.to_torch(shard=(3, i), even=even)
            whole = list(loader)
            for taken in range(len(whole) + 1):
                loader.set_epoch(0)
                elements = iter(loader)
                before = [next(elements) for _ in range(taken)]
                resumed = flow.to_torch(shard=(3, i), even=even)
                resumed.load_state_dict(loader.state_dict())
                assert before + list(resumed) == whole

    def test_a_rank_at_its_end_begins_the_epoch_that_is_set(self) -> None:
        loader = fl.from_range(5).to_torch(shard=(2, 0))
        elements = iter(loader)
        for _ in range(2):
            next(elements)
        other = fl.from_range(5).to_torch(shard=(2, 0))
        other.load_state_dict(loader.state_dict())
        other.set_epoch(0)
        assert list(other) == [0, 2]

    def test_errors_name_the_position_in_the_flow(self) -> None:
        def row(i: int) -> Any:
            return np.array(["2020-01-01"], "M8[D]") if i == 5 else np.zeros(2)

        for taken in (0, 1):
            loader = fl.from_range(8).map(row).to_torch(shard=(2, 1))
            elements = iter(loader)
            for _ in range(taken):
                next(elements)
            resumed = fl.from_range(8).map(row).to_torch(shard=(2, 1))
            resumed.load_state_dict(loader.state_dict())
            with pytest.raises(fl.SpecMismatch, match="element 5, an array of"):
                list(resumed)

    def test_too_few_elements_for_all_ranks_are_refused(self) -> None:
        with pytest.raises(fl.InvalidFlow, match="there are 2 elements for 3 ranks"):
            fl.from_range(2).to_torch(shard=(3, 0))
        assert list(fl.from_range(2).to_torch(shard=(3, 2), even="pad")) == [0]

    @pytest.mark.parametrize("argument", [(0, 2), (2, 2), (2, -1), 2, "22", (2.0, 1), (True, 0)])
    def test_invalid_shards_are_refused(self, argument: Any) -> None:
        with pytest.raises(
            fl.InvalidFlow, match=r"to_torch: shard must be \(number of ranks, rank\)"
        ):
            fl.from_range(4).to_torch(shard=argument)

    def test_an_invalid_even_is_refused(self) -> None:
        wrong: Any = "keep"
        with pytest.raises(fl.InvalidFlow, match="even must be 'drop', 'pad' or None, got 'keep'"):
            fl.from_range(4).to_torch(shard=(2, 0), even=wrong)

    def test_unknown_lengths_are_refused(self) -> None:
        flow = fl.from_range(11).filter(bool)
        with pytest.raises(fl.InvalidFlow, match="length of this flow is unknown, and 2 ranks"):
            flow.to_torch(shard=(2, 0))
        assert list(flow.to_torch(shard=(2, 0), even=None)) == [1, 3, 5, 7, 9]
        endless = flow.repeat().to_torch(shard=(2, 1))
        assert [x for _, x in zip(range(4), endless, strict=False)] == [2, 4, 6, 8]

    def test_a_state_of_one_rank_resumes_all_and_other_numbers(self) -> None:
        flow = fl.from_range(24).shuffle(seed=1)
        loader = flow.to_torch(shard=(2, 0))
        elements = iter(loader)
        taken = 3
        for _ in range(taken):
            next(elements)
        state = loader.state_dict()
        assert list(flow.resume(state)) == list(flow)[2 * taken :]
        for n in (1, 2, 3):
            rest: list[Sequence[int]] = []
            for i in range(n):
                other = flow.to_torch(shard=(n, i))
                other.load_state_dict(state)
                rest.append(list(other))
            together = [x for step in zip(*rest, strict=True) for x in step]
            assert together == list(flow)[2 * taken :]

    def test_ranks_of_torch_distributed_are_used_and_refused_if_they_joined_later(
        self, tmp_path: Path
    ) -> None:
        program = f"""
import sys, torch.distributed as dist, flowdsl as fl
rank, flow = int(sys.argv[1]), fl.from_range(7)
loaders = [flow.to_torch(), flow.as_iterable_dataset()]
given = flow.to_torch(shard=(1, 0))
dist.init_process_group("gloo", init_method=f"file://{tmp_path}/{{rank}}", rank=0, world_size=1)
print([len(list(loader)) for loader in loaders])
dist.destroy_process_group()
dist.init_process_group("gloo", init_method="file://{tmp_path}/both", rank=rank, world_size=2)
print(list(flow.to_torch()), len(flow.to_torch()))
for loader in loaders:
    try:
        iter(loader)
    except fl.InvalidFlow as error:
        print(error)
print(len(list(given)))
dist.destroy_process_group()
"""
        children = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(rank)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        printed = [child.communicate(timeout=60)[0].splitlines() for child in children]
        for rank, elements in enumerate(([0, 2, 4], [1, 3, 5])):
            alone, shard, refused, refused_too, all_of_them = printed[rank]
            assert alone == "[7, 7]"
            assert shard == f"{elements} 3"
            now = f"torch.distributed has 2 rank(s) now, of which this is {rank}, and"
            assert refused.startswith(f"to_torch: {now}")
            assert refused_too.startswith(f"as_iterable_dataset: {now}")
            assert all_of_them == "7"


_SPAWNED = """
import torch.distributed as dist, torch.multiprocessing as mp, flowdsl as fl

def row(i):  # a function of the script, in a child of torch.multiprocessing
    return float(i)

def train(rank, store, lengths):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    total = torch.zeros(1)
    for batch in fl.from_range(257).map(row).batch(16).prefetch(procs=2).to_torch():
        total += batch.sum()
        dist.all_reduce(total.clone())  # as the gradients of a training step
        lengths[rank] += 1
    dist.destroy_process_group()

if __name__ == "__main__":
    import sys, torch
    lengths = torch.zeros(2, dtype=torch.int64).share_memory_()
    mp.spawn(train, args=(sys.argv[1], lengths), nprocs=2)
    print(lengths.tolist())
else:
    import torch
"""


@pytest.mark.long
def test_spawned_ranks_end_together(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SPAWNED)
    command = [sys.executable, str(script), str(tmp_path / "store")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.stdout == "[8, 8]\n", result.stderr


@pytest.mark.parametrize("loader", ["to_torch", "as_iterable_dataset"])
def test_a_flow_that_is_divided_among_the_ranks_is_not_divided_again(
    loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowdsl.torch.loader._distributed", lambda: (2, 1))
    halves = fl.from_range(8).shard(2, 1, even="drop").map(abs)
    with pytest.raises(fl.InvalidFlow, match=rf"{loader}: .* shard\(2, 1, even='drop'\)"):
        getattr(halves, loader)()
    assert list(getattr(halves, loader)(shard=(1, 0))) == [1, 3, 5, 7]
    assert list(getattr(halves, loader)(shard=(2, 1))) == [3, 7]
    assert list(getattr(fl.from_range(8).shard(4, 1), loader)()) == [5]


class TestEpochs:
    """The calls of Lightning and Accelerate before each epoch."""

    def test_a_state_continues_in_the_epoch_that_is_set(self) -> None:
        flow = fl.from_range(8).shuffle(seed=1)
        loader = flow.to_torch()
        loader.set_epoch(2)
        elements = iter(loader)
        taken = [next(elements) for _ in range(3)]
        other = flow.to_torch()
        other.load_state_dict(loader.state_dict())
        other.sampler.set_epoch(2)
        assert [*taken, *other] == list(flow.epoch(2))
        other.sampler.set_epoch(3)
        assert list(other) == list(flow.epoch(3))

    def test_a_state_of_another_epoch_begins_the_epoch_that_is_set(self) -> None:
        flow = fl.from_range(8).shuffle(seed=1)
        loader = flow.to_torch()
        elements = iter(loader)
        for _ in range(3):
            next(elements)
        other = flow.to_torch()
        other.load_state_dict(loader.state_dict())
        other.set_epoch(1)
        assert list(other) == list(flow.epoch(1))

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_state_at_the_end_of_a_pass_begins_the_next(self, ended: bool) -> None:
        flow = fl.from_range(8).shuffle(seed=1)
        loader = flow.to_torch()
        elements = iter(loader)
        for _ in range(8):
            next(elements)
        assert not ended or next(elements, None) is None
        other = flow.to_torch()
        other.load_state_dict(loader.state_dict())
        other.set_epoch(1)
        assert list(other) == list(flow.epoch(1))

    def test_an_iterator_from_before_the_epoch_was_set_follows_it(self) -> None:
        flow = fl.from_range(8).shuffle(seed=1)
        loader = flow.to_torch()
        elements = iter(loader)
        loader.set_epoch(2)
        assert list(elements) == list(flow.epoch(2))
        loader.set_epoch(0)
        elements = iter(loader)
        loader.load_state_dict(flow.epoch(3).state_dict())
        assert list(elements) == list(flow.epoch(3))
        assert list(loader) == list(flow.epoch(4))

    def test_set_epoch_repeats_an_epoch(self) -> None:
        loader = fl.from_range(8).shuffle(seed=1).to_torch()
        first = list(loader)
        loader.set_epoch(0)
        assert list(loader) == first

    def test_the_dataset_is_the_flow(self) -> None:
        loader = fl.from_range(8).batch(4).to_torch()
        assert len(loader.dataset) == 2
