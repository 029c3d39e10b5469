"""ZMQInput: tensors that other programs send, in the format of zmq_ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from flowdsl.errors import EndlessFlow
from flowdsl.flow import Flow
from flowdsl.remote.from_zmq import from_zmq
from flowdsl.remote.security import Curve
from flowdsl.tensorflow.inputs.dataset_input import dataflow_to_dataset
from flowdsl.tensorflow.inputs.queue_input import QueuedInput
from flowdsl.tensorflow.inputs.signature import signature_of

if TYPE_CHECKING:
    from flowdsl.runtime.run import Run


class ZMQInput(QueuedInput):
    """Feeds a step with elements from ``send_zmq(address, format="zmq_ops")`` or tensorpack.

    Programs on any machine may send, disconnect and reconnect: a pass never ends. ``spec`` declares
    the elements, with a ``tf.TensorSpec`` for each component; an element that does not match is an
    error. ``hwm`` is the number of elements that ZMQ buffers, on each side of each connection.
    ``bind=False`` connects to a sender that binds. The other options are the options of
    ``from_zmq``. ``reset`` reopens the socket. A state does not contain what senders have sent.

    >>> import tensorflow as tf
    >>> from flowdsl.tensorflow.inputs import ZMQInput
    >>> spec = [tf.TensorSpec((None, 28, 28), tf.uint8), tf.TensorSpec((None,), tf.int64)]
    >>> source = ZMQInput("tcp://127.0.0.1:5555", 50, spec=spec)
    >>> source.specs[1].dtype
    tf.int64

    Raises:
        InvalidArgument: The address is invalid, or open to others; ``hwm`` is not an int above 0.

    Source: ``ZMQInput`` in tensorpack, on its zmq_ops.
    """

    def __init__(
        self,
        end_point: str,
        hwm: int = 50,
        bind: bool = True,
        *,
        spec: Sequence[tf.TensorSpec],
        capacity: int = 50,
        security: Curve | None = None,
        insecure: bool = False,
        timeout: float | None = None,
        on_bound: Callable[[str], object] | None = None,
    ) -> None:
        def receiving() -> Flow[object, Any]:
            return from_zmq(
                end_point,
                format="zmq_ops",
                bind=bind,
                hwm=hwm,
                security=security,
                insecure=insecure,
                timeout=timeout,
                on_bound=on_bound,
            )

        self._receiving = receiving
        super().__init__(signature_of("ZMQInput", receiving().spec, spec), None, capacity)

    def size(self) -> int:
        raise EndlessFlow("ZMQInput: received elements have no end")

    def to_dataset(self) -> tf.data.Dataset:
        """Return the received elements as an endless ``tf.data.Dataset``."""
        return dataflow_to_dataset(self._receiving(), [spec.dtype for spec in self.specs])

    def _begin(self, epoch: int) -> Run[object]:
        return self._receiving().epoch(epoch)

    def _resume(self, state: Mapping[str, object]) -> Run[object]:
        return self._receiving().resume(state)
