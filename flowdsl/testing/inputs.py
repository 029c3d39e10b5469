"""The laws of input sources: a step function gets exactly the elements of the flow.

TensorFlow is imported only when an input source is checked.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

from flowdsl.errors import ElementError, EndlessFlow, FlowError, UnknownLength
from flowdsl.ops.iterables import from_iterable
from flowdsl.ops.sources import from_range
from flowdsl.testing.endings import error_of, is_interrupted, no_thread_is_left
from flowdsl.testing.outcomes import naming, require, require_equal_arrays
from flowdsl.testing.recipes import AnyFlow

if TYPE_CHECKING:
    from flowdsl.tensorflow.inputs import InputSource

MakeInput: TypeAlias = "Callable[[AnyFlow], InputSource]"
InputLaw: TypeAlias = Callable[[MakeInput], None]

_N = 11
_BAD = 4
"""The element that fails, in flows that fail."""


def _element(i: int) -> tuple[np.int64, np.ndarray[Any, np.dtype[np.float32]]]:
    return np.int64(i), np.full(3, i / 2, np.float32)


def _flow() -> AnyFlow:
    return from_range(_N).map(_element)


def _fails(i: int) -> Any:
    if i == _BAD:
        raise ValueError("the disk is on fire")
    return _element(i)


@attrs.define
class Feeding:
    """An input source with a step function, which counts its traces."""

    source: InputSource
    towers: int = 1
    """The number of towers, which is the number of elements that a step takes."""
    prepare: Callable[[InputSource], object] = attrs.field(default=lambda _: None)
    """Called before each step."""
    traced: int = 0
    _step: Callable[..., Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        import tensorflow as tf

        @tf.function(input_signature=self.source.signature)
        def step(*args: tf.Tensor) -> list[list[tf.Tensor]]:
            self.traced += 1
            return [self.source.tensors(*args) for _ in range(self.towers)]

        self._step = step

    def step(self) -> list[Any]:
        """Run one step, and return its elements."""
        self.prepare(self.source)
        taken = self._step(*self.source.next_args(self.towers))
        return [tuple(part.numpy() for part in element) for element in taken]

    def take(self, steps: int) -> list[Any]:
        """Run some steps, and return their elements."""
        return [element for _ in range(steps) for element in self.step()]

    def drain(self) -> tuple[list[Any], int]:
        """Return the elements until the end of the pass, and the number reported as left over."""
        from flowdsl.tensorflow.inputs import EndOfPass

        got: list[Any] = []
        try:
            while len(got) < 100 * _N:
                got += self.step()
        except EndOfPass as end:
            return got, end.left
        raise AssertionError(f"{len(got)} elements came of {_N}, and no end")


# -- steps -----------------------------------------------------------------------------------------


def arguments_are_of_the_signature(make: MakeInput) -> None:
    """The values of next_args match the signature, and the elements of a step match the specs."""
    with make(_flow()) as source:
        source.reset()
        args = source.next_args()
        n, m = len(args), len(source.signature)
        require(n == m, f"next_args returned {n} values, the signature has {m}")
        for arg, spec in zip(args, source.signature, strict=True):
            require(spec.is_compatible_with(arg), f"{arg} does not match {spec}")
        feeding = Feeding(source)
        (element,) = feeding.step()
        require(len(element) == len(source.specs), f"{element} does not match {source.specs}")
        for part, spec in zip(element, source.specs, strict=True):
            fits = part.dtype == spec.dtype.as_numpy_dtype
            fits = fits and spec.shape.is_compatible_with(np.shape(part))
            require(fits, f"{part!r} does not match {spec}")


def elements_come_once_and_in_order(make: MakeInput) -> None:
    """A pass is the elements of the flow: each once, in order, unchanged."""
    for n in (0, 1, _N):
        with make(from_range(n).map(_element)) as source:
            source.reset()
            got, left = Feeding(source).drain()
            require_equal_arrays(f"a pass of {n}", got, [_element(i) for i in range(n)])
            require(left == 0, f"at the end of a pass of {n}, {left} are said to be left")


def the_end_is_exact(make: MakeInput) -> None:
    """A step of several elements gets all, or does not run; the error says how many are left.

    A smaller step may still take the remaining elements.
    """
    from flowdsl.tensorflow.inputs import EndOfPass

    with make(_flow()) as source:
        source.reset()
        n = min(3, source.most_a_step or 3)
        got, left = Feeding(source, towers=n).drain()
        require_equal_arrays(f"steps of {n}", got, [_element(i) for i in range(_N - _N % n)])
        require(left == _N % n, f"{_N % n} elements are left, and it says {left}")
        rest = [_element(i) for i in range(_N - left, _N)]
        require_equal_arrays("what was left", Feeding(source).take(left), rest)
        try:
            source.next_args()
        except EndOfPass as end:
            require(end.left == 0, f"no element is left, and it says {end.left}")
            return
        raise AssertionError("after the end there is one more step")


def a_step_is_traced_once(make: MakeInput) -> None:
    """A step is traced only once, also after reset and after restore."""
    with make(_flow()) as source:
        source.reset()
        feeding = Feeding(source)
        for epoch in range(3):
            source.reset(epoch)
            require_equal_arrays(f"pass {epoch}", feeding.take(2), [_element(0), _element(1)])
        source.restore(source.state_dict())
        require_equal_arrays("after restore", feeding.take(2), [_element(2), _element(3)])
        require(feeding.traced == 1, f"the step was traced {feeding.traced} times")


# -- passes ----------------------------------------------------------------------------------------


def each_pass_is_its_epoch(make: MakeInput) -> None:
    """After reset(k), a pass is the k-th epoch of the flow, and ``epoch`` is k."""
    flow = _flow().shuffle(seed=3)
    with make(flow) as source:
        source.reset()
        feeding = Feeding(source)
        for epoch in (0, 2, 1):
            source.reset(epoch)
            require(source.epoch == epoch, f"after reset({epoch}), epoch is {source.epoch}")
            require_equal_arrays(f"epoch {epoch}", feeding.drain()[0], flow.epoch(epoch))


def a_reset_begins_with_the_first_element(make: MakeInput) -> None:
    """After a reset, a pass begins with its first element, even after a partial pass."""
    with make(_flow()) as source:
        source.reset()
        feeding = Feeding(source)
        for taken in (0, 3, _N):
            feeding.take(taken)
            source.reset()
            require_equal_arrays(
                f"after {taken} elements and a reset",
                feeding.drain()[0],
                [_element(i) for i in range(_N)],
            )
            source.reset()


def an_error_is_raised_at_its_position(make: MakeInput) -> None:
    """The elements before an error come first; then it is raised unchanged, at every call."""
    with make(from_range(_N).map(_fails)) as source:
        source.reset()
        feeding = Feeding(source)
        require_equal_arrays(
            "before the error", feeding.take(_BAD), [_element(i) for i in range(_BAD)]
        )
        for _ in range(2):
            error = error_of(feeding.step)
            is_unchanged = isinstance(error, ElementError) and isinstance(
                error.__cause__, ValueError
            )
            require(is_unchanged, f"a flow that fails raised {error!r}")
        source.reset()
        require_equal_arrays("after the error and a reset", feeding.take(1), [_element(0)])


def nothing_works_before_a_pass(make: MakeInput) -> None:
    """Before reset or restore, and after close, a step and ``state_dict`` raise a FlowError."""
    source = make(_flow())
    for when in ("before reset", "after close"):
        for use in (source.next_args, source.state_dict):
            error = error_of(use)
            require(isinstance(error, FlowError), f"{when}, {use.__name__} raised {error!r}")
        source.reset()
        source.close()


def size_is_the_length_of_the_flow(make: MakeInput) -> None:
    """It is the length of a pass; if that is unknown, ``size`` raises the error of the flow."""
    for flow, kind in ((_flow().filter(bool), UnknownLength), (_flow().repeat(), EndlessFlow)):
        with make(flow) as source:
            error = error_of(source.size)
            require(isinstance(error, kind), f"size raised {error!r}, not {kind.__name__}")
    with make(_flow()) as source:
        require(source.size() == _N, f"a flow of {_N} elements is said to have {source.size()}")


# -- position --------------------------------------------------------------------------------------


def resuming_gives_the_rest(make: MakeInput) -> None:
    """A state is the position after the last step, and can be restored in any process.

    Elements that wait for a step count as not read, and the epoch is preserved.
    """
    import json

    flow = _flow().shuffle(seed=3)
    expected = list(flow.epoch(2))
    for position in (0, 1, 5, _N):
        with make(flow) as source:
            source.reset(2)
            taken = Feeding(source).take(position)
            state = json.loads(json.dumps(source.state_dict()))
        with make(flow) as source:
            source.restore(state)
            require(source.epoch == 2, f"epoch 2 was restored as {source.epoch}")
            require(source.state_dict() == state, "a state that was restored is another one")
            rest, _ = Feeding(source).drain()
            require_equal_arrays(f"restored after {position}", [*taken, *rest], expected)


# -- what is left behind ---------------------------------------------------------------------------


def closing_leaves_nothing(make: MakeInput) -> None:
    """After close no thread is left, and the sources of the flow are closed.

    This holds before a pass, during it, at its end and after an error; close may be called twice,
    and a reset may follow.
    """
    opened: list[int] = []
    closed: list[int] = []

    def rows() -> Iterator[Any]:
        opened.append(1)
        try:
            yield from map(_element, range(_N))
        finally:
            closed.append(1)

    for flow, steps in ((_flow(), 0), (_flow(), 3), (_flow().repeat(), 2 * _N), (_flow(), _N)):
        with no_thread_is_left():
            source = make(flow)
            source.close()
            source.reset()
            Feeding(source).take(steps)
            source.close()
            source.close()
            require(source.fill == 0, f"after close, {source.fill} elements wait for a step")
    with no_thread_is_left(), make(from_range(_N).map(_fails)) as source:
        source.reset()
        Feeding(source).take(_BAD)
        error_of(source.next_args)
    with no_thread_is_left(), make(_of_arrays(from_iterable(rows))) as source:
        source.reset()
        Feeding(source).take(2)
    require(closed == opened, "after close, a source of the flow is still open")


def an_abandoned_source_is_collected(make: MakeInput) -> None:
    """A source that is abandoned in the middle of a pass is collected, and ends the pass."""
    with no_thread_is_left():
        source = make(_flow().repeat())
        source.reset()
        Feeding(source).take(3)
        gone = weakref.ref(source)
        del source
        gc.collect()
        require(gone() is None, "an abandoned source is still referenced")


def an_interrupt_is_immediate(make: MakeInput) -> None:
    """Ctrl-C while a step waits for data raises KeyboardInterrupt; then a new pass may begin.

    The signal is sent to this process, so this is checked only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    gate = threading.Event()

    def stuck(i: int) -> Any:
        if i == _BAD:
            gate.wait()
        return _element(i)

    try:
        with make(from_range(_N).map(stuck)) as source:
            source.reset()
            feeding = Feeding(source)
            feeding.take(1)
            interrupted = is_interrupted(lambda: feeding.take(_BAD))
            require(interrupted, "a step that waited for data was not interrupted")
            gate.set()
            source.reset()
            require_equal_arrays(
                "after an interrupt", feeding.take(_N), [_element(i) for i in range(_N)]
            )
    finally:
        gate.set()


