"""Broken operators: every law of flows fails for at least one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Generic

import attrs
import numpy as np
import pytest

import flowdsl as fl
from flowdsl.effects import Endless
from flowdsl.elements.specs import ArraySpec, Spec, ValueSpec
from flowdsl.errors import InvalidFlow, Where
from flowdsl.nodes import (
    E,
    Elementwise,
    IndexedSource,
    IndexTransform,
    Indices,
    PassFactory,
    Provenance,
    Resumable,
    Row,
    T,
    flow,
)
from flowdsl.testing import LAWS, Model, Recipe, check_operator, check_source, functions, models
from flowdsl.testing.elements import make
from flowdsl.testing.laws import (
    Law,
    changing_a_row_changes_exactly_its_elements,
    errors_name_the_row,
    length_is_true,
    origins_name_the_rows,
    passes_are_pure,
    planning_keeps_the_meaning,
    prefetch_changes_nothing,
    promises_match_the_model,
    reference_is_the_model,
    resuming_anywhere_gives_the_rest,
    rows_keep_the_effects,
    running_gives_the_reference,
    spec_is_true,
    unordered_is_a_permutation,
)

ROWS = [make("tuple", i) for i in range(7)]

pytestmark = pytest.mark.usefixtures("first_failure")


@attrs.frozen
class _Keeping(IndexTransform[T, E], Generic[T, E]):
    def __attrs_post_init__(self) -> None:
        if Endless in self.source.effects:
            raise InvalidFlow("kept: a pass has to end")

    @property
    def title(self) -> str:
        return "kept()"

    @property
    def length(self) -> int | None:
        return self.source.length

    def resolve(self, addresses: Indices) -> Indices:
        return addresses


class Kept(_Keeping[T, E]):
    """Passes elements through; the classes below break it on purpose."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        elements = [x for _, x in sources[0](epoch)]
        return enumerate(self.change(elements, epoch))

    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return elements


class Drops(Kept[T, E]):
    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return [*elements[:3], *elements[4:]]


class Swaps(Kept[T, E]):
    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return [elements[1], elements[0], *elements[2:]]


class Repeats(Kept[T, E]):
    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return [*elements, elements[-1]]


class ChangesWithTheEpoch(Kept[T, E]):
    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return elements[::-1] if epoch else elements


class Numbers(Kept[T, E]):
    """Numbers positions from 1."""

    def rows(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[T]]:
        return ((i + 1, x) for i, x in sources[0](epoch))


class Lengthens(Kept[T, E]):
    @property
    def length(self) -> int | None:
        return 8


class ForgetsItsLength(Kept[T, E]):
    @property
    def length(self) -> int | None:
        return None


class Mistakes(Kept[T, E]):
    """Declares a wrong spec."""

    def spec(self, probe: bool) -> Spec:
        return ArraySpec(np.dtype(np.float64), (3,))


class ReadsAnother(Kept[T, E]):
    """Returns the previous row on random access."""

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, np.maximum(addresses.position - 1, 0))


class Blames(Kept[T, E]):
    """Names another row than the one that failed."""

    def origin(self, epoch: int, position: int) -> Where:
        return self.source.origin(epoch, (position + 1) % 7)


class NamesAnother(Kept[T, E]):
    """Names a wrong origin by position."""

    def made_of(self, addresses: Indices) -> Provenance | None:
        return Provenance.one_each(Indices(addresses.epoch, (addresses.position + 1) % 7))


class NamesNone(Kept[T, E]):
    """Names no origin for the third element in a replay."""

    @property
    def indexable(self) -> bool:
        return False

    def rows_with_places(self, epoch: int, sources: Sequence[PassFactory]) -> Iterator[Row[Any]]:
        for position, x in super().rows_with_places(epoch, sources):
            yield position, attrs.evolve(x, places=()) if position == 2 else x


class GoesOnElsewhere(_Keeping[T, E], Resumable[T, E]):
    """Leaves an element out after a resume."""

    @property
    def indexable(self) -> bool:
        return False

    def rows_after(
        self, epoch: int, yielded: int, ended_passes: int, sources: Sequence[PassFactory]
    ) -> Iterator[Row[T]]:
        rows = (x for _, x in sources[0](epoch))
        if yielded:
            next(rows, None)
        return zip(count(yielded), rows, strict=False)


_passes = count()


