"""The wire format of programs, tasks and results between the consumer's process and its workers.

Values are pickled, which is safe only because both ends run the same program and the connection is
private to them. Large arrays are sent out of band (PEP 574): in a slab from worker to consumer, as
message frames from consumer to worker.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType
from typing import Any, TypeAlias, cast

import attrs
import cloudpickle
import numpy as np

from flowdsl.elements.structure import components
from flowdsl.errors import NotShippable
from flowdsl.nodes import AnyNode, Node
from flowdsl.nodes.failures import Attempt, AttemptToRead
from flowdsl.plan.plan import Stage
from flowdsl.plan.tree import walk
from flowdsl.resources.worker_kinds import PROCESSES, WorkerKind, Workers
from flowdsl.workers.array_pickling import ARRAYS, add_masked_arrays
from flowdsl.workers.columns import columns_of
from flowdsl.workers.importing import send_by_value_unless_found
from flowdsl.workers.modules import SCRIPTS, installed, module_of
from flowdsl.workers.pickling import (
    code_reduction,
    is_importable,
    is_struct,
    reduction_of,
    send_the_script,
    whole_class,
)
from flowdsl.workers.shared_arrays import LARGE, pickled_as_array, pickled_as_file
from flowdsl.workers.slabs import WORTH_SHARING, Extent, Slabs

Frame: TypeAlias = bytes | memoryview


@attrs.frozen
class Shipped:
    """A program packed for workers."""

    content: bytes
    modules: frozenset[str]
    """The modules of installed packages that it imports."""
    out_of_band: tuple[memoryview, ...]
    """The contents of large arrays, which are not in ``content``."""


def ship(program: AnyNode, kind: WorkerKind, out_of_band: bool = False) -> Shipped:
    """Pack a program for workers of a kind; functions of scripts and notebooks are included.

    With ``out_of_band`` the contents of large arrays are left out of the pickle.

    Raises:
        NotShippable: An argument of an operator cannot be sent; the error names both.
    """
    try:
        # Sources first: pickle refers to what it has pickled, so a chain of any depth can be sent.
        return _ship((list(_marked(program)), walk(program)), out_of_band)
    except Exception as error:
        raise _culprit(program, kind) or NotShippable(str(error)) from error


@attrs.frozen
class _Mark:
    """Says, while a program is loaded, which argument of which operator comes next."""

    title: str
    argument: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _begin_argument, (self.title, self.argument)


class _Loading(threading.local):
    """The object that this thread is loading."""

    is_under_way = False
    argument: tuple[str, str] = ("", "")


_loading = _Loading()


def _begin_argument(title: str, argument: str) -> None:
    _loading.argument = title, argument


def is_loading() -> bool:
    """Return True while this thread loads a program, which imports modules."""
    return _loading.is_under_way


def load(content: bytes, buffers: Sequence[Any] = ()) -> AnyNode:
    """Return a shipped program.

    Raises:
        NotShippable: An argument of an operator cannot be loaded here; the error names both.
    """
    _loading.is_under_way, _loading.argument = True, ("", "")
    try:
        _marked_arguments, (*_, program) = unpack(content, buffers)  # the last operator is on top
    except BaseException as error:  # SystemExit too, of a module that is imported
        title, argument = _loading.argument
        raise NotShippable(
            f"{title}: {argument} cannot be loaded by {PROCESSES.noun.any}: {error!r}; "
            + _load_advice(error)
        ) from error
    finally:
        _loading.is_under_way = False
    return cast("AnyNode", program)


def _load_advice(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return "the module must be in a folder of sys.path, or in PYTHONPATH"
    keyword = PROCESSES.keyword
    return f"make what it needs inside the function, or run without prefetch({keyword}=...)"


def _marked(program: AnyNode) -> Iterator[Any]:
    """Yield the arguments of all operators, each after its mark."""
    for title, argument, value in _arguments(program):
        yield _Mark(title, argument)
        yield value


def _arguments(program: AnyNode) -> Iterator[tuple[str, str, Any]]:
    """Yield the title, the name and the value of each argument of each operator of a program."""
    for node in walk(program):
        operator = node.attempted.node if isinstance(node, Attempt | AttemptToRead) else node
        for field in attrs.fields(type(operator)):
            value = getattr(operator, field.name)
            parts = value if isinstance(value, tuple) else (value,)
            if not any(isinstance(part, Node) for part in parts):
                yield operator.title, field.name, value


@attrs.frozen
class PackedStage:
    """A stage as workers receive it: its program, packed, and how they run it."""

    program: bytes
    modules: frozenset[str]
    """The modules of installed packages that the program imports."""
    arrays: tuple[memoryview, ...] = attrs.field(repr=False)
    """The contents of the program's large arrays."""
    workers: Workers
    end_to_end: bool
    together: int
    """The number of workers of all stages of the plan, which share the cores."""
    time_operators: bool
    """True if workers time each operator."""
    classes: frozenset[str] = attrs.field(eq=False)
    """The names of the classes in the consumer's ``__main__``."""

    @classmethod
    def of(cls, stage: Stage, time_operators: bool) -> PackedStage:
        """Pack a stage.

        Raises:
            NotShippable: The program cannot be sent to workers.
        """
        shipped = ship(stage.program, stage.workers.kind, out_of_band=True)
        return cls(
            shipped.content,
            shipped.modules,
            shipped.out_of_band,
            stage.workers,
            stage.end_to_end,
            stage.together,
            time_operators,
            classes_of_main(),
        )


