"""Random flows: a strategy for every operator, and chains of them over random sources.

Each chains an operator to a flow and its model to the flow's model. An operator without a strategy
here fails ``test_every_operator_has_a_strategy``.
"""

from __future__ import annotations

import atexit
import queue
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import lmdb
import numpy as np
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl import Endless, Flow, InvalidFlow, Reordered
from flowdsl.plan.tree import walk
from tests import functions, models
from tests.elements import (
    FORMS,
    Listed,
    Named,
    Row,
    RowBatch,
    ids,
    is_text,
    leaves,
    parts_of,
)
from tests.models import BAD, Model

AnyFlow: TypeAlias = Flow[Any, Any]
Draw: TypeAlias = st.DrawFn

MOST_ROWS = 24
MOST_ELEMENTS = 60
"""How much of a flow is looked at: random chains may be endless, or very long."""

_LONG = 150
_LARGE = 200
_PEEKED = 13


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
    """Likewise, for what there is in them."""
    ragged: bool = False
    """Its elements differ in shape, and nothing says so beforehand."""
    others: tuple[Recipe, ...] = ()
    """The flows that it combines the first with."""


@attrs.frozen
class Part:
    """The rows of one source, in their order."""

    title: str
    ids: tuple[int, ...]


@attrs.frozen(eq=False)
class Recipe:
    """A random flow and its model, to be built with any number of processes.

    Each is built afresh, since a flow may hold what a pass leaves behind: a cache, a queue.
    """

    source: Callable[[], AnyFlow] = attrs.field(repr=False)
    source_model: Callable[[], Model] = attrs.field(repr=False)
    form: str
    names: tuple[str, ...]
    parts: tuple[Part, ...] = attrs.field(repr=False)
    steps: tuple[Step, ...] = attrs.field(default=(), repr=False)

    def build(self, procs: int = 0) -> AnyFlow:
        flow = self.source()
        for step in self.steps:
            flow = step.chain(flow, procs)
        return flow

    def model(self, careful: bool = False) -> Model:
        model = self.source_model()
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
        **facts: bool,
    ) -> Recipe:
        step = Step(name, chain, model, **facts, others=others)
        parts = self.parts + tuple(part for other in others for part in other.parts)
        return attrs.evolve(self, names=(*self.names, name), steps=(*self.steps, step), parts=parts)

    @cached_property
    def flow(self) -> AnyFlow:
        """For what is known of it without running it."""
        return self.build()

    @cached_property
    def first(self) -> list[Any]:
        """Those of its first elements that can be made.

        What can not may yet be left out further on, so it hides nothing of what comes after it;
        but of what repeats for ever there may be nothing else.
        """
        found: list[Any] = []
        try:
            for x in islice(self.model(careful=not self.has("repeat()")).elements(0), _PEEKED):
                if x is not BAD:
                    found.append(x)  # noqa: PERF401  # what came before an error counts too
        except Exception:  # whatever a function of the chain raises
            pass
        return found

    def with_prefetch(self, place: int) -> Recipe:
        """The same with a prefetch somewhere in it."""
        steps = list(self.steps)
        prefetch = Step("prefetch", lambda f, procs: f.prefetch(procs=procs), lambda m: m)
        steps.insert(place % (len(steps) + 1), prefetch)
        return attrs.evolve(self, steps=tuple(steps))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"Recipe({' > '.join(self.names)})")

    @property
    def is_combined(self) -> bool:
        return len(self.parts) > 1

    @property
    def name(self) -> str:
        """The source's."""
        return self.names[0].partition("(")[0]

    @property
    def is_reshaped(self) -> bool:
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
        return any(
            step.chooses or step.judges or any(other.chooses for other in step.others)
            for step in self.steps
        )

    @property
    def is_unordered(self) -> bool:
        """Somewhere in it the order is given up, and no position tells where a pass stands."""
        return self.has("unordered")

    def is_in_order(self, procs: int) -> bool:
        """With so many workers there is nobody to be ready before another."""
        return not self.is_unordered or not (procs or self.has("replicate"))

    def has(self, operator: str) -> bool:
        return any(operator in name for name in self.names)

    @property
    def repeats(self) -> bool:
        return any(step.name.startswith(("repeat(", "fixed_size(")) for step in self.steps)

    @property
    def endless(self) -> bool:
        return Endless in self.flow.effects

    @property
    def is_ragged(self) -> bool:
        return any(
            step.ragged or any(other.is_ragged for other in step.others) for step in self.steps
        )

    @property
    def is_long(self) -> bool:
        length = self.flow.node.length
        return length is not None and length > _LONG

    @property
    def is_large(self) -> bool:
        return any(_size(x) > _LARGE for x in self.first)


def _size(element: Any) -> int:
    return sum(int(np.size(leaf)) for leaf in leaves(element))


# -- sources ---------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


@cache
def _lmdb(form: str, first: int, n: int, bad: int | None = None) -> str:
    path = _folder() / f"{form}{first}-{n}-{bad}.lmdb"
    fl.from_items(list(functions.make_rows(form, first, n))).write_lmdb(path)
    if bad is not None:
        with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as database:
            row = bytes(database.begin().get(b"%010d" % bad) or b"")
        path.write_bytes(path.read_bytes().replace(row, bytes(byte ^ 1 for byte in row)))
    return str(path)


