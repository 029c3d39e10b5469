"""A state: where a pass stands, as JSON of less than a kilobyte.

It holds the epoch, the number of elements delivered, and what tells the flow from another: a digest
of its operators, and their spelling, as far as there is room, so that a difference can be named.
Where the work ran is no part of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import TypedDict

from flowdsl.arguments import is_int
from flowdsl.errors import NotResumable, StateMismatch
from flowdsl.kinds import Indexing, Unordered
from flowdsl.node import AnyNode, with_sources
from flowdsl.plan.tree import walk

_VERSION = 2
_ROOM = 700
"""Characters for the spelling of the operators."""

_LEAST = 12
"""Characters that an operator is cut to, before the last ones are left out."""

_CUT = "..."


class State(TypedDict):
    """What ``run.state_dict()`` gives."""

    version: int
    epoch: int
    position: int
    shards: list[int]
    """Of each ``shard``, how many there are."""
    digest: str
    flow: list[str]


def state_of(node: AnyNode, epoch: int, position: int) -> State:
    """The state of a run of this flow that has delivered ``position`` elements.

    Raises:
        NotResumable: The order of the elements is not known, or a source goes on by itself.
    """
    if any(isinstance(part, Unordered) for part in walk(node)):
        raise NotResumable(
            "state_dict: prefetch(ordered=False) gives elements in an order that no position "
            "tells; resume needs ordered=True"
        )
    for part in walk(node):
        if not part.resumable:
            raise NotResumable(
                f"state_dict: {part.title} gives what comes, and gives it once: resume would leave "
                f"out elements that were never delivered; keep the state of the flow that sends or "
                f"puts them, and resume that one"
            )
    operators = _operators(node)
    return State(
        version=_VERSION,
        epoch=epoch,
        position=position,
        shards=[part.shards for part in walk(node) if isinstance(part, Indexing) and part.shards],
        digest=_digest(operators),
        flow=_fitted(operators),
    )


def place_of(node: AnyNode, state: Mapping[str, object]) -> tuple[int, int]:
    """The epoch and the position at which a flow goes on from a state.

    Raises:
        StateMismatch: It is a state of another flow, or is no state.
    """
    epoch, position, shards = _checked(state)
    here = state_of(node, 0, 0)
    if state["digest"] != here["digest"]:
        raise StateMismatch(_difference(state["flow"], _operators(node)))
    if shards != here["shards"]:
        position = _among_others(node, shards, position)
    if node.length is not None and position > node.length:
        raise StateMismatch(f"resume: position {position} of a flow of {node.length} elements")
    return epoch, position


def _checked(state: Mapping[str, object]) -> tuple[int, int, list[int]]:
    if not isinstance(state, Mapping) or not State.__required_keys__ <= state.keys():
        raise StateMismatch(f"resume: not a state that state_dict() gave: {state!r}")
    epoch, position, shards = state["epoch"], state["position"], state["shards"]
    if (
        state["version"] == _VERSION
        and is_int(epoch, 0)
        and is_int(position, 0)
        and isinstance(shards, list)
        and all(is_int(n, 1) for n in shards)
        and isinstance(state["digest"], str)
        and isinstance(state["flow"], list)
    ):
        assert isinstance(epoch, int)
        assert isinstance(position, int)
        return epoch, position, shards
    raise StateMismatch(f"resume: not a state of this version of flowdsl: {state!r}")


def _among_others(node: AnyNode, shards: list[int], position: int) -> int:
    """Where a shard goes on among another number of them, all of which stood at this position."""
    now = node.same_place(_with_shards(node, shards), position)
    if now is None:
        here = [part for part in walk(node) if isinstance(part, Indexing) and part.shards]
        raise StateMismatch(
            f"resume: the state is of {_CUT.join(f'shard({n}, i)' for n in shards)}, here it is "
            f"{_CUT.join(part.title for part in here)}, and what was delivered by position "
            f"{position} is no whole number of elements here, or is not told by number; resume "
            f"with as many shards, or save where the rows of all shards divide by both"
        )
    return now


def _with_shards(node: AnyNode, numbers: Iterable[int]) -> AnyNode:
    """The flow as it was, with so many shards, of which this is the first."""
    remaining = iter(numbers)

    def put(node: AnyNode) -> AnyNode:
        node = with_sources(node, tuple(map(put, node.sources)))
        if isinstance(node, Indexing) and node.shards:
            return node.first_of(next(remaining))
        return node

    return put(node)


def _difference(saved: object, here: list[str]) -> str:
    assert isinstance(saved, list)
    for step, (theirs, ours) in enumerate(zip_longest(saved, here, fillvalue="nothing"), 1):
        if theirs != ours and theirs != _cut(ours, len(str(theirs))):
            return (
                f"resume: the state is of another flow: its operator {step} is {theirs}, here it "
                f"is {ours}; resume with the flow that was saved (procs may differ)"
            )
        if theirs == _CUT:
            break
    return (
        "resume: the state is of another flow, which differs in a part of an operator that the "
        "state does not spell out; resume with the flow that was saved (procs may differ)"
    )


def _operators(node: AnyNode) -> list[str]:
    """Every operator that says which elements come, and in what order."""
    return [
        part.fingerprint if len(part.sources) < 2 else f"{part.fingerprint} of {len(part.sources)}"
        for part in walk(node)
        if part.fingerprint
    ]


def _digest(operators: list[str]) -> str:
    return hashlib.sha256(json.dumps(operators).encode()).hexdigest()[:32]


def _fitted(operators: list[str]) -> list[str]:
    """The operators, the long ones cut, and the last ones left out, until they fit."""
    room = max((len(one) for one in operators), default=0)
    fitted = operators
    while len(json.dumps(fitted)) > _ROOM and room > _LEAST:
        room = max(_LEAST, room * 3 // 4)
        fitted = [_cut(one, room) for one in operators]
    while len(json.dumps(fitted)) > _ROOM:
        fitted = [*fitted[: len(fitted) * 3 // 4], _CUT]
    return fitted


def _cut(text: str, size: int) -> str:
    """The text without its middle."""
    if len(text) <= size:
        return text
    head = (size - len(_CUT) + 1) // 2
    tail = size - len(_CUT) - head
    return f"{text[:head]}{_CUT}{text[len(text) - tail :]}"
