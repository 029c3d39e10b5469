"""Recipes: a flow and its model, built in parallel, on which laws are checked.

A model computes the expected elements of a flow in plain Python, without flowdsl's nodes. Each test
row carries a mark, an int that identifies it (``testing.elements``).
"""

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

MAX_ELEMENTS = 60
"""The maximum number of elements of a pass to check: random chains may be endless or long."""

_LONG = 150
"""The most elements of a flow that is repeated or concatenated."""
_LARGE = 200
"""The most numbers in an element that is batched."""
_PEEKED = 13
"""The number of first elements that ``first`` computes."""


class Facts(TypedDict, total=False):
    """The properties of an operator, as flags; see ``Step``."""

    reshapes: bool
    omits: bool
    filters: bool
    repeats: bool
    ragged: bool
    loses_marks: bool


@attrs.frozen
class Step:
    """An operator, as a function on flows and a function on their models."""

    name: str
    chain: Callable[[AnyFlow, int], AnyFlow]
    """Adds the operator to a flow; the number is the processes or threads of a prefetch."""
    model: Callable[[Model], Model]
    reshapes: bool = False
    """True if the operator changes the structure of elements."""
    omits: bool = False
    """True if the operator may leave rows out."""
    filters: bool = False
    """True if the operator may leave rows out because of their content."""
    repeats: bool = False
    """True if rows may occur more than once."""
    ragged: bool = False
    """True if the elements differ in shape in a way that no spec declares."""
    loses_marks: bool = False
    """True if an element may lack the mark or the data of a row it was computed from."""
    others: tuple[Recipe, ...] = ()
    """The flows that the operator combines with the first one."""


@attrs.frozen
class Source:
    """A source and its model, which are built again for each use."""

    flow: Callable[[], AnyFlow]
    model: Callable[[], Model]
    ids: tuple[int, ...] | None = None
    """The rows of the source, if they differ from the requested rows."""


@attrs.frozen
class Part:
    """The rows of one source, in their order."""

    title: str
    ids: tuple[int, ...]

    @classmethod
    def of(cls, source: Source, rows: tuple[int, ...]) -> Part:
        """Create the part of a source with these rows."""
        title = walk(source.flow().node)[0].title
        return cls(title, rows if source.ids is None else source.ids)


