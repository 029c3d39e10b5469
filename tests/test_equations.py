"""Equations between flows: both sides yield the same elements, over any flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, Flow, InvalidFlow, Reordered
from flowdsl.nodes import Copying
from flowdsl.plan.tree import walk
from flowdsl.testing.elements import same
from flowdsl.testing.functions import in_one_form, keep, scale
from flowdsl.testing.outcomes import Outcome, outcome, reference
from flowdsl.testing.recipes import Recipe
from flowdsl.workers.processes import Processes
from tests.functions import keep_scaled
from tests.sampling import examples
from tests.strategies import chains
from tests.threads import spawn_thread

pytestmark = pytest.mark.slow

AnyFlow: TypeAlias = Flow[Any, Any]
Side: TypeAlias = Callable[[AnyFlow, int, int], AnyFlow]

odd, third = partial(keep, 2, 0), partial(keep, 3, 1)
scaled_odd = partial(keep_scaled, 2, 0)


def scaled_twice(element: Any) -> Any:
    return scale(scale(element))


def odd_and_third(element: Any) -> bool:
    return bool(odd(element) and third(element))


def needs_odd(element: Any) -> Any:
    if not odd(element):
        raise ValueError(element)
    return element


def alone(element: Any) -> list[Any]:
    return [element]


def alone_if_odd(element: Any) -> list[Any]:
    return [element] if odd(element) else []


def with_scaled(element: Any) -> list[Any]:
    return [element, scale(element)]


def single(element: Any) -> tuple[Any]:
    return (element,)


def twin(element: Any) -> tuple[Any, Any]:
    return element, element


def pair(one: Any, other: Any) -> tuple[Any, Any]:
    return one, other


def flat(elements: Sequence[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(elements))


def data_of(element: Any) -> Any:
    return element[1]


def constant(element: Any) -> int:
    return 1


def every_second(window: tuple[Any, ...]) -> tuple[Any, ...]:
    return window[::2]


# -- what a flow must be for an equation to hold of it ---------------------------------------------


def any_flow(x: AnyFlow) -> bool:
    return True


def sized(x: AnyFlow) -> bool:
    return x.node.length is not None


def not_empty(x: AnyFlow) -> bool:
    return bool(x.node.length)


def finite(x: AnyFlow) -> bool:
    return Endless not in x.effects


def in_order(x: AnyFlow) -> bool:
    return Reordered not in x.effects


def without_workers(x: AnyFlow) -> bool:
    return not any(isinstance(part, Copying) for part in walk(x.node))


def replayable(x: AnyFlow) -> bool:
    return x.node.replayable


def skips(x: AnyFlow) -> bool:
    """A flow whose failed elements can be skipped, and which ends even if all fail."""
    try:
        x.prefetch(on_error="skip")
    except InvalidFlow:
        return False
    return finite(x)


EVERY_EPOCH = (0, 1, 2)


@attrs.frozen
class Equation:
    """Two ways to chain operators to any flow ``x`` of a kind, with any numbers from 1 on."""

    name: str
    left: Side
    right: Side
    of: Callable[[AnyFlow], bool] = any_flow
    epochs: Sequence[int] = EVERY_EPOCH
    permuted: bool = False
    """True if both sides have the same elements in different orders."""
    uniform: bool = False
    """``x`` is a flow of plain tuples of equal shapes."""


EQUATIONS = [
    # -- each element by itself
    Equation(
        "map(f).map(g) = map(g of f)",
        lambda x, a, b: x.map(scale).map(scale),
        lambda x, a, b: x.map(scaled_twice),
    ),
    Equation(
        "filter(p).filter(q) = filter(p and q)",
        lambda x, a, b: x.filter(odd).filter(third),
        lambda x, a, b: x.filter(odd_and_third),
        finite,
    ),
    Equation(
        "filter(p).filter(q) = filter(q).filter(p)",
        lambda x, a, b: x.filter(odd).filter(third),
        lambda x, a, b: x.filter(third).filter(odd),
        finite,
    ),
    Equation(
        "filter_map(f or None) = filter(p).map(f)",
        lambda x, a, b: x.filter_map(scaled_odd),
        lambda x, a, b: x.filter(odd).map(scale),
        finite,
    ),
    Equation("flat_map([.]) = x", lambda x, a, b: x.flat_map(alone), lambda x, a, b: x),
    Equation(
        "flat_map([.] or []) = filter(p)",
        lambda x, a, b: x.flat_map(alone_if_odd),
        lambda x, a, b: x.filter(odd),
        finite,
    ),
    Equation(
        "enumerate().map(c1) = x",
        lambda x, a, b: x.enumerate(a).map(fl.c1),
        lambda x, a, b: x,
    ),
    Equation(
        "enumerate(a) = enumerate().map_component(+ a)",
        lambda x, a, b: x.enumerate(a),
        lambda x, a, b: x.enumerate().map_component(lambda i: i + a),
    ),
    Equation(
        "enumerate() = zip(the numbers, x)",
        lambda x, a, b: x.map(single).enumerate().starmap(lambda i, y: (i, *y)),
        lambda x, a, b: fl.from_range(1).repeat().enumerate().select(fl.c0).zip(x.map(single)),
        in_order,
    ),
    Equation(
        "map_component(f, 0).map_component(g, 1) = map_component(g, -1).map_component(f, -2)",
        lambda x, a, b: x.map(twin).map_component(scale).map_component(scaled_twice, 1),
        lambda x, a, b: x.map(twin).map_component(scaled_twice, -1).map_component(scale, -2),  # type: ignore[call-overload]  # checkers follow -1 only
    ),
    Equation(
        "select(c1, c0).select(c1, c0) = x",
        lambda x, a, b: x.enumerate().select(fl.c1, fl.c0).select(fl.c1, fl.c0),
        lambda x, a, b: x.enumerate(),
    ),
    Equation(
        "select(f, g) = map((f, g))",
        lambda x, a, b: x.select(scale, scaled_twice),
        lambda x, a, b: x.map(lambda y: (scale(y), scaled_twice(y))),
    ),
    Equation(
        "starmap(pair) = x",
        lambda x, a, b: x.enumerate().starmap(pair),
        lambda x, a, b: x.enumerate(),
    ),
    Equation("inspect() = x", lambda x, a, b: x.inspect(a, max_depth=0), lambda x, a, b: x),
    # -- groups
    Equation(
        "batch(a).unbatch() = x",
        lambda x, a, b: x.batch(a).unbatch(),
        lambda x, a, b: x,
        uniform=True,
    ),
    Equation(
        "batch(a, collate=list).unbatch() = x",
        lambda x, a, b: x.batch(a, collate=list).unbatch(),
        lambda x, a, b: x,
    ),
    Equation(
        "batch(a) = batch(a, collate=stack)",
        lambda x, a, b: x.batch(a),
        lambda x, a, b: x.batch(a, collate=fl.stack),
        uniform=True,
    ),
    Equation(
        "batch(a).batch(b) = batch(a b), flattened",
        lambda x, a, b: x.batch(a, collate=list).batch(b, collate=list).map(flat),
        lambda x, a, b: x.batch(a * b, collate=list),
    ),
    Equation(
        "batch(a).map(each f) = map(f).batch(a)",
        lambda x, a, b: x.batch(a, collate=list).map(scale),
        lambda x, a, b: x.map(scale).batch(a, collate=list),
    ),
    Equation(
        "padded_batch(a) = batch(a), of equal shapes",
        lambda x, a, b: x.padded_batch(a, padding=-1),
        lambda x, a, b: x.batch(a),
        uniform=True,
    ),
    Equation(
        "batch_by_shape(a) = batch(a), of equal shapes",
        lambda x, a, b: x.batch_by_shape(a, data_of, drop_remainder=b > 2),
        lambda x, a, b: x.batch(a, drop_remainder=b > 2),
        uniform=True,
    ),
    Equation(
        "batch_by_key(a, of one key) = batch(a)",
        lambda x, a, b: x.batch_by_key(a, constant, drop_remainder=b > 2, collate=list),
        lambda x, a, b: x.batch(a, drop_remainder=b > 2, collate=list),
    ),
    Equation(
        "bucket_by_length([], a) = batch(a)",
        lambda x, a, b: x.bucket_by_length(constant, [], a, drop_remainder=b > 2, collate=list),
        lambda x, a, b: x.batch(a, drop_remainder=b > 2, collate=list),
    ),
    Equation(
        "bucket_by_length([], max_tokens=a) = batch(a), of length 1",
        lambda x, a, b: x.bucket_by_length(constant, [], max_tokens=a, collate=list),
        lambda x, a, b: x.batch(a, collate=list),
    ),
    Equation(
        "window(1) = map((.,))",
        lambda x, a, b: x.window(1),
        lambda x, a, b: x.map(single),
    ),
    Equation(
        "window(a, a) = batch(a), whole ones",
        lambda x, a, b: x.window(a, a),
        lambda x, a, b: x.batch(a, drop_remainder=True, collate=tuple),
    ),
    Equation(
        "window(a, b) = window(a).shard(b, 0)",
        lambda x, a, b: x.window(a, b),
        lambda x, a, b: x.window(a).shard(b, 0),
    ),
    Equation(
        "window(a, a, remainder=keep) = batch(a)",
        lambda x, a, b: x.window(a, a, remainder="keep"),
        lambda x, a, b: x.batch(a, collate=tuple),
    ),
    Equation(
        "window(a, b, dilation=2) = every second of window(2a - 1, b)",
        lambda x, a, b: x.window(a, b, dilation=2),
        lambda x, a, b: x.window(2 * a - 1, b).map(every_second),
    ),
    Equation(
        "window(a, b, key=of one key) = window(a, b)",
        lambda x, a, b: x.window(a, b, remainder="keep", key=constant),
        lambda x, a, b: x.window(a, b, remainder="keep"),
    ),
    # -- how many
    Equation(
        "take(a).take(b) = take(min(a, b))",
        lambda x, a, b: x.take(a).take(b),
        lambda x, a, b: x.take(min(a, b)),
    ),
    Equation(
        "skip(a).skip(b) = skip(a + b)",
        lambda x, a, b: x.skip(a).skip(b),
        lambda x, a, b: x.skip(a + b),
    ),
    Equation(
        "skip(a).take(b) = take(a + b).skip(a)",
        lambda x, a, b: x.skip(a).take(b),
        lambda x, a, b: x.take(a + b).skip(a),
    ),
    Equation(
        "take(a).concat(skip(a)) = x",
        lambda x, a, b: x.take(a).concat(x.skip(a)),
        lambda x, a, b: x,
    ),
    Equation(
        "map(f).take(a) = take(a).map(f)",
        lambda x, a, b: x.map(scale).take(a),
        lambda x, a, b: x.take(a).map(scale),
    ),
    Equation(
        "batch(a).take(b) = take(a b).batch(a)",
        lambda x, a, b: x.batch(a, collate=list).take(b),
        lambda x, a, b: x.take(a * b).batch(a, collate=list),
    ),
    Equation(
        "the shards, interleaved = x",
        lambda x, a, b: x.shard(a, 0).interleave(*(x.shard(a, i) for i in range(1, a))),
        lambda x, a, b: x,
    ),
    Equation(
        "the shards, one after another = x, permuted",
        lambda x, a, b: x.shard(a, 0).concat(*(x.shard(a, i) for i in range(1, a))),
        lambda x, a, b: x,
        finite,
        permuted=True,
    ),
    Equation(
        "shard(a, i).shard(b, j) = shard(a b, i + a j)",
        lambda x, a, b: x.shard(a, a - 1).shard(b, b // 2),
        lambda x, a, b: x.shard(a * b, a - 1 + a * (b // 2)),
    ),
    Equation(
        "shard(a, i) = skip(i).shard(a, 0)",
        lambda x, a, b: x.shard(a, b % a),
        lambda x, a, b: x.skip(b % a).shard(a, 0),
    ),
    Equation("repeat(1) = x", lambda x, a, b: x.repeat(1), lambda x, a, b: x, epochs=[0]),
    Equation(
        "repeat().take(a n) = repeat(a), of n elements",
        lambda x, a, b: x.take(b).repeat().take(a * (x.take(b).node.length or 0)),
        lambda x, a, b: x.take(b).repeat(a),
        not_empty,
    ),
    Equation(
        "cache().repeat(a).repeat(b) = cache().repeat(a b)",
        lambda x, a, b: x.cache().repeat(a).repeat(b),
        lambda x, a, b: x.cache().repeat(a * b),
        finite,
    ),
    Equation(
        "cache().repeat(2) = cache().concat(cache())",
        lambda x, a, b: x.cache().repeat(2),
        lambda x, a, b: x.cache().concat(x.cache()),
        finite,
    ),
    Equation(
        "repeat_each(a) = flat_map([.] * a)",
        lambda x, a, b: x.repeat_each(a),
        lambda x, a, b: x.flat_map(lambda y: [y] * a),
    ),
    Equation(
        "repeat_each(a).shard(a, i) = x",
        lambda x, a, b: x.repeat_each(a).shard(a, b % a),
        lambda x, a, b: x,
    ),
    Equation(
        "fixed_size(length) = x",
        lambda x, a, b: x.fixed_size(x.node.length or 0),
        lambda x, a, b: x,
        sized,
    ),
    Equation(
        "fixed_size(a, keep_state=False) = repeat().take(a)",
        lambda x, a, b: x.fixed_size(a * b, keep_state=False),
        lambda x, a, b: x.repeat().take(a * b),
        not_empty,
    ),
    # -- order
    Equation(
        "shuffle() = x, permuted",
        lambda x, a, b: x.shuffle(seed=a),
        lambda x, a, b: x,
        lambda x: sized(x) and finite(x),
        permuted=True,
    ),
    Equation(
        "shuffle(buffer) = x, permuted",
        lambda x, a, b: x.shuffle(a, seed=b),
        lambda x, a, b: x,
        finite,
        permuted=True,
    ),
    Equation("shuffle(1) = x", lambda x, a, b: x.shuffle(1), lambda x, a, b: x),
    Equation("cache() = x", lambda x, a, b: x.cache(), lambda x, a, b: x, finite, epochs=[0]),
    Equation(
        "cache().cache() = cache()",
        lambda x, a, b: x.cache().cache(),
        lambda x, a, b: x.cache(),
        finite,
    ),
    Equation("prefetch() = x", lambda x, a, b: x.prefetch(), lambda x, a, b: x),
    Equation(
        "prefetch(ordered=False) = x, of one worker",
        lambda x, a, b: x.prefetch(ordered=False),
        lambda x, a, b: x,
        without_workers,
    ),
    Equation(
        "prefetch(on_error='skip') = x",
        lambda x, a, b: x.prefetch(on_error="skip"),
        lambda x, a, b: x,
        skips,
    ),
    Equation(
        "map(fails but for p).prefetch(on_error='skip') = filter(p)",
        lambda x, a, b: x.map(needs_odd).prefetch(on_error="skip"),
        lambda x, a, b: x.filter(odd),
        skips,
    ),
    Equation(
        "map(fails but for p).batch(a).prefetch(on_error='skip') = filter(p).batch(a)",
        lambda x, a, b: x.map(needs_odd).batch(a, collate=list).prefetch(on_error="skip"),
        lambda x, a, b: x.filter(odd).batch(a, collate=list),
        skips,
    ),
    Equation(
        "prefetch(on_error='skip') of a part = of the whole",
        lambda x, a, b: (
            x.take(a).prefetch(on_error="skip").concat(x.skip(a)).prefetch(on_error="skip")
        ),
        lambda x, a, b: x.take(a).concat(x.skip(a)).prefetch(on_error="skip"),
        skips,
    ),
    Equation("replicate(1) = x", lambda x, a, b: x.replicate(1), lambda x, a, b: x, replayable),
    Equation(
        "cache().replicate(a) = cache().repeat_each(a)",
        lambda x, a, b: x.cache().replicate(a),
        lambda x, a, b: x.cache().repeat_each(a),
        lambda x: replayable(x) and finite(x),
    ),
    Equation(
        "replicate(a) = repeat(a), permuted",
        lambda x, a, b: x.replicate(a),
        lambda x, a, b: x.repeat(a),
        lambda x: replayable(x) and finite(x),
        epochs=[0],
        permuted=True,
    ),
    # -- several
    Equation("concat() = x", lambda x, a, b: x.concat(), lambda x, a, b: x),
    Equation("interleave() = x", lambda x, a, b: x.interleave(), lambda x, a, b: x),
    Equation("choose() = x", lambda x, a, b: x.choose(), lambda x, a, b: x),
    Equation("choose(stop='first') = x", lambda x, a, b: x.choose(stop="first"), lambda x, a, b: x),
    Equation("mix() = x", lambda x, a, b: x.mix(), lambda x, a, b: x, sized),
    Equation(
        "concat(y).concat(z) = concat(y.concat(z))",
        lambda x, a, b: x.concat(x.take(a)).concat(x.skip(b)),
        lambda x, a, b: x.concat(x.take(a).concat(x.skip(b))),
        finite,
    ),
    Equation(
        "concat(y, z) = concat(y).concat(z)",
        lambda x, a, b: x.concat(x.take(a), x.skip(b)),
        lambda x, a, b: x.concat(x.take(a)).concat(x.skip(b)),
        finite,
    ),
    Equation(
        "map(f).concat(y.map(f)) = concat(y).map(f)",
        lambda x, a, b: x.map(scale).concat(x.skip(a).map(scale)),
        lambda x, a, b: x.concat(x.skip(a)).map(scale),
        finite,
    ),
    Equation(
        "zip(y).select(c0) = x",
        lambda x, a, b: x.map(single).zip(x.map(scale).map(single)).select(fl.c0).map(fl.c0),
        lambda x, a, b: x,
        in_order,
    ),
    Equation(
        "map(f).zip(map(g)) = map((f, g))",
        lambda x, a, b: x.map(single).map(scale).zip(x.map(scaled_twice).map(single)),
        lambda x, a, b: x.map(lambda y: (scale(y), scaled_twice(y))),
        in_order,
    ),
    Equation(
        "zip(y).zip(z) = zip(y.zip(z))",
        lambda x, a, b: x.enumerate().zip(x.enumerate(1)).zip(x.enumerate(2)),
        lambda x, a, b: x.enumerate().zip(x.enumerate(1).zip(x.enumerate(2))),
        in_order,
    ),
    Equation(
        "interleave(map(f)) = flat_map([., f])",
        lambda x, a, b: x.interleave(x.map(scale)),
        lambda x, a, b: x.flat_map(with_scaled),
    ),
    Equation(
        "choose(y) = concat(y), permuted",
        lambda x, a, b: x.choose(x.take(a), seed=b, weights=[a, b]),
        lambda x, a, b: x.concat(x.take(a)),
        finite,
        permuted=True,
    ),
    Equation(
        "mix(y) = concat(y), permuted",
        lambda x, a, b: x.mix(x.take(a), seed=b),
        lambda x, a, b: x.concat(x.take(a)),
        sized,
        permuted=True,
    ),
]


def _permuted(one: list[Any], other: list[Any]) -> bool:
    left = list(other)
    for x in one:
        found = next((i for i, y in enumerate(left) if same(x, y)), None)
        if found is None:
            return False
        del left[found]
    return not left


def _is_one(left: Outcome, right: Outcome, equation: Equation) -> None:
    if equation.permuted:
        assert left.ended == right.ended
        assert not left.ended or _permuted(left.elements, right.elements)
    else:
        assert left == right


@pytest.fixture(autouse=True)
def workers_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equations of replicate."""
    monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))


_numbers = st.integers(1, 5)


@pytest.mark.hypothesis
@pytest.mark.parametrize("equation", EQUATIONS, ids=[equation.name for equation in EQUATIONS])
def test_both_sides_of_the_equation_are_equal(equation: Equation) -> None:
    @settings(max_examples=examples(60))
    @given(chains(most=3), _numbers, _numbers, st.sampled_from(equation.epochs))
    def check(recipe: Recipe, a: int, b: int, epoch: int) -> None:
        assume(recipe.is_in_order(0) and equation.of(recipe.flow))
        left, right = (_build(recipe, side, a, b) for side in (equation.left, equation.right))
        meaning = reference(left().node, epoch)
        expected = reference(right().node, epoch)
        assume(meaning.error is None and expected.error is None)
        _is_one(meaning, expected, equation)
        for side in (left, right):  # which the planner makes different things of
            with side().epoch(epoch) as run:
                assert outcome(run) == (meaning if side is left else expected)

    def _build(recipe: Recipe, side: Side, a: int, b: int) -> Callable[[], AnyFlow]:
        def built() -> AnyFlow:
            x = recipe.build()
            return side(x.map(in_one_form) if equation.uniform else x, a, b)

        return built

    check()
