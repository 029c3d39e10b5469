"""A state: the progress of a pass, as JSON of less than a kilobyte.

It contains the epoch, the number of elements delivered, the places of operators that need one to
resume (see ``resume_points``), a digest of the flow's operators, which identifies the flow, and as
much of their spelling as fits, so that an error can name a difference. It does not contain the
placement of the work: a flow resumes with other workers, too. A checksum over all of this refuses a
state that was changed: other numbers of elements and places are valid for the flow, too, so they
would silently skip and repeat rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from numbers import Integral
from typing import TypedDict

from flowdsl.errors import NotResumable, StateMismatch
from flowdsl.nodes import (
    AnyNode,
    IndexTransform,
    OneShot,
    Unordered,
    is_int,
    position_after_reshard,
    with_sources,
)
from flowdsl.plan.tree import walk
from flowdsl.runtime.resume_points import BEGINNING, ResumePoint, resumable_path

_VERSION = 4
_ROOM = 700
"""Characters available in a state for the places and the spelling of the operators."""

_MOST_OF_PLACES = _ROOM - 50
"""The maximum characters for the places, which leaves some for the operators."""

_LEAST = 12
"""The minimum characters of a shortened operator, before whole operators are left out."""

_CUT = "..."


class State(TypedDict):
    """The dict that ``run.state_dict()`` returns."""

    version: int
    epoch: int
    position: int
    places: list[int]
    """The elements delivered when the places were recorded, then the numbers of each place."""
    shards: list[list[int]]
    """For each ``shard`` of the flow, the number of shards and the index of this one."""
    digest: str
    flow: list[str]
    checksum: str


def state_of(
    node: AnyNode, epoch: int, position: int, resume_point: ResumePoint = BEGINNING
) -> State:
    """Return the state of a run of this flow that has delivered ``position`` elements.

    ``resume_point`` is the resume point of the run at that position or before.

    Raises:
        NotResumable: The order of the elements is unknown, or a source yields its elements once.
    """
    if any(isinstance(part, Unordered) for part in walk(node)):
        raise NotResumable(
            "state_dict: after prefetch(ordered=False) a position does not identify the elements "
            "that were delivered; use ordered=True to save and resume"
        )
    for part in walk(node):
        if part.in_any_order:
            raise NotResumable(
                f"state_dict: {part.title} may yield another order in each pass, so a position "
                f"does not identify the elements that were delivered{part.resume_advice}"
            )
        if isinstance(part, OneShot):
            raise NotResumable(
                f"state_dict: {part.title} yields each element only once, so a resumed run would "
                f"leave out elements that were never delivered; save and resume the flow at the "
                f"other end, which sends or puts them"
            )
    operators, places = fingerprints_of(node), resume_point.numbers()
    if len(json.dumps(places)) > _MOST_OF_PLACES:
        places = []  # the pass is computed again: a state is small whatever the flow
    state = State(
        version=_VERSION,
        epoch=epoch,
        position=position,
        places=places,
        shards=[list(part) for _, part in _shards(node)],
        digest=_digest(operators),
        flow=_fitted(operators, _ROOM - len(json.dumps(places))),
        checksum="",
    )
    return {**state, "checksum": checksum_of(state)}


def checksum_of(state: Mapping[str, object]) -> str:
    """Return the checksum over all values of a state; other keys than its own do not matter."""
    values = {key: state[key] for key in State.__required_keys__ - {"checksum"}}
    text = json.dumps(values, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: object) -> object:
    """Return a JSON value: some checkpoints restore a number as an integer of NumPy."""
    return int(value) if isinstance(value, Integral) else str(value)


def _shards(node: AnyNode) -> Iterator[tuple[AnyNode, tuple[int, int]]]:
    for part in walk(node):
        if isinstance(part, IndexTransform) and part.shard is not None:
            yield part, part.shard


def resumed_from(node: AnyNode, state: Mapping[str, object]) -> tuple[int, int, ResumePoint]:
    """Return the epoch and position at which a flow resumes from a state, and its resume point.

    Raises:
        StateMismatch: The state belongs to another flow, or is not a state.
    """
    epoch, position, places, shards = _checked(state)
    here = state_of(node, 0, 0)
    if state["digest"] != here["digest"]:
        raise StateMismatch(_difference(state["flow"], fingerprints_of(node)))
    if shards == here["shards"]:
        resume_point = _resume_point_of(node, places, position)
    else:
        resume_point = BEGINNING  # a filter lets other rows through in another shard
        if [n for n, _ in shards] != [n for n, _ in here["shards"]]:
            position = _resharded(node, [n for n, _ in shards], position)
    if node.length is not None and position > node.length:
        raise StateMismatch(
            f"resume: the state's position {position} is beyond the flow's {node.length} elements"
        )
    return epoch, position, resume_point


def _resume_point_of(node: AnyNode, places: list[int], position: int) -> ResumePoint:
    placed = resumable_path(node)
    if not placed or not places:
        return BEGINNING
    try:
        resume_point = ResumePoint.of(places, placed)
    except ValueError:
        return BEGINNING  # an ``inspect`` was added to the flow or removed
    rows = placed[-1].length
    if places[0] > position or (rows is not None and places[-1] > rows):
        raise StateMismatch(f"resume: this flow has no places {places} at position {position}")
    return resume_point


def _checked(state: Mapping[str, object]) -> tuple[int, int, list[int], list[list[int]]]:
    if not isinstance(state, Mapping) or not State.__required_keys__ <= state.keys():
        raise StateMismatch(f"resume: state must be what state_dict() returned, got {state!r}")
    epoch, position, places, shards = (
        state[key] for key in ("epoch", "position", "places", "shards")
    )
    if (
        state["version"] == _VERSION
        and is_int(epoch, 0)
        and is_int(position, 0)
        and isinstance(places, list)
        and all(is_int(n, 0) for n in places)
        and isinstance(shards, list)
        and all(map(_is_shard, shards))
        and isinstance(state["digest"], str)
        and isinstance(state["flow"], list)
    ):
        assert isinstance(epoch, Integral)
        assert isinstance(position, Integral)
        if state["checksum"] != checksum_of(state):
            raise StateMismatch(
                f"resume: the state was changed after state_dict() returned it, or damaged: its "
                f"checksum differs; resume from a state as it was saved, got {state!r}"
            )
        # Some checkpoints restore the numbers as those of NumPy, which overflow.
        return int(epoch), int(position), [*map(int, places)], [[*map(int, s)] for s in shards]
    raise StateMismatch(f"resume: the state is not of this version of flowdsl: {state!r}")


def _is_shard(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and is_int(value[0], 1) and is_int(value[1], 0)
    )


def _resharded(node: AnyNode, shards: list[int], position: int) -> int:
    """Return where to resume if all shards, of these other numbers, are at ``position``."""
    now = position_after_reshard(node, _with_shards(node, shards), position)
    if now is None:
        here = [part for part, _ in _shards(node)]
        raise StateMismatch(
            f"resume: the state is of {_CUT.join(f'shard({n}, i)' for n in shards)}, here it is "
            f"{_CUT.join(part.title for part in here)}, and with this number of shards no position "
            f"follows from position {position} there; resume with as many shards as were saved, "
            f"or save at a position where the rows delivered divide evenly among either number"
        )
    return now


def _with_shards(node: AnyNode, numbers: Iterable[int]) -> AnyNode:
    """Return the flow with these numbers of shards, each as the first shard."""
    remaining = iter(numbers)

    def put(node: AnyNode) -> AnyNode:
        node = with_sources(node, tuple(map(put, node.sources)))
        if isinstance(node, IndexTransform) and node.shard is not None:
            return node.first_of(next(remaining))
        return node

    return put(node)


def _difference(saved: object, here: list[str]) -> str:
    assert isinstance(saved, list)
    for step, (theirs, ours) in enumerate(zip_longest(saved, here, fillvalue="nothing"), 1):
        if theirs != ours and theirs != _cut(ours, len(str(theirs))):
            return (
                f"resume: the state is of another flow: operator {step} is {theirs} there and "
                f"{ours} here; resume with the flow that was saved (procs may differ)"
            )
        if theirs == _CUT:
            break
    return (
        "resume: the state is of another flow, which differs in a part of an operator that the "
        "state does not spell out; resume with the flow that was saved (procs may differ)"
    )


def fingerprints_of(node: AnyNode) -> list[str]:
    """Return the spelling of every operator that determines the elements or their order."""
    return [
        part.fingerprint if len(part.sources) < 2 else f"{part.fingerprint} of {len(part.sources)}"
        for part in walk(node)
        if part.fingerprint
    ]


def _digest(operators: list[str]) -> str:
    return hashlib.sha256(json.dumps(operators).encode()).hexdigest()[:32]


def _fitted(operators: list[str], most: int) -> list[str]:
    """Fit the operators into ``most`` characters: cut long ones, then leave out the last ones."""
    room = max((len(operator) for operator in operators), default=0)
    fitted = operators
    while len(json.dumps(fitted)) > most and room > _LEAST:
        room = max(_LEAST, room * 3 // 4)
        fitted = [_cut(operator, room) for operator in operators]
    while len(json.dumps(fitted)) > most and len(fitted) > 1:
        fitted = [*fitted[: (len(fitted) - 1) * 3 // 4], _CUT]
    return fitted


def _cut(text: str, size: int) -> str:
    """Shorten the text to at most ``size`` characters; ``...`` replaces its middle."""
    if len(text) <= size:
        return text
    head = (size - len(_CUT) + 1) // 2
    tail = size - len(_CUT) - head
    return f"{text[:head]}{_CUT}{text[len(text) - tail :]}"
