"""to_keras: the elements of a flow in ``fit``, ``evaluate`` and ``predict`` of Keras.

Keras asks a data adapter for an iterator, and leaves the order and the passes to it. What it takes
besides loses rows: a generator is read ahead and begun by two of its batches, and the batches of a
``PyDataset`` are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from flowdsl.effects import Endless
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec
from flowdsl.errors import FlowError, SpecMismatch
from flowdsl.feeding.converting import called
from flowdsl.feeding.loader import Loader
from flowdsl.nodes import checked_int
from flowdsl.runtime.state import place_of, state_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow


class KerasDataset(DataAdapter):
    """The epochs of a flow for a model of Keras: what ``flow.to_keras`` gives, and documents."""

    def __init__(self, flow: Flow[Any, Any], buffer: int = 2) -> None:
        self._flow = flow
        self._loader = Loader[Any](flow, _batch, buffer=buffer, name="to_keras")
        self._epoch = 0
        self._begins: Mapping[str, object] | None = None
        """Where the epoch begins, if it was gone on with."""
        self._passes = 0
        """How many iterators were begun: TensorFlow begins some that it gives up."""
        self._began = False
        """Whether an epoch of Keras was begun since a call of ``fit`` was."""
        self._short = False
        """Whether Keras takes every epoch to be as short as one that was gone on with."""
        self._whole = -1
        """The last epoch of which an iterator has given every batch."""
        self._found: int | None = None
        """How many batches an epoch was found to have, where the length is not known."""
        self._error: Exception | None = None
        """An error that TensorFlow would wrap: raised once it believes that the data have ended."""

    @property
    def epoch(self) -> int:
        """The epoch that is under way, or else the next one: ``initial_epoch`` for ``fit``."""
        return self._epoch

    def state_dict(self, batches: int = 0) -> dict[str, Any]:
        """The place after so many batches of the pass that is under way, as plain JSON values.

        They count from where ``fit`` began that pass: in ``on_train_batch_end(self, batch, logs)``
        of a callback, ``batch + 1`` were trained on. Keras itself may have taken more.

        Raises:
            InvalidFlow: ``batches`` is no such number.
            NotResumable: No position tells what this flow has given.
        """
        batches = checked_int("to_keras: batches", batches, 0)
        position = self._first + batches
        if position == self._flow.node.length:
            return {**state_of(self._flow.node, self._epoch + 1, 0)}
        return {**state_of(self._flow.node, self._epoch, position)}

    @property
    def _first(self) -> int:
        return 0 if self._begins is None else place_of(self._flow.node, self._begins)[1]

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on from a state: the next ``fit``, of one epoch, trains on the rest of that epoch.

        Raises:
            StateMismatch: It is a state of another flow, or is no state.
        """
        self._loader.load_state_dict(state)
        self._epoch, self._begins = self._loader.epoch, state
        self._whole = self._epoch - 1

    def close(self) -> None:
        """End the pass that is under way, and its workers."""
        self._loader.close()

    # -- what Keras asks for -----------------------------------------------------------------------

    @property
    def num_batches(self) -> int | None:
        """How many batches an epoch has, or its rest; None where Keras has to find out."""
        self._short, self._began = False, False  # Keras asks when a call of fit begins
        length = self._flow.node.length
        return None if Endless in self._flow.effects or length is None else length - self._first

    @property
    def batch_size(self) -> None:
        """Not known to Keras: batches are what the flow says."""

    @property
    def has_partial_batch(self) -> bool | None:
        """As above."""
        return None

    @property
    def partial_batch_size(self) -> None:
        """As above."""

    def get_numpy_iterator(self) -> Iterator[Any]:
        return self._pass()

    def get_jax_iterator(self) -> Iterator[Any]:
        return self._pass()

    def get_torch_dataloader(self) -> Any:
        return data_adapter_utils.get_torch_dataloader(self._pass())

    def get_tf_dataset(self) -> Any:
        import tensorflow as tf

        spec = self._flow.spec
        if isinstance(spec, StructSpec):
            _refuse_many(spec.form, len(spec.fields), 0)
        signature = _tf_signature(spec, "")
        if not isinstance(spec, StructSpec):
            signature = (signature,)
        # It is not asked to prefetch: that is done already, and it begins iterators for nothing.
        return tf.data.Dataset.from_generator(self._pass_of_tf, output_signature=signature)

    def on_epoch_begin(self) -> None:
        if self._short and self._flow.node.length is not None:
            raise FlowError(
                f"to_keras: the epoch that was gone on with had fewer batches than the others, and "
                f"Keras takes equally many of all: call fit for it alone, and then once more: "
                f"fit(data, initial_epoch=data.epoch, epochs=data.epoch + 1); epoch {self._epoch} "
                f"is the next"
            )
        self._began = True

    def on_epoch_end(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if not self._began or self._whole < self._epoch:
            return  # Keras took a batch to see its shape, or has not come to the end
        self._short = self._begins is not None
        self._epoch, self._begins = self._epoch + 1, None

    def _pass(self) -> Iterator[Any]:
        """The batches of the epoch from its beginning, or from where it was gone on with."""
        epoch, given = self._epoch, 0
        self._passes += 1
        if self._begins is not None:
            self._loader.load_state_dict(self._begins)
            known = None
        else:
            self._loader.set_epoch(epoch)
            known = self._found
        length = self._flow.node.length
        known = known if length is None else length - self._first
        batches = iter(self._loader)
        while (batch := _next(batches)) is not None:
            given += 1
            if given == known:  # Keras does not ask for the end
                self._whole = max(self._whole, epoch)
            yield batch
        self._whole = max(self._whole, epoch)
        if self._begins is None:
            self._found = given

    def _pass_of_tf(self) -> Iterator[Any]:
        passes = self._passes + 1
        try:
            yield from self._pass()
        except Exception as error:
            if passes == self._passes:  # nobody waits for a pass that was given up
                self._error = error


def _next(batches: Iterator[Any]) -> Any:
    try:
        return next(batches, None)
    except Exception as error:
        if error.__cause__ is not None:  # which Keras takes off, to shorten tracebacks
            error.add_note(f"the cause: {error.__cause__!r}")
        raise


def _batch(element: Any, position: int) -> Any:
    """What Keras takes for a batch: inputs, then targets, then weights; or a dict of inputs."""
    if isinstance(element, np.ndarray):
        return (element,)
    if isinstance(element, list):
        return tuple(element)
    if isinstance(element, (tuple, dict)) and len(element) >= 1:
        _refuse_many(type(element), len(element), position)
        return element
    raise SpecMismatch(
        f"to_keras: element {position} is of type {type(element).__name__}; give Keras an array, a "
        f"tuple of inputs, targets and weights, or a dict of inputs"
    )


def _refuse_many(form: type, components: int, position: int) -> None:
    if issubclass(form, tuple) and components > 3:
        raise SpecMismatch(
            f"to_keras: element {position} has {components} components, and Keras takes (inputs, "
            f"targets, weights) at most; put several inputs into a dict or a tuple"
        )


def _tf_signature(spec: Spec, name: str) -> Any:
    """The specs of TensorFlow for what is known of a batch."""
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
            f"to_keras: {called(name, 0)} is {spec}, and TensorFlow has to know its dtype and how "
            f"many dimensions it has: annotate the function that makes it, or give it an array"
        )
    return tf.TensorSpec((None, *spec.shape[1:]), tf.as_dtype(spec.dtype))
