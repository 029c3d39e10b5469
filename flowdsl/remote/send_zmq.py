"""send_zmq: run a flow, and send its elements to a receiver in another process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from flowdsl.nodes import E, FlowBase, T
from flowdsl.ops.queues import check_timeout

if TYPE_CHECKING:
    from flowdsl.remote.pushing import Format
    from flowdsl.remote.security import Curve


class Sending(FlowBase[T, E]):
    """Operators that run a flow for another process."""

    def send_zmq(
        self,
        address: str,
        *,
        bind: bool = False,
        format: Format = "flowdsl",  # noqa: A002  # as tensorpack has it
        trusted: bool = False,
        hwm: int = 50,
        serve: bool = False,
        security: Curve | None = None,
        insecure: bool = False,
        timeout: float | None = None,
        on_bound: Callable[[str], object] | None = None,
    ) -> int:
        """Run one pass, and send its elements to a receiver: ``fl.from_zmq`` in another process.

        Gives the number of elements, when the receiver has taken them all; a flow that never ends
        is sent for ever. ``address`` is ``ipc://path`` or ``tcp://host:port``. One of the two ends
        binds it and the other connects, in any order: here one connects, unless ``bind=True``.
        Nothing is made before a receiver is there, and then no more than ``hwm`` elements that it
        has not taken yet.

        While both ends live, each element arrives exactly once and in order, whatever happens to
        the connection: the receiver says what it took, and what a cut swallowed is sent again, at
        the latest with the next element that the flow makes. One
        sender has one receiver. If that leaves, or another comes in its place, it has taken
        elements that the next will not see, which is an error here; with ``serve=True`` the next
        receiver goes on where the last has left. If a receiver dies, what it had taken is gone with
        it, and what it had not is sent to the next. If the sender dies, up to ``hwm`` elements are
        lost: those that were made and not taken.

        Elements are sent in the codec of files, which has no pickle in it: numbers, text, arrays,
        lists, dicts, tuples and records. ``trusted=True`` pickles them instead, whatever they are;
        the receiver must say so too. Plain ``tcp`` beyond this machine is refused: give keys as
        ``security=Curve(...)``, or say ``insecure=True``. ``timeout`` is how many seconds to wait
        for a receiver to take something; None is for ever. ``on_bound`` is called with the address
        that was bound, which for ``tcp://127.0.0.1:*`` has a port that was free.

        ``format="zmq_ops"`` is what tensorpack's ``ZMQInput`` reads: arrays and numbers only, in
        one frame (the layout is in ``flowdsl.remote.zmq_ops``). It has no names: those of a dict go
        in the order that an annotation declares, else in that of the first element, and then an
        element in another order is refused. It is sent from a ``PUSH`` socket,
        as there: to whoever connects, in turn; nobody says what arrived, and the receiver is told
        of no end. It gives the number of elements when the system has them all to be carried; what
        a connection still holds when it is cut, or the sender has gone, may be lost. ``timeout`` is
        how many seconds may pass in which it takes none.

        Errors: ``InvalidFlow`` for an argument, or an address that is open to others;
        ``SourceError`` if the address cannot be bound, no receiver takes anything in ``timeout``
        seconds, it refuses what is sent, or leaves too early; ``SpecMismatch`` for an element that
        cannot be sent, with its number; whatever the flow raises, which the receiver is told of.

        >>> import flowdsl as fl, tempfile, threading
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     address = f"ipc://{folder}/squares"
        ...     squares = fl.from_range(4).map(lambda i: (i, i * i))
        ...     sender = threading.Thread(target=squares.send_zmq, args=[address])
        ...     sender.start()
        ...     received = fl.from_zmq(address, tuple[int, int]).collect()
        ...     sender.join()
        >>> received
        [(0, 0), (1, 1), (2, 4), (3, 9)]

        Source: ``send_dataflow_zmq`` in tensorpack; selective acknowledgement and going back as in
        any sliding-window protocol (V. Cerf and R. Kahn, 1974).
        """
        from flowdsl.remote.pushing import check_format, push
        from flowdsl.remote.sender import send
        from flowdsl.remote.sockets import Ends, check_flags  # with ZMQ, which most do without

        who = "send_zmq"
        ends = Ends(who, (address,), bind, hwm, security, insecure, on_bound)
        check_timeout(who, timeout)
        check_flags(who, trusted=trusted, serve=serve)
        check_format(who, format, trusted=trusted, serve=serve)
        with closing(iter(self)) as elements:
            if format == "zmq_ops":
                return push(ends, elements, self.node.spec(False), timeout)
            return send(ends, elements, trusted, serve, timeout)
