"""augment: images, masks and points of each element, transformed by one draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import attrs
import numpy as np

from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, class_of
from flowdsl.elements.structure import Component, arguments_of, assemble, components, form_of
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import (
    PARALLEL,
    A,
    E,
    Elementwise,
    FlowBase,
    T,
    at_least,
    cached_per_node,
    flow,
    generator,
    is_flag,
    name_of,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
    titled,
    unless,
    with_inferred,
)
from flowdsl.ops.components import may_have_any
from flowdsl.ops.transforms import Parts, Transform, TransformStage, stages_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow

R = TypeVar("R")

Selector: TypeAlias = int | str | Callable[[R], object]
"""A number of a tuple's component, or ``c0`` to ``c7``; a key of a dict; the name of a field."""

Names: TypeAlias = tuple[int | str, ...]


def _selected(given: Any) -> Names:
    """An attrs converter: one selector or several, as numbers and names."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return tuple(plain_int(x.index if isinstance(x, Component) else x) for x in several)


def _are_selectors(node: Any, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    for x in value:
        if not isinstance(x, (int, str)) or isinstance(x, bool):
            raise InvalidFlow(
                f"augment: {field.name} must be selectors: the numbers of components, c0 to c7, or "
                f"the names of fields; got {name_of(x) if callable(x) else repr(x)}"
            )


@attrs.frozen(repr=False)
class Augment(Elementwise[A, A, E], Generic[A, E]):
    """Transforms, one after another, applied to the images, masks and points of every element."""

    stages: tuple[TransformStage, ...]
    images: Names = attrs.field(converter=_selected, validator=_are_selectors)
    masks: Names = attrs.field(converter=_selected, validator=_are_selectors)
    points: Names = attrs.field(converter=_selected, validator=_are_selectors)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """Makes this operator's draws differ from those of other operators with the same seed."""
    copy: bool = attrs.field(validator=is_flag)

    def __attrs_post_init__(self) -> None:
        if not self.images:
            raise InvalidFlow(
                "augment: give one image or more, images=...: a draw is made for an image"
            )
        if len(set(self._all)) < len(self._all):
            raise InvalidFlow(f"{self.title}: a component can be given only once")
        like = Parts(self.images, self.masks, self.points)
        for why in filter(None, [stage.refusal(like) for stage in self.stages]):
            raise InvalidFlow(f"{self.title}: {why}")
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        given = ", ".join(stage.title for stage in self.stages)
        return titled(
            "augment",
            given if len(self.stages) == 1 else f"[{given}]",
            _unless_of("images", self.images, (0,)),
            _unless_of("masks", self.masks, ()),
            _unless_of("points", self.points, ()),
            unless("seed", self.seed, 0),
            unless("copy", self.copy, True),
        )

    @property
    def _all(self) -> Names:
        return (*self.images, *self.masks, *self.points)

    def apply(self, x: A, epoch: int, position: int) -> A:
        if isinstance(x, np.ndarray) and self._all == (0,):
            return cast(
                "A", self._augmented(Parts([x]), ["the element"], epoch, position).images[0]
            )
        values = dict(components(x) or ())
        names = _resolved(self._all, form_of(x), list(values))
        n, m = len(self.images), len(self.images) + len(self.masks)
        given = [values[name] for name in names]
        parts = Parts(given[:n], given[n:m], given[m:])
        made = self._augmented(parts, [f"component {c!r}" for c in self._all], epoch, position)
        values |= zip(names, chain(made.images, made.masks, made.points), strict=True)
        named = not isinstance(x, tuple) or hasattr(x, "_fields")
        return cast("A", assemble(form_of(x) if named else tuple, values))

    def _augmented(self, parts: Parts, names: list[str], epoch: int, position: int) -> Parts:
        _check_given(parts, names)
        give = _copy if self.copy else _read_only
        for number, stage in enumerate(self.stages):
            salt = f"{self.salt}/{number}" if number else self.salt
            rng = generator(self.seed, salt, epoch, position)
            give = _copy if self.copy else _read_only
            given = Parts(
                *([give(x) for x in some] for some in attrs.astuple(parts, recurse=False))
            )
            parts = _checked(stage.apply(given, rng), parts, names, stage.title)
        return parts

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, self._known(self.source.spec(probe)), probe)

    def _known(self, source: Spec) -> Spec:
        """What is known of the results: an image may change in dtype and shape, a mask in shape."""
        if may_have_any(source):
            return UNKNOWN
        if isinstance(source, ArraySpec) and self._all == (0,):
            return _image_spec(source, "the element")
        form, fields = class_of(source), dict[str, Spec]()
        if isinstance(source, StructSpec):
            form, fields = source.form, dict(source.fields)
        names = _resolved(self._all, form, list(fields))
        kinds = [_image_spec] * len(self.images) + [_mask_spec] * len(self.masks)
        kinds += [_points_spec] * len(self.points)
        for selector, name, kind in zip(self._all, names, kinds, strict=True):
            fields[name] = kind(fields[name], f"component {selector!r}")
        return StructSpec(form, tuple(fields.items()))


