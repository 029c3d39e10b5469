"""Functions of our own strategies, in addition to ``flowdsl.testing.functions``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import attrs
import numpy as np

from flowdsl.elements.structure import assemble, components
from flowdsl.testing.elements import formed, ids, leaves, make, with_data
from flowdsl.testing.functions import keep, scale


def make_of_name(form: str, name: str) -> Any:
    return make(form, int(Path(name).stem.partition(",")[0]))


def make_of_cells(form: str, cells: tuple[str, int]) -> Any:
    return make(form, cells[1])


class Numbered(TypedDict):
    """A sample of a file of samples."""

    i: int


def make_of_sample(form: str, sample: Numbered) -> Any:
    return make(form, sample["i"])


def make_of_number(form: str, number: Any) -> Any:
    return make(form, int(number))


def make_of_label(form: str, sample: tuple[Any, float]) -> Any:
    return make(form, int(sample[1]))


def make_of_image(form: str, image: Any) -> Any:
    digits = (image[4, 4::8, 0] - 20) // 20
    return make(form, int("".join(map(str, digits))))


def make_of_pair(form: str, pair: tuple[bytes, bytes]) -> Any:
    return make(form, int(pair[1]))


def only(row: Any) -> Any:
    return row[0]


def make_of_fake(form: str, arrays: Any) -> Any:
    return formed(form, arrays[0][()], arrays[1])


def keep_scaled(modulus: int, rest: int, element: Any) -> Any:
    return scale(element) if keep(modulus, rest, element) else None


def unstar(*components: Any) -> Any:
    return tuple(components)


def itself(element: Any) -> Any:
    return element


def count(element: Any) -> int:
    return len(ids(element))


def marks(element: Any) -> Any:
    """The marks of an element as a sequence, with up to five other tokens; it may be empty."""
    rows = ids(element)
    others = range(-((sum(rows) * 2654435761 >> 9) % 6), 0)  # irregular sizes
    return np.array([*(i + 1 for i in rows), *others], np.int32)


def unmarked(row: Any) -> Any:
    """A row of ``pack``, of which only the tokens are marks."""
    return row._replace(
        segment_ids=row.segment_ids.astype(np.int64), positions=row.positions.astype(np.int64)
    )


def some_key(element: Any) -> int:
    return sum(ids(element)) % 3


MAX_LENGTH = 4


def some_length(element: Any) -> int:
    return int(np.size(first_array(element))) % (MAX_LENGTH + 1)


def first_array(element: Any) -> Any:
    arrays = (leaf for leaf in leaves(element) if isinstance(leaf, np.ndarray) and leaf.ndim)
    return next(arrays, np.zeros(len(ids(element))))


def dict_of(**components: Any) -> Any:
    return components


@attrs.frozen
class Lighter:
    by: float

    def image(self, image: Any) -> Any:
        return with_data(image, lambda data: data + self.by)

    mask = image

    def points(self, points: Any) -> Any:
        return points


class Light:
    """A transform of images that keeps marks."""

    def draw(self, image: Any, rng: np.random.Generator) -> Lighter:
        return Lighter(rng.random())


def real_rows(element: tuple[Any, Any]) -> Any:
    """The rows of a filled batch that its mask marks as real."""
    batch, mask = element
    return _first_rows(batch, int(mask.sum()))


def real_elements(element: tuple[Any, Any]) -> list[Any]:
    """The elements of a filled window that its mask marks as real."""
    window, mask = element
    return list(window[: int(mask.sum())])


def _first_rows(batch: Any, n: int) -> Any:
    parts = components(batch)
    if parts is None or isinstance(batch, list):
        return batch[:n]
    return assemble(type(batch), {name: _first_rows(part, n) for name, part in parts})


def counted(counts: list[int], element: Any) -> tuple[list[int], Any]:
    """Count elements in the state, and add the number to the data."""
    counts[0] += 1
    return counts, with_data(element, lambda data: data + counts[0])


def below(limit: int, element: Any) -> bool:
    """Return True while the rows of the element have small numbers."""
    return sum(ids(element)) < limit
