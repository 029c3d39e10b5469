"""check_flow: check a flow of your own against the laws, in one call.

``check_operator`` and ``check_source`` draw random chains around a new operator or source. This
call checks one chain as it is, with your data and your functions. It finds what a chain can get
wrong although each operator is correct: a function that draws random numbers of its own, or changes
its argument, or cannot be sent to a worker; a return type that is not what the function returns; a
source that differs between passes.
"""

from __future__ import annotations

import json
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from flowdsl.effects import Endless, Resampled
from flowdsl.elements.matching_specs import meet
from flowdsl.elements.specs import spec_of, without_sizes
from flowdsl.errors import FlowError, InvalidArgument, NotResumable, SpecMismatch
from flowdsl.flow import Flow
from flowdsl.nodes import AnyNode, FlowBase, Placement, Unordered, flow, is_int, with_sources
from flowdsl.plan.tree import walk
from flowdsl.resources.any_depth import any_depth
from flowdsl.runtime.state import state_of
from flowdsl.testing.elements import same
from flowdsl.testing.endings import no_thread_is_left
from flowdsl.testing.outcomes import Outcome, outcome, sentence_of

_MOST_BYTES_OF_STATE = 1024
"""The limit on the size of a state."""
_MOST_TRACED = 20
"""The number of elements whose rows are compared."""


@attrs.frozen
class Finding:
    """The result of checking a law on a flow."""

    law: str
    """The law, as a sentence."""
    holds: bool | None
    """None if the law says nothing about this flow."""
    detail: str = ""
    """A description of how the law is broken; or why it does not apply."""

    def __str__(self) -> str:
        mark = {True: "holds", False: "BROKEN", None: "-"}[self.holds]
        return f"{mark:<7} {self.law}" + (f"\n        {self.detail}" if self.detail else "")


