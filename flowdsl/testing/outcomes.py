"""Outcomes of passes, expected outcomes, and descriptions of their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import islice
from typing import Any

import attrs
import numpy as np

from flowdsl.effects import Endless, Resampled
from flowdsl.errors import EndlessFlow, FlowError, SourceError
from flowdsl.nodes import AnyNode, IndexTransform, Row, Windowed
from flowdsl.ops.sizing import FixedSize
from flowdsl.plan.lower import plan_of
from flowdsl.plan.optimize import optimize
from flowdsl.plan.plan import AheadInThread, Hosted, Part
from flowdsl.plan.rules import RULES, Rule
from flowdsl.plan.tree import Step, rewrite, steps_of, walk
from flowdsl.testing.elements import same
from flowdsl.testing.recipes import MAX_ELEMENTS


def require(holds: bool, otherwise: str) -> None:
    """Raise an AssertionError unless ``holds``; unlike ``assert``, also under ``python -O``.

    Raises:
        AssertionError: ``holds`` is False.
    """
    if not holds:
        raise AssertionError(otherwise)


def require_equal_arrays(what: str, got: Iterable[Any], expected: Iterable[Any]) -> None:
    """Require that elements are equal after the conversion of their components to arrays.

    Raises:
        AssertionError: They differ.
    """
    of_arrays, expected_of_arrays = (
        [tuple(np.asarray(part) for part in element) for element in elements]
        for elements in (got, expected)
    )
    found = element_difference(of_arrays, expected_of_arrays)
    require(found is None, f"{what}: {found}")


def sentence_of(law: Callable[..., object]) -> str:
    """Return a law as a sentence: the first line of its docstring."""
    return (law.__doc__ or law.__name__).splitlines()[0]


@contextmanager
def naming(law: Callable[..., object]) -> Iterator[None]:
    """Add a note that names the law to an error of the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the law: {sentence_of(law)}")
        raise


@attrs.frozen
class Outcome:
    """The outcome of a pass: its elements, the error if there was one, and if it has ended."""

    elements: list[Any]
    error: str | None
    ended: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and difference(self, other) is None

    def __len__(self) -> int:
        return len(self.elements)


def outcome(elements: Iterator[Any], most: int = MAX_ELEMENTS) -> Outcome:
    """Run a pass for at most ``most`` elements, and return its outcome."""
    got: list[Any] = []
    try:
        for element in islice(elements, most):
            got.append(element)  # noqa: PERF402  # elements before an error count, too
    except FlowError as error:
        return Outcome(got, _description(error), True)
    return Outcome(got, None, len(got) < most)


def _description(error: FlowError) -> str:
    kind, cause = type(error).__name__, error.__cause__
    if type(error) in (FlowError, EndlessFlow):  # names an operator that a rule may have moved
        return f"{kind}: ..."
    return f"{kind}: {error} <- {type(cause).__name__}: {cause}"


# -- access to internals of flows ---------------------------------------------------------------


def reference_rows(node: AnyNode, epoch: int = 0) -> Iterator[Row[Any]]:
    """Yield the expected positions and elements of a pass over a node."""
    return node.reference(epoch)


def plan_rows(node: AnyNode, epoch: int = 0) -> Iterator[Row[Any]]:
    """Yield the rows of a node's plan, with its stages replaced by their references."""
    return _rows(plan_of(node).root, epoch)


def _rows(part: Part, epoch: int) -> Iterator[Row[Any]]:
    if isinstance(part, Hosted):
        return part.top.node.rows(epoch, [partial(_rows, source) for source in part.sources])
    if isinstance(part, AheadInThread):
        return _rows(part.source, epoch)
    return part.meaning.reference(epoch)


def _rewritten(rules: tuple[Rule, ...], node: AnyNode) -> AnyNode:
    first: Step = steps_of(node)
    return reduce(rewrite, rules, first).node


REWRITES: tuple[Callable[[AnyNode], AnyNode], ...] = (
    *(partial(_rewritten, RULES[: k + 1]) for k in range(len(RULES))),
    lambda node: optimize(steps_of(node)).node,
)
"""Functions that rewrite a node: by the first 1, 2, ... rules, and by the optimizer."""


def reference(node: AnyNode, epoch: int = 0) -> Outcome:
    """Return the expected outcome of a pass over a node."""
    return outcome(x for _, x in reference_rows(node, epoch))


# -- comparing -------------------------------------------------------------------------------------


def element_difference(got: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """Describe the first difference of two lists of elements; None if they are equal."""
    for k, (element, other) in enumerate(zip(got, expected, strict=False)):
        if not same(element, other):
            return f"element {k} is {element!r}, and not {other!r}"
    if len(got) != len(expected):
        return f"{len(got)} elements came, and {len(expected)} were expected"
    return None


def difference(got: Outcome, expected: Outcome) -> str | None:
    """Describe the difference of two outcomes; None if they are equal."""
    found = element_difference(got.elements, expected.elements)
    if found is None and (got.error, got.ended) != (expected.error, expected.ended):
        found = f"it ended with {_end(got)}, and not with {_end(expected)}"
    return found


def _end(pass_: Outcome) -> str:
    return pass_.error or ("its last element" if pass_.ended else "more to come")


def agree(what: str, got: Outcome, expected: Outcome, node: AnyNode) -> None:
    """Check that a run yields the elements of the reference, and its error at the same position.

    If the reference fails on an element that it reads ahead or never yields, a run may fail later
    or not at all, since it computes only the elements it needs.

    Raises:
        AssertionError: The run differs.
    """
    if expected.error is None or not computes_ahead(node):
        found = difference(got, expected)
        require(found is None, f"{what}: {found}")
        return
    n = len(expected)
    found = element_difference(got.elements[:n], expected.elements)
    require(found is None, f"{what}: {found}")
    if len(got) == n and got.ended and got.error is not None:
        kinds = [error.split(":")[0] for error in (got.error, expected.error)]
        is_possible = kinds[0] == kinds[1] or _may_come_instead(got.error, node)
        require(is_possible, f"{what}: the error is {got.error}, and not {expected.error}")


def _may_come_instead(error: str, node: AnyNode) -> bool:
    """Return True if a run may raise this error after skipping the element that failed before it.

    Lengths may turn out to differ. A repeated flow may turn out to have no elements, or to read a
    source that supports only one pass.
    """
    kind = error.split(":")[0]
    if kind == SourceError.__name__:
        return Resampled in node.effects and "allows only one pass" in error
    return kind in {
        FlowError.__name__,
        *[EndlessFlow.__name__] * any(map(_repeats_source, walk(node))),
    }


def _repeats_source(node: AnyNode) -> bool:
    """Return True if the node repeats its source until it has enough elements."""
    return Endless in node.effects or isinstance(node, FixedSize)


def computes_ahead(node: AnyNode) -> bool:
    """Return True if the node's reference computes elements ahead; a run need not do so."""
    return any(map(_reads_ahead, walk(node)))


def _reads_ahead(node: AnyNode) -> bool:
    if isinstance(node, Windowed):
        return node.drop_remainder or node.dilation > 1 or node.stride > node.n
    return isinstance(node, IndexTransform) and not node.keeps_positions
