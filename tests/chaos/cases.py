"""Random pipelines in random trouble: what is built, what goes wrong, and what the consumer does.

A case is drawn from a seed alone, so a seed is all that it takes to see it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from flowdsl import Endless
from flowdsl.nodes import Placement, flow
from flowdsl.ops.sizing import Repeat, RepeatForever
from flowdsl.plan import tree
from flowdsl.plan.tree import rewrite, steps_of
from flowdsl.testing.catalogue import Draw
from flowdsl.testing.recipes import AnyFlow, Recipe, Step
from tests.chaos.faults import DEADLY, Kind
from tests.strategies import chains

Ending: TypeAlias = Literal["keep", "drop", "abandon", "resume", "again"]
"""What a consumer does: keep all elements, or none, leave, go on in another run, or pass twice."""

OnError: TypeAlias = Literal["raise", "skip", "call"]


@attrs.frozen
class Struck:
    """A fault to come; its row is the ``place``-th of those that the pass makes."""

    place: int
    kind: Kind
    times: int = 1


@attrs.frozen
class Case:
    """A pipeline, and its troubles."""

    recipe: Recipe
    faulty: int
    """Before which operator the faults strike."""
    procs: int
    threads: int
    ordered: bool
    on_error: OnError
    memory: int | None
    deaths: int
    replicas: int
    """Instead of a prefetch; 0 for none."""
    epoch: int
    struck: tuple[Struck, ...]
    poison: tuple[int, ...]
    """The places of rows that kill whoever makes them."""
    stillborn: frozenset[int]
    """Which of the workers end before they are ready, in the order in which they start."""
    leaving: tuple[tuple[int, int], ...]
    """Before which element which worker is ended from outside."""
    pauses: tuple[int, ...]
    """Before which elements the consumer waits a while."""
    ending: Ending
    cut: int
    """Where it leaves."""
    then_procs: int
    sizes: tuple[int, ...]
    """Of tasks; none for the runtime's own choice."""
    numbers: tuple[int, ...]
    """Of workers, from one task to the next; none for one number throughout."""
    shared: bool
    """Every array goes through shared memory, however small."""

    def build(
        self, strike: Callable[[Any], Any], handler: Callable[[Any], object], procs: int
    ) -> AnyFlow:
        """The flow with its faults, on so many processes."""
        steps = list(self.recipe.steps)
        steps.insert(self.faulty, Step("map(faulty)", lambda f, _: f.map(strike), lambda m: m))
        built = attrs.evolve(self.recipe, steps=tuple(steps)).build(procs)
        if self.replicas:
            return self._as_asked(built).replicate(self.replicas)
        on_error: Any = handler if self.on_error == "call" else self.on_error
        workers = {"threads": self.threads} if self.threads else {"procs": procs}
        placed = built.prefetch(
            **workers, ordered=self.ordered, memory=self.memory, on_error=on_error
        )
        return self._as_asked(placed)

    def _as_asked(self, built: AnyFlow) -> AnyFlow:
        """With as many deaths to each prefetch in it, and perhaps as many workers as pay."""

        def change(step: tree.Step) -> tree.Step:
            if not isinstance(step.node, Placement):
                return step
            auto = bool(self.numbers)
            asked = attrs.evolve(step.node.workers, deaths=self.deaths, auto=auto)
            return step.over(*step.sources, workers=asked)

        return flow(rewrite(steps_of(built.node), change).node)

    def __str__(self) -> str:
        names = list(self.recipe.names)
        names.insert(1 + self.faulty, "FAULTY")
        told = attrs.asdict(self, recurse=False, filter=attrs.filters.exclude("recipe", "faulty"))
        plain = {name: value for name, value in told.items() if value not in ((), None, 0, False)}
        return f"{' > '.join(names)}\n{plain}"


