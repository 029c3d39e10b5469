"""The loader of to_torch: the elements of a flow as PyTorch tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from flowdsl.elements.sharing import is_shared
from flowdsl.elements.structure import refuse_masked
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.feeding.converting import convert_arrays, describe_component, leaves_of
from flowdsl.feeding.loader import Loader, Ranks, refuse_second_shard
from flowdsl.nodes import AnyNode
from flowdsl.ops.sharding import Even

if TYPE_CHECKING:
    from flowdsl.flow import Flow

X = TypeVar("X")

_UNSIGNED = {1: np.uint8, 2: np.uint16}
"""The unsigned integers of one and two bytes, by size."""


class TorchLoader(Loader[X], IterableDataset[X]):
    """The passes of a flow as PyTorch tensors, as documented in ``flow.to_torch``."""

    def __init__(
        self,
        flow: Flow[Any, Any],
        device: str | int | torch.device | None = None,
        *,
        pin_memory: bool | None = None,
        copy: bool | None = None,
        ahead: int = 2,
        shard: tuple[int, int] | None = None,
        even: Even | None = "drop",
    ) -> None:
        for argument, value in (("pin_memory", pin_memory), ("copy", copy)):
            if value is not None and not isinstance(value, bool):
                raise InvalidFlow(f"to_torch: {argument} must be None or a bool, got {value!r}")
        tensors = Tensors(_device(device), bool(pin_memory), copy)
        if pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "to_torch: pin_memory=True has no effect: PyTorch sees no accelerator here",
                stacklevel=3,
            )
            tensors = attrs.evolve(tensors, pin=False)
        elif pin_memory is None:
            tensors = attrs.evolve(tensors, pin=tensors.is_on_cuda)
        self._distributed = _distributed() if shard is None else None
        super().__init__(
            flow,
            tensors,
            ahead=ahead,
            ranks=ranks_of("to_torch", flow.node, shard, even),
            arrived=tensors.record_use if tensors.is_on_cuda else None,
            name="to_torch",
        )

    @property
    def dataset(self) -> Flow[Any, Any]:
        """The flow; programs read its length for their progress."""
        return self._flow

    @property
    def sampler(self) -> Self:
        """This loader: programs call ``loader.sampler.set_epoch`` before each epoch."""
        return self

    def __iter__(self) -> Iterator[X]:
        if get_worker_info() is not None:
            _refuse_workers()
        if self._distributed is not None:
            refuse_late_ranks("to_torch", self._distributed)
        return super().__iter__()


def _refuse_workers() -> NoReturn:
    raise InvalidFlow(
        "to_torch: each worker of a DataLoader would yield all elements once more; write "
        "flow.as_iterable_dataset(), which divides them among the workers, or num_workers=0 and "
        ".prefetch(procs=n) in the flow"
    )


def ranks_of(name: str, node: AnyNode, shard: tuple[int, int] | None, even: Even | None) -> Ranks:
    """Return the ranks that the arguments select, or the ranks of ``torch.distributed``.

    Raises:
        InvalidFlow: An argument is invalid; or the flow contains the shard of this rank already.
    """
    if shard is None:
        shard = _distributed()
        refuse_second_shard(name, node, shard)
    return Ranks.of_arguments(name, shard, even)


def _distributed() -> tuple[int, int]:
    """Return the number of ranks and this rank, as ``torch.distributed`` knows them now."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


def refuse_late_ranks(name: str, before: tuple[int, int]) -> None:
    """Refuse to iterate if ``torch.distributed`` was initialized after the loader was created.

    Each rank would get all elements.

    Raises:
        InvalidFlow: The ranks differ from those at the creation of the loader.
    """
    if (now := _distributed()) != before:
        raise InvalidFlow(
            f"{name}: torch.distributed has {now[0]} rank(s) now, of which this is {now[1]}, and "
            f"had {before[0]} when the loader was created, of which this was {before[1]}, so the "
            f"ranks would get the wrong elements; create it while the process group exists, for "
            f"example after init_process_group or Accelerator(), or pass shard=(n, i)"
        )


def _device(argument: str | int | torch.device | None) -> torch.device | None:
    """Return the device to transfer tensors to; None if they stay in the flow's memory."""
    if argument is None:
        return None
    try:
        device = torch.device(argument)
    except (RuntimeError, TypeError) as error:
        raise InvalidFlow(
            f"to_torch: device must be None or what torch.device takes, such as 'cuda:0', "
            f"got {argument!r} ({error})"
        ) from error
    if device.type != "cuda":
        return None if device.type == "cpu" else device
    with warnings.catch_warnings():  # PyTorch for GPUs warns where there is no driver
        warnings.simplefilter("ignore")
        count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise InvalidFlow(
            f"to_torch: there is no device {argument!r}: PyTorch sees {count} CUDA device(s) here"
        )
    return device


