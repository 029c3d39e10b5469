"""A prefetch over an operator that must see the whole sequence is split into two prefetches."""

from __future__ import annotations

import attrs

from flowdsl.nodes import Elementwise, Placement, Windowed
from flowdsl.plan.tree import Step, bases_of, is_for_workers, rewrite, runs_in_worker, walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.resources.worker_kinds import Workers


def split_prefetch(step: Step) -> Step:
    """``x.map(f).shuffle(9).map(g).prefetch(4)`` runs ``f`` and ``g`` in two processes each.

    Functions above ``shuffle`` need workers that receive its elements; functions below need other
    workers. The two groups share the number of workers, and each gets half of the memory. If only a
    batch is above, one worker is enough for it; if its rows are only stacked, the consumer's
    process does that, as sending them to a worker would cost more. With ``prefetch(1)``, the worker
    runs the functions above, and a thread of the consumer's process runs those below ahead; if none
    are above, the worker runs those below. With a ``timeout`` each group has a worker, as a
    function in the consumer's process could not be ended.
    """
    node = step.node
    if isinstance(node, Placement) and node.workers.count:
        (below,) = step.sources
        with_work = [base for base in bases_of(below) if base is not below and _has_work(base)]
        if with_work:
            # Only a stream has work below it, and a stream is the only base: see ``bases_of``.
            (base,) = with_work
            workers_below, workers_above = _divided(node.workers, base, _above(below, base))
            if not workers_below.count:
                return step
            placed = attrs.evolve(step.with_sources(base, workers=workers_below), depth=base.depth)
            above = rewrite(below, lambda part: placed if part is base else part)
            return step.with_sources(above, workers=workers_above)
    return step


def _divided(workers: Workers, base: Step, above: list[Step]) -> tuple[Workers, Workers]:
    """The workers for the work of a base, and the workers for the operators above it."""
    if all(isinstance(step.node, Windowed) and step.node.stacks for step in above):
        return workers, attrs.evolve(workers, count=0)
    groups, count = _worker_groups(base), workers.count
    if any(isinstance(step.node, Elementwise) for step in above):
        below = min(-(-count * groups // (groups + 1)), count - 1)  # an equal share for each group
    else:  # only batches are above, for which one worker is enough
        below = count - 1 if count > 1 else 1
    least = 0 if workers.timeout is None else 1
    half = workers.part_of_memory(2)
    return (
        attrs.evolve(half, count=max(least, below)),
        attrs.evolve(half, count=max(least, count - below)),
    )


@any_depth
def _worker_groups(step: Step, joins_above: bool = False) -> int:
    """The number of groups of operators, up to this step, that each need their own workers.

    ``joins_above`` is True if the workers that run the operator above can run this operator too.
    """
    receives = _receives_elements(step)
    in_workers = runs_in_worker(step.node) and (receives or joins_above)
    below = sum(_worker_groups(source, in_workers) for source in step.sources)
    return below + 1 if receives and not joins_above else below


def _above(top: Step, base: Step) -> list[Step]:
    """The functions and batches for workers above a base."""
    below = set(map(id, walk(base)))
    return [part for part in walk(top) if id(part) not in below and _receives_elements(part)]


def _receives_elements(step: Step) -> bool:
    """Return True if this is a function or batch for workers, which receive its input elements."""
    return isinstance(step.node, Elementwise | Windowed) and is_for_workers(step)


def _has_work(base: Step) -> bool:
    """Return True if workers could run some of its operators, and do not run any yet."""
    parts = list(walk(base))
    return not any(isinstance(part.node, Placement) for part in parts) and any(
        map(_receives_elements, parts)
    )