@cache
def _files(first: int, n: int) -> str:
    folder = _folder() / f"{first}-{n}"
    folder.mkdir()
    for i in range(n):
        (folder / f"{first + i:09}.row").touch()
    return str(folder / "*.row")


def _filled(items: list[Any]) -> queue.Queue[Any]:
    q: queue.Queue[Any] = queue.Queue()
    for item in [*items, None]:
        q.put(item)
    return q


Source: TypeAlias = tuple[Callable[[], AnyFlow], Callable[[], Model]]


def _a_damage(draw: Draw, n: int) -> int | None:
    """Now and then the number of a row, not the first, that can not be read."""
    return draw(st.integers(1, n - 1)) if n > 1 and draw(st.integers(0, 7)) == 0 else None


def _rows(form: str, first: int, n: int, bad: int | None) -> Any:
    items = list(functions.make_rows(form, first, n))
    return items if bad is None else functions.Damaged(items, bad)


def _from_items(draw: Draw, form: str, first: int, n: int) -> Source:
    if form in ("tuple", "dict", "array") and draw(st.booleans()):
        return _from_arrays(form, first, n)
    items = _rows(form, first, n, _a_damage(draw, n))
    return lambda: fl.from_items(items), lambda: models.rows(items)


def _from_arrays(form: str, first: int, n: int) -> Source:
    """The same rows, of an array for each component."""
    items = list(functions.make_rows(form, first, n))
    if form == "array":
        rows = np.array(items).reshape(n, 3)
        return lambda: fl.from_items(rows), lambda: models.rows(items)
    parts = [[part for _, part in parts_of(x) or ()] for x in items]
    marks = np.array([mark for mark, _ in parts], np.int32)
    data = np.array([data for _, data in parts], np.float32).reshape(n, 3)
    columns: Any = (marks, data) if form == "tuple" else {"id": marks, "data": data}
    return lambda: fl.from_items(columns), lambda: models.rows(items)


def _from_range(draw: Draw, form: str, first: int, n: int) -> Source:
    func = partial(functions.make_from, form, first)
    return lambda: fl.from_range(n).map(func), lambda: models.map_(models.rows(range(n)), func)


def _from_iterable(draw: Draw, form: str, first: int, n: int) -> Source:
    items = _rows(form, first, n, _a_damage(draw, n))
    func = partial(functions.read_rows, items)
    return lambda: fl.from_iterable(func), lambda: models.stream(items)


def _from_lmdb(draw: Draw, form: str, first: int, n: int) -> Source:
    return _lmdb_and_rows(form, first, n, _a_damage(draw, n))


def _lmdb_and_rows(form: str, first: int, n: int, bad: int | None) -> Source:
    path, items = _lmdb(form, first, n, bad), _rows(form, first, n, bad)
    kinds: dict[str, Any] = {"named": Named, "record": Row, "listed": Listed}
    if form in kinds:
        return lambda: fl.from_lmdb(path, kinds[form]), lambda: models.rows(items)
    return lambda: fl.from_lmdb(path), lambda: models.rows(items)


def _attempt_to_read(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(0, n - 1)) if n else None
    flow, model = _lmdb_and_rows(form, first, n, bad)
    return (
        lambda: flow().prefetch(on_error="skip"),
        lambda: models.skip_bad(model().carefully(), False),
    )


def _attempt_to_read_here(draw: Draw, form: str, first: int, n: int) -> Source:
    bad = draw(st.integers(1, n - 1)) if n > 1 else None
    items = _rows(form, first, n, bad)
    return (
        lambda: fl.from_items(items).prefetch(on_error="skip"),
        lambda: models.skip_bad(models.rows(items).carefully(), False),
    )


def _from_files(draw: Draw, form: str, first: int, n: int) -> Source:
    pattern, func = _files(first, max(n, 1)), partial(functions.make_of_name, form)
    names = [f"{first + i:09}" for i in range(max(n, 1))]
    return (
        lambda: fl.from_files(pattern).map(func),
        lambda: models.map_(models.rows(names), func),
    )


def _fake(draw: Draw, form: str, first: int, n: int) -> Source:
    func = partial(functions.make_of_fake, form)
    size = n if (random := draw(st.booleans())) else min(n, 1)  # else all would be one row
    shapes, dtypes, seed = [(), (3,)], ["int32", "float32"], first + draw(_seeds)
    domains = [(1, 2**31), (0, 1)]
    return (
        lambda: fl.fake(shapes, size, random=random, dtype=dtypes, domain=domains, seed=seed).map(
            func
        ),
        lambda: models.map_(models.fake(shapes, size, random, dtypes, domains, seed), func),
    )


def _from_queue(draw: Draw, form: str, first: int, n: int) -> Source:
    items = list(functions.make_rows(form, first, n))
    if draw(st.booleans()):
        return lambda: fl.from_iterable(iter(items)), lambda: models.one_pass(items)
    return lambda: fl.from_queue(_filled(items)), lambda: models.one_pass(items)


