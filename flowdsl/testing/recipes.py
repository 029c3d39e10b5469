"""A flow and its model, chained side by side: what a law is checked on."""

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
from flowdsl.kinds import Copying, Unordered
from flowdsl.plan.tree import walk
from flowdsl.testing.elements import ids, leaves
from flowdsl.testing.model import BAD, Model

if TYPE_CHECKING:
    from hypothesis.vendor.pretty import RepresentationPrinter

    from flowdsl.testing.catalogue import Catalogue

AnyFlow: TypeAlias = Flow[Any, Any]

MOST_ELEMENTS = 60
"""How much of a flow is looked at: random chains may be endless, or very long."""

_LONG = 150
_LARGE = 200
_PEEKED = 13


class Facts(TypedDict, total=False):
    """What is to be known of an operator, where it is so; see ``Step``."""

    reshapes: bool
    chooses: bool
    judges: bool
    repeats: bool
    ragged: bool


@attrs.frozen
class Step:
    """An operator, for a flow and for a model of it."""

    name: str
    chain: Callable[[AnyFlow, int], AnyFlow]
    """Chains it to a flow; the number is that of the processes a prefetch is to use."""
    model: Callable[[Model], Model]
    reshapes: bool = False
    """It makes elements of another structure."""
    chooses: bool = False
    """It may leave rows out."""
    judges: bool = False
    """It may leave rows out, for what there is in them."""
    repeats: bool = False
    """Rows may come more than once."""
    ragged: bool = False
    """Its elements differ in shape, and nothing says so beforehand."""
    others: tuple[Recipe, ...] = ()
    """The flows that it combines the first with."""


@attrs.frozen
class Source:
    """A source and its model, each to be built afresh."""

    flow: Callable[[], AnyFlow]
    model: Callable[[], Model]
    ids: tuple[int, ...] | None = None
    """Its rows, where they are others than those that were asked for."""


@attrs.frozen
class Part:
    """The rows of one source, in their order."""

    title: str
    ids: tuple[int, ...]

    @classmethod
    def of(cls, source: Source, rows: tuple[int, ...]) -> Part:
        """What a source has of these rows."""
        title = walk(source.flow().node)[0].title
        return cls(title, rows if source.ids is None else source.ids)


@attrs.frozen(eq=False)
class Recipe:
    """A flow and its model, to be built with any number of processes.

    Each is built afresh, since a flow may hold what a pass leaves behind: a cache, a queue.

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
    """What the flows that it may be combined with are made of."""

    @classmethod
    def of(
        cls, name: str, flow: Callable[[], AnyFlow], model: Callable[[], Model], form: str = "tuple"
    ) -> Recipe:
        """A source of your own, and its model: ``flow`` and ``model`` build them afresh."""
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
        """The model; a careful one has ``BAD`` for what fails."""
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
        """The recipe with a prefetch somewhere in it."""
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
        """Built once, for what is known of it without running it."""
        return self.build()

    @cached_property
    def first(self) -> list[Any]:
        """Those of its first elements that can be made.

        What cannot may yet be left out further on, so it hides nothing of what comes after it;
        but of what repeats for ever there may be nothing else.
        """
        found: list[Any] = []
        try:
            for x in islice(self.model(careful=not self.never_ends).elements(0), _PEEKED):
                if x is not BAD:
                    found.append(x)  # noqa: PERF401  # what came before an error counts too
        except Exception:  # whatever a function of the chain raises
            pass
        return found

    @property
    def is_combined(self) -> bool:
        """It has the rows of several sources."""
        return len(self.parts) > 1

    @property
    def name(self) -> str:
        """That of the source."""
        return self.names[0].partition("(")[0]

    @property
    def is_reshaped(self) -> bool:
        """Its elements may have another structure than those of the source."""
        return any(step.reshapes for step in self.steps)

    @property
    def judges_groups(self) -> bool:
        """What rows it leaves out may depend on which others they are with."""
        reshaped = False
        for step in self.steps:
            others = any(other.judges_groups for other in step.others)
            if others or (step.judges and reshaped):
                return True
            reshaped = reshaped or step.reshapes
        return False

    @property
    def chooses(self) -> bool:
        """It may leave rows out."""
        return any(
            step.chooses or step.judges or any(other.chooses for other in step.others)
            for step in self.steps
        )

    @property
    def is_unordered(self) -> bool:
        """Somewhere in it the order is given up, and no position tells where a pass stands."""
        return any(isinstance(node, Unordered) for node in walk(self.flow.node))

    def is_in_order(self, procs: int) -> bool:
        """With so many workers there is nobody to be ready before another."""
        copied = any(isinstance(node, Copying) for node in walk(self.flow.node))
        return not self.is_unordered or not (procs or copied)

    @property
    def repeats(self) -> bool:
        """Rows may come more than once."""
        return any(step.repeats for step in self.steps)

    @property
    def endless(self) -> bool:
        """A pass never ends."""
        return Endless in self.flow.effects

    @property
    def never_ends(self) -> bool:
        """Somewhere in it a pass never ends, even if it is cut above that."""
        return any(Endless in node.effects for node in walk(self.flow.node))

    @property
    def is_ragged(self) -> bool:
        """Its elements differ in shape, and nothing says so beforehand."""
        return any(
            step.ragged or any(other.is_ragged for other in step.others) for step in self.steps
        )

    @property
    def is_long(self) -> bool:
        """To repeat it would be more than is looked at."""
        length = self.flow.node.length
        return length is not None and length > _LONG

    @property
    def is_large(self) -> bool:
        """To batch its elements would make more of them than is looked at."""
        return any(_size(x) > _LARGE for x in self.first)


IN_PROCESSES = Step("prefetch", lambda f, procs: f.prefetch(procs=procs), lambda m: m)
IN_THREADS = Step("threads", lambda f, procs: f.prefetch(threads=procs), lambda m: m)


def _size(element: Any) -> int:
    return sum(int(np.size(leaf)) for leaf in leaves(element))


def _rows_of(model: Model) -> tuple[int, ...]:
    """The marks in the elements of a source, or none where they have no marks."""
    return tuple(i for x in islice(model.elements(0), MOST_ELEMENTS) for i in ids(x))
