"""The costs of a flow's parts, measured in this process: one sample.

A pass begins at the first element and runs in short turns. It is repeated, so each turn runs on the
same elements again. The reference runs before and after each turn, and a cost is divided by its
mean time. For each turn of a pass, the median of these ratios is taken, over the half of the
repetitions that waited least for a core. A sample of a part is the mean of these medians.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeAlias

import attrs
import msgspec
import numpy as np

from flowdsl.elements.nbytes import nbytes_of
from flowdsl.elements.read_only import read_only
from flowdsl.elements.specs import UNKNOWN, Spec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import AnyNode, IndexedSource, Placement, frozen_node
from flowdsl.plan.lower import plan_of
from flowdsl.plan.plan import Plan, Stage
from flowdsl.report.bench.in_thread import ELEMENTS_PER_TASK, IN_THREAD
from flowdsl.report.bench.reference import OTHERS, REFERENCE, timed
from flowdsl.resources.worker_kinds import PROCESSES, Workers
from flowdsl.runtime.random_access import part_read_once, without_placements
from flowdsl.runtime.run import Run

Kind: TypeAlias = Literal["operator", "flow", "transport"]
"""The kind of a part:

``operator``   one operator, without the operators below it
``flow``       all operators together, with flowdsl's own work between them, in one process
``transport``  moving the elements of a stage from a worker to the consumer, without the sockets
"""

KINDS: tuple[Kind, ...] = ("operator", "flow", "transport")

_TURN, _PASS, _TRANSPORT_PASS = 0.002, 0.1, 0.012
"""Seconds of a turn, of a pass, and of the only turn of a pass of transport."""

_LEAST_REPETITIONS = 4
_MOST_REPLAYED, _MOST_BYTES = 64, 1 << 20
"""The limits on the elements, and on their bytes, that are replayed to measure the transport."""


class Part(msgspec.Struct, frozen=True):
    """A part of a flow whose cost is measured."""

    kind: Kind
    step: int
    """The operator's number in ``flow.explain()``, or the number of the stage, or 0."""
    title: str


class Size(msgspec.Struct, frozen=True):
    """The part of a flow that a repetition runs."""

    turns: int
    elements: int
    """The number of elements in each turn."""


class Sample(msgspec.Struct, frozen=True):
    """The cost of a part in one process."""

    part: Part
    size: Size
    ratio: float
    """The time of an element, divided by the time of the reference."""
    reference: float
    """The median seconds of the reference."""
    kinds: dict[str, float]
    """For each kind of work, its median time, divided by the time of the reference."""


def sample(
    node: AnyNode,
    seconds: float,
    kinds: Collection[Kind] = KINDS,
    sizes: Mapping[Part, Size] | None = None,
) -> list[Sample]:
    """Measure the parts of an endless flow, for about ``seconds`` for each kind of part.

    Pass the sizes of an earlier sample to compare the samples.

    Raises:
        InvalidFlow: A source yields its elements only once.
    """
    if not node.replayable:
        raise InvalidFlow(
            f"bench: {part_read_once(node).title} yields its elements only once, and a bench "
            f"repeats them"
        )
    sizes = sizes or {}
    plain = plan_of(without_placements(node))
    found: list[Sample] = []
    if "operator" in kinds or "flow" in kinds:
        found += _computing(plain, sizes.get(_WHOLE) or _size_of(plain), seconds)
    if "transport" in kinds:
        for stage in _stages_in_processes(plan_of(node)):
            found += _transport(stage, sizes, seconds)
    return [sample for sample in found if sample.part.kind in kinds]


_WHOLE = Part("flow", 0, "the flow, in one process")


@attrs.frozen
class _Turn:
    """A turn between two runs of the reference."""

    seconds: float
    """Seconds, without the wait for a core."""
    on_core: float
    """The share of the time in which the turn did not wait for a core."""
    reference: float
    """The mean seconds of the reference before and after it."""
    kinds: tuple[float, ...]
    """The seconds of each kind of work: of the reference, the mean of before and after it."""
    waited: float
    """The share of waiting for a core: the greatest of the turn and of the reference around it."""


def _turns(work: Callable[[], object], count: int) -> Iterator[_Turn]:
    before, waited_before = _reference()
    for _ in range(count):
        others = tuple(timed(other)[0] for other in OTHERS.values())
        seconds, waited = timed(work)
        after, waited_after = _reference()
        kinds = tuple((one + other) / 2 for one, other in zip(before, after, strict=True))
        most = max(waited_before, waited, waited_after)
        yield _Turn(seconds, 1 - waited, sum(kinds), (*kinds, *others), most)
        before, waited_before = after, waited_after


def _reference() -> tuple[tuple[float, ...], float]:
    """Run the reference; return the seconds of each kind, and the greatest share of waiting."""
    seconds, waited = zip(*map(timed, REFERENCE.values()), strict=True)
    return seconds, max(waited)


class _Ratios:
    """The ratios of parts: for each turn of a pass, the ratios of its repetitions."""

    def __init__(self) -> None:
        self._of: defaultdict[Part, defaultdict[int, list[tuple[float, float]]]]
        self._of = defaultdict(lambda: defaultdict(list))
        self._references: list[tuple[float, ...]] = []

    def add(self, part: Part, number: int, cost: float, turn: _Turn) -> None:
        self._of[part][number].append((turn.waited, cost / turn.reference))
        kinds = (seconds / turn.reference for seconds in turn.kinds)
        self._references.append((turn.reference, *kinds))

    def samples(self, size: Size) -> list[Sample]:
        reference, *ratios = np.median(self._references, axis=0).tolist()
        kinds = dict(zip((*REFERENCE, *OTHERS), ratios, strict=True))
        return [
            Sample(part, size, float(np.mean([*map(_calm, turns.values())])), reference, kinds)
            for part, turns in self._of.items()
        ]


