"""The laws of input sources that do not read a flow.

TensorFlow is imported only when an input source is checked.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import numpy as np

from flowdsl.errors import FlowError, InvalidFlow, StateMismatch
from flowdsl.testing.endings import error_of, no_thread_is_left
from flowdsl.testing.inputs import Feeding
from flowdsl.testing.outcomes import element_difference, naming, require

if TYPE_CHECKING:
    from flowdsl.tensorflow.inputs import InputSource


@attrs.frozen
class OtherInput:
    """An input source that does not read a flow, with its expected elements."""

    make: Callable[[], InputSource]
    elements: Sequence[Sequence[object]] | None = None
    """The first elements of a pass, three or more; None if they are unknown."""
    prepare: Callable[[InputSource], object] = attrs.field(default=lambda _: None)
    """Called before each step, to supply the data that a step needs from outside."""

    def feeding(self, source: InputSource, towers: int = 1) -> Feeding:
        return Feeding(source, towers, self.prepare)

    def expect(self, what: str, got: Sequence[Any], first: int = 0) -> None:
        """Require that these are the elements from position ``first`` on, if they are known."""
        if self.elements is None:
            return
        values = self.elements[first : first + len(got)]
        arrays = [tuple(map(np.asarray, element)) for element in got]
        expected = [
            tuple(np.asarray(x, y.dtype) for x, y in zip(value, array, strict=True))
            for value, array in zip(values, arrays, strict=True)
        ]
        found = element_difference(arrays, expected)
        require(found is None, f"{what}: {found}")


OtherInputLaw: TypeAlias = Callable[[OtherInput], None]


def elements_are_of_the_specs(other: OtherInput) -> None:
    """The values of next_args match the signature, and the elements of a step match the specs."""
    with other.make() as source:
        source.reset()
        for k in range(2):
            other.prepare(source)
            args = source.next_args()
            n, m = len(args), len(source.signature)
            require(n == m, f"next_args returned {n} values, the signature has {m}")
            for arg, spec in zip(args, source.signature, strict=True):
                require(spec.is_compatible_with(arg), f"{arg} does not match {spec}")
            element = source.tensors(*args)
            require(len(element) == len(source.specs), f"{element} does not match {source.specs}")
            for part, spec in zip(element, source.specs, strict=True):
                require(part.dtype == spec.dtype, f"{part} does not match {spec}")
                require(spec.shape.is_compatible_with(part.shape), f"{part} does not match {spec}")
            other.expect("element by element", [[part.numpy() for part in element]], k)


def every_pass_is_traced_once(other: OtherInput) -> None:
    """A step is traced only once, also after reset and after restore."""
    with other.make() as source:
        source.reset()
        feeding = other.feeding(source)
        for epoch in range(3):
            source.reset(epoch)
            require(source.epoch == epoch, f"after reset({epoch}), epoch is {source.epoch}")
            feeding.take(2)
        source.restore(source.state_dict())
        feeding.take(1)
        require(feeding.traced == 1, f"the step was traced {feeding.traced} times")


def a_reset_begins_with_the_first_element(other: OtherInput) -> None:
    """After a reset, a pass begins with its first element, even after a partial pass."""
    with other.make() as source:
        for taken in (0, 1, 2):
            source.reset()
            other.expect("a pass", other.feeding(source).take(taken))


def towers_get_distinct_elements(other: OtherInput) -> None:
    """A step of several towers takes one element for each, or raises an InvalidFlow."""
    with other.make() as source:
        source.reset()
        most = source.most_a_step
        if most is not None:
            error = error_of(lambda: source.next_args(most + 1))
            require(isinstance(error, InvalidFlow), f"a step of {most + 1} raised {error!r}")
            return
        got = other.feeding(source, towers=3).take(1)
        require(len(got) == 3, f"a step of 3 towers has {len(got)} elements")
        other.expect("a step of 3 towers", got)


def nothing_works_without_a_pass(other: OtherInput) -> None:
    """Before reset, and after close, a step raises a FlowError; close may be called twice."""
    source = other.make()
    for when in ("before reset", "after close"):
        error = error_of(source.next_args)
        require(isinstance(error, FlowError), f"{when}, next_args raised {error!r}")
        source.reset()
        source.close()
        source.close()


def a_state_is_plain_and_restored(other: OtherInput) -> None:
    """A state is JSON and contains the epoch; an invalid state is refused."""
    with other.make() as source:
        source.reset(2)
        other.feeding(source).take(1)
        state = json.loads(json.dumps(source.state_dict()))
    with other.make() as source:
        source.restore(state)
        require(source.epoch == 2, f"epoch 2 was restored as {source.epoch}")
        other.feeding(source).take(1)
        for wrong in ({}, {"epoch": "2"}, {"epoch": -1}):
            error = error_of(partial(source.restore, wrong))
            require(isinstance(error, StateMismatch), f"restore({wrong}) raised {error!r}")


def fill_and_waited_are_never_negative(other: OtherInput) -> None:
    """``fill`` and ``waited`` are at least 0, during a pass and outside of it."""
    source = other.make()
    for _ in range(2):
        require(source.fill >= 0, f"fill is {source.fill}")
        require(source.waited >= 0, f"waited is {source.waited}")
        source.reset()
    source.close()


def closing_leaves_nothing(other: OtherInput) -> None:
    """After close no thread is left, and an abandoned source is collected."""
    with no_thread_is_left():
        source = other.make()
        source.reset()
        other.feeding(source).take(2)
        source.close()
    gone = weakref.ref(source)
    del source
    gc.collect()
    require(gone() is None, "a closed and abandoned source is still referenced")


OTHER_INPUT_LAWS: tuple[OtherInputLaw, ...] = (
    elements_are_of_the_specs,
    every_pass_is_traced_once,
    a_reset_begins_with_the_first_element,
    towers_get_distinct_elements,
    nothing_works_without_a_pass,
    a_state_is_plain_and_restored,
    fill_and_waited_are_never_negative,
    closing_leaves_nothing,
)


def check_other_input(
    make: Callable[[], InputSource],
    elements: Sequence[Sequence[object]] | None = None,
    prepare: Callable[[InputSource], object] = lambda _: None,
) -> None:
    """Check an input source that does not read a flow against all laws.

    ``make`` creates the input source. ``elements`` are the first elements of each pass, three or
    more, if they are known. ``prepare`` is called before each step, to supply data from outside.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import DummyConstantInput
    >>> from flowdsl.testing import check_other_input
    >>> check_other_input(lambda: DummyConstantInput([(2,)]), elements=[[[0.0, 0.0]]] * 3)

    Raises:
        AssertionError: A law is broken; a note names the law.
        ImportError: TensorFlow is not installed.
    """
    other = OtherInput(make, elements, prepare)
    for law in OTHER_INPUT_LAWS:
        with naming(law):
            law(other)
