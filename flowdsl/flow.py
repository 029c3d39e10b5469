"""``Flow``: all families of operators in one class, and the methods that run a flow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import attrs

from flowdsl.effects import Counted, Effect, Endless, Finite, Tag
from flowdsl.elements.specs import Spec
from flowdsl.errors import EndlessFlow, InvalidFlow, SameEpoch, UnknownLength
from flowdsl.jax.methods import ToJax
from flowdsl.keras.methods import ToKeras
from flowdsl.nodes import POSITION_LIMIT, AnyNode, FlowBase, Node, T, endless_part, is_int
from flowdsl.nodes.base import E_default, register_flow_class
from flowdsl.nodes.kinds import worker_kinds
from flowdsl.ops.augmenting import Augmenting
from flowdsl.ops.batching import Batching
from flowdsl.ops.bucketing import Bucketing
from flowdsl.ops.caching import Caching
from flowdsl.ops.combining import Combining
from flowdsl.ops.components import Components
from flowdsl.ops.grouping import KeyBatching
from flowdsl.ops.inspecting import Inspecting
from flowdsl.ops.interleaving import Interleaving
from flowdsl.ops.live import LiveStreams
from flowdsl.ops.mapping import Mapping as MappingOperators
from flowdsl.ops.ordering import Ordering
from flowdsl.ops.packing import Packing
from flowdsl.ops.padding import PaddedBatching
from flowdsl.ops.placement import Placing
from flowdsl.ops.rows import Rows
from flowdsl.ops.sampling import Sampling
from flowdsl.ops.scanning import Scanning
from flowdsl.ops.sharding import Sharding
from flowdsl.ops.sizing import Sizing
from flowdsl.ops.splitting import Splitting
from flowdsl.ops.unbatching import Unbatching
from flowdsl.ops.windows import Windowing
from flowdsl.ops.zipping import Zipping
from flowdsl.ray.methods import ToRay
from flowdsl.remote.send_zmq import Sending
from flowdsl.resources.any_depth import any_depth
from flowdsl.storage.write_methods import WriteMethods
from flowdsl.torch.methods import ToTorch

if TYPE_CHECKING:
    from flowdsl.plan.plan import Plan
    from flowdsl.report.profiling import Profile
    from flowdsl.runtime.origins import Origin
    from flowdsl.runtime.resume_points import ResumePoint
    from flowdsl.runtime.run import Run
    from flowdsl.statistics.speed import Speed

B = TypeVar("B")
F = TypeVar("F", bound=Effect)
P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(repr=False)
class Flow(
    MappingOperators[T, E_default],
    Components[T, E_default],
    Augmenting[T, E_default],
    Batching[T, E_default],
    PaddedBatching[T, E_default],
    Packing[T, E_default],
    Windowing[T, E_default],
    KeyBatching[T, E_default],
    Bucketing[T, E_default],
    Unbatching[T, E_default],
    Sizing[T, E_default],
    Sharding[T, E_default],
    Scanning[T, E_default],
    Rows[T, E_default],
    Sampling[T, E_default],
    Splitting[T, E_default],
    Ordering[T, E_default],
    Caching[T, E_default],
    Zipping[T, E_default],
    Combining[T, E_default],
    Interleaving[T, E_default],
    LiveStreams[T, E_default],
    Placing[T, E_default],
    Inspecting[T, E_default],
    WriteMethods[T, E_default],
    Sending[T, E_default],
    ToTorch[T, E_default],
    ToJax[T, E_default],
    ToRay[T, E_default],
    ToKeras[T, E_default],
    Generic[T, E_default],
):
    """An immutable description of a pipeline of elements ``T``, with the effects ``E`` on its rows.

    Every operator returns a new flow; building a flow does no work. A flow means one sequence of
    elements: the same on any number of processes, at any time, for the same seeds and epoch.

    >>> import flowdsl as fl
    >>> flow = fl.from_range(10).shuffle(seed=3).map(lambda i: i * i).batch(4)
    >>> len(flow), sorted(tag.__name__ for tag in flow.effects)
    (3, ['Reordered'])
    """

    if not TYPE_CHECKING:  # a type checker would accept any name

        def __getattr__(self, name: str) -> object:
            """Raise an error that suggests our name for a method of another library."""
            if name.startswith("_"):
                raise AttributeError(name)
            from flowdsl.ops.elsewhere import no_method

            raise no_method(name, self)

    # The modules that plan and run a flow are imported on first use: they are most of flowdsl, and
    # would delay the start of a program.

    @cached_property
    def _plan(self) -> Plan[T]:
        from flowdsl.plan.lower import plan_of

        return plan_of(self.node)

    def _run(
        self,
        epoch: int = 0,
        position: int = 0,
        resume_point: ResumePoint | None = None,
        when_ended: Callable[[], object] = lambda: None,
    ) -> Run[T]:
        for kind in worker_kinds(self.node):
            kind.begin()
        from flowdsl.runtime.resume_points import BEGINNING
        from flowdsl.runtime.run import Run

        point = BEGINNING if resume_point is None else resume_point
        return Run(self._plan, epoch, position, point, when_ended=when_ended)

    def __iter__(self) -> Run[T]:
        """Iterate over epoch 0, from its start: iterating twice yields the same elements twice.

        Warnings: ``SameEpoch``, once, for a second loop over a flow whose epochs differ.
        """
        if not self.node.varies_by_epoch:
            return self._run()
        if "ended" in self._loops and "warned" not in self._loops:
            self._loops.add("warned")
            warnings.warn(_SAME_EPOCH.format(self.node.title), SameEpoch, stacklevel=2)
        return self._run(when_ended=partial(self._loops.add, "ended"))

    @cached_property
    def _loops(self) -> set[str]:
        """A record of loops over this flow: one has ended, or the user was warned."""
        return set()

    def epoch(self, k: int) -> Run[T]:
        """The ``k``-th pass: seeded operators draw again in each. ``epoch(0)`` is ``iter``."""
        if not is_int(k, 0):
            raise InvalidFlow(f"epoch: k must be an int >= 0 and below 2**62, got {k!r}")
        return self._run(int(k))

    def epochs(self, n: int, resume: Mapping[str, object] | None = None) -> Iterator[Run[T]]:
        """``n`` consecutive passes: ``for run in flow.epochs(3): for x in run: ...``.

        ``resume`` is a state that such a loop saved. Then the loop continues where the state was
        saved: first with the rest of that epoch, then with the later epochs. ``n`` counts all
        epochs, as in the loop that was stopped, and ``run.epoch`` is the number of each. If that
        epoch had ended, its rest is empty; no element is repeated or left out.

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
        from flowdsl.runtime.state import resumed_from

        epoch, position, resume_point = resumed_from(self.node, resume)
        if epoch >= n:
            raise InvalidFlow(
                f"epochs: the state is in epoch {epoch}, so n must be at least {epoch + 1}, got "
                f"{n}; n counts the finished epochs too"
            )
        # Lazily, by ``map``: a run starts its workers when it is made.
        rest = map(self._run, [epoch], [position], [resume_point])
        return chain(rest, (self.epoch(k) for k in range(epoch + 1, n)))

    def resume(self, state: Mapping[str, object]) -> Run[T]:
        """Continue a pass from a state of ``run.state_dict()``, with any number of processes.

        A flow over random-access sources does not read the delivered elements again. A stream is
        read again from its beginning.

        After a filter or ``on_error``, delivered elements are computed again and left out, unless

        - only functions, batches, ``repeat`` and operators that count elements (``enumerate``,
          ``take``, ``skip``, ``shard``) follow the filter, and
        - no elements from above the filter are sent to workers, as ``explain()`` shows.

        A state of one of ``n`` shards also resumes any shard of another number of shards, if

        - it was saved when all ``n`` shards were at the same position,
        - the delivered elements of all shards divide evenly among the new shards, and
        - only functions, batches and ``repeat`` follow the ``shard``.

        Errors: ``StateMismatch``, naming the operator that differs, for a state of another flow or
        of another file's rows. Functions are compared by name, and items in memory by their number.
        """
        from flowdsl.runtime.state import resumed_from

        return self._run(*resumed_from(self.node, state))

    def end_workers(self) -> None:
        """End worker processes that wait for the next pass over this flow.

        After a pass, and after a ``break``, workers wait for the next one. Without this call, they
        end after half a minute, or with the flow. A pass that is open keeps its workers.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(3).map(abs).prefetch(procs=1)
        >>> flow.collect()
        [0, 1, 2]
        >>> flow.end_workers()
        """
        from flowdsl.workers import worker_cache

        worker_cache.end(self._plan)

    def at(self, position: int, epoch: int = 0) -> T:
        """The element at a position of a pass: the input of a model in step ``position``.

        A negative ``position`` counts from the end, if the length is known. The element is computed
        in this process, even with ``prefetch``. In a random-access flow, only the source elements
        that it needs are computed, and no earlier element. After a filter, or over a stream,
        earlier elements are computed again and left out.

        Errors: ``IndexError`` beyond the end; ``InvalidFlow`` for an invalid position or epoch,
        after ``prefetch(ordered=False)``, whose order is not known, and over a source that yields
        its elements only once; ``UnknownLength`` and ``EndlessFlow`` for a negative position
        without an end to count from; any error that the flow raises for that element.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(1000).shuffle(seed=1).map(lambda i: i * i).batch(4)
        >>> flow.at(7, epoch=3).tolist() == list(flow.epoch(3))[7].tolist()
        True
        >>> flow.at(-1).tolist() == list(flow)[-1].tolist()
        True

        Elsewhere: ``dataset[i]`` of PyTorch's datasets and Grain's ``MapDataset``.
        """
        from flowdsl.runtime.random_access import element_at

        return element_at(self._plan_here, *self._checked("at", position, epoch))

    def origins(self, position: int, epoch: int = 0) -> list[Origin]:
        """The rows of the sources from which the element at a position of a pass is made.

        They are in the order of the rows in the element, and a row that it contains twice is listed
        twice: for a batch of rows, the i-th origin belongs to row ``i``. Each has the title of its
        source, its index there (for a stream, in the pass over it) and the number of the source in
        ``explain``. A function is assumed to use its whole argument; if no function has changed a
        batch, the elements that ``unbatch`` makes of it have one origin each.

        In a random-access flow this is arithmetic: no row is read, no function is called, and
        earlier elements are not needed. Otherwise, as after a filter or over a stream, a pass is
        replayed, without workers, up to that element.

        Errors: as for ``at``; and ``InvalidFlow`` for an operator of another package that does not
        define the origins of its elements.

        >>> import flowdsl as fl
        >>> flow = fl.from_range(10**9).shuffle(seed=1).map(lambda i: -i).batch(4)
        >>> [origin.row for origin in flow.origins(7, epoch=3)] == (-flow.at(7, epoch=3)).tolist()
        True
        >>> print(*fl.from_items("abcd").filter(lambda x: x != "b").batch(2).origins(0), sep=", ")
        row 0 of from_items(4 items), row 2 of from_items(4 items)

        Source: provenance in databases: the input rows from which a result row was computed.

        Elsewhere: none of tensorpack, tf.data, Grain and torchdata.
        """
        from flowdsl.runtime.origins import origins_at

        return origins_at(self.node, *self._checked("origins", position, epoch))

    def _checked(self, method: str, position: int, epoch: int) -> tuple[int, int]:
        """The position, counted from the start of a pass, and the epoch."""
        if not is_int(epoch, 0):
            raise InvalidFlow(f"{method}: epoch must be an int >= 0 and below 2**62, got {epoch!r}")
        if not is_int(position, 1 - POSITION_LIMIT):
            raise InvalidFlow(f"{method}: position must be an int, got {position!r}")
        if position >= 0:
            return int(position), int(epoch)
        length = Flow.size(self)  # type: ignore[arg-type]  # it checks the effects at run time
        if position < -length:
            from flowdsl.runtime.random_access import beyond

            raise beyond(method, int(position), length, self.node)
        return int(position) + length, int(epoch)

    @cached_property
    def _plan_here(self) -> Plan[T]:
        from flowdsl.runtime.random_access import plan_without_workers

        return plan_without_workers(self.node)

    def collect(self: FlowBase[T, Finite]) -> list[T]:
        """Return all elements of epoch 0 in a list. Errors: ``EndlessFlow``."""
        if Endless in self.node.effects:
            raise EndlessFlow(
                f"collect: {endless_part(self.node)} never ends, so it cannot be collected; "
                f"put .take(n) before it"
            )
        return list(self.epoch(0))

    def size(self: FlowBase[T, Counted]) -> int:
        """The number of elements in a pass. Errors: ``UnknownLength``, ``EndlessFlow``."""
        if Endless in self.node.effects:
            raise EndlessFlow(f"{endless_part(self.node)} never ends; put .take(n) after it")
        if self.node.length is None:
            raise UnknownLength(
                f"the length is known only at the end of a pass, because of "
                f"{_unsized_part(self.node)}; sum(1 for _ in flow) counts the elements of a pass"
            )
        return self.node.length

    def __len__(self) -> int:
        return Flow.size(self)  # type: ignore[arg-type]  # size() checks the effects at run time

    def __repr__(self) -> str:
        return _chain_text(self.node)

    def __bool__(self) -> bool:
        return True

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The plan as a picture, for notebooks."""
        from flowdsl.report.notebook import plan_bundle

        return plan_bundle(self)

    def _repr_html_(self) -> str | None:
        """The plan as HTML, for notebooks that request only HTML."""
        return self._repr_mimebundle_().get("text/html")

    @property
    def effects(self) -> frozenset[Tag]:
        """The tags of the effects ``E``, as far as they are known at run time."""
        return self.node.effects

    @property
    def spec(self) -> Spec:
        """The spec of an element: the dtypes and shapes of its components.

        If a function has no useful return annotation, the first element is computed, which runs
        the chain up to that function; sizes that are not declared are taken from that element.
        """
        return self.node.spec(probe=True)

    def explain(self, stage: str = "plan") -> str:
        """Describe the plan: what will run, where, and with which guarantees.

        ``stage`` selects a stage of planning: ``"flow"`` is the chain as written, ``"rules"`` the
        chain after rewriting, ``"plan"`` the stages that run.
        """
        from flowdsl.plan.explain import explain

        return explain(self.node, stage, self._plan)

    def measure(self, size: int = 5000, warmup: int = 0) -> Speed:
        """Measure the flow's speed: time ``size`` elements of epoch 0, after ``warmup`` others.

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
        with self.epoch(0) as run:
            return measure(run, size, warmup)

    def profile(self, seconds: float = 3.0, step: Callable[[T], object] | None = None) -> Profile:
        """Profile the flow: run it for some seconds, and name the operator that limits it.

        The run starts with epoch 0 and continues with further epochs if a pass is short; the
        seconds count from the moment when all workers have started. ``step`` is called with each
        element, as a training step would be: without it the consumer does nothing, so the limit is
        in the flow. Every operator is timed, which costs about 0.1 µs per call. Elements that a
        source yields only once are used up.

        Print the profile, or ``save`` it as a picture, ``.svg`` or ``.html``. docs/seeing.md
        explains the figures and the verdict.

        Errors: ``InvalidFlow`` for ``seconds`` not above 0, or a ``step`` that cannot be called;
        ``FlowError`` if the flow has no elements.

        >>> import flowdsl as fl
        >>> profile = fl.from_range(1000).map(abs).batch(4).profile(seconds=0.05)
        >>> [cost.title for cost in profile.statistics.stages[0].costs]  # each with its time
        ['from_range(1000)', 'map(abs)', 'batch(4)']

        ``profile.verdict.operator`` is the one that limits the flow.

        Source: operational analysis (Denning and Buzen, 1978). Elsewhere: tf.data's profiler;
        SPDL's queue statistics.
        """
        # Imported here because workers import this module but never profile.
        from flowdsl.report.profiling import profile

        return profile(self._plan, seconds, step)

    def progress(self, description: str = "") -> Iterable[T]:
        """Iterate over epoch 0 with a progress bar: ``for x in flow.progress(): ...``.

        ``fl.progress(run)`` does the same for any run, whose ``statistics()`` can then be read; see
        its documentation. Errors: ``InvalidFlow`` for a ``description`` that is not a string.

        >>> import flowdsl as fl
        >>> sum(fl.from_range(5).progress())
        10
        """
        from flowdsl.report.progress import progress

        return progress(iter(self), description)

    def pipe(
        self,
        func: Callable[Concatenate[Flow[T, E_default], P], R],
        /,
        *args: P.args,
        **kw: P.kwargs,
    ) -> R:
        """Chain a function of flows: return ``func(self, *args, **kw)``.

        >>> import flowdsl as fl
        >>> def halves(flow, n):
        ...     return flow.take(n // 2)
        >>> fl.from_range(6).pipe(halves, 6).collect()
        [0, 1, 2]
        """
        return func(self, *args, **kw)

    def apply(
        self,
        operator: Callable[Concatenate[Node[T, E_default], P], Node[B, F]],
        /,
        *args: P.args,
        **kw: P.kwargs,
    ) -> Flow[B, F]:
        """Chain a node class of your own: ``flow.apply(Window, size=3)``."""
        return Flow(operator(self.node, *args, **kw))


@any_depth
def _chain_text(node: AnyNode) -> str:
    """The chain of a flow, written with the titles of its operators."""
    if not node.sources:
        return node.title
    first, *others = map(_chain_text, node.sources)
    # In a title, "..." stands for the flows that are arguments.
    title = node.title.replace("...", ", ".join(others), 1) if others else node.title
    return f"{first}{title}" if title.startswith("[") else f"{first}.{title}"


@any_depth
def _unsized_part(node: AnyNode) -> str:
    """The title of the first operator whose length is unknown."""
    for source in node.sources:
        if source.length is None:
            return _unsized_part(source)
    return node.title


def _make_flow(node: Node[Any, Any]) -> Flow[Any, Any]:
    return Flow(node)


register_flow_class(_make_flow)


_SAME_EPOCH = (
    "this is the second loop over a flow that ends in {} and whose epochs differ, and each of them "
    "is epoch 0: the same order and the same random numbers again; for one epoch after another "
    "write 'for run in flow.epochs(n): for x in run: ...', and for the same one flow.epoch(0)"
)