class Remembers(Kept[T, E]):
    """Yields other elements in each pass."""

    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        k = next(_passes) % max(1, len(elements))
        return [*elements[k:], *elements[:k]]

    @property
    def indexable(self) -> bool:
        return False


class Backwards(Kept[T, E]):
    """Like its model, but neither declares the effect ``Reordered``."""

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, (self.length or 0) - 1 - addresses.position)

    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return elements[::-1]


class Twice(Kept[T, E]):
    """Like its model, but neither declares the effect ``Resampled``."""

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, addresses.position // 2)

    @property
    def length(self) -> int | None:
        return None if self.source.length is None else 2 * self.source.length

    def change(self, elements: list[Any], epoch: int) -> list[Any]:
        return [x for x in elements for _ in range(2)]


@attrs.frozen
class ScalesTheLast(Elementwise[Any, Any, E], Generic[E]):
    """Reads more than one element, but declares that it does not."""

    @property
    def title(self) -> str:
        return "scales_the_last()"

    def spec(self, probe: bool) -> Spec:
        return self.source.spec(probe)

    def apply(self, x: Any, epoch: int, position: int) -> Any:
        return functions.scale(x) if position + 1 == self.source.length else x


def as_it_is(source: Model) -> Model:
    return source.then_renumbered(source.elements, source.length)


def backwards(source: Model) -> Model:
    return source.then_renumbered(lambda epoch: [*source.elements(epoch)][::-1], source.length)


def twice(source: Model) -> Model:
    return source.then_renumbered(
        lambda epoch: (x for x in source.elements(epoch) for _ in range(2)), source.times(2)
    )


def last_scaled(source: Model) -> Model:
    def rows(epoch: int) -> Iterator[tuple[int, Any]]:
        for i, x in source.rows(epoch):
            yield i, functions.scale(x) if i + 1 == source.length else x

    return source.then(rows, source.length)


def recipe_of(operator: Any, model: Any) -> Recipe:
    recipe = Recipe.of("rows", lambda: fl.from_items(ROWS), lambda: models.rows(ROWS))
    return recipe.then(operator.__name__, lambda f, _: f.apply(operator), model)


def broken_by(recipe: Recipe) -> set[Law]:
    def is_broken(law: Law) -> bool:
        try:
            law(recipe)
        except AssertionError as error:
            return bool(str(error))  # a law says what came
        return False

    return {law for law in LAWS if is_broken(law)}


