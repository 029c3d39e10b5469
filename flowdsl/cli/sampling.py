"""A process that takes one sample: ``python -m flowdsl.cli.sampling FILE``, for ``bench``.

Times differ by some percent between processes, as each has its memory at other addresses. So a
bench takes each sample in a new process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from flowdsl.cli.targets import BadInput, load_target
from flowdsl.effects import Endless
from flowdsl.errors import FlowError
from flowdsl.flow import Flow
from flowdsl.nodes import AnyNode
from flowdsl.plan.tree import steps_of, walk
from flowdsl.report.bench.reference import copy_memory
from flowdsl.report.bench.sampling import Kind, Part, Sample, Size, sample

_COPY_MEMORY = "--copy-memory"


class Request(msgspec.Struct, frozen=True):
    """The arguments of ``sample`` for a process."""

    target: str
    seconds: float
    kinds: Sequence[Kind]
    sizes: Sequence[tuple[Part, Size]]


def endless(flow: Flow[Any, Any]) -> AnyNode:
    """Return the flow without an end: a bench measures as many passes as it needs."""
    return flow.node if Endless in flow.node.effects else flow.repeat().node


def sample_in_a_process(request: Request) -> list[Sample]:
    """Take a sample in a new process.

    Raises:
        ClickException: The process failed; the message is what it printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sample.json")
        file.write_bytes(msgspec.json.encode(request))
        done = subprocess.run(
            [sys.executable, "-m", "flowdsl.cli.sampling", str(file)],
            stdout=subprocess.DEVNULL,  # the target may print
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise click.ClickException(f"bench: a process failed: {done.stderr.strip()}")
        return msgspec.json.decode(file.read_bytes(), type=list[Sample])


@contextmanager
def copying_memory() -> Iterator[None]:
    """Let another process copy memory during the block, as other programs may."""
    with subprocess.Popen(
        [sys.executable, "-m", "flowdsl.cli.sampling", _COPY_MEMORY],
        stdin=subprocess.PIPE,  # which closes if this process dies
        stdout=subprocess.PIPE,
    ) as copying:
        assert copying.stdin is not None
        assert copying.stdout is not None
        copying.stdout.readline()
        try:
            yield
        finally:
            copying.stdin.close()


def main() -> None:
    """Replace the request in a file by the samples; or copy memory until the input closes."""
    if sys.argv[1] == _COPY_MEMORY:
        print("begins", flush=True)
        until_closed = threading.Thread(target=sys.stdin.read)
        until_closed.start()
        copy_memory(ends=lambda: not until_closed.is_alive())
        return
    file = Path(sys.argv[1])
    request = msgspec.json.decode(file.read_bytes(), type=Request)
    try:
        flow = load_target(request.target).flow
        samples = sample(endless(flow), request.seconds, request.kinds, dict(request.sizes))
    except (BadInput, FlowError) as error:
        sys.exit(str(error))
    own = max(step.number for step in walk(steps_of(flow.node)))  # ``repeat`` is not the user's
    file.write_bytes(msgspec.json.encode([found for found in samples if found.part.step <= own]))


if __name__ == "__main__":
    main()