@attrs.frozen
class FlowReport:
    """The laws that a flow was checked against, and the number of elements that were compared."""

    flow: str
    elements: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if no law is broken."""
        return all(finding.holds is not False for finding in self.findings)

    def __str__(self) -> str:
        head = f"{self.flow}: {self.elements} elements compared"
        return "\n".join([head, *map(str, self.findings)])


class _DoesNotApply(Exception):
    """A law says nothing about a flow. This exception never leaves the module."""


@attrs.frozen
class _Subject:
    """The flow to check, and the other arguments of ``check_flow``."""

    make_flow: Callable[[], Flow[Any, Any]]
    size: int
    procs: tuple[int, ...]
    threads: int
    resumes: int

    @property
    def node(self) -> AnyNode:
        return self.make_flow().node

    def placed(self, procs: int = 0, threads: int = 0) -> Flow[Any, Any]:
        """Return the flow with these workers at its end, and none elsewhere."""
        without: Flow[Any, Any] = flow(_without_workers(self.node))
        return without.prefetch(procs, threads) if procs or threads else without

    def placements(self) -> Iterator[tuple[str, Flow[Any, Any]]]:
        for n in self.procs:
            yield f"procs={n}", self.placed(procs=n)
        if self.threads:
            yield f"threads={self.threads}", self.placed(threads=self.threads)


@any_depth
def _without_workers(node: AnyNode) -> AnyNode:
    node = with_sources(node, tuple(map(_without_workers, node.sources)))
    if not isinstance(node, Placement):
        return node
    return attrs.evolve(node, workers=attrs.evolve(node.workers, count=0, auto=False))


def _require_equal(what: str, got: Outcome, expected: Outcome, is_ordered: bool = True) -> None:
    """Compare two passes.

    Raises:
        AssertionError: They differ.
    """
    if got.error != expected.error and got.error is not None:
        raise AssertionError(f"{what}: it failed after {len(got)} elements: {got.error}")
    missing = list(expected.elements)
    for k, element in enumerate(got.elements):
        i = 0 if is_ordered else next((i for i, x in enumerate(missing) if alike(element, x)), 0)
        if not missing or not alike(element, missing[i]):
            instead = _shown(missing[i]) if missing else "the end"
            raise AssertionError(f"{what}: element {k} is {_shown(element)}, and not {instead}")
        del missing[i]
    if missing:
        raise AssertionError(f"{what}: {len(missing)} of {len(expected)} elements are missing")
    if got.error != expected.error:
        raise AssertionError(
            f"{what}: it ended with {got.error or 'its last element'}, and not with "
            f"{expected.error or 'its last element'}"
        )


def alike(a: object, b: object) -> bool:
    """Return True if two elements are equal, or if their class defines no equality, their pickles.

    >>> alike(object(), object()), alike([1.0], [1])
    (True, False)
    """
    try:
        if same(a, b):
            return True
        if type(a).__eq__ is not object.__eq__ and type(a) not in (list, tuple, dict):
            return False
    except Exception:  # such as the truth value of a tensor
        pass
    try:
        return type(a) is type(b) and pickle.dumps(a) == pickle.dumps(b)
    except Exception:
        return False


def _shown(x: object, most: int = 100) -> str:
    text = repr(x)
    return text if len(text) <= most else f"{text[:most]}..."


# -- the laws --------------------------------------------------------------------------------------


def a_pass_ends_without_an_error(subject: _Subject, expected: Outcome) -> None:
    """A pass ends without an error."""
    if expected.error is not None:
        raise AssertionError(f"after {len(expected)} elements: {expected.error}")


def passes_are_equal(subject: _Subject, expected: Outcome) -> None:
    """Two passes over the same epoch have the same elements."""
    if not subject.node.replayable:
        raise _DoesNotApply("its source yields each element only once")
    again = outcome(subject.placed().epoch(0), subject.size)
    try:
        _require_equal("the second pass", again, expected, _is_ordered(subject.node))
    except AssertionError as error:
        raise AssertionError(
            f"{error}; a function that draws random numbers must take its generator from "
            f"random_map, and one that changes its argument must copy it first"
        ) from None


def workers_change_nothing(subject: _Subject, expected: Outcome) -> None:
    """Worker processes and threads yield the same elements in the same order."""
    for workers, placed in subject.placements():
        with placed.epoch(0) as run:
            _require_equal(
                f"with {workers}", outcome(run, subject.size), expected, _is_ordered(placed.node)
            )
        placed.end_workers()


def a_pass_resumes_anywhere(subject: _Subject, expected: Outcome) -> None:
    """After any element, a state of JSON below 1 KB resumes the pass, on any workers."""
    node = subject.node
    if not node.replayable:
        raise _DoesNotApply("its source yields each element only once")
    try:
        state_of(node, 0, 0)
    except NotResumable as error:
        raise _DoesNotApply(str(error).removeprefix("state_dict: ")) from None
    flows = [("without workers", subject.placed()), *subject.placements()]
    n = len(expected)
    positions = sorted({n * k // max(1, subject.resumes - 1) for k in range(subject.resumes)})
    for k, position in enumerate(positions):
        before, after = flows[k % len(flows)], flows[(k + 1) % len(flows)]
        with before[1].epoch(0) as run:
            for _ in range(position):
                next(run)
            text = json.dumps(run.state_dict())
        if len(text) > _MOST_BYTES_OF_STATE:
            raise AssertionError(f"after element {position} the state has {len(text)} bytes")
        with after[1].resume(json.loads(text)) as rest:
            got = outcome(rest, subject.size - position)
        rest_of_pass = Outcome(expected.elements[position:], expected.error, expected.ended)
        what = f"saved {before[0]} after {position} elements, resumed {after[0]}"
        _require_equal(what, got, rest_of_pass)
    for _, each in flows:
        each.end_workers()


def elements_match_the_spec(subject: _Subject, expected: Outcome) -> None:
    """Every element has the types, dtypes and shapes that the spec of the flow says."""
    if not expected.elements:
        raise _DoesNotApply("it has no elements")
    try:  # without sizes of axes: the last batch of a pass may be smaller
        spec = without_sizes(subject.make_flow().spec)
    except FlowError as error:
        raise AssertionError(f"the spec is unknown: {error}") from error
    for k, element in enumerate(expected.elements):
        try:
            meet(spec, spec_of(element))
        except SpecMismatch as error:
            raise AssertionError(f"element {k}: {error}; the spec is {spec}") from error


def the_length_is_true(subject: _Subject, expected: Outcome) -> None:
    """A known length is the number of elements, and a flow that is Endless does not end."""
    node, n = subject.node, len(expected)
    if expected.error is not None:
        raise _DoesNotApply("the pass ends with an error")
    if Endless in node.effects:
        if expected.ended:
            raise AssertionError(f"the flow is Endless, and ended after {n} elements")
        return
    if node.length is None:
        raise _DoesNotApply("its length is unknown until the end of a pass")
    if n != min(node.length, subject.size):
        raise AssertionError(f"the length is {node.length}, and {n} elements came")


def each_row_comes_once(subject: _Subject, expected: Outcome) -> None:
    """Without the effect Resampled, no row of a source comes twice."""
    flow = subject.make_flow()
    if Resampled in flow.effects:
        raise _DoesNotApply("the flow is Resampled: rows may repeat or be missing")
    # where the length is unknown, an operator such as flat_map makes several elements of a row
    traced_once = flow.node.length is not None
    seen = dict[object, int]()
    for position in range(min(len(expected), _MOST_TRACED)):
        try:
            origins = flow.origins(position)
        except FlowError as error:
            raise _DoesNotApply(f"its rows cannot be followed: {error}") from None
        for origin in {(origin.step, origin.row) for origin in origins}:
            if seen.setdefault(origin, position) != position and traced_once:
                raise AssertionError(
                    f"row {origin[1]} of source {origin[0]} is in elements {seen[origin]} and "
                    f"{position}"
                )


def nothing_is_left_behind(subject: _Subject, expected: Outcome) -> None:
    """A pass that is closed early leaves no thread, process or open file."""
    for workers, placed in [("no workers", subject.placed()), *subject.placements()]:
        files, children = _open_files(), _child_processes()
        with no_thread_is_left():
            with placed.epoch(0) as run:
                list(islice(run, max(1, len(expected) // 2)))
            placed.end_workers()
        if left := _child_processes() - children:
            raise AssertionError(f"with {workers}, the processes {sorted(left)} are left")
        if opened := _open_files() - files:
            raise AssertionError(f"with {workers}, the files {sorted(opened)} are left open")


def _child_processes() -> set[str]:
    return {child.name for child in active_children()}


def _open_files() -> Counter[str]:
    """Count the regular files that are open, by name; empty on systems that do not say."""
    links = Path("/proc/self/fd")
    names = list[str]()
    for link in links.iterdir() if links.is_dir() else ():
        with suppress(OSError):  # the descriptor of this listing
            names.append(os.readlink(link))
    return Counter(n for n in names if n.startswith("/") and not n.startswith(("/dev/", "/memfd")))


def _is_ordered(node: AnyNode) -> bool:
    return not any(isinstance(part, Unordered) for part in walk(node))


Law: TypeAlias = Callable[[_Subject, Outcome], None]

FLOW_LAWS: tuple[Law, ...] = (
    a_pass_ends_without_an_error,
    passes_are_equal,
    workers_change_nothing,
    a_pass_resumes_anywhere,
    elements_match_the_spec,
    the_length_is_true,
    each_row_comes_once,
    nothing_is_left_behind,
)
"""The laws in the order in which they are checked; the first line of each docstring states it."""


def check_flow(
    flow: Flow[Any, Any] | Callable[[], Flow[Any, Any]],
    *,
    size: int = 100,
    procs: tuple[int, ...] = (1, 2),
    threads: int = 2,
    resumes: int = 6,
) -> FlowReport:
    """Check a flow of your own: the same elements on any workers, exact resume, a true spec.

    Put it into a test, with the flow that your training reads. It runs ``size`` elements of epoch 0
    some ten times: in this process, on each number of ``procs``, on ``threads``, resumed at
    ``resumes`` positions between them, and closed early. A ``prefetch`` in the flow is replaced.
    An endless flow must have at least ``size`` elements: a filter that rejects all later ones would
    run forever.

    Args:
        flow: The flow, or a function that makes it; a function if a source allows only one pass.
        size: The number of elements that are compared; the rest is not computed.
        procs: The numbers of worker processes; ``()`` to check without any.
        threads: The number of threads; 0 to check without.
        resumes: The number of positions at which a pass is saved and resumed.

    Returns:
        The laws and what was found, readable with ``print``.

    Raises:
        AssertionError: A law is broken. The message is the report, which names the element.
        InvalidArgument: An argument is not a flow, or not a number in its bounds.

    >>> import flowdsl as fl
    >>> from flowdsl.testing import check_flow
    >>> print(check_flow(fl.from_range(40).shuffle(seed=1).map(float).batch(8), procs=(1,)))
    from_range(40) > shuffle(seed=1) > map(float) > batch(8): 5 elements compared
    holds   A pass ends without an error.
    holds   Two passes over the same epoch have the same elements.
    holds   Worker processes and threads yield the same elements in the same order.
    holds   After any element, a state of JSON below 1 KB resumes the pass, on any workers.
    holds   Every element has the types, dtypes and shapes that the spec of the flow says.
    holds   A known length is the number of elements, and a flow that is Endless does not end.
    holds   Without the effect Resampled, no row of a source comes twice.
    holds   A pass that is closed early leaves no thread, process or open file.

    A broken law is an error:

    >>> import random
    >>> noisy = fl.from_range(40).map(lambda i: i + random.random())
    >>> try:
    ...     check_flow(noisy, procs=(), threads=0)
    ... except AssertionError as error:
    ...     print("BROKEN  Two passes over the same epoch" in str(error))
    True

    Source: ``assert_equal_output_after_checkpoint`` in Grain's testing, and
    ``CheckpointTestBase`` in tf.data's tests.
    """
    subject = _subject(flow, size, procs, threads, resumes)
    expected = outcome(subject.placed().epoch(0), size)
    findings = [_checked(law, subject, expected) for law in FLOW_LAWS]
    title = " > ".join(part.title for part in walk(subject.node) if not isinstance(part, Placement))
    report = FlowReport(title, len(expected), tuple(findings))
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _subject(
    flow: Flow[Any, Any] | Callable[[], Flow[Any, Any]],
    size: int,
    procs: tuple[int, ...],
    threads: int,
    resumes: int,
) -> _Subject:
    """Check the arguments of ``check_flow``.

    Raises:
        InvalidArgument: One is wrong.
    """
    for name, value, least in (("size", size, 1), ("threads", threads, 0), ("resumes", resumes, 0)):
        if not is_int(value, least):
            raise InvalidArgument(f"check_flow: {name} must be an int >= {least}, got {value!r}")
    if not isinstance(procs, tuple | list) or not all(is_int(n, 1) for n in procs):
        raise InvalidArgument(f"check_flow: procs must be a tuple of ints >= 1, got {procs!r}")
    made: object = flow() if callable(flow) else flow
    if not isinstance(made, FlowBase):
        returned = f" that returns {type(made).__name__}" if callable(flow) else ""
        raise InvalidArgument(
            f"check_flow: flow must be a flow, or a function that returns one, got "
            f"{type(flow).__name__}{returned}"
        )
    if callable(flow):
        return _Subject(flow, size, tuple(procs), threads, resumes)
    if not flow.node.replayable:
        raise InvalidArgument(
            f"check_flow: {flow.node.title} allows only one pass, and this call needs several; "
            f"pass a function that makes the flow"
        )
    return _Subject(lambda: flow, size, tuple(procs), threads, resumes)


def _checked(law: Law, subject: _Subject, expected: Outcome) -> Finding:
    sentence = sentence_of(law)
    try:
        law(subject, expected)
    except _DoesNotApply as reason:
        return Finding(sentence, None, str(reason))
    except (AssertionError, FlowError) as error:
        return Finding(sentence, False, str(error))
    return Finding(sentence, True)