SOURCES: dict[str, Callable[[Draw, str, int, int], Source]] = {
    "AttemptToRead": _attempt_to_read,
    "AttemptToReadHere": _attempt_to_read_here,
    "Fake": _fake,
    "FromFiles": _from_files,
    "FromItems": _from_items,
    "FromIterable": _from_iterable,
    "FromLmdb": _from_lmdb,
    "FromQueue": _from_queue,
    "FromRange": _from_range,
}

ONE_PASS = ("FromQueue",)
"""Sources that give one pass for each time that they are built."""


_sizes = st.sampled_from([*range(MOST_ROWS + 1), *range(MOST_ROWS // 2, MOST_ROWS + 1)])
"""Few are small: much of a flow is lost on its way."""


@st.composite
def sources(
    draw: Draw,
    name: str | None = None,
    form: str | None = None,
    number: int = 0,
    one_pass: bool = False,
) -> Recipe:
    """A random source; one of another number has other rows."""
    names = [name for name in SOURCES if one_pass or name not in ONE_PASS]
    name = name or draw(st.sampled_from(names))
    form = form or draw(st.sampled_from(FORMS))
    n, first = draw(_sizes), 100 * number
    source, model = SOURCES[name](draw, form, first, n)
    title = walk(source().node)[0].title
    rows = tuple(range(first, first + n))
    if name == "Fake":
        rows = tuple(i for x in model().elements(0) for i in ids(x))
    elif name == "FromFiles":
        rows = tuple(range(first, first + max(n, 1)))
    return Recipe(source, model, form, (f"{name}({n} {form})",), (Part(title, rows),))


# -- each element by itself ------------------------------------------------------------------------

_seeds = st.integers(0, 3)
_numbers = st.integers(1, 4)


def _map(draw: Draw, recipe: Recipe) -> Recipe:
    choice = draw(st.integers(0, 11))
    if choice == 0:
        return _map_failing(recipe, _a_row(draw, recipe))
    if choice == 1:
        return _map_ragged(recipe)
    return recipe.then(
        "map(scale)", lambda f, _: f.map(functions.scale), lambda m: models.map_(m, functions.scale)
    )


def _map_failing(recipe: Recipe, bad: int) -> Recipe:
    func = partial(functions.fail_on, bad)
    return recipe.then(
        f"map(fail on {bad})", lambda f, _: f.map(func), lambda m: models.map_(m, func)
    )


def _a_row(draw: Draw, recipe: Recipe) -> int:
    return draw(st.sampled_from([0, *(i for part in recipe.parts for i in part.ids)]))


def _map_ragged(recipe: Recipe) -> Recipe:
    return recipe.then(
        "map(ragged)",
        lambda f, _: f.map(functions.ragged),
        lambda m: models.map_(m, functions.ragged),
        ragged=True,
        judges=recipe.is_reshaped,
    )


def _starmap(draw: Draw, recipe: Recipe) -> Recipe:
    if not _all(recipe, tuple):
        return _map(draw, recipe)
    pair = all(len(x) == 2 for x in recipe.first)
    func: Any = draw(st.sampled_from([Named, Row, functions.unstar])) if pair else functions.unstar
    return recipe.then(
        f"starmap({func.__name__})",
        lambda f, _: f.starmap(func),
        lambda m: models.starmap(m, func),
        reshapes=True,
    )


def _all(recipe: Recipe, kind: type) -> bool:
    """Whether all elements, of which there are some, are of a kind."""
    return bool(recipe.first) and all(isinstance(x, kind) for x in recipe.first)


def _may_be(recipe: Recipe, kind: type) -> bool:
    """Whether elements may be of a kind: a flow knows that also where none of them can be made."""
    return not recipe.first or any(isinstance(x, kind) for x in recipe.first)


def _random_map(draw: Draw, recipe: Recipe) -> Recipe:
    seed = draw(_seeds)
    return recipe.then(
        f"random_map({seed})",
        lambda f, _: f.random_map(functions.noise, seed),
        lambda m: models.random_map(m, functions.noise, seed),
    )


_moduli = st.tuples(st.sampled_from([2, 3, 4, 5, 1]), st.integers(0, 2))


def _filter(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:  # a filter that keeps nothing of it would never end
        return _map(draw, recipe)
    keep = partial(functions.keep, *draw(_moduli))
    return recipe.then(
        f"filter{keep.args}",
        lambda f, _: f.filter(keep),
        lambda m: models.filter_(m, keep),
        judges=True,
    )


def _filter_map(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:
        return _map(draw, recipe)
    func = partial(functions.keep_scaled, *draw(_moduli))
    return recipe.then(
        f"filter_map{func.args}",
        lambda f, _: f.filter_map(func),
        lambda m: models.filter_map(m, func),
        judges=True,
    )


def _flat_map(draw: Draw, recipe: Recipe) -> Recipe:
    least = 0 if recipe.endless else draw(st.integers(-1, 0))
    func: Any = partial(functions.burst, least)
    if draw(st.integers(0, 7)) == 0:
        func = partial(functions.broken_burst, _a_row(draw, recipe))
    return recipe.then(
        f"flat_map({func.func.__name__} {func.args[0]})",
        lambda f, _: f.flat_map(func),
        lambda m: models.flat_map(m, func),
        judges=least < 0,
    )


def _map_component(draw: Draw, recipe: Recipe) -> Recipe:
    index: Any
    if _all(recipe, tuple):
        sizes = [len(x) for x in recipe.first]
        index = draw(st.integers(-min(sizes), min(sizes) - 1))
    elif _all(recipe, dict):
        index = draw(st.sampled_from(list(recipe.first[0])))
    else:
        return _map(draw, recipe)
    return recipe.then(
        f"map_component({index!r})",
        lambda f, _: f.map_component(functions.scale, index),
        lambda m: models.map_component(m, functions.scale, index),
        reshapes=True,
    )


_COMPONENTS: tuple[Any, ...] = (fl.c0, fl.c1, fl.c2, fl.c3)


def _select(draw: Draw, recipe: Recipe) -> Recipe:
    picks: list[Any]
    if _all(recipe, tuple):
        some = range(min(4, *(len(x) for x in recipe.first)))
        chosen = draw(st.permutations(some))[: draw(_numbers)]
        picks = [_COMPONENTS[i] for i in chosen]
        ours: list[Any] = [lambda x, i=i: x[i] for i in chosen]
        name = ", ".join(f"c{i}" for i in chosen)
    elif _all(recipe, dict):
        picks = ours = draw(st.permutations(list(recipe.first[0])))[: draw(_numbers)]
        name = ", ".join(picks)
    else:
        picks = ours = [functions.count, functions.itself]
        name = "count, itself"
    return recipe.then(
        f"select({name})",
        lambda f, _: f.select(*picks),
        lambda m: models.select(m, *ours),
        reshapes=True,
        chooses=True,
    )


def _enumerate(draw: Draw, recipe: Recipe) -> Recipe:
    start = draw(st.integers(0, 3))
    return recipe.then(
        f"enumerate({start})",
        lambda f, _: f.enumerate(start),
        lambda m: models.enumerate_(m, start),
        reshapes=True,
    )


def _inspect(draw: Draw, recipe: Recipe) -> Recipe:
    num = draw(st.integers(0, 2))
    return recipe.then(
        f"inspect({num})", lambda f, _: f.inspect(num, max_depth=0), lambda m: m.tried()
    )


# -- groups ----------------------------------------------------------------------------------------


def _shapes(element: Any) -> Any:
    """What elements must agree in to be stacked."""
    parts = parts_of(element)
    if parts is not None:
        return type(element), [(name, _shapes(part)) for name, part in parts]
    if isinstance(element, list):
        return ("text",) if is_text(element) else ("list", type(element[0]), len(element))
    return type(element), getattr(element, "dtype", None), np.shape(element)


def _ranks(element: Any) -> Any:
    """What they must agree in to be padded."""
    parts = parts_of(element)
    if parts is not None:
        return type(element), [(name, _ranks(part)) for name, part in parts]
    if isinstance(element, list):
        return ("text",) if is_text(element) else ("list", type(element[0]))
    return type(element), getattr(element, "dtype", None), np.ndim(element)


def _alike(recipe: Recipe, kind: Callable[[Any], Any]) -> bool:
    """Whether the elements, of which there are some, stack as far as they are looked at."""
    kinds = [kind(x) for x in recipe.first]
    return bool(kinds) and all(k == kinds[0] for k in kinds) and not _has(kinds[0], list)


def _has(kind: Any, form: type) -> bool:
    if isinstance(kind, tuple | list):
        return any(_has(part, form) for part in kind)
    return kind is form


def _batch(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_large:
        return _take(draw, recipe)
    n, drop, as_list = draw(st.tuples(_numbers, st.booleans(), st.booleans()))
    as_list = as_list or not _alike(recipe, _shapes)
    if as_list:
        return recipe.then(
            f"batch({n}{', drop' * drop}, list)",
            lambda f, _: f.batch(n, drop_remainder=drop, collate=list),
            lambda m: models.groups(m, n, drop, list),
            reshapes=True,
            ragged=True,
            chooses=drop,
        )
    return recipe.then(
        f"batch({n}{', drop' * drop})",
        lambda f, _: f.batch(n, drop_remainder=drop),
        lambda m: models.groups(m, n, drop, models.stacked),
        reshapes=True,
        chooses=drop,
    )


def _padded_batch(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_large:
        return _take(draw, recipe)
    if draw(st.booleans()):
        recipe = _map_ragged(recipe)
    if not _alike(recipe, _ranks):
        return _batch(draw, recipe)
    n, drop = draw(st.tuples(_numbers, st.booleans()))
    padding = _padding(draw, recipe.first[0])
    return recipe.then(
        f"padded_batch({n}{', drop' * drop}, {padding})",
        lambda f, _: f.padded_batch(n, drop_remainder=drop, padding=padding),
        lambda m: models.groups(m, n, drop, models.padded(padding)),
        reshapes=True,
        chooses=drop,
    )


def _padding(draw: Draw, element: Any) -> Any:
    parts = parts_of(element)
    if parts is None or draw(st.booleans()):
        return draw(st.sampled_from([0, -1, -2]))
    values = [_padding(draw, part) for _, part in parts]
    if type(element) is not tuple and draw(st.booleans()):
        return {name: value for (name, _), value in zip(parts, values, strict=True)}
    return tuple(values)


def _batch_by_shape(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_large:
        return _take(draw, recipe)
    if draw(st.booleans()):
        recipe = _map_ragged(recipe)
    n, drop, as_list = draw(st.tuples(_numbers, st.booleans(), st.booleans()))
    kinds = {repr(np.shape(functions.first_array(x))): _shapes(x) for x in recipe.first}
    agree = all(kinds[repr(np.shape(functions.first_array(x)))] == _shapes(x) for x in recipe.first)
    if as_list or not agree or not kinds or any(_has(kind, list) for kind in kinds.values()):
        return recipe.then(
            f"batch_by_shape({n}{', drop' * drop}, list)",
            lambda f, _: f.batch_by_shape(
                n, functions.first_array, drop_remainder=drop, collate=list
            ),
            lambda m: models.batch_by_shape(m, n, functions.first_array, drop, list),
            reshapes=True,
            ragged=True,
            chooses=drop,
        )
    return recipe.then(
        f"batch_by_shape({n}{', drop' * drop})",
        lambda f, _: f.batch_by_shape(n, functions.first_array, drop_remainder=drop),
        lambda m: models.batch_by_shape(m, n, functions.first_array, drop, models.stacked),
        reshapes=True,
        chooses=drop,
    )


def _unbatch(draw: Draw, recipe: Recipe) -> Recipe:
    if not recipe.first or not all(map(_splits, recipe.first)):
        recipe = _batch(draw, recipe)
        if not recipe.first or not all(map(_splits, recipe.first)):
            return recipe
    into = draw(st.sampled_from([None, *_builders(recipe.first[0])]))
    return recipe.then(
        f"unbatch({into.__name__ if into else ''})",
        lambda f, _: f.unbatch(into),
        lambda m: models.unbatch(m, into),
        reshapes=True,
    )


def _splits(element: Any) -> bool:
    """Whether it has rows, and as many in each component."""
    try:
        models.unstacked(element)
    except (models.Failed, TypeError):
        return False
    return all(np.ndim(x) or isinstance(element, list) for x in leaves(element))


def _builders(batch: Any) -> list[Any]:
    """Functions that make something of the components of a row."""
    if isinstance(batch, dict):
        return [functions.dict_of]
    if isinstance(batch, RowBatch):
        return [Row]
    if isinstance(batch, tuple):
        return [Named, Row, functions.unstar] if len(batch) == 2 else [functions.unstar]
    return [functions.itself]


def _window(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_large:
        return _take(draw, recipe)
    size, stride = draw(st.tuples(_numbers, _numbers))
    return recipe.then(
        f"window({size}, {stride})",
        lambda f, _: f.window(size, stride),
        lambda m: models.window(m, size, stride),
        reshapes=True,
        chooses=True,
    )


# -- how many --------------------------------------------------------------------------------------


def _take(draw: Draw, recipe: Recipe) -> Recipe:
    n = draw(st.integers(0, 30))
    return recipe.then(
        f"take({n})", lambda f, _: f.take(n), lambda m: models.take(m, n), chooses=True
    )


def _skip(draw: Draw, recipe: Recipe) -> Recipe:
    n = draw(st.integers(0, 8))
    return recipe.then(
        f"skip({n})", lambda f, _: f.skip(n), lambda m: models.skip(m, n), chooses=True
    )


def _shard(draw: Draw, recipe: Recipe) -> Recipe:
    n = draw(_numbers)
    i = draw(st.integers(0, n - 1))
    return recipe.then(
        f"shard({n}, {i})",
        lambda f, _: f.shard(n, i),
        lambda m: models.shard(m, n, i),
        chooses=True,
    )


def _repeat(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_long:
        return _take(draw, recipe)
    n = draw(st.integers(1, 3))
    return recipe.then(f"repeat({n})", lambda f, _: f.repeat(n), lambda m: models.repeat(m, n))


def _repeat_forever(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.flow.node.length == 0:
        return _repeat(draw, recipe)
    return recipe.then("repeat()", lambda f, _: f.repeat(), models.repeat)


def _repeat_each(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_long:
        return _take(draw, recipe)
    n = draw(st.integers(1, 3))
    return recipe.then(
        f"repeat_each({n})", lambda f, _: f.repeat_each(n), lambda m: models.repeat_each(m, n)
    )


def _fixed_size(draw: Draw, recipe: Recipe) -> Recipe:
    n = 0 if recipe.flow.node.length == 0 else draw(st.integers(0, 30))
    keep = draw(st.booleans())
    return recipe.then(
        f"fixed_size({n}, {keep})",
        lambda f, _: f.fixed_size(n, keep),
        lambda m: models.fixed_size(m, n, keep),
        chooses=True,
    )


def _split(draw: Draw, recipe: Recipe) -> Recipe:
    """A part, most often of shares, which are then whole numbers of rows."""
    n = recipe.flow.node.length or 0
    if recipe.flow.effects or n < 2:
        return _take(draw, recipe)
    ends = draw(st.lists(st.integers(1, n - 1), min_size=1, max_size=2, unique=True))
    counts = np.diff([0, *sorted(ends), n]).tolist()
    sizes = [draw(st.sampled_from([count, count / n])) for count in counts[:-1]]
    number, seed = draw(st.integers(0, len(sizes))), draw(_seeds)
    return recipe.then(
        f"split({sizes}, {seed})[{number}]",
        lambda f, _: f.split(*sizes, seed=seed)[number],
        lambda m: models.split(m, counts, seed, number),
        chooses=True,
    )


# -- order -----------------------------------------------------------------------------------------


def _shuffle(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.flow.node.length is None:
        return _window_shuffle(draw, recipe)
    seed = draw(_seeds)
    return recipe.then(
        f"shuffle({seed})", lambda f, _: f.shuffle(seed=seed), lambda m: models.shuffle(m, seed)
    )


def _window_shuffle(draw: Draw, recipe: Recipe) -> Recipe:
    buffer, seed = draw(st.integers(1, 6)), draw(_seeds)
    return recipe.then(
        f"shuffle({buffer}, {seed})",
        lambda f, _: f.shuffle(buffer, seed=seed),
        lambda m: models.window_shuffle(m, buffer, seed),
    )


def _cache(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.endless:
        return _take(draw, recipe)
    return recipe.then("cache", lambda f, _: f.cache(), models.cache)


def _prefetch(draw: Draw, recipe: Recipe) -> Recipe:
    return recipe.then("prefetch", lambda f, procs: f.prefetch(procs=procs), lambda m: m)


def _threads(draw: Draw, recipe: Recipe) -> Recipe:
    return recipe.then("threads", lambda f, procs: f.prefetch(threads=procs), lambda m: m)


def _unordered(draw: Draw, recipe: Recipe) -> Recipe:
    """Where one does it all: with several, only a law on permutations holds."""
    return recipe.then(
        "prefetch(unordered)", lambda f, _: f.prefetch(ordered=False), models.unordered
    )


def _replicate(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_long or not recipe.flow.node.replayable:
        return _prefetch(draw, recipe)
    n = draw(st.integers(1, 3))
    return recipe.then(
        f"replicate({n})", lambda f, _: f.replicate(n), lambda m: models.replicate(m, n)
    )


def _on_error(draw: Draw, recipe: Recipe) -> Recipe:
    """What can not be made is left out."""
    if recipe.has("repeat()"):  # if all fails, it never ends
        return _prefetch(draw, recipe)
    if draw(st.booleans()):
        recipe = _map_failing(recipe, _a_row(draw, recipe))
    return _skip_bad(draw, recipe)


def _skip_bad(draw: Draw, recipe: Recipe) -> Recipe:
    if not _can_skip(recipe):
        return _prefetch(draw, recipe)
    threads = draw(st.booleans())

    def chain(flow: AnyFlow, n: int) -> AnyFlow:
        if threads:
            return flow.prefetch(threads=n, on_error="skip")
        return flow.prefetch(procs=n, on_error="skip")

    return recipe.then(
        f"prefetch({'threads, ' * threads}skip)",
        chain,
        lambda m: models.skip_bad(recipe.model(careful=True), m.careful),
        chooses=True,
    )


def _can_skip(recipe: Recipe) -> bool:
    """Whether no operator above a batch has to know how many rows there are."""
    try:
        recipe.flow.prefetch(on_error="skip")
    except InvalidFlow:
        return False
    return True


def _attempt(draw: Draw, recipe: Recipe) -> Recipe:
    return _on_error(draw, OPERATORS[draw(st.sampled_from(_ATTEMPTED))](draw, recipe))


def _attempt_to_filter(draw: Draw, recipe: Recipe) -> Recipe:
    return _on_error(draw, draw(st.sampled_from([_filter, _filter_map]))(draw, recipe))


def _attempt_to_count(draw: Draw, recipe: Recipe) -> Recipe:
    if draw(st.booleans()):
        recipe = _map_failing(recipe, _a_row(draw, recipe))
    return _on_error(draw, draw(st.sampled_from([_enumerate, _inspect]))(draw, recipe))


_ATTEMPTED = ("Map", "MapComponent", "RandomMap", "Select", "StarMap")


# -- several ---------------------------------------------------------------------------------------


def _other(draw: Draw, recipe: Recipe, taken: int = 0) -> Recipe:
    """Another flow, with rows of its own, whose elements are like those of the first."""
    number = len(recipe.parts) + taken
    name = draw(st.sampled_from([recipe.name, None]))
    one_pass = draw(st.integers(0, 5)) == 0
    other = draw(sources(name, form=recipe.form, number=number, one_pass=one_pass))
    if any(step.name.startswith("zip") for step in recipe.steps):
        return other  # the same flow in two places would have the same rows
    for step in recipe.steps:
        if step.reshapes:
            other = attrs.evolve(other, steps=(*other.steps, step), names=(*other.names, step.name))
    for name in draw(st.lists(st.sampled_from(_ALONE), max_size=2)):
        other = OPERATORS[name](draw, other)
    return other


def _like(recipes: list[Recipe]) -> list[Recipe]:
    """The same with elements of one structure."""
    kinds = [_ranks(x) for recipe in recipes for x in recipe.first[:1]]
    if len(kinds) == len(recipes) and all(kind == kinds[0] for kind in kinds):
        return recipes
    return list(map(_into_one_form, recipes))


def _into_one_form(recipe: Recipe) -> Recipe:
    return recipe.then(
        "map(in one form)",
        lambda f, _: f.map(functions.in_one_form),
        lambda m: models.map_(m, functions.in_one_form),
        reshapes=True,
        judges=True,
    )


def _zip(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_large or Reordered in recipe.flow.effects:
        return _enumerate(draw, recipe)
    other = draw(sources(number=len(recipe.parts), one_pass=draw(st.integers(0, 5)) == 0))
    for name in draw(st.lists(st.sampled_from(_IN_PLACE), max_size=2)):
        other = OPERATORS[name](draw, other)
    if _may_be(recipe, dict) and _may_be(other, dict):
        func = partial(functions.renamed, str(len(recipe.parts)))
        other = other.then("map(rename)", lambda f, _: f.map(func), lambda m: models.map_(m, func))
    n, n_other = recipe.flow.node.length, other.flow.node.length
    how = draw(st.integers(0, 7))
    if how == 0 and (n is None or n_other is None):  # they may turn out to be unequal
        pass
    elif how < 4 and n_other != 0 and not other.endless:
        other = other.then("repeat()", lambda f, _: f.repeat(), models.repeat)
    elif n is not None or n_other is not None or recipe.endless != other.endless:
        short = min((k for k in (n, n_other) if k is not None), default=5)
        recipe, other = (_cut(r, short) for r in (recipe, other))
    return recipe.then(
        f"zip({other.names})",
        lambda f, procs: f.zip(other.build(procs)),
        lambda m: models.zip_(m, other.model(m.careful)),
        other,
        chooses=other.endless,
    )


def _cut(recipe: Recipe, n: int) -> Recipe:
    return recipe.then(
        f"take({n})", lambda f, _: f.take(n), lambda m: models.take(m, n), chooses=True
    )


def _combined(
    recipe: Recipe,
    name: str,
    others: list[Recipe],
    chain: Callable[..., AnyFlow],
    model: Callable[..., Model],
    **facts: bool,
) -> Recipe:
    return recipe.then(
        f"{name}({', '.join(str(other.names) for other in others)})",
        lambda f, procs: chain(f, *(other.build(procs) for other in others)),
        lambda m: model(m, *(other.model(m.careful) for other in others)),
        *others,
        **facts,
    )


def _others(draw: Draw, recipe: Recipe) -> tuple[Recipe, list[Recipe]]:
    """One or two others, and the first as it must be to go with them."""
    others: list[Recipe] = []
    for _ in range(draw(st.integers(1, 2))):
        others.append(_other(draw, recipe, sum(len(other.parts) for other in others)))
    recipe, *others = _like([recipe, *others])
    return recipe, others


def _concat(draw: Draw, recipe: Recipe) -> Recipe:
    if recipe.is_long or recipe.endless:
        recipe = _take(draw, recipe)
    recipe, others = _others(draw, recipe)
    others[:-1] = [_take(draw, o) if o.endless else o for o in others[:-1]]
    return _combined(recipe, "concat", others, lambda f, *o: f.concat(*o), models.concat)


def _interleave(draw: Draw, recipe: Recipe) -> Recipe:
    recipe, others = _others(draw, recipe)
    return _combined(
        recipe, "interleave", others, lambda f, *o: f.interleave(*o), models.interleave
    )


def _choose(draw: Draw, recipe: Recipe, first: bool = False) -> Recipe:
    recipe, others = _others(draw, recipe)
    seed, weights = draw(_seeds), None
    if draw(st.booleans()):
        weights = [draw(st.sampled_from([0.2, 1, 3])) for _ in range(1 + len(others))]
    return _combined(
        recipe,
        f"choose {weights} {seed}{' first' * first}",
        others,
        lambda f, *o: f.choose(
            *o, probabilities=weights, seed=seed, stop="first" if first else "last"
        ),
        lambda *m: models.choose(m, weights, seed, first),
        chooses=first,
    )


def _choose_first(draw: Draw, recipe: Recipe) -> Recipe:
    return _choose(draw, recipe, first=True)


def _mix(draw: Draw, recipe: Recipe) -> Recipe:
    recipe, others = _others(draw, recipe)
    lengths = [r.flow.node.length for r in (recipe, *others)]
    known = [n for n in lengths if n is not None]
    if len(known) < len(lengths):
        return _combined(
            recipe, "interleave", others, lambda f, *o: f.interleave(*o), models.interleave
        )
    seed = draw(_seeds)
    return _combined(
        recipe,
        f"mix {seed}",
        others,
        lambda f, *o: f.mix(*o, seed=seed),
        lambda *m: models.mix(m, known, seed),
    )


OPERATORS: dict[str, Callable[[Draw, Recipe], Recipe]] = {
    "Attempt": _attempt,
    "AttemptToCount": _attempt_to_count,
    "AttemptToFilter": _attempt_to_filter,
    "Batch": _batch,
    "BatchByShape": _batch_by_shape,
    "Cache": _cache,
    "Choose": _choose,
    "ChooseFirst": _choose_first,
    "Concat": _concat,
    "Enumerate": _enumerate,
    "Filter": _filter,
    "FilterMap": _filter_map,
    "FixedSize": _fixed_size,
    "FlatMap": _flat_map,
    "Inspect": _inspect,
    "Interleave": _interleave,
    "LeaveOut": _on_error,
    "Map": _map,
    "MapComponent": _map_component,
    "Mix": _mix,
    "PaddedBatch": _padded_batch,
    "Prefetch": _prefetch,
    "RandomMap": _random_map,
    "Repeat": _repeat,
    "RepeatEach": _repeat_each,
    "RepeatForever": _repeat_forever,
    "Replicate": _replicate,
    "Select": _select,
    "Shard": _shard,
    "Shuffle": _shuffle,
    "Skip": _skip,
    "Split": _split,
    "StarMap": _starmap,
    "Take": _take,
    "Threads": _threads,
    "Unbatch": _unbatch,
    "Unordered": _unordered,
    "Window": _window,
    "WindowShuffle": _window_shuffle,
    "Zip": _zip,
}

ELSEWHERE = ("Threads", "Unordered")
"""Those that are no node in ``flowdsl.ops``: an argument, and one of the kinds."""

_COMBINING = ("Choose", "ChooseFirst", "Concat", "Interleave", "Mix", "Zip")
_RESHAPING = (
    *("Attempt", "AttemptToCount", "Batch", "BatchByShape", "Enumerate", "MapComponent"),
    *("PaddedBatch", "Select"),
)
_ALONE = [
    name
    for name in OPERATORS
    if name not in (*_COMBINING, *_RESHAPING, "StarMap", "Unbatch", "Window")
]
"""Operators on one flow that keep the structure of its elements."""

_IN_PLACE = [name for name in _ALONE if name not in ("Shuffle", "Unordered", "WindowShuffle")]


_GROUPING = ("Batch", "PaddedBatch", "Window")

THEMES: tuple[tuple[str | None, tuple[tuple[str, ...], ...]], ...] = (
    # workers are supplied from what never ends, and must not ask beyond where it is cut
    (
        "FromItems",
        (
            ("RepeatForever",),
            ("Map",),
            ("RepeatEach", "Skip", *_GROUPING),
            ("Take",),
            ("RepeatEach", "Skip", *_GROUPING),
        ),
    ),
    # positions have gaps, also where they are kept
    (
        None,
        (
            ("Filter", "FilterMap"),
            ("Cache", "Inspect", "Map", "Take"),
            ("Enumerate", "RandomMap", *_GROUPING),
            ("Map",),
        ),
    ),
    # workers are supplied from several places in memory
    (
        "FromItems",
        (
            ("Map", "RandomMap"),
            ("Choose", "Concat", "Interleave", "Mix", "Zip"),
            ("RepeatEach", "Shuffle", *_GROUPING),
        ),
    ),
    # elements of several epochs stand side by side
    (
        "FromRange",
        (("Map", "RandomMap", "Shuffle"), ("Repeat", "RepeatForever"), ("RepeatEach", *_GROUPING)),
    ),
    # what is exact still is parted, and only then moved
    (
        None,
        (
            ("Cache", "Enumerate", "RandomMap", "Skip"),
            ("Split",),
            ("Cache", "Repeat", "RepeatForever", "Shuffle"),
            ("Map", *_GROUPING),
        ),
    ),
)
"""Sources and operators that belong together, and that a long chain seldom has in a row."""


@st.composite
def chains(
    draw: Draw,
    most: int = 5,
    last: str | None = None,
    prefetched: bool = False,
    one_pass: bool = False,
) -> Recipe:
    """A random source and up to ``most`` random operators, ending with ``last`` and a prefetch.

    With ``one_pass`` it may be a source that is spent by a pass.
    """
    source: str | None = None
    theme: tuple[tuple[str, ...], ...] = ()
    if most > 4 and draw(st.integers(0, 4)) == 0:
        source, theme = draw(st.sampled_from(THEMES))
    recipe = draw(sources(source, one_pass=one_pass))
    for names in theme:
        recipe = OPERATORS[draw(st.sampled_from(names))](draw, recipe)
    for _ in range(draw(st.integers(0, most - len(theme)))):
        recipe = OPERATORS[draw(st.sampled_from(list(OPERATORS)))](draw, recipe)
    if last is not None:
        recipe = OPERATORS[last](draw, recipe)
    return _prefetch(draw, recipe) if prefetched else recipe


@st.composite
def skipping(draw: Draw, most: int = 4) -> Recipe:
    """A chain that fails at some of its rows, and reads no more than what it gives is made of."""
    recipe = draw(sources(draw(st.sampled_from([None, "FromItems", "FromIterable", "FromLmdb"]))))
    for name in draw(st.lists(st.sampled_from(_TAKING_ALL), max_size=most)):
        longer = _map_failing(recipe, _a_row(draw, recipe)) if draw(st.booleans()) else recipe
        longer = OPERATORS[name](draw, longer)
        recipe = longer if _can_skip(longer) else recipe
    return recipe


_TAKING_ALL = (
    *("Attempt", "Batch", "Concat", "Enumerate", "Filter", "FilterMap", "FlatMap", "Inspect"),
    *("Map", "Prefetch", "RandomMap", "Repeat", "RepeatEach", "Replicate", "Select", "Shuffle"),
    *("Unbatch", "WindowShuffle"),
)
