"""Explain a plan as short numbered text, for users and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeAlias

from flowdsl.effects import Endless, Resampled, describe
from flowdsl.elements.specs import Spec
from flowdsl.errors import ElementError, FlowError, InvalidFlow
from flowdsl.nodes import (
    AnyNode,
    Buffering,
    Copying,
    IndexTransform,
    KeepsPass,
    Merging,
    spec_for_all_elements,
)
from flowdsl.plan.lower import plan_of
from flowdsl.plan.notes import note_on_lists, notes_on_speed
from flowdsl.plan.optimize import optimize
from flowdsl.plan.plan import AheadInThread, Base, Hosted, Lookup, Plan, Stage
from flowdsl.plan.rules.absorb_prefetch import absorbed_by
from flowdsl.plan.tree import Step, steps_of, walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import Workers

_HERE = "in this process"
_IN_THREAD = "in this process, in a thread that reads ahead"
_HEADER = ("#", "operator", "effects", "length", "element")


def explain(node: AnyNode, stage: str = "plan", plan: Plan[object] | None = None) -> str:
    """Describe a flow at a stage of planning.

    Each line is an operator with its output: effects, number of elements, and their spec. Specs
    without an annotation are found by computing one element. Sizes that only this element shows are
    ``?``, as others may differ. An operator keeps its number in the chain as written, also if rules
    move it; ``prefetch`` and the lines of its arguments ``ordered=`` and ``on_error=`` have no
    number. The operators of a flow that is combined with another are indented. Notes come
    last. ``plan`` is the flow's plan, if it exists.

    Raises:
        InvalidFlow: ``stage`` is not "flow", "rules" or "plan".
    """
    moved = list[str]()
    match stage:
        case "flow":
            placed = [("", step) for step in walk(steps_of(node))]
        case "rules":
            placed, moved = _optimized(node), [*_notes_on_moves(node)]
        case "plan":
            placed, moved = _placed((plan or plan_of(node)).root), [*_notes_on_moves(node)]
        case _:
            raise InvalidFlow(f"explain: stage must be one of flow, rules, plan, got {stage!r}")
    specs = _Specs()
    header, *lines = _table([_HEADER, *(_cells(step, specs) for _, step in placed)])
    text = [header]
    where_and_line = [(where, line) for (where, _), line in zip(placed, lines, strict=True)]
    for where, group in groupby(where_and_line, itemgetter(0)):
        if where:
            text.append(where)
        text += [line for _, line in group]
    notes = [*moved, *_notes(node), *_notes_on_workers(node)]
    return "\n".join([*text, *dict.fromkeys(notes)])


def _notes_on_moves(node: AnyNode) -> Iterator[str]:
    """Notes on the operators that a rule has moved below others; all keep their numbers."""
    first: Step | None = None
    """Of the steps above, the first one as written."""
    notes = list[str]()
    for step in reversed([step for _, step in _optimized(node) if step.number]):
        if first is None or step.number < first.number:
            first = step
        else:
            notes.append(
                f"note: {step.node.title} runs before {first.node.title}, so that only its "
                f"elements are computed; # is the place in the chain as written"
            )
    return reversed(notes)


def _notes_on_workers(node: AnyNode) -> Iterator[str]:
    """Notes on prefetches without workers: the workers of a prefetch above run their operators."""
    for step in walk(steps_of(node)):
        for below in absorbed_by(step):
            yield f"note: {step.node.title} also runs the operators below {below.title}"


def _notes(node: AnyNode) -> Iterator[str]:
    """Notes of operators, and on valid chains that are probably mistakes.

    One mistake is to take rows by position after a shuffle that differs between epochs. But if rows
    may repeat, as after ``repeat()``, ``take`` only sets the length, and there is no note. Other
    mistakes are to merge flows whose elements differ, to end passes of a cache before it is filled,
    to batch lists of arrays, and to read a table in a way that is slow by nature.
    """
    for part in walk(node):
        if part.note is not None:
            yield f"note: {part.title} {part.note}"
        if isinstance(part, Merging) and (difference := _difference(part)):
            yield f"note: {part.title}: {difference}"
        yield from note_on_lists(part)
        yield from notes_on_speed(part)
        for cache in _unfilled_by(part):
            yield (
                f"note: {cache.title} is not filled by passes that {part.title} ends early: each "
                f"computes its elements again; put cache() after {part.title}"
            )
        if part.chooses_by_position and not any(
            Resampled in source.effects for source in part.sources
        ):
            shuffle = _shuffled_by(part)
            if shuffle is not None and isinstance(part, IndexTransform) and part.shard is not None:
                yield (
                    f"note: {part.title} after {shuffle.title} has other rows in every epoch, as "
                    f"the ranks of one job need it: together they have all; for a fixed part of "
                    f"the rows write it before {shuffle.title}"
                )
            elif shuffle is not None:
                yield (
                    f"note: {part.title} after {shuffle.title} takes other rows in every epoch; "
                    f"for a fixed part of the rows write .split(...) before both"
                )


def _unfilled_by(node: AnyNode) -> Iterator[AnyNode]:
    """The caches below an operator that ends passes before the caches were read to their end."""
    if not node.bounds or Resampled in node.adds:
        return
    (source,) = node.sources
    if source.length is not None and source.length == node.length:
        return
    below = node
    # Above a repetition or a shuffle of all elements, the passes below are read to their end.
    while len(below.sources) == 1 and Resampled not in below.adds:
        if below.order_varies_by_epoch and not isinstance(below, Buffering):
            return
        (below,) = below.sources
        if isinstance(below, KeepsPass):
            yield below


def _difference(node: Merging[Any, Any]) -> str | None:
    try:
        return node.difference(probe=True)
    except FlowError:  # the line of the operator shows the error
        return None


@any_depth
def _shuffled_by(node: AnyNode) -> AnyNode | None:
    """The operator that reorders the elements in each epoch: this operator, or one below."""
    while node.order_varies_by_epoch is None and len(node.sources) == 1:
        (node,) = node.sources
    if node.order_varies_by_epoch is not None:
        return node if node.order_varies_by_epoch else None
    return next(filter(None, map(_shuffled_by, node.sources)), None)


_Placed: TypeAlias = list[tuple[str, Step]]
"""Operators, each with a text that says where it runs."""


def _optimized(node: AnyNode) -> _Placed:
    """Every operator after the rules, which do not say where it runs."""
    return [("", step) for step in walk(optimize(steps_of(node)))]


@any_depth
def _placed(part: Base) -> _Placed:
    """Every operator with where it runs; the bases of a stage come before the stage."""
    if isinstance(part, Stage):
        bases = [_placed(b) if isinstance(b, Lookup) else _in_thread(b) for b in part.bases]
        return [*chain.from_iterable(bases), *((_where(part), step) for step in part.steps)]
    if isinstance(part, Hosted):
        if isinstance(part.top.node, Copying):
            where = (
                f"in {Workers(count=len(part.sources))}, a copy in each: elements come back in turn"
            )
            below = [(where, step) for _, step in _placed(part.sources[0])]
        else:
            below = [*chain.from_iterable(map(_placed, part.sources))]
        return [*below, (_HERE, part.top)]
    if isinstance(part, AheadInThread):
        return _in_thread(part.source)
    return [(_HERE, step) for step in part.steps]


def _in_thread(part: Base) -> _Placed:
    """The operators of a part that a thread of this process reads ahead."""
    return [(_IN_THREAD if where == _HERE else where, step) for where, step in _placed(part)]


def _where(stage: Stage) -> str:
    if not stage.workers.count:
        return _HERE
    sent = "elements" if stage.bases else "positions"
    order = "in order" if stage.ordered else "as they are ready"
    return f"in {stage.workers}: {sent} go there, elements come back {order}"


def _cells(step: Step, specs: _Specs) -> tuple[str, ...]:
    node, number = step.node, str(step.number or "")
    title, spec = "  " * step.depth + node.title, specs.text_of(node)
    return number, title, describe(node.effects), _length(node), spec


def _length(node: AnyNode) -> str:
    if Endless in node.effects:
        return "endless"
    return "?" if node.length is None else f"{node.length:,}"


class _Specs:
    """The specs of all operators, without sizes that are known only for the first element."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[AnyNode, Spec | FlowError]] = {}

    def text_of(self, node: AnyNode) -> str:
        """The spec as text, or the error that prevents it."""
        try:
            return str(self._of(node))
        except FlowError as error:  # a run will raise it; the plan can still be read
            # the message of an ElementError contains its cause
            is_complete = isinstance(error, ElementError) or error.__cause__ is None
            return f"! {error}" if is_complete else f"! {error}: {error.__cause__!r}"

    def _of(self, node: AnyNode) -> Spec:
        if id(node) not in self._known:
            self._known[id(node)] = node, self._compute(node)
        _, known = self._known[id(node)]
        if isinstance(known, FlowError):
            raise known
        return known

    def _compute(self, node: AnyNode) -> Spec | FlowError:
        try:
            return spec_for_all_elements(node, tuple(map(self._of, node.sources)))
        except FlowError as error:
            return error


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(["", row[0].rjust(widths[0]), *map(str.ljust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
