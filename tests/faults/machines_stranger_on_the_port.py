"""Strangers reach the port of a receiver: a web browser, a port scan, another program with ZeroMQ.

They end no pass: what they send is ignored and counted, and the first message is logged.
"""

from __future__ import annotations

import socket
import threading

import zmq

import flowdsl as fl


def knock(address: str) -> None:
    host, port = address.removeprefix("tcp://").split(":")
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 200, b"\xff" * 200):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(greeting)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    other = context.socket(zmq.DEALER)
    other.connect(address)
    other.send(b"hello")
    other.recv()
    other.close()
    fl.from_range(3).send_zmq(address)


def begin(address: str) -> None:
    threading.Thread(target=knock, args=[address]).start()


tally = fl.remote.Tally()
print(fl.from_zmq("tcp://127.0.0.1:*", int, tally=tally, on_bound=begin).collect())
print(tally.refused > 0)

# Seen:
# ...from_zmq: ignored a message of a stranger; further ones are only counted: ...
# ...[0, 1, 2]
# True