class _Pickler(cloudpickle.Pickler):
    """Pickles objects by value if no other process can import them."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(ARRAYS).new_child(
        {CodeType: code_reduction}
    )

    def __init__(
        self,
        file: io.BytesIO,
        protocol: int = 5,
        buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
    ) -> None:
        add_masked_arrays()
        super().__init__(file, protocol, buffer_callback)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, io.TextIOWrapper):  # cloudpickle would send the content of these
            raise TypeError(f"cannot pickle the open file {getattr(obj, 'name', obj)!r}")
        if isinstance(obj, memoryview):
            raise TypeError("cannot pickle a memoryview; bytes(view) makes a copy that can be sent")
        send_by_value_unless_found(obj)
        if is_struct(obj) and not is_importable(obj):
            from flowdsl.workers.structs import struct_reduction  # here: it imports msgspec

            return struct_reduction(obj)
        reduction = super().reducer_override(obj)
        return whole_class(obj, reduction) if isinstance(obj, type) else reduction


class _ProgramPickler(_Pickler):
    """Collects the modules of a program, and its large arrays."""

    def __init__(self, file: io.BytesIO, out_of_band: bool = False) -> None:
        self.modules: set[str] = set()
        self.out_of_band: list[memoryview] = []
        # not a method of this object: the cycle would keep all pickled objects alive
        in_band = partial(_in_band, self.out_of_band, LARGE) if out_of_band else None
        super().__init__(file, 5, buffer_callback=in_band)

    def reducer_override(self, obj: Any) -> Any:
        if name := module_of(obj):
            self.modules.add(name)
        if type(obj) is FunctionType:
            from flowdsl.workers.hashes import warn_of_hash  # here: it needs Linux, as processes do

            warn_of_hash(obj)
        if isinstance(obj, np.memmap) and (how := pickled_as_file(obj)) is not None:
            return how
        if (how := pickled_as_array(obj) or reduction_of(obj)) is not None:
            return how
        return super().reducer_override(obj)


def _ship(value: object, out_of_band: bool = False) -> Shipped:
    send_the_script()
    with io.BytesIO() as buffer:
        pickler = _ProgramPickler(buffer, out_of_band)
        pickler.dump(value)
        return Shipped(buffer.getvalue(), installed(pickler.modules), tuple(pickler.out_of_band))


def _culprit(program: AnyNode, kind: WorkerKind) -> NotShippable | None:
    """Return the error that names the first argument that cannot be sent."""
    for title, argument, value in _arguments(program):
        try:
            _ship(value)
        except Exception as error:
            return NotShippable(
                f"{title}: {argument} cannot be sent to {kind.noun.any}: {error}; make what it "
                f"needs inside the function, or run without prefetch({kind.keyword}=...)"
            )
    return None


def frames_of_rows(rows: Sequence[Iterable[Any]]) -> list[Frame]:
    """Return the message with the rows of each base, and with classes of the user's script."""
    parts = [columns_of(part) if type(part) is list else part for part in rows]
    content, out_of_band = _pickle(_dumps, parts)
    return [content, *out_of_band]