def _calm(repetitions: list[tuple[float, float]]) -> float:
    """Return the median ratio of the repetitions that waited least for a core.

    The first repetition is left out, as it fills caches.
    """
    calm = sorted(repetitions[1:])[: max(_LEAST_REPETITIONS - 1, len(repetitions) // 2)]
    return float(np.median([ratio for _, ratio in calm]))


def _repetitions(seconds: float) -> Iterator[int]:
    end, number = time.perf_counter() + seconds, 0
    while number < _LEAST_REPETITIONS or time.perf_counter() < end:
        yield number
        number += 1


# -- operators -------------------------------------------------------------------------------------


def _computing(plan: Plan[Any], size: Size, seconds: float) -> list[Sample]:
    ratios = _Ratios()
    for _ in _repetitions(seconds):
        with Run(plan, profile=True) as run:
            before: dict[Part, float] = {}
            for number, turn in enumerate(_turns(partial(_skip, run, size), size.turns)):
                now = _costs(run)
                for part, cost in now.items():
                    own = (cost - before.get(part, 0.0)) * turn.on_core / size.elements
                    ratios.add(part, number, own, turn)
                before = now
        with Run(plan) as run:
            for number, turn in enumerate(_turns(partial(_skip, run, size), size.turns)):
                ratios.add(_WHOLE, number, turn.seconds / size.elements, turn)
    return ratios.samples(size)


def _skip(run: Run[Any], size: Size) -> None:
    deque(islice(run, size.elements), maxlen=0)


def _costs(run: Run[Any]) -> dict[Part, float]:
    """Return the seconds that each operator has taken so far."""
    now = run.statistics()
    costs = [*(cost for stage in now.stages for cost in stage.costs), *now.hosted]
    return {Part("operator", cost.step, cost.title): cost.seconds for cost in costs if cost.step}


def _size_of(plan: Plan[Any]) -> Size:
    """Return the size of a pass of about ``_PASS`` seconds, in turns of about ``_TURN``."""
    with Run(plan) as run:
        next(run)  # opens files, and compiles functions
        elements, spent = 1, _seconds(partial(_skip, run, Size(1, 1)))
        while spent < _TURN:
            elements *= 2
            spent = _seconds(partial(_skip, run, Size(1, elements)))
    return Size(max(1, min(16, round(_PASS / spent))), elements)


def _seconds(work: Callable[[], object]) -> float:
    return timed(work)[0]


# -- transport -------------------------------------------------------------------------------------


@frozen_node
class _Replay(IndexedSource[Any]):
    """Elements in a worker's memory, over and over."""

    elements: list[Any]
    count: int

    @property
    def length(self) -> int:
        return self.count

    @property
    def title(self) -> str:
        return f"replay({len(self.elements)} elements)"

    def spec(self, probe: bool) -> Spec:
        return UNKNOWN

    def open(self) -> Callable[[int], Any]:
        elements = self.elements
        # a new view each time: a message contains an object only once
        return lambda i: read_only(elements[i % len(elements)])


@frozen_node
class _InAWorker(Placement[Any, Any]):
    """One worker, in this thread."""

    workers: Workers = attrs.field(factory=lambda: Workers(IN_THREAD, 1))

    @property
    def title(self) -> str:
        return "prefetch(procs=1)"


def _stages_in_processes(plan: Plan[Any]) -> list[Stage]:
    kinds = ((stage, stage.workers) for stage in plan.stages)
    return [stage for stage, workers in kinds if workers.count and workers.kind == PROCESSES]


def _transport(stage: Stage, sizes: Mapping[Part, Size], seconds: float) -> list[Sample]:
    part = Part("transport", stage.number, f"from {stage.workers}")
    elements = _first_elements(plan_of(without_placements(stage.meaning)))
    size = sizes.get(part) or _transport_size(elements)
    run_pass = _passes(elements, size.elements)
    ratios = _Ratios()
    for _ in _repetitions(seconds):
        for turn in _turns(run_pass, 1):
            ratios.add(part, 0, turn.seconds / size.elements, turn)
    return ratios.samples(size)


def _passes(elements: list[Any], count: int) -> Callable[[], object]:
    """Return a function that moves ``count`` elements from a worker, which keeps its memory."""
    plan = plan_of(_InAWorker(_Replay(elements, count)))
    return lambda: deque(Run(plan), maxlen=0)


def _first_elements(plan: Plan[Any]) -> list[Any]:
    elements, nbytes = list[Any](), 0
    with Run(plan) as run:
        for element in islice(run, _MOST_REPLAYED):
            elements.append(element)
            nbytes += nbytes_of(element)
            if nbytes > _MOST_BYTES:
                break
    return elements


def _transport_size(elements: list[Any]) -> Size:
    count = ELEMENTS_PER_TASK
    while True:
        run_pass = _passes(elements, count)
        run_pass()  # creates shared memory
        if _seconds(run_pass) > _TRANSPORT_PASS:
            return Size(1, count)
        count *= 2