def _unless_of(argument: str, names: Names, default: Names) -> str:
    return unless(argument, names[0] if len(names) == 1 else names, default[0] if default else ())


def _resolved(selectors: Names, form: type, names: Sequence[str]) -> list[str]:
    """The names of the components that selectors stand for.

    Raises:
        SpecMismatch: There is no such component, it cannot be set, or two are the same.
    """
    numbered = issubclass(form, tuple)
    named = form is dict or arguments_of(form) is not None or hasattr(form, "_fields")
    found: list[str] = []
    for selector in selectors:
        if isinstance(selector, str):
            there, name = named and selector in names, selector
        else:
            there = numbered and -len(names) <= selector < len(names)
            name = names[selector] if there else ""
        if not there:
            has = ", ".join(map(repr, names)) if named else str(len(names))
            of = f" of {has}" if numbered or named else ""
            raise SpecMismatch(
                f"there is no component {selector!r} in this {form.__name__}{of}; those of a tuple "
                f"are numbered from 0, those of a dict or a record are named; an element that is "
                f"an array has itself, as images=0"
            )
        if (arguments_of(form) or {}).get(name, name) is None:
            raise SpecMismatch(f"{form.__name__} sets its field {name!r} by itself")
        if name in found:
            raise SpecMismatch(f"component {selector!r} is given twice")
        found.append(name)
    return found


# -- arrays that are given and made ----------------------------------------------------------------


def _copy(x: Any) -> Any:
    return np.array(x, order="C")


def _read_only(x: Any) -> Any:
    view = x.view()
    view.flags.writeable = False
    return view


def _check_given(parts: Parts, names: Sequence[str]) -> None:
    every = chain(parts.images, parts.masks, parts.points)
    for name, x in zip(names, every, strict=True):
        if not isinstance(x, np.ndarray) or not x.ndim:
            raise SpecMismatch(
                f"{name} must be an array, got {type(x).__name__}; decode it first, with map"
            )
    for name, x in zip(names[len(names) - len(parts.points) :], parts.points, strict=True):
        _check_points(name, ArraySpec(x.dtype, x.shape))


def _check_points(name: str, points: ArraySpec) -> None:
    """Refuse what is known to be no points: floats of shape (n, 2)."""
    if points.dtype is not None and points.dtype.kind != "f":
        raise SpecMismatch(
            f"{name} is {points}: points are floats, as a transform would round ints; make them so "
            f"with map_component(lambda x: x.astype(np.float32), ...)"
        )
    if points.shape is not None and (len(points.shape) != 2 or points.shape[1] not in (2, None)):
        raise SpecMismatch(f"{name} is {points}: points are of shape (n, 2), each row (x, y)")


def _checked(made: Parts, given: Parts, names: Sequence[str], title: str) -> Parts:
    """What a transform has made, if it is what it may make of what it was given."""
    n, m = len(given.images), len(given.masks)
    for name, x in zip(names, chain(made.images, made.masks, made.points), strict=True):
        if not isinstance(x, np.ndarray):
            raise SpecMismatch(f"{title} must make an array of {name}, got {type(x).__name__}")
    for name, mask, was in zip(names[n:], made.masks, given.masks, strict=False):
        if mask.dtype != was.dtype:
            raise SpecMismatch(
                f"{title} changed the dtype of {name}, a mask, from {was.dtype} to {mask.dtype}; "
                f"give it a dtype that it keeps, such as uint8 or int32"
            )
    pairs = zip(names[n + m :], made.points, given.points, strict=True)
    points = [_checked_points(f"{title}: {name}", x, was) for name, x, was in pairs]
    return Parts(made.images, made.masks, points)


def _checked_points(name: str, made: Any, was: Any) -> Any:
    if made.shape != was.shape or made.dtype.kind != "f":
        raise SpecMismatch(
            f"{name} became {ArraySpec(made.dtype, made.shape)} from "
            f"{ArraySpec(was.dtype, was.shape)}; points stay floats, as many, and in order"
        )
    return made.astype(was.dtype, copy=False)