def nbytes_of_frames(frames: Sequence[Frame]) -> int:
    """Return the size of a message in bytes."""
    return sum(map(len, frames))


def pack(value: object) -> tuple[bytes, list[memoryview]]:
    """Pickle a value; return the pickle and the contents of large arrays out of band."""
    try:
        return _pickle(_dumps_by_name, value)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class or function without a name
        return _pickle(_dumps, value)


def _dumps_by_name(
    value: object,
    protocol: int = 5,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    add_masked_arrays()
    with io.BytesIO() as buffer:
        pickler = pickle.Pickler(buffer, protocol, buffer_callback=buffer_callback)
        pickler.dispatch_table = {**copyreg.dispatch_table, **ARRAYS}
        pickler.dump(value)
        return buffer.getvalue()


def _dumps(
    value: object,
    protocol: int = 5,
    buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
) -> bytes:
    send_the_script()
    with io.BytesIO() as buffer:
        _Pickler(buffer, protocol, buffer_callback).dump(value)
        return buffer.getvalue()


def _pickle(dumps: Callable[..., bytes], value: object) -> tuple[bytes, list[memoryview]]:
    out_of_band: list[memoryview] = []
    in_band = partial(_in_band, out_of_band, WORTH_SHARING)
    return dumps(value, 5, buffer_callback=in_band), out_of_band


def _in_band(out_of_band: list[memoryview], large: int, buffer: pickle.PickleBuffer) -> bool:
    """Return True if a buffer is stored in the pickle; collect a large one in ``out_of_band``."""
    content = buffer.raw()
    if content.nbytes < large:
        return True
    out_of_band.append(content)
    return False


def classes_of_main() -> frozenset[str]:
    """Return the names of the classes in this process's ``__main__``."""
    main = vars(sys.modules["__main__"])
    # Not isinstance: it asks a value for its `__class__`, and proxies such as Flask's then raise.
    return frozenset(name for name, value in main.items() if issubclass(type(value), type))


def pack_into(
    slabs: Slabs, elements: list[Any], classes: frozenset[str]
) -> tuple[bytes, list[Extent]]:
    """Pickle elements, with their large arrays placed in slabs.

    ``classes`` are the classes of the consumer's ``__main__``, which it finds by name.
    """
    if elements:
        _make_picklable_by_name(elements[0], classes)
    data, out_of_band = pack(columns_of(elements, slabs.allocate))
    return data, [slabs.place(content) for content in out_of_band]


def pickled(value: object) -> bytes:
    """Pickle a value, large arrays included."""
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return _dumps(value)


def packed_alone(element: object) -> bytes:
    """Pickle one element, large arrays included, as ``frames_of_rows`` does."""
    return _dumps(element)


def first_unpackable(elements: Sequence[Any]) -> tuple[int, Exception] | None:
    """Return the first element that cannot be pickled, and the error."""
    for i, element in enumerate(elements):
        try:
            _dumps(element)
        except Exception as error:
            return i, error
    return None


def unpack(data: bytes | bytearray, buffers: Sequence[Any] = ()) -> Any:
    """Return the value of a pickle and its out-of-band buffers."""
    return pickle.loads(data, buffers=buffers)


def _make_picklable_by_name(element: object, classes: frozenset[str]) -> None:
    """Make classes of the user's script picklable by name.

    This worker received them by value; they belong to the ``__main__`` of the consumer. They are
    added to the worker's own ``__main__``, so that they are pickled by name and the consumer finds
    its own class. Classes within a function have no such name: they are sent by value, and
    cloudpickle recognises its own classes.
    """
    kind = getattr(type(element), "_record", type(element))  # of a batch: the class of its rows
    main = sys.modules["__main__"]
    if kind.__module__ in SCRIPTS and kind.__qualname__ in classes:
        sys.modules.setdefault(kind.__module__, main)
        vars(main).setdefault(kind.__qualname__, kind)
    for _, part in components(element) or ():
        _make_picklable_by_name(part, classes)