@attrs.frozen(eq=False)
class Recipe:
    """A flow and its model, which can be built with any number of processes.

    They are built again for each use, since a flow may have state of a pass: a cache, a queue.

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
    """The structure of the elements of the source, and of flows that are combined with it."""
    names: tuple[str, ...]
    parts: tuple[Part, ...] = attrs.field(repr=False)
    steps: tuple[Step, ...] = attrs.field(default=(), repr=False)
    catalogue: Catalogue | None = attrs.field(default=None, repr=False)
    """The catalogue from which other flows are drawn, to combine them."""

    @classmethod
    def of(
        cls, name: str, flow: Callable[[], AnyFlow], model: Callable[[], Model], form: str = "tuple"
    ) -> Recipe:
        """Create a recipe of your own source; ``flow`` and ``model`` build it and its model."""
        source = Source(flow, model, _rows_of(model()))
        return cls(source, form, (name,), (Part.of(source, ()),))

    @property
    def drawn_from(self) -> Catalogue:
        """The catalogue from which other flows are drawn.

        Raises:
            ValueError: The recipe has no catalogue, so it cannot be combined with random flows.
        """
        if self.catalogue is None:
            raise ValueError(f"{self} has no catalogue to draw other flows from")
        return self.catalogue

    def build(self, procs: int = 0) -> AnyFlow:
        """Build the flow; its prefetches use this many processes or threads."""
        flow = self.source.flow()
        for step in self.steps:
            flow = step.chain(flow, procs)
        return flow

    def model(self, failures_as_bad: bool = False) -> Model:
        """Build the model.

        With ``failures_as_bad`` it yields ``BAD`` for an element that fails; otherwise it raises.
        """
        model = self.source.model()
        model = model.with_failures_as_bad() if failures_as_bad else model
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
        """Return the recipe with one more operator; its ``facts`` are flags of ``Step``."""
        step = Step(name, chain, model, **facts, others=others)
        parts = self.parts + tuple(part for other in others for part in other.parts)
        return attrs.evolve(self, names=(*self.names, name), steps=(*self.steps, step), parts=parts)

    def with_prefetch(self, place: int, threads: bool = False) -> Recipe:
        """Return the recipe with a prefetch inserted at a place."""
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

    # -- properties known without running the flow ---------------------------------------------

    @cached_property
    def flow(self) -> AnyFlow:
        """The flow, built once, to inspect without running it."""
        return self.build()

    @cached_property
    def first(self) -> list[Any]:
        """The first elements that do not fail.

        Failed elements are skipped, since a later operator may leave them out. Not below an endless
        flow: if all its elements fail, the search would never end.
        """
        elements: list[Any] = []
        try:
            for x in islice(self.model(failures_as_bad=not self.never_ends).elements(0), _PEEKED):
                if x is not BAD:
                    elements.append(x)  # noqa: PERF401  # elements before an error count, too
        except Exception:  # a function of the chain may raise anything
            pass
        return elements

    @property
    def is_combined(self) -> bool:
        """True if the flow has the rows of several sources."""
        return len(self.parts) > 1

    @property
    def name(self) -> str:
        """The name of the source."""
        return self.names[0].partition("(")[0]

    @property
    def is_reshaped(self) -> bool:
        """True if the elements may have another structure than the source's elements."""
        return any(step.reshapes for step in self.steps)

    @property
    def drops_by_group(self) -> bool:
        """True if a row may be left out because of the other rows in its group."""
        reshaped = False
        for step in self.steps:
            others = any(other.drops_by_group for other in step.others)
            if others or (step.filters and reshaped):
                return True
            reshaped = reshaped or step.reshapes
        return False

    @property
    def omits(self) -> bool:
        """True if rows may be left out."""
        return any(
            step.omits or step.filters or any(other.omits for other in step.others)
            for step in self.steps
        )

    @property
    def is_unordered(self) -> bool:
        """True if an operator does not preserve order, so positions do not identify elements."""
        return any(isinstance(node, Unordered) for node in walk(self.flow.node))

    def is_in_order(self, procs: int) -> bool:
        """Return True if elements are in order with this many workers."""
        copied = any(isinstance(node, Copying) for node in walk(self.flow.node))
        return not self.is_unordered or not (procs or copied)

    @property
    def repeats(self) -> bool:
        """True if rows may occur more than once."""
        return any(step.repeats for step in self.steps)

    @property
    def endless(self) -> bool:
        """True if a pass never ends."""
        return Endless in self.flow.effects

    @property
    def never_ends(self) -> bool:
        """True if a pass of any operator below never ends, even if an operator above limits it."""
        return any(Endless in node.effects for node in walk(self.flow.node))

    @property
    def is_ragged(self) -> bool:
        """True if elements differ in shape in a way that no spec declares."""
        return any(
            step.ragged or any(other.is_ragged for other in step.others) for step in self.steps
        )

    @property
    def loses_marks(self) -> bool:
        """True if an element may not contain the marks of all its rows."""
        return any(
            step.loses_marks or any(other.loses_marks for other in step.others)
            for step in self.steps
        )

    @property
    def has_many_elements(self) -> bool:
        """True if the flow has more than ``_LONG`` elements.

        Repeated or concatenated, only its first ``MAX_ELEMENTS`` elements would be checked.
        """
        length = self.flow.node.length
        return length is not None and length > _LONG

    @property
    def has_large_elements(self) -> bool:
        """True if the elements are too large to batch."""
        return any(_size(x) > _LARGE for x in self.first)


IN_PROCESSES = Step("prefetch", lambda f, procs: f.prefetch(procs=procs), lambda m: m)
IN_THREADS = Step("threads", lambda f, procs: f.prefetch(threads=procs), lambda m: m)


def _size(element: Any) -> int:
    return sum(int(np.size(leaf)) for leaf in leaves(element))


def _rows_of(model: Model) -> tuple[int, ...]:
    """Return the source rows by the marks of a model; empty if elements have no marks."""
    return tuple(i for x in islice(model.elements(0), MAX_ELEMENTS) for i in ids(x))