def _array_spec(spec: Spec, name: str) -> ArraySpec:
    if spec == UNKNOWN:
        return ArraySpec()
    if not isinstance(spec, ArraySpec) or spec.shape == ():
        raise SpecMismatch(f"{name} must be an array, got {spec}; decode it first, with map")
    return spec


def _image_spec(spec: Spec, name: str) -> ArraySpec:
    _array_spec(spec, name)
    return ArraySpec()


def _mask_spec(spec: Spec, name: str) -> ArraySpec:
    return ArraySpec(_array_spec(spec, name).dtype)


def _points_spec(spec: Spec, name: str) -> ArraySpec:
    points = _array_spec(spec, name)
    _check_points(name, points)
    return ArraySpec(points.dtype, (points.shape[0] if points.shape else None, 2))


# -- methods ---------------------------------------------------------------------------------------


class Augmenting(FlowBase[T, E]):
    """Random transforms of images, and of what lies in them."""

    @rejects_keywords(
        augmentors="write {name}(t, ...)",
        index="write images=...",
        img_index="write images=...",
        coords_index="write points=...",
        catch_exceptions='leave out what fails with prefetch(on_error="skip") after it',
        **PARALLEL,
    )
    def augment(
        self,
        t: Transform | Sequence[Transform],
        *,
        images: Selector[T] | Sequence[Selector[T]] = 0,
        masks: Selector[T] | Sequence[Selector[T]] = (),
        points: Selector[T] | Sequence[Selector[T]] = (),
        seed: int = 0,
        copy: bool = True,
    ) -> Flow[T, E]:
        """Transform the images, masks and points of every element by one draw of parameters.

        The components are selected by number or ``c0`` to ``c7``, or by name in a dict, a
        NamedTuple and a record; one, or several. An element that is an array is itself image 0. The
        others stay as they are, and so does the class of the element.

        ``t`` is an ``Augmentation``, with a method ``draw(image, rng)``; a transform that is called
        by keyword, ``t(image=, mask=, keypoints=)``, and gives a dict, as those of albumentations;
        one of torchvision; a function of one image; or a list of these, applied in order. What it
        draws depends on the seed, this operator's place in the chain, the epoch and the element's
        position, as for ``random_map``: never on the worker. For this a transform of albumentations
        is copied and given a random state. The generators that ``t`` refers to (of NumPy, Python
        and torch; in attributes, closures, defaults, or global names) are seeded for each element,
        and put back after it: the global ones too, where ``t`` uses them or has no convention for
        a random state. Such a ``t`` runs in one thread of a process at a time. The search for them
        ends after 10,000 objects, the code before the data, and then takes the global ones as
        used; it skips a container of over 1,000 items, and one of over 50 whose first 50 are
        numbers, text, arrays, or tuples and lists of these. What cannot be found is left to you:
        what is beyond this search; a generator that ``t`` makes without a seed as it runs
        (``np.random.default_rng()``), and those of other libraries, such as OpenCV's and
        TensorFlow's; nor may it count its calls.

        Arrays are given as copies, or as views to read only with ``copy=False``, to save time where
        ``t`` is known not to change them: what comes from the source is never changed. Images may
        change in dtype and shape, which a checker is not told. Masks keep their dtype. Points are
        floats, one (x, y) a row; they keep their dtype, their number and their order, and those
        that leave the image stay, outside of it.

        Shapes: a point array (n, 2); images and masks as ``t`` asks, mostly (height, width) or
        (height, width, channels).

        Length: as many elements as before.

        Effects: none.

        Errors: what ``t`` raises arrives at its place in the sequence, as the cause of an
        ``ElementError``; likewise a ``SpecMismatch`` for what is no image, mask or points, before
        or after it. ``InvalidFlow`` for a component that is known not to be there, for one that
        ``t`` cannot take, for a ``SystemRandom``, which nothing seeds, and if ``seed`` is negative.

        >>> import numpy as np
        >>> import flowdsl as fl
        >>> rows = fl.from_items([{"image": np.arange(3), "label": 7}])
        >>> rows.augment(np.flip, images="image").collect()
        [{'image': array([2, 1, 0]), 'label': 7}]

        Source: ``AugmentImageComponents`` in tensorpack.

        Elsewhere: tensorpack ``AugmentImageComponents``, ``AugmentImageComponent`` and
        ``AugmentImageCoordinates``; tf.data none; Grain ``RandomMapTransform``; torchdata none.
        """
        node = self.node
        return flow(Augment(node, stages_of(t), images, masks, points, seed, node.depth, copy))
