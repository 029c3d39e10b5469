"""Fit: the elements of a flow in ``fit``, ``evaluate`` and ``predict`` of Keras.

Keras accepts generators and ``PyDataset`` objects, but neither preserves a flow: Keras reads two
batches of a generator to inspect them and yields them again at the start of every epoch; and
``fit`` shuffles the batches of a ``PyDataset`` by default. So a flow is passed as a Keras data
adapter, which controls the order and the passes itself.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from numpy.typing import NDArray

from flowdsl.effects import Endless
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import IS_MASKED, components, in_native_order, is_masked
from flowdsl.errors import ElementError, FlowError, InvalidFlow, SpecMismatch
from flowdsl.feeding.converting import convert_arrays, describe_component
from flowdsl.feeding.loader import Loader
from flowdsl.nodes import FlowBase, checked_int
from flowdsl.runtime.state import resumed_from, state_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow


class Fit(DataAdapter):
    """The epochs of a flow for a Keras model, as documented in ``flow.to_keras``.

    >>> import flowdsl as fl, keras
    >>> flow = fl.from_range(8).map(lambda i: (np.full(3, i, np.float32), i)).batch(4)
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> data = fl.keras.Fit(flow)
    >>> _ = model.fit(data, initial_epoch=1, epochs=3, callbacks=[data.follows], verbose=0)
    >>> data.epoch
    3
    """

    def __init__(self, flow: Flow[Any, Any], *, ahead: int = 2) -> None:
        if not isinstance(flow, FlowBase):
            raise InvalidFlow(
                f"to_keras: flow must be a flow, got {type(flow).__name__}; make one with "
                f"fl.from_items, fl.from_dataset or another source"
            )
        self._flow = flow
        self._loader = Loader[Any](flow, _batch, ahead=ahead, name="to_keras")
        self._epoch = 0
        self._resumed_from: Mapping[str, object] | None = None
        """The state at which the current epoch begins, if it was resumed."""
        self._passes = 0
        """The number of iterators created, including those that TensorFlow abandons."""
        self._epoch_has_begun = False
        """True if an epoch has begun since ``fit`` was called."""
        self._is_in_epoch = False
        self._length_is_of_resumed_epoch = False
        """True if Keras assumes that every epoch is as short as the resumed one."""
        self._completed = -1
        """The last epoch whose batches have all been yielded."""
        self._counted: int | None = None
        """The number of batches of the last epoch, where the length is unknown."""
        self._error: Exception | None = None
        """An error that TensorFlow would wrap: raised after TensorFlow has ended the epoch."""
        self._trained: int | None = None
        """The batches of the current pass that were trained on, if ``follows`` counts them."""
        self._is_in_batch = False
        """True if ``follows`` has heard of the beginning of a batch, and not of its end."""
        self.follows: keras.callbacks.Callback = _Follows(self)
        """A callback to pass to ``fit``.

        It tells this object which epoch ``fit`` begins with (``initial_epoch``), and counts the
        batches trained on, for ``state_dict()``. List it before callbacks that call
        ``state_dict()``.
        """

    @property
    def epoch(self) -> int:
        """The current epoch, or else the next one; pass it to ``fit`` as ``initial_epoch``."""
        return self._epoch

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after this many batches of the current pass, as plain JSON values.

        By default, the state after the batches trained on, as counted by ``follows``. Without that
        callback it is the beginning of the epoch, with a warning if the epoch has begun. A callback
        listed before ``follows`` gets the state before the batch that has just ended, with a
        warning: training would repeat that batch after a resume.

        ``batches`` counts from the batch with which ``fit`` began the pass: in the method
        ``on_train_batch_end(self, batch, logs)`` of a callback, it is ``batch + 1``. Keras itself
        may have read more batches.

        Raises:
            InvalidFlow: ``batches`` is not an int of at least 0.
            NotResumable: A position does not identify the elements that this flow delivered.
        """
        if batches is None:
            if self._trained is None and self._is_in_epoch:
                warnings.warn(_NOT_FOLLOWED, stacklevel=2)
            if self._is_in_batch and _ends_batch(sys._getframe(1)):
                warnings.warn(_FOLLOWS_TOO_LATE, stacklevel=2)
            batches = self._trained or 0
        batches = checked_int("to_keras: batches", batches, 0)
        position = self._first + batches
        if position == self._flow.node.length:  # all batches: the next epoch begins
            return {**state_of(self._flow.node, self._epoch + 1, 0)}
        return {**state_of(self._flow.node, self._epoch, position)}

    @property
    def _first(self) -> int:
        """The position of the first batch of the current epoch: above 0 if it was resumed."""
        if self._resumed_from is None:
            return 0
        _, position, _ = resumed_from(self._flow.node, self._resumed_from)
        return position

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume from a state: the next ``fit``, of one epoch, trains on the rest of that epoch.

        Raises:
            StateMismatch: The state belongs to another flow, or is not a state.
        """
        self._loader.load_state_dict(state)
        self._epoch, self._resumed_from = self._loader.epoch, state
        self._completed, self._trained, self._is_in_epoch = self._epoch - 1, None, False

    def _begin_epoch(self, epoch: int) -> None:
        """Begin another epoch of the flow, as ``fit`` does."""
        self._trained = 0
        if epoch == self._epoch:
            return
        if self._resumed_from is not None:
            raise FlowError(
                f"to_keras: the loaded state is in epoch {self._epoch}, and fit begins with epoch "
                f"{epoch}; pass initial_epoch=data.epoch"
            )
        self._epoch, self._completed = epoch, epoch - 1

    def close(self) -> None:
        """End the current pass, and its workers."""
        self._loader.close()

    # -- the interface of data adapters ------------------------------------------------------------

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch, or of its rest; None if Keras must count them."""
        # Keras passes the number of steps to its iterator, not to data adapters. The iterator
        # reads this property, so it is found in the frame of the caller.
        if Endless in self._flow.effects and _steps_of(sys._getframe(1)) is None:
            raise InvalidFlow(
                f"to_keras: {self._flow!r} never ends, so neither would the first epoch; pass "
                f"steps_per_epoch=n to fit, validation_steps=n for its validation_data, or steps=n "
                f"to evaluate and predict"
            )
        # Keras reads this property when a call of fit begins
        self._length_is_of_resumed_epoch = self._epoch_has_begun = False
        length = self._flow.node.length
        if length == 0:
            raise InvalidFlow(
                f"to_keras: {self._flow!r} has no elements, and Keras needs at least one batch; "
                f"batch(n, drop_remainder=True) leaves out rows that do not fill a batch"
            )
        return None if Endless in self._flow.effects or length is None else length - self._first

    @property
    def batch_size(self) -> None:
        """None: the flow determines the batches."""

    @property
    def has_partial_batch(self) -> bool | None:
        """None: the flow determines the batches."""
        return None

    @property
    def partial_batch_size(self) -> None:
        """None: the flow determines the batches."""

    def get_numpy_iterator(self) -> Iterator[Any]:
        return self._pass()

    def get_jax_iterator(self) -> Iterator[Any]:
        return self._pass()

    def get_torch_dataloader(self) -> Any:
        return data_adapter_utils.get_torch_dataloader(self._pass())

    def get_tf_dataset(self) -> Any:
        import tensorflow as tf

        with _causes_in_notes():
            spec = self._flow.spec
        for name, part in [("", spec), *(spec.fields if isinstance(spec, StructSpec) else ())]:
            if isinstance(part, ValueSpec) or (isinstance(part, ArraySpec) and part.shape == ()):
                raise _no_batch(name, position=0)
        if isinstance(spec, StructSpec):
            _refuse_many_components(spec.form, len(spec.fields), position=0)
        signature = _tf_signature(spec, name="")
        if not isinstance(spec, StructSpec):
            signature = (signature,)
        # Without prefetch(): the pump reads ahead already, and prefetch() creates extra iterators.
        return tf.data.Dataset.from_generator(self._pass_of_tf, output_signature=signature)

    def on_epoch_begin(self) -> None:
        if self._length_is_of_resumed_epoch and self._flow.node.length is not None:
            raise FlowError(
                f"to_keras: the resumed epoch had fewer batches than the others, and Keras expects "
                f"equally many in every epoch of one call of fit. Train the resumed epoch in a "
                f"call of its own, fit(data, initial_epoch=data.epoch, epochs=data.epoch + 1), and "
                f"the others in a second call. The resumed epoch is complete now, and epoch "
                f"{self._epoch} is next"
            )
        self._epoch_has_begun = self._is_in_epoch = True

    def on_epoch_end(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if not self._epoch_has_begun or self._completed < self._epoch:
            return  # Keras read a batch to determine its shape, or has not reached the end
        self._length_is_of_resumed_epoch = self._resumed_from is not None
        self._epoch, self._resumed_from, self._trained = self._epoch + 1, None, None
        self._is_in_epoch = False

    def _pass(self) -> Iterator[Any]:
        """Yield the batches of the epoch from its beginning, or from the resumed state."""
        epoch, count = self._epoch, 0
        self._passes += 1
        if self._resumed_from is None:
            self._loader.set_epoch(epoch)
            expected = self._counted
        else:
            self._loader.load_state_dict(self._resumed_from)
            expected = None  # the rest of an epoch is shorter than a counted one
        if self._flow.node.length is not None:
            expected = self._flow.node.length - self._first
        batches = iter(self._loader)
        while (batch := _next(batches)) is not None:
            count += 1
            if count == expected:  # Keras does not read to the end of the iterator
                self._completed = max(self._completed, epoch)
            yield batch
        self._completed = max(self._completed, epoch)
        if self._resumed_from is None:
            if not count:
                raise FlowError(
                    f"to_keras: epoch {epoch} of {self._flow!r} has no elements, and Keras needs "
                    f"at least one batch; check what its filters keep"
                )
            self._counted = count

    def _pass_of_tf(self) -> Iterator[Any]:
        number = self._passes + 1
        try:
            yield from self._pass()
        except Exception as error:
            if number == self._passes:  # ignore errors of an abandoned pass
                self._error = error


_NOT_FOLLOWED = (
    "to_keras: nothing counts the batches that were trained on, so this state is the beginning of "
    "the epoch; pass fit(data, callbacks=[data.follows, ...]), before callbacks that save the state"
)

_FOLLOWS_TOO_LATE = (
    "to_keras: this state is from before the batch that has just ended, so training would repeat "
    "that batch after a resume: data.follows has not counted it yet; put data.follows before the "
    "callback that saves the state, fit(data, callbacks=[data.follows, ...])"
)


def _ends_batch(frame: FrameType | None) -> bool:
    """Return True if Keras calls callbacks at the end of a batch, in this frame or its callers.

    At the beginning of a batch, the same state is right.
    """
    while frame is not None and frame.f_code.co_name != "on_train_batch_end":
        frame = frame.f_back
    return frame is not None


_NOT_READ_BY_FIT = 0
"""Returned if the reader is not ``fit``: it has no ``steps_per_epoch``. It is not None, because an
endless flow is refused for None."""


def _steps_of(frame: FrameType) -> int | None:
    """Return the ``steps_per_epoch`` of the object that runs in a frame; None if it is not set."""
    steps: int | None = getattr(frame.f_locals.get("self"), "steps_per_epoch", _NOT_READ_BY_FIT)
    return steps


class _Follows(keras.callbacks.Callback):
    """Tells the data which epoch and batch ``fit`` has reached."""

    def __init__(self, data: Fit) -> None:
        super().__init__()
        self._data = weakref.ref(data)  # a cycle would keep an abandoned pass running
        self._is_first = False
        self._last = -1
        """The last batch of Keras's epoch that was trained on."""

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._is_first = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._last = -1
        data = self._data()
        if data is not None:
            data._is_in_batch = False  # the last step may have failed
        # Later epochs may continue a pass, with steps_per_epoch; the data counts complete passes.
        if self._is_first and data is not None:
            data._begin_epoch(epoch)
        self._is_first = False

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        data = self._data()
        if data is not None:
            data._is_in_batch = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        data = self._data()
        if data is not None:
            data._is_in_batch = False
            data._trained = (data._trained or 0) + batch - self._last
        self._last = batch


def _next(batches: Iterator[Any]) -> Any:
    with _causes_in_notes():
        return next(batches, None)


@contextmanager
def _causes_in_notes() -> Iterator[None]:
    """Add the cause of an error to its text or notes: Keras removes it, to shorten tracebacks."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ElementError):
            error.keep_reason()
        elif error.__cause__ is not None:
            error.add_note(f"the cause: {error.__cause__!r}")
        raise


def _batch(element: Any, position: int) -> Any:
    """Convert an element to a Keras batch: inputs, then targets, then weights; or a dict."""
    # TensorFlow accepts text, and ``_tf_signature`` names a component it cannot take; the other
    # backends fail without naming it
    if keras.backend.backend() != "tensorflow":
        _refuse_text(element, "", position)
    element = _prepared(element, position)
    for name, part in [("", element), *(components(element) or ())]:
        if isinstance(part, int | float | np.generic | np.ndarray) and np.ndim(part) == 0:
            raise _no_batch(name, position)
    if isinstance(element, np.ndarray):
        return (element,)
    if isinstance(element, list):
        return tuple(element)
    if isinstance(element, (tuple, dict)) and len(element) >= 1:
        _refuse_many_components(type(element), len(element), position)
        return element
    raise SpecMismatch(
        f"to_keras: element {position} is of type {type(element).__name__}; Keras takes an array, "
        f"a tuple of inputs, targets and weights, or a dict of inputs"
    )


def _no_batch(name: str, position: int) -> SpecMismatch:
    return SpecMismatch(
        f"to_keras: {describe_component(name, position)} is one number, and Keras takes batches: "
        f"write .batch(n) before to_keras"
    )


def _refuse_text(element: object, name: str, position: int) -> None:
    parts = components(element)
    if isinstance(element, list):  # the texts of a batch are a list
        parts = [("", part) for part in element[:1]]
    for key, part in parts or ():
        _refuse_text(part, f"{name}.{key}" if name and key else name or key, position)
    kind = element.dtype.kind if isinstance(element, np.ndarray | np.generic) else ""
    if isinstance(element, str | bytes) or kind in ("S", "U", "T"):
        raise SpecMismatch(
            f"to_keras: {describe_component(name, position)} is text, and Keras on "
            f"{keras.backend.backend()} takes numbers; map it to numbers, or leave it out"
        )


def _prepared(element: object, position: int) -> Any:
    """Return an element with arrays in this machine's byte order; masked arrays are refused."""

    def prepare(array: NDArray[Any], component: str) -> NDArray[Any]:
        if is_masked(array):
            raise SpecMismatch(f"to_keras: {describe_component(component, position)} {IS_MASKED}")
        return in_native_order(array)

    return convert_arrays(element, prepare)


def _refuse_many_components(form: type, components: int, position: int) -> None:
    if issubclass(form, tuple) and components > 3:
        raise SpecMismatch(
            f"to_keras: element {position} has {components} components, and Keras takes (inputs, "
            f"targets, weights) at most; put several inputs into a dict or a tuple"
        )


def _tf_signature(spec: Spec, name: str) -> Any:
    """Return TensorFlow's specs for the spec of a batch."""
    import tensorflow as tf

    if isinstance(spec, StructSpec):
        parts = {
            key: _tf_signature(part, f"{name}.{key}" if name else key) for key, part in spec.fields
        }
        if spec.form is dict:
            return parts
        return tuple(parts.values()) if spec.form is tuple else spec.form(**parts)
    if not isinstance(spec, ArraySpec) or spec.dtype is None or spec.shape is None:
        raise FlowError(
            f"to_keras: {describe_component(name, 0)} is {spec}, and TensorFlow has to know its "
            "dtype and how many dimensions it has: annotate the function that makes it, or return "
            "an array"
        )
    return tf.TensorSpec((None, *spec.shape[1:]), tf.as_dtype(spec.dtype))
