"""A prefetch over an operator that must see the whole sequence is split into two prefetches."""

from __future__ import annotations

import attrs

from flowdsl.nodes import Elementwise, Placement, Windowed
from flowdsl.plan.tree import Step, bases_of, is_work, rewrite, runs_in_worker, walk
from flowdsl.resources.worker_kinds import Workers


def split_prefetch(step: Step) -> Step:
    """``x.map(f).shuffle(9).map(g).prefetch(4)`` runs ``f`` and ``g`` in two processes each.

    The work above such an operator needs workers that receive its elements; the work below needs
    other workers. The two parts share the number of workers, and each gets half of the memory. A
    batch alone needs one worker. A single worker runs the functions above, while a thread runs the
    functions below ahead; without functions above, it runs the functions below. With a ``timeout``
    each part has a worker, as a function in the consumer's process could not be ended.
    """
    node = step.node
    if isinstance(node, Placement) and node.workers.count:
        (below,) = step.sources
        busy = [base for base in bases_of(below) if base is not below and _has_work(base)]
        if busy:
            (base,) = busy  # a stream: bases in memory have no work
            theirs, ours = _divided(node.workers, base, _has_functions(below, base))
            if not theirs.count:
                return step
            placed = attrs.evolve(step.over(base, workers=theirs), depth=base.depth)
            above = rewrite(below, lambda part: placed if part is base else part)
            return step.over(above, workers=ours)
    return step


def _divided(workers: Workers, base: Step, functions: bool) -> tuple[Workers, Workers]:
    """The workers for the work of a base, and the workers for the work above it."""
    parts, count = _parts(base), workers.count
    below = -(-count * parts // (parts + 1)) if functions else count - 1
    below = min(below, count - 1) if functions or count > 1 else 1
    least = 0 if workers.timeout is None else 1
    half = workers.part_of_memory(2)
    return (
        attrs.evolve(half, count=max(least, below)),
        attrs.evolve(half, count=max(least, count - below)),
    )


def _parts(step: Step, joined: bool = False) -> int:
    """The number of parts of the work up to this step that each need their own workers.

    ``joined`` is True if the workers that run the operator above can run this operator too.
    """
    works = _is_sent(step)
    there = runs_in_worker(step.node) and (works or joined)
    return (works and not joined) + sum(_parts(source, there) for source in step.sources)


def _has_functions(top: Step, base: Step) -> bool:
    below = set(map(id, walk(base)))
    above = (part for part in walk(top) if id(part) not in below)
    return any(isinstance(part.node, Elementwise) and is_work(part) for part in above)


def _is_sent(step: Step) -> bool:
    return isinstance(step.node, Elementwise | Windowed) and is_work(step)


def _has_work(base: Step) -> bool:
    """Return True if workers could run some of its operators, and do not run any yet."""
    parts = list(walk(base))
    return not any(isinstance(part.node, Placement) for part in parts) and any(map(_is_sent, parts))