@attrs.frozen
class Tensors:
    """Converts the arrays of an element to tensors, in the thread of a pump."""

    device: torch.device | None
    pin: bool
    copy: bool | None
    stream: torch.cuda.Stream | None = attrs.field(init=False)
    """The CUDA stream of transfers, separate so that they overlap with the consumer's work."""

    def __attrs_post_init__(self) -> None:
        stream = torch.cuda.Stream(self.device) if self.is_on_cuda else None
        object.__setattr__(self, "stream", stream)

    @property
    def is_on_cuda(self) -> bool:
        return self.device is not None and self.device.type == "cuda"

    def __call__(self, element: Any, position: int) -> Any:
        def tensor(array: NDArray[Any], component: str) -> torch.Tensor:
            try:
                return self._moved(tensor_of(array, self.copy))
            except (SpecMismatch, TypeError, ValueError, RuntimeError) as error:
                raise SpecMismatch(
                    f"to_torch: {describe_component(component, position)}, an array of "
                    f"{array.dtype}, cannot be a tensor: {error}"
                ) from error

        if self.stream is None:
            return convert_arrays(element, tensor)
        with torch.cuda.stream(self.stream):
            moved = convert_arrays(element, tensor)
        self.stream.synchronize()  # blocks this thread, not the consumer's stream
        return moved

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.pin:
            tensor = pinned(tensor)
        return tensor if self.device is None else tensor.to(self.device, non_blocking=self.pin)

    def record_use(self, element: Any) -> None:
        """Tell PyTorch that the consumer's stream uses memory that another stream allocated."""
        for leaf in leaves_of(element):
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                leaf.record_stream(torch.cuda.current_stream(leaf.device))


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor into pinned memory.

    ``pin_memory`` would copy with all of PyTorch's threads, each of which waits for a core while
    workers use all cores. NumPy copies in this thread, without the interpreter's lock.
    """
    copy = torch.empty_like(tensor, pin_memory=True)
    np.copyto(_array_of(copy), _array_of(tensor))
    return copy


def _array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the memory of a tensor as an array, of another dtype if NumPy does not have it."""
    try:
        array: NDArray[Any] = tensor.numpy()
    except TypeError:  # a dtype of ml_dtypes, of one or two bytes
        array = tensor.view(torch.uint8 if tensor.itemsize == 1 else torch.int16).numpy()
    return array


def tensor_of(array: NDArray[Any], copy: bool | None = None) -> torch.Tensor:
    """Convert an array to a tensor: a view of its memory, if ``copy`` and the array allow it.

    ``copy=None`` copies memory that is read-only, or part of an array that other code may use, or
    that a tensor cannot describe (the other byte order, negative strides). ``True`` always copies.

    >>> array = np.zeros(3, np.float32)
    >>> tensor_of(array).add_(1), array
    (tensor([1., 1., 1.]), array([1., 1., 1.], dtype=float32))

    Raises:
        SpecMismatch: PyTorch has no such dtype; or the array is masked; or it must be copied, and
            ``copy`` is False.
    """
    refuse_masked(array)
    why = _must_be_copied(array)
    if why and copy is False:
        raise SpecMismatch(f"{why}, so it has to be copied, and copy=False was given")
    if why or copy or (copy is None and is_shared(array)):
        array = np.array(array, array.dtype.newbyteorder("="), order="C", subok=False)
    # PyTorch does not know dtypes of ml_dtypes, but has dtypes of these names and bit patterns.
    torch_dtype = getattr(torch, array.dtype.name, None) if array.dtype.isbuiltin == 2 else None
    if isinstance(torch_dtype, torch.dtype) and array.dtype.itemsize in _UNSIGNED:
        return torch.from_numpy(array.view(_UNSIGNED[array.dtype.itemsize])).view(torch_dtype)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise SpecMismatch("PyTorch has no such dtype; map it to another one") from error


def _must_be_copied(array: NDArray[Any]) -> str | None:
    """Return the reason why a tensor cannot view the array; None if it can."""
    if not array.flags.writeable:
        return "its memory is read-only"
    if not array.dtype.isnative:
        return "its bytes are in the other order"
    if any(step < 0 or step % array.dtype.itemsize for step in array.strides):
        return "a tensor cannot have its strides"
    return None