@pytest.mark.parametrize(
    ("operator", "model", "noticed_by"),
    [
        (Drops, as_it_is, {reference_is_the_model, length_is_true, rows_keep_the_effects}),
        (Swaps, as_it_is, {reference_is_the_model, rows_keep_the_effects}),
        (Repeats, as_it_is, {reference_is_the_model, length_is_true, rows_keep_the_effects}),
        (ChangesWithTheEpoch, as_it_is, {reference_is_the_model, rows_keep_the_effects}),
        (Numbers, as_it_is, {reference_is_the_model}),
        (Lengthens, as_it_is, {promises_match_the_model, length_is_true}),
        (ForgetsItsLength, as_it_is, {promises_match_the_model, length_is_true}),
        (Mistakes, as_it_is, {spec_is_true}),
        (ReadsAnother, as_it_is, {running_gives_the_reference, resuming_anywhere_gives_the_rest}),
        (NamesAnother, as_it_is, {origins_name_the_rows}),
        (NamesNone, as_it_is, {origins_name_the_rows}),
        (GoesOnElsewhere, as_it_is, {resuming_anywhere_gives_the_rest}),
        (Remembers, as_it_is, {passes_are_pure, reference_is_the_model}),
        (Backwards, backwards, {rows_keep_the_effects}),
        (Twice, twice, {rows_keep_the_effects}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken_operators_are_detected(operator: Any, model: Any, noticed_by: set[Law]) -> None:
    assert noticed_by <= broken_by(recipe_of(operator, model))


def test_correct_operators_pass() -> None:
    assert broken_by(recipe_of(Kept, as_it_is)) == set()


def test_an_error_that_names_another_row_is_detected() -> None:
    def failing(operator: Any) -> Recipe:
        func = partial(functions.fail_on, 3)
        return recipe_of(operator, as_it_is).then(
            "map(fail on 3)", lambda f, _: f.map(func), lambda m: models.map_(m, func)
        )

    assert errors_name_the_row in broken_by(failing(Blames))
    assert broken_by(failing(Kept)) == set()


@pytest.mark.parametrize("operator", [NamesAnother, NamesNone])
def test_wrong_origins_are_detected_by_changing_a_row(operator: Any) -> None:
    changing_a_row_changes_exactly_its_elements(recipe_of(Kept, as_it_is), 2)
    with pytest.raises(AssertionError, match="with row 2 of source 1, and its origins are"):
        changing_a_row_changes_exactly_its_elements(recipe_of(operator, as_it_is), 2)


def test_wrong_rewrites_are_detected() -> None:
    recipe = recipe_of(ScalesTheLast, last_scaled).then(
        "take(4)", lambda f, _: f.take(4), lambda m: models.take(m, 4), omits=True
    )
    assert planning_keeps_the_meaning in broken_by(recipe)


def test_a_prefetch_that_changes_elements_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of(Kept, as_it_is)
    prefetch_changes_nothing(recipe, 1, 0)
    monkeypatch.setattr(Recipe, "with_prefetch", lambda self, place: recipe_of(Drops, as_it_is))
    with pytest.raises(AssertionError, match="the reference with a prefetch"):
        prefetch_changes_nothing(recipe, 1, 0)


class ReadsBackwards(Kept[T, E]):
    """Reads from the end on random access."""

    def resolve(self, addresses: Indices) -> Indices:
        return Indices(addresses.epoch, (self.length or 0) - 1 - addresses.position)


def test_an_unordered_run_with_other_elements_is_detected() -> None:
    unordered_is_a_permutation(recipe_of(ReadsBackwards, as_it_is), 0, 1)
    with pytest.raises(AssertionError, match="came twice"):
        unordered_is_a_permutation(recipe_of(ReadsAnother, as_it_is), 0, 1)


# -- the calls that a newcomer makes ---------------------------------------------------------------


@pytest.mark.parametrize("operator", [Drops, Numbers, Lengthens, ReadsAnother])
def test_check_operator_names_the_law_and_the_flow(operator: Any) -> None:
    with pytest.raises((AssertionError, ExceptionGroup)) as failed:
        check_operator(lambda flow: flow.apply(operator), as_it_is, examples=20)
    notes = "".join(_notes(failed.value))
    assert "the law: " in notes
    assert "kept()" in notes


def _notes(error: BaseException) -> Iterator[str]:
    yield from getattr(error, "__notes__", [])
    for part in getattr(error, "exceptions", []):
        yield from _notes(part)


@attrs.frozen
class Letters(IndexedSource[str]):
    """A source of another package; the classes below break it on purpose."""

    letters: str

    @property
    def title(self) -> str:
        return "letters()"

    @property
    def length(self) -> int:
        return len(self.letters)

    def spec(self, probe: bool) -> Spec:
        return ValueSpec(str)

    def open(self) -> Callable[[int], str]:
        return self.letters.__getitem__


class Shorter(Letters):
    @property
    def length(self) -> int:
        return len(self.letters) - 1


class Sequential(Letters):
    """Returns the next row for any index."""

    def open(self) -> Callable[[int], str]:
        letters = iter(self.letters)
        return lambda i: next(letters)


class OfBytes(Letters):
    def spec(self, probe: bool) -> Spec:
        return ValueSpec(bytes)


@pytest.mark.hypothesis
def test_check_source_accepts_correct_sources() -> None:
    check_source(lambda: flow(Letters("abcdef")), "abcdef", examples=5)
    check_source(lambda: fl.from_iterable(iter("abcdef")), "abcdef", examples=5)


@pytest.mark.parametrize("source", [Shorter, Sequential, OfBytes])
def test_check_source_detects_broken_sources(source: type[Letters]) -> None:
    with pytest.raises((AssertionError, fl.FlowError, ExceptionGroup)) as failed:
        check_source(lambda: flow(source("abcdef")), "abcdef", examples=20)
    assert "the law: " in "".join(_notes(failed.value))


@pytest.mark.parametrize("rows", ["abb", "x" * 61])
def test_check_source_refuses_equal_or_too_many_rows(rows: str) -> None:
    with pytest.raises(ValueError, match=r"rows 1 and 2 are equal|at most 60 rows"):
        check_source(lambda: flow(Letters(rows)), rows)


def test_check_source_refuses_endless_sources() -> None:
    with pytest.raises(ValueError, match=r"never ends: return a flow of its first rows, with take"):
        check_source(lambda: flow(Letters("ab")).repeat(), "ab")
