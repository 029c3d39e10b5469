"""Security: accepted keys, and addresses and arguments refused before a socket is opened."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import flowdsl as fl
from flowdsl import InvalidFlow
from flowdsl.remote import Curve, make_keys

KEYS, OTHERS = make_keys(), make_keys()
CURVE = Curve(KEYS.secret, [OTHERS.public])


def shown(argument: object) -> str:
    """Return an argument for a test's id, without keys, which differ in each process."""
    text = str(argument)
    for key in (*attrs.astuple(KEYS), *attrs.astuple(OTHERS)):
        text = text.replace(key, "KEY")
    return text


def test_keys_are_pairs_of_strings() -> None:
    assert KEYS != OTHERS
    assert CURVE.public == KEYS.public
    assert KEYS.secret not in repr(KEYS) + repr(CURVE)
    two = Curve(KEYS.secret, [OTHERS.public, KEYS.public])
    assert [two.peer(0), two.peer(1), CURVE.peer(1)] == [OTHERS.public, KEYS.public, OTHERS.public]


@pytest.mark.parametrize("secret", ["", "a" * 39, "ä" * 40, 3, None])
def test_invalid_secret_keys_are_refused(secret: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        Curve(secret, [KEYS.public])
    assert str(caught.value) == ("Curve: secret must be a key that make_keys() made, 40 characters")


@pytest.mark.parametrize(
    "peers", [[], ["short"], KEYS.public, [None], None, 3, {KEYS.public}], ids=shown
)
def test_invalid_peers_are_refused(peers: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        Curve(KEYS.secret, peers)
    assert str(caught.value) == (
        f"Curve: peers must be a list of public keys that make_keys() made, 40 characters each, "
        f"and at least one; got {peers!r}"
    )


OPEN = ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.0.0.1:5555", "tcp://trainer:5555"]
OPEN += ["tcp://[::]:5555", "tcp://eth0:5555", "tcp://[2001:db8::1]:5555", "tcp://127.0.0.1.x:1"]
CLOSED = ["tcp://127.0.0.1:5555", "tcp://127.9.9.9:*", "tcp://localhost:1", "tcp://[::1]:5555"]
CLOSED += ["ipc:///tmp/wire", "ipc://@abstract"]
BAD = ["", "tcp://", "tcp://a", "tcp://a:b", "a:5555", "inproc://a", "udp://a:1", "ipc://", 3, None]
BAD += ["tcp://a:1;b:2", "tcp://127.0.0.1:5555/x"]
NO_ADDRESS = [5555, None, b"ipc://a", {"ipc://a"}, ("ipc://a", 3), [["ipc://a"]]]


@pytest.mark.parametrize("address", OPEN)
def test_plain_tcp_beyond_this_machine_is_refused(address: str) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_zmq(address)
    assert str(caught.value) == (
        f"from_zmq: {address!r} is open to other machines: whoever reaches it could read the "
        f"elements or send others; pass security=Curve(...) with keys of make_keys(), or "
        f"insecure=True in a network where that does not matter"
    )
    with pytest.raises(InvalidFlow, match=r"send_zmq: .* is open to other machines"):
        fl.from_range(1).send_zmq(address)
    fl.from_zmq(address, insecure=True)
    fl.from_zmq(address, security=CURVE)


@pytest.mark.parametrize("address", CLOSED)
def test_loopback_addresses_may_be_plain(address: str) -> None:
    assert repr(fl.from_zmq(address)) == f"from_zmq({address!r})"


@pytest.mark.parametrize("address", [*BAD, ["ipc://a", "ipc://b"]])
def test_invalid_addresses_are_refused(address: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(1).send_zmq(address, insecure=True)
    assert str(caught.value) == (
        f"send_zmq: address must be ipc://path or tcp://host:port, got {address!r}"
    )


@pytest.mark.parametrize("port", ["0", "65536", "99999"])
def test_invalid_ports_are_refused(port: str) -> None:
    with pytest.raises(InvalidFlow, match="a port must be a number from 1 to 65535, got 'tcp"):
        fl.from_range(1).send_zmq(f"tcp://127.0.0.1:{port}")
    assert fl.from_zmq("tcp://127.0.0.1:65535", int)


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_invalid_sequences_of_addresses_are_refused(address: Any) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_zmq(address)
    several = isinstance(address, tuple | list)
    assert str(caught.value) == (
        f"from_zmq: address must be ipc://path or tcp://host:port, got "
        f"{address[-1] if several else address!r}"
    )


HERE = "ipc://here"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hwm": 0}, "hwm must be an int from 1 to 2**30 - 1, got 0"),
        ({"hwm": True}, "hwm must be an int from 1 to 2**30 - 1, got True"),
        ({"timeout": 0}, "timeout must be a number of seconds > 0, got 0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds > 0, got nan"),
        ({"timeout": "3"}, "timeout must be a number of seconds > 0, got '3'"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds > 0, got inf"),
        ({"bind": 1}, "bind must be True or False, got 1"),
        ({"insecure": None}, "insecure must be True or False, got None"),
        ({"trusted": 1}, "trusted must be True or False, got 1"),
        ({"security": KEYS.secret}, "security must be a Curve or None, got "),
        ({"format": "pickle"}, "format must be 'flowdsl'"),
        ({"on_bound": print, "bind": False}, "on_bound must be a function, and needs bind="),
        (
            {"on_bound": 3, "bind": True},
            "on_bound must be a function, and needs bind=",
        ),
        (
            {"trusted": True, "format": "zmq_ops"},
            "there is no trusted= with format='zmq_ops'; leave",
        ),
    ],
    ids=shown,
)
def test_invalid_common_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    for who, call in (("from_zmq", fl.from_zmq), ("send_zmq", fl.from_range(1).send_zmq)):
        with pytest.raises(InvalidFlow) as caught:
            call(HERE, **options)
        assert str(caught.value).startswith(f"{who}: {said}")


SENDERS = "with bind=False there is a sender at each address, so senders must be "
ONLY_ANNOTATIONS = (
    "elements cannot be checked against 3; declare a NamedTuple, a record, a TypedDict, "
    "tuple[A, B], or the type of a single value"
)
TOO_MANY_PEERS = (
    "security has 2 peers for 1 addresses; give the public key of the end that binds, one for all "
    "addresses or one for each"
)
TWO_PEERS = Curve(KEYS.secret, [OTHERS.public, KEYS.public])
THERE = "ipc://there"
TCP = "tcp://127.0.0.1:*"


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ([HERE], {"senders": 0}, "senders must be an int >= 1 or None, got 0"),
        ([HERE], {"senders": 2, "bind": False}, f"{SENDERS}1 or None, got 2"),
        ([[HERE, THERE]], {"bind": False}, f"{SENDERS}2 or None, got 1"),
        ([[]], {}, "address must be one or several different ones, got ()"),
        ([[HERE, HERE]], {}, f"address must be one or several different ones, got {(HERE, HERE)}"),
        ([HERE], {"tally": 3}, "tally must be a Tally or None, got 3"),
        (
            [HERE],
            {"format": "zmq_ops", "senders": 2},
            "there is no senders= with format='zmq_ops'; leave it out",
        ),
        ([HERE, 3], {}, ONLY_ANNOTATIONS),
        ([TCP], {"bind": False}, f"a port to connect to must be a number, got {TCP!r}"),
        ([HERE], {"bind": False, "security": TWO_PEERS}, TOO_MANY_PEERS),
    ],
    ids=shown,
)
def test_invalid_arguments_of_from_zmq_are_refused(
    arguments: list[Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_zmq(*arguments, **options)
    assert str(caught.value) == f"from_zmq: {said}"


def test_invalid_arguments_of_send_zmq_are_refused() -> None:
    with pytest.raises(InvalidFlow) as caught:
        fl.from_range(1).send_zmq(HERE, serve=True, format="zmq_ops")
    assert str(caught.value) == "send_zmq: there is no serve= with format='zmq_ops'; leave it out"
