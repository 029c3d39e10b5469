"""send_zmq: run a flow, and send its elements to a receiver in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast, get_args

from flowdsl.errors import InvalidFlow
from flowdsl.nodes import E, FlowBase, T, flow
from flowdsl.ops.queues import check_timeout

if TYPE_CHECKING:
    from flowdsl.remote.pushing import Format
    from flowdsl.remote.security import Curve
    from flowdsl.remote.sender import Resumed


class Sending(FlowBase[T, E]):
    """Methods that run a flow for another process."""

    def send_zmq(
        self,
        address: str,
        *,
        bind: bool = False,
        format: Format = "flowdsl",  # noqa: A002  # the name in tensorpack
        trusted: bool = False,
        hwm: int = 50,
        serve: bool = False,
        security: Curve | None = None,
        insecure: bool = False,
        timeout: float | None = None,
        name: str | None = None,
        on_bound: Callable[[str], object] | None = None,
        state: Mapping[str, object] | None = None,
        on_state: Callable[[dict[str, Any]], object] | None = None,
    ) -> int:
        """Run one pass, and send its elements to a receiver: ``fl.from_zmq`` in another process.

        Return the number of elements, when the receiver has taken all of them; an endless flow is
        sent forever. ``address`` is ``ipc://path`` or ``tcp://host:port``. One of the two ends
        binds the address and the other connects, in any order. This end connects, unless
        ``bind=True``. No element is computed before a receiver is connected, and at most ``hwm``
        elements ahead of those that the receiver's flow has read.

        While both ends are alive, each element arrives exactly once and in order, even if the
        connection breaks: the receiver acknowledges elements, and lost elements are sent again, at
        the latest with the next element of the flow. A sender has one receiver. If the receiver
        leaves early, or another takes its place, the next receiver would miss elements, which is an
        error; with ``serve=True``, the next receiver continues after the last element acknowledged
        instead: an element is acknowledged when the receiver's consumer is finished with it. The
        sender keeps the others, those that the receiver's operators hold and at most ``hwm`` more;
        more than 1 GiB of them is an error at both ends. If the sender dies, the elements that were
        computed and not acknowledged are lost, unless it is started again with its last ``state``.

        Messages of strangers are ignored, and the first one is logged.

        ``state`` sends the rest of a pass, as ``flow.resume(state)`` computes it. ``on_state`` is
        called with the state after the elements that were acknowledged, at the beginning, at most
        ten times a second, and at the end or an error: save it, and a sender that is started again
        continues with the first element that was not acknowledged. A receiver that is still there
        recognizes it, and elements that come a second time, as the sender was killed before its
        state was saved. Another receiver may get these: ``enumerate()`` numbers them.

        Elements are sent in the same codec as files, which does not use pickle: numbers, text,
        arrays, lists, dicts, tuples and records. ``trusted=True`` pickles elements of any type
        instead; the receiver must set it, too. Plain ``tcp`` beyond this machine is refused, unless
        you pass keys as ``security=Curve(...)``, or ``insecure=True``. ``timeout`` is the maximum
        number of seconds without a receiver, or in which its flow reads no element and delivers
        none to its consumer; None for no limit. ``name`` is what the receiver's tally, log and
        errors call this sender, such as "lidar", by default its host and process. ``on_bound``
        is called with the address after it is bound; ``tcp://127.0.0.1:*`` binds a free port.

        ``format="zmq_ops"`` is the format that tensorpack's ``ZMQInput`` reads: only arrays and
        numbers, in one frame (see ``flowdsl.remote.zmq_ops`` for the layout). It has no names: the
        components of a dict are sent in the order of an annotation, or else of the first element,
        and then an element in another order is refused. Elements are sent from a ``PUSH`` socket,
        as in tensorpack: round-robin to all connected receivers, without acknowledgements and
        without an end. The method returns when the operating system has accepted all elements;
        elements in a connection that breaks, or when the sender exits, may be lost. ``timeout`` is
        then the maximum number of seconds in which the system accepts no element.

        Errors: ``InvalidFlow`` for an argument, or an address that others can reach;
        ``SourceError`` if the address cannot be bound, no receiver is heard for ``timeout``
        seconds, or the receiver refuses an element or leaves early; ``SpecMismatch`` for an element
        that cannot be sent, with its number; ``StateMismatch`` for a state of another flow;
        ``NotResumable`` for ``on_state`` with a flow that has no state; any error of the flow,
        which the receiver gets, too.

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
        from flowdsl.remote.pushing import Format, check_format, push
        from flowdsl.remote.sender import Progress, send, sender_of
        from flowdsl.remote.sockets import Endpoint, check_flags  # need ZMQ

        who = "send_zmq"
        endpoint = Endpoint(who, (address,), bind, hwm, security, insecure, on_bound)
        check_timeout(who, timeout)
        check_flags(who, trusted=trusted, serve=serve)
        given = {
            "trusted": trusted,
            "serve": serve,
            "name": name is not None,
            "on_state": on_state is not None,
        }
        if name is not None and (not isinstance(name, str) or not name.isprintable() or not name):
            raise InvalidFlow(f"{who}: name must be printable text, got {name!r}")
        check_format(who, format, get_args(Format), given)
        if on_state is not None and not callable(on_state):
            raise InvalidFlow(f"{who}: on_state must be a function or None, got {on_state!r}")
        begun = self.epoch(0) if state is None else flow(self.node).resume(state)
        with closing(begun) as elements:
            if format == "zmq_ops":
                return push(endpoint, elements, self.node.spec(probe=False), timeout)
            run = cast("Resumed", elements)  # the run of a flow
            me = sender_of({} if state is None else state)
            start = 0 if state is None else run.position
            progress = None if on_state is None else Progress(run, on_state, me)
            return send(endpoint, elements, trusted, serve, timeout, start, me, progress, name)