_kinds: st.SearchStrategy[Kind] = st.sampled_from([*DEADLY, *DEADLY, "slow", "raise"])
_places = st.integers(0, 40)
_ANSWERS: list[OnError] = ["raise", "skip", "call"]
"""But for what repeats for ever: without the rows that fail, it may never come to another."""

_MANY = 12
"""More deaths than faults that pass can add up to, on one element and its neighbours in a task."""


def _has_one_reference(recipe: Recipe) -> bool:
    """Whether a run is held to its reference: not where it repeats a source of one pass.

    What reads ahead may open such a source in an earlier pass than the reference does.
    """
    node = recipe.flow.node
    repeats = any(isinstance(one, Repeat | RepeatForever) for one in tree.walk(node))
    return not recipe.is_unordered and (node.replayable or not repeats)


@st.composite
def cases(draw: Draw) -> Case:
    """A random case."""
    recipe = draw(chains(most=6, one_pass=True).filter(_has_one_reference))
    node = recipe.flow.node
    names = str(recipe.names)
    faulty = draw(st.integers(0, len(recipe.steps)))
    replicas = 0
    if node.replayable and Endless not in node.effects and draw(st.integers(0, 11)) == 0:
        replicas = draw(st.integers(1, 3))
    threads = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, 3]))
    struck = draw(
        st.lists(st.builds(Struck, _places, _kinds, st.sampled_from([1, 1, 1, 2])), max_size=4)
    )
    poison: list[int] = []
    if draw(st.integers(0, 2)) == 0:
        poison = draw(st.lists(_places, max_size=2))
    leaving = draw(st.lists(st.tuples(_places, st.integers(0, 3)), max_size=2))
    if replicas or "replicate" in names:  # it dies three times, and no more
        struck, leaving = [attrs.evolve(one, times=1) for one in struck[:2]], []
        poison = []  # whoever runs a copy from end to end cannot leave it out
    if "skip" in names or "AttemptTo" in names:
        poison = []  # which prefetch has to answer for a death cannot be told
    alone = draw(st.integers(0, 3)) > 0  # so that it takes few deaths to be sure
    if poison and alone:
        struck, leaving = [fault for fault in struck if fault.kind not in DEADLY], []
    by_chance = bool(leaving) or any(fault.kind in DEADLY for fault in struck)
    # with one that is ended while it starts, and one at rest, no three in a row: that is an error
    leaving = leaving[:1]
    stillborn = draw(st.lists(st.integers(0, 6), max_size=1))
    ordered = replicas > 0 or draw(st.integers(0, 3)) > 0
    return Case(
        recipe=recipe,
        faulty=faulty,
        procs=draw(st.integers(1, 4)),
        threads=threads,
        ordered=ordered,
        on_error=draw(st.sampled_from(["raise"] if "repeat()" in names else _ANSWERS)),
        memory=draw(st.sampled_from([None, None, None, 1, 2000, 200_000, 10**6])),
        deaths=_MANY if by_chance else draw(st.integers(1, 3)),
        replicas=replicas,
        epoch=draw(st.integers(0, 2)),
        struck=tuple(struck),
        poison=tuple(poison),
        stillborn=frozenset(stillborn[: 1 - len(leaving)]),
        leaving=tuple(leaving),
        pauses=tuple(draw(st.lists(_places, max_size=2))),
        ending=draw(
            st.sampled_from(["keep", "keep", "drop", "drop", "abandon", "resume", "again"])
        ),
        cut=draw(st.integers(0, 30)),
        then_procs=draw(st.integers(0, 3)),
        sizes=tuple(draw(st.lists(st.integers(1, 9), max_size=4))),
        numbers=tuple(draw(st.just([]) | st.lists(st.integers(1, 4), max_size=3))),
        shared=draw(st.booleans()),
    )


def case_of(number: int) -> Case:
    """The case of a seed."""
    drawn: list[Case] = []

    @seed(number)
    @settings(
        max_examples=2,  # of which the first is the simplest of all
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(cases())
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    return drawn[-1]
