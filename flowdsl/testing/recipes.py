"""Recipes: a flow and its model, chained side by side, which laws are checked on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import attrs
import numpy as np
from typing_extensions import Unpack

from flowdsl.effects import Endless
from flowdsl.flow import Flow
from flowdsl.nodes import Copying, Unordered
from flowdsl.plan.tree import walk
from flowdsl.testing.elements import ids, leaves
from flowdsl.testing.model import BAD, Model

if TYPE_CHECKING:
    from hypothesis.vendor.pretty import RepresentationPrinter

    from flowdsl.testing.catalogue import Catalogue

AnyFlow: TypeAlias = Flow[Any, Any]

MOST_ELEMENTS = 60
"""The most elements of a pass to look at: random chains may be endless, or very long."""

_LONG = 150
_LARGE = 200
_PEEKED = 13


class Facts(TypedDict, total=False):
    """Facts about an operator, for those that hold; see ``Step``."""

    reshapes: bool
    chooses: bool
    judges: bool
    repeats: bool
    ragged: bool
    forgets: bool


@attrs.frozen
class Step:
    """An operator, as a function on flows and one on their models."""

    name: str
    chain: Callable[[AnyFlow, int], AnyFlow]
    """Chains the operator to a flow; a prefetch uses as many processes as the number says."""
    model: Callable[[Model], Model]
    reshapes: bool = False
    """Whether the operator changes the structure of elements."""
    chooses: bool = False
    """Whether the operator may leave rows out."""
    judges: bool = False
    """Whether the operator may leave rows out because of their content."""
    repeats: bool = False
    """Whether rows may come more than once."""
    ragged: bool = False
    """Whether the elements differ in shape, and no spec says so beforehand."""
    forgets: bool = False
    """Whether an element may lack the mark, or the data, of a row that it is made of."""
    others: tuple[Recipe, ...] = ()
    """The flows that the operator combines the first one with."""


@attrs.frozen
class Source:
    """A source and its model, which are built anew for each use."""

    flow: Callable[[], AnyFlow]
    model: Callable[[], Model]
    ids: tuple[int, ...] | None = None
    """The rows of the source, if they differ from those that were asked for."""


@attrs.frozen
class Part:
    """The rows of one source, in their order."""

    title: str
    ids: tuple[int, ...]

    @classmethod
    def of(cls, source: Source, rows: tuple[int, ...]) -> Part:
        """The part of a source that consists of these rows."""
        title = walk(source.flow().node)[0].title
        return cls(title, rows if source.ids is None else source.ids)


@attrs.frozen(eq=False)
class Recipe:
    """A flow and its model, to be built with any number of processes.

    Each is built anew, since a flow may hold the state of a pass: a cache, a queue.

    >>> import flowdsl as fl
    >>> from flowdsl.testing import Recipe, models
    >>> from flowdsl.testing.laws import reference_is_the_model
    >>> recipe = Recipe.of("three", lambda: fl.from_range(3), lambda: models.rows(range(3)))
    >>> taken = recipe.then("take(2)", lambda f, _: f.take(2), lambda m: models.take(m, 2))
    >>> taken.build().collect()
    [0, 1]
    >>> reference_is_the_model(taken)
    >>> reference_is_the_model(
    ...     recipe.then("skip(1)", lambda f, _: f.skip(1), lambda m: models.skip(m, 2))
    ... )
    Traceback (most recent call last):
        ...
    AssertionError: epoch 0 of the reference: element 0 is 1, and not 2
    """

    source: Source = attrs.field(repr=False)
    form: str
    """The structure of the elements of the source, and of any flow that it is combined with."""
    names: tuple[str, ...]
    parts: tuple[Part, ...] = attrs.field(repr=False)
    steps: tuple[Step, ...] = attrs.field(default=(), repr=False)
    catalogue: Catalogue | None = attrs.field(default=None, repr=False)
    """The catalogue from which flows to combine it with are drawn."""

    @classmethod
    def of(
        cls, name: str, flow: Callable[[], AnyFlow], model: Callable[[], Model], form: str = "tuple"
    ) -> Recipe:
        """A recipe of your own source: ``flow`` and ``model`` build it and its model anew."""
        source = Source(flow, model, _rows_of(model()))
        return cls(source, form, (name,), (Part.of(source, ()),))

    @property
    def drawn_from(self) -> Catalogue:
        """The catalogue.

        Raises:
            ValueError: It has none, so it cannot be combined with random flows.
        """
        if self.catalogue is None:
            raise ValueError(f"{self} has no catalogue to draw other flows from")
        return self.catalogue

    def build(self, procs: int = 0) -> AnyFlow:
        """The flow, whose prefetches use this many processes or threads."""
        flow = self.source.flow()
        for step in self.steps:
            flow = step.chain(flow, procs)
        return flow

    def model(self, careful: bool = False) -> Model:
        """The model; a careful one has ``BAD`` for elements that fail."""
        model = self.source.model()
        model = model.carefully() if careful else model
        for step in self.steps:
            model = step.model(model)
        return model

    def then(
        self,
        name: str,
        chain: Callable[[AnyFlow, int], AnyFlow],
        model: Callable[[Model], Model],
        *others: Recipe,
        **facts: Unpack[Facts],
    ) -> Recipe:
        """The recipe with one more operator; its ``facts`` are flags of ``Step``."""
        step = Step(name, chain, model, **facts, others=others)
        parts = self.parts + tuple(part for other in others for part in other.parts)
        return attrs.evolve(self, names=(*self.names, name), steps=(*self.steps, step), parts=parts)

    def with_prefetch(self, place: int, threads: bool = False) -> Recipe:
        """The recipe with a prefetch inserted at a place."""
        place %= len(self.steps) + 1
        step = IN_THREADS if threads else IN_PROCESSES
        steps, names = list(self.steps), list(self.names)
        steps.insert(place, step)
        names.insert(1 + place, step.name)
        return attrs.evolve(self, steps=tuple(steps), names=tuple(names))

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        printer.text(str(self))

    def __str__(self) -> str:
        return f"Recipe({' > '.join(self.names)})"

    # -- what is known of it without running it ------------------------------------------------

    @cached_property
    def flow(self) -> AnyFlow:
        """The flow, built once, to inspect without running it."""
        return self.build()

    @cached_property
    def first(self) -> list[Any]:
        """The first elements that do not fail.

        One that fails may be left out by a later operator, so the elements after it count too;
        but a flow that repeats for ever may have no others.
        """
        found: list[Any] = []
        try:
            for x in islice(self.model(careful=not self.never_ends).elements(0), _PEEKED):
                if x is not BAD:
                    found.append(x)  # noqa: PERF401  # what came before an error counts too
        except Exception:  # a function of the chain may raise anything
            pass
        return found

    @property
    def is_combined(self) -> bool:
        """Whether the flow has the rows of several sources."""
        return len(self.parts) > 1

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.names[0].partition("(")[0]

    @property
    def is_reshaped(self) -> bool:
        """Whether the elements may have another structure than those of the source."""
        return any(step.reshapes for step in self.steps)

    @property
    def judges_groups(self) -> bool:
        """Whether a row may be left out because of the others in its group."""
        reshaped = False
        for step in self.steps:
            others = any(other.judges_groups for other in step.others)
            if others or (step.judges and reshaped):
                return True
            reshaped = reshaped or step.reshapes
        return False

    @property
    def chooses(self) -> bool:
        """Whether rows may be left out."""
        return any(
            step.chooses or step.judges or any(other.chooses for other in step.others)
            for step in self.steps
        )

    @property
    def is_unordered(self) -> bool:
        """Whether an operator gives up the order, so that no position tells where a pass is."""
        return any(isinstance(node, Unordered) for node in walk(self.flow.node))

    def is_in_order(self, procs: int) -> bool:
        """Whether elements come in order with this many workers."""
        copied = any(isinstance(node, Copying) for node in walk(self.flow.node))
        return not self.is_unordered or not (procs or copied)

    @property
    def repeats(self) -> bool:
        """Whether rows may come more than once."""
        return any(step.repeats for step in self.steps)

    @property
    def endless(self) -> bool:
        """Whether a pass never ends."""
        return Endless in self.flow.effects

    @property
    def never_ends(self) -> bool:
        """Whether a pass of any operator below never ends, even if it is cut above."""
        return any(Endless in node.effects for node in walk(self.flow.node))

    @property
    def is_ragged(self) -> bool:
        """Its elements differ in shape, and nothing says so beforehand."""
        return any(
            step.ragged or any(other.is_ragged for other in step.others) for step in self.steps
        )

    @property
    def forgets(self) -> bool:
        """Whether an element may not show all rows that it is made of."""
        return any(
            step.forgets or any(other.forgets for other in step.others) for step in self.steps
        )

    @property
    def is_long(self) -> bool:
        """Whether the flow is too long to repeat within what is looked at."""
        length = self.flow.node.length
        return length is not None and length > _LONG

    @property
    def is_large(self) -> bool:
        """Whether the elements are too large to batch."""
        return any(_size(x) > _LARGE for x in self.first)


IN_PROCESSES = Step("prefetch", lambda f, procs: f.prefetch(procs=procs), lambda m: m)
IN_THREADS = Step("threads", lambda f, procs: f.prefetch(threads=procs), lambda m: m)


def _size(element: Any) -> int:
    return sum(int(np.size(leaf)) for leaf in leaves(element))


def _rows_of(model: Model) -> tuple[int, ...]:
    """The source rows that a model's marks tell; empty where elements have no marks."""
    return tuple(i for x in islice(model.elements(0), MOST_ELEMENTS) for i in ids(x))
