"""The fluent surface: the families of operators joined in one type, and the ways to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import attrs

from flowdsl.effects import Counted, Effect, Endless, Finite, Tag
from flowdsl.elements.specs import Spec
from flowdsl.errors import EndlessFlow, InvalidFlow, UnknownLength
from flowdsl.feeding.loading import Loading
from flowdsl.nodes import MOST_ELEMENTS, AnyNode, FlowBase, Node, T, endless_part, is_int
from flowdsl.nodes.base import E_any, register_flow_class
from flowdsl.ops.augmenting import Augmenting
from flowdsl.ops.batching import Batching
from flowdsl.ops.bucketing import ShapeBatching
from flowdsl.ops.combining import Combining
from flowdsl.ops.components import Components
from flowdsl.ops.inspecting import Inspecting
from flowdsl.ops.mapping import Mapping as MappingOperators
from flowdsl.ops.ordering import Ordering
from flowdsl.ops.padding import PaddedBatching
from flowdsl.ops.placement import Placing
from flowdsl.ops.sizing import Sizing
from flowdsl.ops.splitting import Splitting
from flowdsl.ops.unbatching import Unbatching
from flowdsl.ops.zipping import Zipping
from flowdsl.remote.send_zmq import Sending
from flowdsl.storage.write_methods import WriteMethods

if TYPE_CHECKING:
    from flowdsl.plan.plan import Plan
    from flowdsl.report.profiling import Profile
    from flowdsl.runtime.origins import Origin
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.speed import Speed

B = TypeVar("B")
F = TypeVar("F", bound=Effect)
P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(repr=False)
class Flow(
    MappingOperators[T, E_any],
    Components[T, E_any],
    Augmenting[T, E_any],
    Batching[T, E_any],
    PaddedBatching[T, E_any],
    ShapeBatching[T, E_any],
    Unbatching[T, E_any],
    Sizing[T, E_any],
    Splitting[T, E_any],
    Ordering[T, E_any],
    Zipping[T, E_any],
    Combining[T, E_any],
    Placing[T, E_any],
    Inspecting[T, E_any],
    WriteMethods[T, E_any],
    Sending[T, E_any],
    Loading[T, E_any],
    Generic[T, E_any],
):
    """An immutable description of a pipeline of elements ``T``, with the effects ``E`` on its rows.

    Every method gives a new flow; building one does no work. What a flow means is its reference
    sequence: the same on any number of processes, at any time, for the same seeds and epoch.

    >>> import flowdsl as fl
    >>> flow = fl.from_range(10).shuffle(seed=3).map(lambda i: i * i).batch(4)
    >>> len(flow), sorted(tag.__name__ for tag in flow.effects)
    (3, ['Reordered'])
    """

    # What plans and runs a flow is imported when that is asked for: it is most of flowdsl, and a
    # program that starts should not wait for it.

    @cached_property
    def _plan(self) -> Plan[T]:
        from flowdsl.plan.lower import plan_of

        return plan_of(self.node)

    def _run(self, epoch: int = 0, *there: Any) -> Run[T]:
        from flowdsl.runtime.run import Run

        return Run(self._plan, epoch, *there)

    def __iter__(self) -> Run[T]:
        """Epoch 0, from its start: iterating twice gives the same elements twice."""
        return self._run()

    def epoch(self, k: int) -> Run[T]:
        """The ``k``-th pass: seeded operators draw afresh in each. ``epoch(0)`` is ``iter``."""
        if not is_int(k, 0):
            raise InvalidFlow(f"epoch: k must be an int >= 0 and below 2**62, got {k!r}")
        return self._run(int(k))

    def epochs(self, n: int, resume: Mapping[str, object] | None = None) -> Iterator[Run[T]]:
        """``n`` passes in turn: ``for run in flow.epochs(3): for x in run: ...``.

        With ``resume``, a state that such a loop saved, the loop goes on where the state was taken:
        first with the rest of that epoch, then with the later ones. ``n`` counts all epochs, as in
        the loop that was stopped, and ``run.epoch`` is the number of each. If that epoch had ended,
        its rest is empty; no element is repeated or left out.

        Errors, at the call: ``InvalidFlow`` for ``n < 0``, and for a state of an epoch beyond the
        last; ``StateMismatch`` for a state of another flow. See ``resume``.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(4).shuffle(seed=1)
        >>> def train(state=None):
        ...     for run in flow.epochs(2, resume=state):
        ...         for x in run:
        ...             yield run.epoch, x, run.state_dict()
        >>> steps = list(train())
        >>> [(epoch, x) for epoch, x, _ in steps]
        [(0, 2), (0, 1), (0, 3), (0, 0), (1, 0), (1, 3), (1, 1), (1, 2)]
        >>> _, _, saved = steps[2]
        >>> [(epoch, x) for epoch, x, _ in train(saved)]
        [(0, 0), (1, 0), (1, 3), (1, 1), (1, 2)]
        """
        if not is_int(n, 0):
            raise InvalidFlow(f"epochs: n must be an int >= 0, got {n!r}")
        if resume is None:
            return (self.epoch(k) for k in range(n))
        from flowdsl.runtime.state import place_of

        epoch, position, mark = place_of(self.node, resume)
        if epoch >= n:
            raise InvalidFlow(
                f"epochs: the state is in epoch {epoch}, so n must be at least {epoch + 1}, got "
                f"{n}; n counts the finished epochs too"
            )
        return chain(
            (self._run(*place) for place in [(epoch, position, mark)]),
            (self.epoch(k) for k in range(epoch + 1, n)),
        )

    def resume(self, state: Mapping[str, object]) -> Run[T]:
        """Continue a pass from what ``run.state_dict()`` gave, under any number of processes.

        A flow over random-access sources reads nothing again that was delivered before. After a
        filter or ``on_error`` this holds if only functions, batches, ``repeat`` and operators that
        count elements (``enumerate``, ``take``, ``skip``, ``shard``) follow, and workers are sent
        nothing that was made after it; otherwise those elements are made again and left out. A
        stream is read again from its beginning.

        A state of one of ``n`` shards, taken when all stood at the same position, resumes any shard
        of another number of shards, if what was delivered in all is a whole number of elements for
        each of those, and only functions, batches and ``repeat`` come after the ``shard``.

        Errors: ``StateMismatch``, naming the operator that differs, for a state of another flow or
        of another file's rows. Functions are told apart by name, and items in memory by number.
        """
        from flowdsl.runtime.state import place_of

        return self._run(*place_of(self.node, state))

    def at(self, position: int, epoch: int = 0) -> T:
        """The element at a position of a pass: what a model saw in step ``position`` of an epoch.

        A negative ``position`` counts from the end, where the length is known. The element is made
        in this process, whatever ``prefetch`` says, and so is what it is made of, but nothing else:
        where the flow is index-planned (``explain`` says where elements travel) no element before
        it is made. After a filter, or over a stream, those before it are made again and left out.

        Errors: ``IndexError`` beyond the end; ``InvalidFlow`` for what is no position or epoch,
        after ``prefetch(ordered=False)``, whose order is not known, and over a source that gives
        its elements only once; ``UnknownLength`` and ``EndlessFlow`` for a negative position
        without an end to count from; what the flow raises for that element.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(1000).shuffle(seed=1).map(lambda i: i * i).batch(4)
        >>> flow.at(7, epoch=3).tolist() == list(flow.epoch(3))[7].tolist()
        True
        >>> flow.at(-1).tolist() == list(flow)[-1].tolist()
        True

        Elsewhere: ``dataset[i]`` of PyTorch's datasets and Grain's ``MapDataset``.
        """
        from flowdsl.runtime.random_access import element_at

        return element_at(self._plan_here, *self._place("at", position, epoch))

    def origins(self, position: int, epoch: int = 0) -> list[Origin]:
        """The rows of the sources that the element at a position of a pass is made of.

        They come in the order in which they are in the element, a row that is in it twice also
        twice: of a batch of rows, the i-th is that of row ``i``. Each has the title of its source,
        its index there (for a stream, in the pass over it) and the number that the source has in
        ``explain``. A function is taken to use all that it is given; of a batch that was
        only moved since, ``unbatch`` gives the rows one by one.

        Where the flow is index-planned this is arithmetic: no row is read, no function is called,
        and no element before it matters. Elsewhere, as after a filter or over a stream, it is by
        replay: a pass is made again, without workers, up to that element.

        Errors: as for ``at``; and ``InvalidFlow`` for an operator of another package that does not
        say what its elements are made of.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(10**9).shuffle(seed=1).map(lambda i: -i).batch(4)
        >>> [origin.row for origin in flow.origins(7, epoch=3)] == (-flow.at(7, epoch=3)).tolist()
        True
        >>> print(*fl.from_items("abcd").filter(lambda x: x != "b").batch(2).origins(0), sep=", ")
        row 0 of from_items(4 items), row 2 of from_items(4 items)

        Source: the provenance of databases: which rows a row of a result is from.

        Elsewhere: none of tensorpack, tf.data, Grain and torchdata.
        """
        from flowdsl.runtime.origins import origins_at

        return origins_at(self.node, *self._place("origins", position, epoch))

    def _place(self, asked: str, position: int, epoch: int) -> tuple[int, int]:
        """A position, counted from the start of a pass, and its epoch."""
        if not is_int(epoch, 0):
            raise InvalidFlow(f"{asked}: epoch must be an int >= 0 and below 2**62, got {epoch!r}")
        if not is_int(position, 1 - MOST_ELEMENTS):
            raise InvalidFlow(f"{asked}: position must be an int, got {position!r}")
        if position >= 0:
            return int(position), int(epoch)
        length = Flow.size(self)  # type: ignore[arg-type]  # it checks the effects at run time
        if position < -length:
            from flowdsl.runtime.random_access import beyond

            raise beyond(asked, int(position), length, self.node)
        return int(position) + length, int(epoch)

    @cached_property
    def _plan_here(self) -> Plan[T]:
        from flowdsl.runtime.random_access import plan_without_workers

        return plan_without_workers(self.node)

    def collect(self: FlowBase[T, Finite]) -> list[T]:
        """All elements of epoch 0 in a list. Errors: ``EndlessFlow``."""
        if Endless in self.node.effects:
            raise EndlessFlow(
                f"collect: {endless_part(self.node)} never ends, so it cannot be collected; "
                f"put .take(n) before it"
            )
        return list(iter(self))

    def size(self: FlowBase[T, Counted]) -> int:
        """How many elements a pass has. Errors: ``UnknownLength``, ``EndlessFlow``."""
        if Endless in self.node.effects:
            raise EndlessFlow(f"{endless_part(self.node)} never ends; put .take(n) after it")
        if self.node.length is None:
            raise UnknownLength(
                f"the length is known only at the end of a pass, since there is "
                f"{_unsized_part(self.node)} in the flow"
            )
        return self.node.length

    def __len__(self) -> int:
        return Flow.size(self)  # type: ignore[arg-type]  # size() checks the effects at run time

    def __repr__(self) -> str:
        return _spelled(self.node)

    def __bool__(self) -> bool:
        return True

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For notebooks: the plan, as a picture."""
        from flowdsl.report.notebook import plan_bundle

        return plan_bundle(self)

    def _repr_html_(self) -> str | None:
        """The plan as HTML, for notebooks that ask only for HTML."""
        return self._repr_mimebundle_().get("text/html")

    @property
    def effects(self) -> frozenset[Tag]:
        """The tags of the row ``E``, as far as they are known at run time."""
        return self.node.effects

    @property
    def spec(self) -> Spec:
        """What an element looks like: its components' dtypes and shapes.

        If a function has no useful return annotation, the first element is made, which runs the
        chain up to there; sizes that nothing declares are those of that element.
        """
        return self.node.spec(probe=True)

    def explain(self, stage: str = "plan") -> str:
        """What will run, where, and what it guarantees, as text.

        ``stage`` stops at a stage of planning: ``"flow"`` is the chain as written, ``"rules"`` the
        chain after rewriting, ``"plan"`` the stages that run.
        """
        from flowdsl.plan.explain import explain

        return explain(self.node, stage, self._plan)

    def measure(self, size: int = 5000, warmup: int = 0) -> Speed:
        """How fast the flow delivers: time ``size`` elements of epoch 0, after ``warmup`` others.

        The pass may end sooner. Errors: ``InvalidFlow`` for ``size < 1`` or ``warmup < 0``;
        ``FlowError`` if the pass ends within the warmup.

        >>> import flowdsl as fl
        >>> speed = fl.from_range(100).batch(10).repeat().measure(size=50)
        >>> speed.elements, speed.nbytes
        (50, 4000)

        Source: ``TestDataSpeed`` in tensorpack.
        """
        from flowdsl.statistics.speed import measure

        for name, value, least in (("size", size, 1), ("warmup", warmup, 0)):
            if not is_int(value, least):
                raise InvalidFlow(f"measure: {name} must be an int >= {least}, got {value!r}")
        with iter(self) as run:
            return measure(run, size, warmup)

    def profile(self, seconds: float = 3.0, step: Callable[[T], object] | None = None) -> Profile:
        """Where the time goes: run the flow for so many seconds, and say what limits it.

        It runs from epoch 0 on, and through further epochs where a pass is short; the seconds count
        from when all workers are at work. ``step`` is what the consumer does with an element, as a
        training step would: without it the consumer does nothing, so the limit is in the flow.
        Every operator is timed, at about 0.1 µs a call. Elements that a source gives only once are
        used up.

        Print the profile, or ``save`` it as a picture, ``.svg`` or ``.html``. docs/seeing.md says
        what the figures mean, and how the verdict is reached.

        Errors: ``InvalidFlow`` for ``seconds`` not above 0, or a ``step`` that cannot be called;
        ``FlowError`` if there is no element.

        >>> import time
        >>> import flowdsl as fl
        >>> def decode(i):
        ...     time.sleep(0.001)
        ...     return i
        >>> profile = fl.from_range(1000).map(decode).batch(4).profile(seconds=0.05)
        >>> profile.verdict.limiting, profile.verdict.operator
        ('thread', 'map(decode)')

        Source: operational analysis (Denning and Buzen, 1978). Elsewhere: tf.data's profiler;
        SPDL's queue statistics.
        """
        from flowdsl.report.profiling import profile  # workers, which import this, do not report

        return profile(self._plan, seconds, step)

    def progress(self, description: str = "") -> Iterable[T]:
        """Epoch 0, with a bar while a loop goes through it: ``for x in flow.progress(): ...``.

        ``fl.progress(run)`` does the same for any run, which can then be asked for its
        ``statistics()``; see there. Errors: ``InvalidFlow`` for a ``description`` that is no text.

        >>> import flowdsl as fl
        >>> sum(fl.from_range(5).progress())
        10
        """
        from flowdsl.report.progress import progress

        return progress(iter(self), description)

    def pipe(
        self, func: Callable[Concatenate[Flow[T, E_any], P], R], /, *args: P.args, **kw: P.kwargs
    ) -> R:
        """``func(self, *args, **kw)``: chain a function of flows.

        >>> import flowdsl as fl
        >>> def halves(flow, n):
        ...     return flow.take(n // 2)
        >>> fl.from_range(6).pipe(halves, 6).collect()
        [0, 1, 2]
        """
        return func(self, *args, **kw)

    def apply(
        self,
        operator: Callable[Concatenate[Node[T, E_any], P], Node[B, F]],
        /,
        *args: P.args,
        **kw: P.kwargs,
    ) -> Flow[B, F]:
        """Chain a node class of your own: ``flow.apply(Window, size=3)``."""
        return Flow(operator(self.node, *args, **kw))


def _spelled(node: AnyNode) -> str:
    """The chain that makes a flow, written with its titles."""
    if not node.sources:
        return node.title
    first, *others = map(_spelled, node.sources)
    title = node.title.replace("...", ", ".join(others), 1) if others else node.title
    return f"{first}.{title}"


def _unsized_part(node: AnyNode) -> str:
    """The title of the first operator whose length is unknown."""
    for source in node.sources:
        if source.length is None:
            return _unsized_part(source)
    return node.title


def _flow(node: Node[Any, Any]) -> Flow[Any, Any]:
    return Flow(node)


register_flow_class(_flow)