def _of_arrays(flow: AnyFlow) -> AnyFlow:
    """Declare the dtypes of a flow's elements, so that a stream can be an input source."""
    return flow.map(_declared)


def _declared(x: Any) -> tuple[np.int64, Any]:
    number, array = x
    return np.int64(number), array


INPUT_LAWS: tuple[InputLaw, ...] = (
    arguments_are_of_the_signature,
    elements_come_once_and_in_order,
    the_end_is_exact,
    a_step_is_traced_once,
    each_pass_is_its_epoch,
    a_reset_begins_with_the_first_element,
    an_error_is_raised_at_its_position,
    nothing_works_before_a_pass,
    size_is_the_length_of_the_flow,
    resuming_gives_the_rest,
    closing_leaves_nothing,
    an_abandoned_source_is_collected,
    an_interrupt_is_immediate,
)


def check_input(make: MakeInput) -> None:
    """Check an input source against all laws; ``make`` creates one from a flow.

    The elements of the flows are pairs: an int64, and an array of three float32. A step takes up to
    three elements.

    >>> from flowdsl.tensorflow.inputs import QueueInput
    >>> from flowdsl.testing import check_input
    >>> check_input(QueueInput)

    Raises:
        AssertionError: A law is broken; a note names the law.
        ImportError: TensorFlow is not installed.
    """
    for law in INPUT_LAWS:
        with naming(law):
            law(make)
