"""fake: elements of chosen shapes and dtypes, to try a flow without its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.effects import Exact
from flowdsl.elements.specs import ArraySpec, Spec, StructSpec
from flowdsl.errors import InvalidFlow
from flowdsl.nodes import (
    IndexedSource,
    at_least,
    cached_per_node,
    flow,
    format_call,
    frozen_node,
    generator,
    is_int,
    keyword_unless_default,
    plain_int,
    validate_flag,
)

if TYPE_CHECKING:
    from flowdsl.flow import Flow

D = TypeVar("D", bound=np.generic)

Shapes: TypeAlias = Sequence[Sequence[int]]
Interval: TypeAlias = tuple[float, float]


@attrs.frozen
class FakeArray:
    """The shape, dtype and value range of one array of every element."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} in [{self.low}, {self.high})"

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Draw an array of this kind."""
        native = self.dtype.newbyteorder("=")
        if native.kind != "f":
            ints = rng.integers(int(self.low), int(self.high), self.shape, native.type)
            return np.asarray(ints, self.dtype)
        fraction = rng.random(self.shape, np.float32 if native.itemsize <= 4 else np.float64)
        values = np.asarray(fraction * self.high + (1 - fraction) * self.low, native)
        low, high = native.type(self.low), native.type(self.high)
        # Rounding may have reached ``high``, which is excluded.
        return np.asarray(np.clip(values, low, np.nextafter(high, low)), self.dtype)


@frozen_node
class Fake(IndexedSource[tuple[NDArray[D], ...]], Generic[D]):
    """Arrays of chosen shapes and dtypes, which depend only on the seed and the row."""

    parts: tuple[FakeArray, ...]
    size: int = attrs.field(converter=plain_int, validator=at_least(0))
    random: bool = attrs.field(validator=validate_flag)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))

    @property
    def title(self) -> str:
        shapes = ", ".join(str(part.shape) for part in self.parts)
        return format_call(
            "fake",
            f"[{shapes}]",
            "" if self.size == 1000 else str(self.size),
            keyword_unless_default("random", self.random, True),
            keyword_unless_default("seed", self.seed, 0),
        )

    @property
    def fingerprint(self) -> str:
        return f"{self.title} of {', '.join(map(str, self.parts))}"

    @property
    def length(self) -> int:
        return self.size

    def open(self) -> Callable[[int], tuple[NDArray[D], ...]]:
        if self.random:
            return self._draw
        shared = self._draw(0)
        for array in shared:
            array.flags.writeable = False
        return lambda _: shared

    def _draw(self, i: int) -> tuple[NDArray[D], ...]:
        rng = generator(self.seed, salt=0, epoch=0, position=i)
        return tuple(part.draw(rng) for part in self.parts)

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        specs = (ArraySpec(part.dtype, part.shape) for part in self.parts)
        return StructSpec(tuple, tuple((str(i), spec) for i, spec in enumerate(specs)))


@overload
def fake(
    shapes: Shapes,
    size: int = 1000,
    *,
    random: bool = True,
    domain: Interval | Sequence[Interval] = (0, 1),
    seed: int = 0,
) -> Flow[tuple[NDArray[np.float32], ...], Exact]: ...
@overload
def fake(
    shapes: Shapes,
    size: int = 1000,
    *,
    random: bool = True,
    dtype: type[D] | np.dtype[D],
    domain: Interval | Sequence[Interval] = (0, 1),
    seed: int = 0,
) -> Flow[tuple[NDArray[D], ...], Exact]: ...
@overload
def fake(
    shapes: Shapes,
    size: int = 1000,
    *,
    random: bool = True,
    dtype: str | Sequence[str | type[np.generic] | np.dtype[Any]],
    domain: Interval | Sequence[Interval] = (0, 1),
    seed: int = 0,
) -> Flow[tuple[NDArray[Any], ...], Exact]: ...
def fake(
    shapes: Shapes,
    size: int = 1000,
    *,
    random: bool = True,
    dtype: Any = "float32",
    domain: Any = (0, 1),
    seed: int = 0,
) -> Flow[tuple[NDArray[Any], ...], Exact]:
    """Yield ``size`` tuples of random arrays, one per shape, to try a flow without its data.

    ``dtype`` and ``domain`` apply to all arrays, or are lists with one entry per shape. Floats,
    integers and booleans are drawn uniformly from the domain, low <= x < high; in the default
    domain, integers are all 0 and booleans all False. Element ``i`` depends only on the seed and
    ``i``, and is the same in every epoch. With ``random=False`` all elements are the same read-only
    arrays, drawn once, to measure a flow without the cost of drawing.

    Length: ``size``.

    Effects: none.

    Errors: ``InvalidFlow`` for ``size < 0``, a negative seed, an invalid list of shapes, a dtype
    other than booleans, integers and floats, a domain that is empty or that the dtype cannot
    represent, and a number of dtypes or domains that differs from the number of shapes.

    >>> import flowdsl as fl
    >>> flow = fl.fake([(28, 28), ()], 100, dtype=["float32", "int64"], domain=[(0, 1), (0, 10)])
    >>> len(flow), str(flow.spec)
    (100, '(float32[28, 28], int64[])')

    Source: ``FakeData`` of tensorpack.

    Elsewhere: tensorpack ``FakeData``; tf.data none; Grain none; torchdata none.
    """
    if not _is_nonempty_list(shapes) or not all(map(_is_shape, shapes)):
        raise InvalidFlow(
            f"fake: shapes must be a list of one shape or more, e.g. [(28, 28), ()], got {shapes!r}"
        )
    dtypes = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(shapes)
    is_one_domain = isinstance(domain, tuple | list) and not any(
        isinstance(x, tuple | list) for x in domain
    )
    domains = [domain] * len(shapes) if is_one_domain else domain
    for name, values in (("dtype", dtypes), ("domain", domains)):
        if not isinstance(values, list | tuple) or len(values) != len(shapes):
            raise InvalidFlow(
                f"fake: {name} must be one for all, or a list with one for each of the "
                f"{len(shapes)} shapes, got {dtype if name == 'dtype' else domain!r}"
            )
    parts = tuple(map(_fake_array, shapes, dtypes, domains))
    return flow(Fake[Any](parts, size, random, seed))


def _is_nonempty_list(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0


def _is_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and all(is_int(n, 0) for n in value)


def _fake_array(shape: Sequence[int], dtype: Any, domain: Any) -> FakeArray:
    try:
        checked = np.dtype(dtype)
    except (TypeError, ValueError):
        checked = np.dtype(object)
    if checked.kind not in "biuf" or dtype is None:  # to NumPy, None is float64
        raise InvalidFlow(f"fake: dtype must be of booleans, integers or floats, got {dtype!r}")
    is_pair = isinstance(domain, list | tuple) and len(domain) == 2
    if not is_pair or not _represents(checked, *domain):
        raise InvalidFlow(
            f"fake: domain must be (low, high) with low < high, between which {checked} has "
            f"values, got {domain!r}"
        )
    low, high = (x.item() if isinstance(x, np.generic) else x for x in domain)
    return FakeArray(tuple(map(int, shape)), checked, low, high)


def _represents(dtype: np.dtype[Any], low: Any, high: Any) -> bool:
    """Return True if there are numbers from ``low`` to below ``high``, and all fit the dtype."""
    if dtype.kind != "f":
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        are_ints = is_int(low, least, below=None) and is_int(high, least, below=None)
        return are_ints and low < high <= int(most) + 1
    for x in (low, high):
        if isinstance(x, bool) or not isinstance(x, int | float | np.integer | np.floating):
            return False
    try:
        with np.errstate(over="ignore"):
            low, high = dtype.type(low), dtype.type(high)
    except OverflowError:
        return False
    return bool(np.isfinite(low) and np.isfinite(high) and low < high)
