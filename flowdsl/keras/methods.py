"""The flow's method for Keras: to_keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowdsl.nodes import E, FlowBase, T, flow, rejects_keywords
from flowdsl.storage.libraries import library

if TYPE_CHECKING:
    from flowdsl.keras.fit import Fit


class ToKeras(FlowBase[T, E]):
    """A method that passes the elements to Keras."""

    @rejects_keywords(
        batch_size="write .batch({n}).to_keras()",
        shuffle="write .shuffle(seed=...) in the chain",
        workers="write .prefetch(procs={n}).to_keras()",
        buffer="write ahead={n}",
        epochs="write model.fit(flow.to_keras(), epochs={n})",
    )
    def to_keras(self, *, ahead: int = 2) -> Fit:
        """Return the elements as batches for ``fit``, ``evaluate`` and ``predict`` of Keras 3.

        Pass it to Keras as the data: ``model.fit(flow.to_keras(), epochs=3)``, with TensorFlow, JAX
        or PyTorch as the backend. Epoch ``k`` of the training is epoch ``k`` of the flow, in its
        order, with each batch once, including a small last one; the arguments ``shuffle=`` and
        ``batch_size=`` of Keras have no effect. An element must be what Keras accepts:
        ``(inputs, targets)``, optionally with sample weights as a third component; inputs may be a
        dict. Keras ignores ``class_weight=`` here; use sample weights. With ``steps_per_epoch``, a
        pass continues from one Keras epoch to the next; an endless flow needs it.

        With the callback ``data.follows``, epochs are numbered as ``fit`` numbers them, from its
        ``initial_epoch``, and ``data.state_dict()`` is the state after the batch that was trained
        on last; without it, epochs are counted from 0. After ``load_state_dict``, the next ``fit``
        trains on the rest of that epoch: see docs/keras.md. At most ``ahead`` batches are computed
        ahead. The same as ``flowdsl.keras.Fit(flow)``.

        Errors: ``MissingLibrary``; in ``fit``, ``InvalidFlow`` for a flow of length 0, and for an
        endless one without ``steps_per_epoch``; ``SpecMismatch`` for a flow without ``batch``;
        ``FlowError`` with TensorFlow for a component of unknown dtype, and for an epoch without
        elements; during a pass, ``SpecMismatch`` for an element that is not a Keras batch, such as
        text on other backends, and any error of the flow, unchanged.

        >>> import keras, numpy as np, flowdsl as fl
        >>> flow = fl.from_range(8).map(lambda i: (np.full(3, i, np.float32), i)).batch(4)
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        >>> model.compile(loss="mse")
        >>> history = model.fit(flow.to_keras(), epochs=2, verbose=0)
        >>> len(history.history["loss"]), model.predict(flow.to_keras(), verbose=0).shape
        (2, (8, 1))

        Source: the data adapters of Keras.

        Elsewhere: tensorpack ``KerasModel``; tf.data ``model.fit(dataset)``; Grain
        ``model.fit(dataset)``.
        """
        library("keras", "to_keras", "keras")
        from flowdsl.keras.fit import Fit

        return Fit(flow(self.node), ahead=ahead)
