"""from_zmq: a flow of the elements that other processes send."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypedDict, TypeVar, overload

from numpy.typing import NDArray
from typing_extensions import TypeForm, Unpack

from flowdsl.effects import Endless, Reordered, Resampled, Unsized
from flowdsl.elements.specs import Spec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import Acknowledging, E, PassFactory, Receipts, Row, T, flow, frozen_node, is_int
from flowdsl.ops.iterables import Once, numbered
from flowdsl.ops.queues import check_timeout
from flowdsl.remote.pushing import PULLED, FormatOfAll, check_format, pulled
from flowdsl.remote.receive_state import Tally
from flowdsl.remote.receiver import Receiver
from flowdsl.remote.schema import SchemaCheck
from flowdsl.remote.security import Curve
from flowdsl.remote.sockets import Endpoint, check_flags

if TYPE_CHECKING:
    from flowdsl.flow import Flow

A = TypeVar("A")


@frozen_node
class FromZmq(Acknowledging[T, E], Generic[T, E]):
    """The elements that other processes send."""

    addresses: str
    declared: Spec
    once: Once
    receipts: Receipts
    auto_commit: bool

    @property
    def title(self) -> str:
        return f"from_zmq({self.addresses})"

    def spec(self, probe: bool) -> Spec:
        return self.declared

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return numbered(self, self.once, epoch)


@frozen_node
class FromSender(FromZmq[T, Unsized], Generic[T]):
    """The elements that one other process sends, until it ends."""


@frozen_node
class FromSenders(FromZmq[T, Unsized | Reordered], Generic[T]):
    """The elements of several processes, in the order of arrival, until the last one ends."""


@frozen_node
class FromAnySenders(FromZmq[T, Endless | Reordered], Generic[T]):
    """The elements of any number of processes, which may start and end at any time."""


@frozen_node
class FromPushers(FromZmq[T, Endless | Reordered | Resampled], Generic[T]):
    """The elements that any processes push, in a format without acknowledgements."""


class _OptionsOfBoth(TypedDict, total=False):
    bind: bool
    hwm: int
    security: Curve | None
    insecure: bool
    timeout: float | None
    tally: Tally | None
    on_bound: Callable[[str], object] | None


class _Options(_OptionsOfBoth, total=False):
    format: Literal["flowdsl"]
    trusted: bool
    sender_timeout: float | None
    auto_commit: bool


_Address = str | Sequence[str]


@overload  # for calls with ``**options``, whose names pyright does not know
def from_zmq(
    address: _Address, *, senders: Never, **options: Unpack[_Options]
) -> Flow[object, Any]: ...
@overload
def from_zmq(
    address: _Address,
    element: TypeForm[A],
    *,
    senders: Never,
    **options: Unpack[_Options],
) -> Flow[A, Any]: ...
@overload
def from_zmq(
    address: _Address,
    *,
    senders: Literal[1] = 1,
    **options: Unpack[_Options],
) -> Flow[object, Unsized]: ...
@overload
def from_zmq(
    address: _Address,
    element: TypeForm[A],
    *,
    senders: Literal[1] = 1,
    **options: Unpack[_Options],
) -> Flow[A, Unsized]: ...
@overload
def from_zmq(
    address: _Address,
    *,
    senders: int,
    **options: Unpack[_Options],
) -> Flow[object, Unsized | Reordered]: ...
@overload
def from_zmq(
    address: _Address,
    element: TypeForm[A],
    *,
    senders: int,
    **options: Unpack[_Options],
) -> Flow[A, Unsized | Reordered]: ...
@overload
def from_zmq(
    address: _Address,
    *,
    senders: None,
    **options: Unpack[_Options],
) -> Flow[object, Endless | Reordered]: ...
@overload
def from_zmq(
    address: _Address,
    element: TypeForm[A],
    *,
    senders: None,
    **options: Unpack[_Options],
) -> Flow[A, Endless | Reordered]: ...
@overload
def from_zmq(
    address: _Address, *, format: Literal["zmq_ops"], **options: Unpack[_OptionsOfBoth]
) -> Flow[tuple[NDArray[Any], ...], Endless | Reordered | Resampled]: ...
@overload
def from_zmq(
    address: _Address, *, format: Literal["bytes"], **options: Unpack[_OptionsOfBoth]
) -> Flow[bytes, Endless | Reordered | Resampled]: ...
@overload
def from_zmq(
    address: _Address, *, format: Literal["msgpack"], **options: Unpack[_OptionsOfBoth]
) -> Flow[Any, Endless | Reordered | Resampled]: ...
@overload
def from_zmq(
    address: _Address,
    element: TypeForm[A],
    *,
    format: Literal["zmq_ops", "bytes", "msgpack"],
    **options: Unpack[_OptionsOfBoth],
) -> Flow[A, Endless | Reordered | Resampled]: ...
def from_zmq(
    address: _Address,
    element: Any = object,
    *,
    bind: bool = True,
    senders: int | None = 1,
    format: FormatOfAll = "flowdsl",  # noqa: A002  # the name in tensorpack
    trusted: bool = False,
    auto_commit: bool = True,
    hwm: int = 50,
    security: Curve | None = None,
    insecure: bool = False,
    timeout: float | None = None,
    sender_timeout: float | None = None,
    tally: Tally | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> Flow[Any, Any]:
    """The elements that other processes send with ``flow.send_zmq``, until these have ended.

    ``address`` is ``ipc://path`` or ``tcp://host:port``, or a sequence of addresses, which are read
    concurrently. One of the two ends binds an address and the other connects, in any order. This
    end binds, unless ``bind=False``, and any number of senders may connect to it. ``element``
    declares the type of an element, as in ``from_lmdb``, and each element is checked against it.
    The pass ends when ``senders`` senders have ended and all their elements have arrived; with
    ``senders=None``, any number of senders may start and end at any time, and the pass is endless.

    While both ends are alive, each element of a sender arrives exactly once and in order, even if
    the connection breaks; the elements of several senders interleave in the order of arrival. At
    most ``hwm`` elements of each sender are in flight or stored here, beside those that the
    operators above hold, so a slow consumer slows down the senders. If a sender dies, the elements
    it had not sent are lost. With ``timeout``, it is an error if the consumer waits this many
    seconds without an element; the error reports the progress of each sender. A sender whose flow
    fails reports this immediately. A ``tally`` counts elements by address and by sender, whose name
    is ``send_zmq(name=)`` or its host and process, and has the seconds since each sender was last
    heard, ``tally.ages``.

    ``timeout`` is for all senders together. With ``sender_timeout``, it is an error if one sender
    is silent, or was never heard, for this many seconds while the consumer waits; with
    ``senders=None`` it is a warning, as others may continue. A sender is silent while its flow
    computes an element. Without it, silence of half a minute is a warning in the log.

    An element is acknowledged to its sender once the consumer has asked for the element after the
    last one that was made from it, wherever operators, threads and workers read ahead; or when its
    ``with`` block ends without an error. With ``auto_commit=False`` it is acknowledged by
    ``run.commit()``, for a consumer that stores the elements. A sender with ``serve=True`` sends
    all others again, to the next receiver. So a stopped consumer loses no element, and one that is
    killed between storing an element and acknowledging it gets it again: number the elements at the
    sender, ``flow.enumerate()``, and leave out what is stored already. A buffer such as
    ``shuffle(buffer)`` yields elements in another order: from the first one that it still holds of
    a sender, all later ones of this sender are sent again. Below an operator of your own that does
    not say how far it looks back, all elements are acknowledged at the end of the pass.

    Messages of strangers are ignored and counted. A sender whose messages become malformed is
    refused: an error that names it, or with ``senders=None`` a warning, and the others continue.
    Bytes that change on an unencrypted connection are detected, and sent again.

    Messages cannot execute code. ``trusted=True`` also accepts pickled elements, from senders with
    ``trusted=True``; then anyone who can reach the address can execute code here. Plain ``tcp``
    beyond this machine is refused, unless you pass keys as ``security=Curve(...)``, or
    ``insecure=True``. Only processes of the same user may connect to an ``ipc`` path. ``on_bound``
    is called with each address after it is bound; ``tcp://127.0.0.1:*`` binds a free port.

    Other formats read what programs without flowdsl send to a ``PULL`` socket from a ``PUSH``
    socket, one frame for each element, without an end: ``"bytes"`` the frame as it is;
    ``"msgpack"`` MessagePack, as Python objects; ``"zmq_ops"`` the tuples of arrays of tensorpack's
    zmq_ops. Elements in a connection that breaks, or whose sender exits, are lost.

    The sockets are opened in the consumer's process when a pass begins, and closed with it. There
    is only one pass; the second raises a ``SourceError``. A receiving flow has no state, since the
    senders continue independently: save and resume the state of the sending flow instead.

    Length: unknown until all senders have ended.

    Effects: ``Unsized``; with several ``senders`` also ``Reordered``; with ``senders=None``
    ``Endless`` and ``Reordered``, and with another ``format`` also ``Resampled``.

    Errors: ``InvalidFlow`` for an argument, or an address that others can reach; ``SourceError``
    for an address that cannot be bound, for an invalid or pickled message of a sender, for an
    incompatible version of flowdsl at the end that this one connects to, for a sender that fails or
    has another receiver, if no element arrives in time, and for a second pass; ``SpecMismatch`` for
    an element that does not match its declaration.

    >>> import flowdsl as fl, tempfile, threading
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     address = f"ipc://{folder}/numbers"
    ...     halves = [fl.from_range(6).shard(2, i) for i in range(2)]
    ...     threads = [threading.Thread(target=half.send_zmq, args=[address]) for half in halves]
    ...     for thread in threads:
    ...         thread.start()
    ...     numbers = fl.from_zmq(address, int, senders=2).collect()
    ...     for thread in threads:
    ...         thread.join()
    >>> sorted(numbers)
    [0, 1, 2, 3, 4, 5]

    Source: ``RemoteDataZMQ`` of tensorpack, which loses elements when a connection breaks.

    Elsewhere: tensorpack ``RemoteDataZMQ``; tf.data none; Grain none; torchdata none.
    """
    who = "from_zmq"
    several = isinstance(address, Sequence) and not isinstance(address, str | bytes)
    addresses: Any = tuple(address) if several else (address,)
    endpoint = Endpoint(who, addresses, bind, hwm, security, insecure, on_bound)
    check_timeout(who, timeout)
    check_timeout(who, sender_timeout, "sender_timeout")
    check_flags(who, trusted=trusted, auto_commit=auto_commit)
    if senders is not None and not is_int(senders, 1):
        raise InvalidFlow(f"{who}: senders must be an int >= 1 or None, got {senders!r}")
    if tally is not None and not isinstance(tally, Tally):
        raise InvalidFlow(f"{who}: tally must be a Tally or None, got {tally!r}")
    check_format(
        who, format, ("flowdsl", *PULLED), _given(trusted, senders, auto_commit, sender_timeout)
    )
    schema_check = SchemaCheck.of(who, element)
    tally = Tally() if tally is None else tally
    for each_address in addresses:
        tally.addresses.setdefault(each_address, 0)
    if format != "flowdsl":
        elements = pulled(endpoint, format, schema_check, timeout, tally)
        once = Once(elements, _SECOND_PASS, owned=True)
        return flow(
            FromPushers[Any](
                endpoint.addresses_text, schema_check.spec, once, Receipts(), auto_commit=True
            )
        )
    if not bind and senders is not None and senders != len(addresses):
        raise InvalidFlow(
            f"{who}: with bind=False there is a sender at each address, so senders must be "
            f"{len(addresses)} or None, got {senders}"
        )
    kind: Any = FromSender if senders == 1 else FromAnySenders if senders is None else FromSenders
    receiver = Receiver(endpoint, schema_check, senders, trusted, timeout, tally, sender_timeout)
    once = Once(receiver.elements(), _SECOND_PASS, owned=True)
    addresses_text = endpoint.addresses_text
    return flow(kind(addresses_text, schema_check.spec, once, receiver.receipts, auto_commit))


def _given(
    trusted: bool, senders: int | None, auto_commit: bool, sender_timeout: float | None
) -> dict[str, bool]:
    """Return which of the arguments that only flowdsl's own format supports were passed."""
    return {
        "trusted": trusted,
        "senders": senders != 1,
        "auto_commit": not auto_commit,
        "sender_timeout": sender_timeout is not None,
    }


_SECOND_PASS = (
    "from_zmq: what is sent comes only once, and this is a second pass; for several passes over "
    "the same elements put cache() after it; for other elements build the flow again"
)
