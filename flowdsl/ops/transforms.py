"""The transforms of images that ``augment`` accepts; each calling convention has one class.

The conventions are flowdsl's own (``Augmentation``), keywords as in albumentations, tensors as in
torchvision, and a function of one image. Each transform receives the element's own random
generator, and its draws depend only on this generator.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cached_property
from importlib import import_module
from itertools import chain, repeat
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import name_of
from flowdsl.ops.generators import Seedable, generators_in, global_generators, seeded

Image: TypeAlias = NDArray[Any]
"""An image or a mask, mostly of shape (height, width) or (height, width, channels)."""


class Drawn(Protocol):
    """The parameters that an ``Augmentation`` has drawn for all parts of one element.

    Each method returns its argument transformed; it may change the argument in place. A mask keeps
    its dtype. Points are floats of shape (n, 2), one (x, y) in each row; their number and order
    must not change.
    """

    def image(self, image: Image, /) -> Image: ...
    def mask(self, mask: Image, /) -> Image: ...
    def points(self, points: NDArray[Any], /) -> NDArray[Any]: ...


class Augmentation(Protocol):
    """A transform for ``augment``: draws its parameters once for all parts of an element.

    The arguments of ``draw`` are the element's first image, and a generator for all its draws.

    >>> import attrs, flowdsl as fl
    >>> @attrs.frozen
    ... class Shifted:
    ...     by: int
    ...     def image(self, image):
    ...         return np.roll(image, self.by, axis=1)
    ...     mask = image
    ...     def points(self, points):
    ...         return points + [self.by, 0]
    >>> class Shift:
    ...     def draw(self, image, rng):
    ...         return Shifted(rng.integers(image.shape[1]))
    >>> row = np.array([[0, 0, 9, 0]]), np.array([[2.0, 0.0]])
    >>> fl.from_items([row]).augment(Shift(), points=1, seed=2).collect()
    [(array([[0, 0, 0, 9]]), array([[3., 0.]]))]
    """

    def draw(self, image: Image, rng: np.random.Generator, /) -> Drawn: ...


Transform: TypeAlias = Augmentation | Callable[..., object]
"""A transform that ``augment`` accepts; see ``Flow.augment``."""


@attrs.frozen(eq=False, repr=False)
class Parts:
    """The arrays of one element before or after a transform."""

    images: Sequence[Any]
    masks: Sequence[Any] = ()
    points: Sequence[Any] = ()

    def each(self, change: Callable[[Any], Any]) -> Parts:
        """Return parts with ``change`` applied to every array."""
        return Parts(
            images=[change(x) for x in self.images],
            masks=[change(x) for x in self.masks],
            points=[change(x) for x in self.points],
        )


@attrs.frozen(eq=False, repr=False)
class TransformAdapter(ABC):
    """A transform of one calling convention, applied to all parts of an element at once."""

    transform: Any

    @cached_property
    def generators(self) -> list[Seedable]:
        """The random generators that the transform refers to."""
        return generators_in(self.transform)

    @property
    def title(self) -> str:
        """The name of the transform in messages."""
        return name_of(self.transform)

    def refusal(self, parts: Parts) -> str | None:
        """The reason why the transform cannot accept these numbers of images, masks and points.

        None if it can accept them.
        """
        return None

    @abstractmethod
    def apply(self, parts: Parts, rng: np.random.Generator) -> Parts:
        """Return the parts transformed by one draw from ``rng``; ``parts`` may be changed."""


def adapters_of(t: object) -> tuple[TransformAdapter, ...]:
    """The adapters of a transform, or of a list of transforms.

    Raises:
        InvalidFlow: A transform does not follow a known convention.
    """
    adapters = tuple(map(_adapter_of, t if isinstance(t, (list, tuple)) else [t]))
    if not adapters:
        raise InvalidFlow("augment: t must be a transform, or a list of one or more, got none")
    return adapters


def _adapter_of(t: Any) -> TransformAdapter:
    if isinstance(t, type):
        raise InvalidFlow(f"augment: {t.__name__} is a class; pass an instance, {t.__name__}(...)")
    if callable(getattr(t, "draw", None)):
        return _check_seedable(_OfAugmentation(t))
    if not callable(t):
        raise InvalidFlow(
            f"augment: a transform is an Augmentation, with a method draw(image, rng), or a "
            f"callable, such as one of albumentations or torchvision; got {t!r}"
        )
    if _packages(t) & {"torch", "torchvision"}:
        return _check_seedable(_Torchvision(t))
    if _takes_keywords(t):
        return _check_seedable(_Keywords(t))
    _check_takes_one_image(t)
    return _check_seedable(_OfOneImage(t))


def _check_takes_one_image(t: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(t)
    except (TypeError, ValueError):  # a builtin may have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise InvalidFlow(
            f"augment: a function takes one image, and {name_of(t)} takes {signature}; for a "
            f"function of an element and a random generator write .random_map(f, seed=...), and "
            f"for one draw for several arrays pass an Augmentation, with a method draw(image, rng)"
        ) from None


def _check_seedable(adapter: TransformAdapter) -> TransformAdapter:
    """Refuse a transform that draws from a generator that cannot be seeded."""
    for seedable in adapter.generators:
        if type(seedable.generator).__name__ == "SystemRandom":
            raise InvalidFlow(
                f"augment: {adapter.title} draws from a SystemRandom, which cannot be seeded, so "
                f"elements would differ between passes; use a random.Random instead"
            )
    return adapter


def _packages(t: object) -> set[str]:
    """The packages that define the class of an object and its parent classes."""
    return {cls.__module__.partition(".")[0] for cls in type(t).__mro__}


_OTHER_KEYWORDS = {"mask", "masks", "keypoints"}


def _takes_keywords(t: Callable[..., object]) -> bool:
    """Return True if it takes ``image=`` as keyword-only, or along with ``mask=`` and the like."""
    try:
        parameters = inspect.signature(t).parameters.values()
    except (TypeError, ValueError):  # a builtin may have no signature
        return False
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = {p.name for p in named if p.default is p.empty}
    if not required <= {"image", *_OTHER_KEYWORDS}:
        return False
    takes_any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    takes_others = takes_any_keyword or any(p.name in _OTHER_KEYWORDS for p in named)
    keyword_only = any(p.name == "image" and p.kind is p.KEYWORD_ONLY for p in named)
    return takes_others or keyword_only


class _OfAugmentation(TransformAdapter):
    """Adapts an ``Augmentation``."""

    def apply(self, parts: Parts, rng: np.random.Generator) -> Parts:
        with seeded(self.generators, _numbers(rng)):
            drawn: Drawn = self.transform.draw(parts.images[0], rng)
            return Parts(
                [drawn.image(x) for x in parts.images],
                [drawn.mask(x) for x in parts.masks],
                [drawn.points(x) for x in parts.points],
            )


class _OfOneImage(TransformAdapter):
    """Adapts a function of one image."""

    def refusal(self, parts: Parts) -> str | None:
        if len(parts.images) == 1 and not parts.masks and not parts.points:
            return None
        return (
            f"{self.title} is a function of one image, so it cannot apply one random draw to "
            f"several arrays; use an Augmentation, or a transform that takes image=, mask= and "
            f"keypoints="
        )

    def apply(self, parts: Parts, rng: np.random.Generator) -> Parts:
        with _with_globals(self, rng):
            return Parts([self.transform(parts.images[0])])


# -- keywords --------------------------------------------------------------------------------------


@attrs.frozen(eq=False, repr=False)
class _Keywords(TransformAdapter):
    """A transform that is called with ``image=``, ``mask=``, ``keypoints=``, and returns a dict.

    A transform with its own random state is copied for each thread, so that the user's transform is
    not changed and threads do not share it.
    """

    _copies: threading.local = attrs.field(factory=threading.local, init=False)

    def __reduce__(self) -> tuple[type[_Keywords], tuple[object]]:
        return type(self), (self.transform,)

    def refusal(self, parts: Parts) -> str | None:
        if len(parts.images) > 1 and not callable(getattr(self.transform, "add_targets", None)):
            return f"{self.title} has no add_targets, so it takes one image only"
        if parts.points and _has_state(self.transform) and not _keeps_points(self.transform):
            return (
                f"{self.title} does not take points, or may leave some out: wrap it in "
                f'albumentations.Compose([...], keypoint_params=KeypointParams(format="xy", '
                f"remove_invisible=False))"
            )
        return None

    def apply(self, parts: Parts, rng: np.random.Generator) -> Parts:
        images = [f"image{i}" if i else "image" for i in range(len(parts.images))]
        arguments: dict[str, Any] = dict(zip(images, parts.images, strict=True))
        if len(parts.masks) == 1:
            arguments["mask"] = parts.masks[0]
        elif parts.masks:
            arguments["masks"] = list(parts.masks)
        if parts.points:
            arguments["keypoints"] = np.concatenate(parts.points)
        targets = dict.fromkeys(images[1:], "image")  # the further images are transformed like it
        result = self._call_transform(arguments, targets, rng)
        if not isinstance(result, Mapping) or not result.keys() >= arguments.keys():
            got = (
                f"one with {sorted(result)}" if isinstance(result, Mapping) else repr(type(result))
            )
            raise SpecMismatch(
                f"{self.title} must return a dict with the keys {sorted(arguments)}; got {got}"
            )
        masks = [result["mask"]] if "mask" in arguments else []
        masks = result["masks"] if "masks" in arguments else masks
        points = _split(result["keypoints"], parts.points, self.title) if parts.points else []
        return Parts([result[name] for name in images], masks, points)

    def _call_transform(
        self, arguments: dict[str, Any], targets: dict[str, str], rng: Any
    ) -> object:
        if not _has_state(self.transform):
            with _with_globals(self, rng):
                return self.transform(**arguments)
        from random import Random  # here: it loads OpenSSL, which other flows do not need

        t, other_generators = self._of_this_thread(targets)
        with seeded(other_generators, _numbers(rng)):
            # The transforms of a Compose share one generator. If each had an equal generator, all
            # would draw the same numbers.
            if hasattr(t, "set_random_state"):
                t.set_random_state(rng, Random(_number(rng)))
            else:
                t.set_random_seed(_number(rng) % 2**32)
            return t(**arguments)

    def _of_this_thread(self, targets: dict[str, str]) -> tuple[Any, list[Seedable]]:
        """The thread's copy, and generators besides its own, such as in a user's function."""
        if not hasattr(self._copies, "transform"):
            copied = deepcopy(self.transform)
            if targets:
                copied.add_targets(targets)
            own: list[Any] = []
            if hasattr(copied, "set_random_state"):
                from random import Random

                own = [np.random.default_rng(0), Random(0)]
                copied.set_random_state(*own)
            self._copies.transform = copied, generators_in(copied, own)
        copy: tuple[Any, list[Seedable]] = self._copies.transform
        return copy


def _has_state(t: object) -> bool:
    """Return True if it has its own random state, as in albumentations since 1.4.19."""
    return hasattr(t, "set_random_state") or hasattr(t, "set_random_seed")


def _keeps_points(t: Any) -> bool:
    """Return True for a Compose of albumentations that returns all points, as (x, y)."""
    processor = getattr(t, "processors", {}).get("keypoints")
    params = getattr(processor, "params", None)
    return params is not None and params.format == "xy" and not params.remove_invisible


def _split(made: Any, arrays: Sequence[NDArray[Any]], title: str) -> list[NDArray[Any]]:
    """Split the concatenated points of several arrays into arrays of the original lengths."""
    points = np.asarray(made)
    if len(points) == 0:  # an empty list has one axis
        points = points.reshape(-1, 2)
    n = sum(map(len, arrays))
    if len(points) != n:
        raise SpecMismatch(
            f"{title} got {n} points and returned {len(points)}: the number and order of points "
            f"must stay the same; keep points outside the image too"
        )
    return np.split(points, np.cumsum([len(x) for x in arrays])[:-1])


# -- torchvision -----------------------------------------------------------------------------------


class _Torchvision(TransformAdapter):
    """Adapts a transform of torchvision: its argument is a tensor, or a list of typed tensors."""

    def refusal(self, parts: Parts) -> str | None:
        is_one_image = len(parts.images) == 1 and not parts.masks and not parts.points
        modules = [cls.__module__ for cls in type(self.transform).__mro__]
        is_v1 = any(name.startswith("torchvision.transforms.transforms") for name in modules)
        if is_v1 and not is_one_image:
            return f"{self.title} takes one image only; use torchvision.transforms.v2 instead"
        if parts.points and not hasattr(_tv_tensors(), "KeyPoints"):
            return "this torchvision has no KeyPoints, which points need; use 0.23 or later"
        return None

    def apply(self, parts: Parts, rng: np.random.Generator) -> Parts:
        torch, typed = import_module("torch"), _tv_tensors()
        tensors = [typed.Image(torch.from_numpy(_channels_first(x))) for x in parts.images]
        tensors += [typed.Mask(torch.from_numpy(_channels_first(x))) for x in parts.masks]
        size = parts.images[0].shape[:2]
        tensors += [typed.KeyPoints(torch.tensor(x), canvas_size=size) for x in parts.points]
        with _with_globals(self, rng):
            made = [self.transform(tensors[0])] if len(tensors) == 1 else self.transform(tensors)
        if not isinstance(made, (list, tuple)) or len(made) != len(tensors):
            raise SpecMismatch(
                f"{self.title} must return as many tensors as it gets, {len(tensors)}; got "
                f"{len(made) if isinstance(made, (list, tuple)) else type(made).__name__}"
            )
        arrays = [x.numpy() if isinstance(x, torch.Tensor) else x for x in made]
        originals = [*parts.images, *parts.masks]
        pictures = [
            _channels_last(x, original.ndim) for x, original in zip(arrays, originals, strict=False)
        ]
        n = len(parts.images)
        return Parts(images=pictures[:n], masks=pictures[n:], points=arrays[len(originals) :])


def _tv_tensors() -> Any:
    return import_module("torchvision.tv_tensors")


def _channels_first(x: Image) -> Image:
    return np.array(np.moveaxis(x, -1, 0) if x.ndim > 2 else x, order="C")


def _channels_last(x: Any, ndim: int) -> Any:
    if not isinstance(x, np.ndarray) or x.ndim != 3:
        return x
    has_added_axis = ndim == 2 and len(x) == 1  # torchvision adds a channel axis to an image
    return x[0] if has_added_axis else np.ascontiguousarray(np.moveaxis(x, 0, -1))


# -- global generators -----------------------------------------------------------------------------


def _with_globals(
    adapter: TransformAdapter, rng: np.random.Generator
) -> AbstractContextManager[None]:
    """Seed the global generators too, for a transform without a generator argument.

    Their states are restored afterwards. Meanwhile ``seeded`` holds a lock, since otherwise the
    draws of two threads would mix.
    """
    shared = global_generators()
    shared_ids = {id(seedable.generator) for seedable in shared}
    own = [each for each in adapter.generators if id(each.generator) not in shared_ids]
    numbers = chain(repeat(_number(rng), len(shared)), _numbers(rng))
    return seeded([*shared, *own], numbers)


def _number(rng: np.random.Generator) -> int:
    """A random number to seed a generator."""
    return int(rng.integers(2**63))


def _numbers(rng: np.random.Generator) -> Iterator[int]:
    return map(_number, repeat(rng))
