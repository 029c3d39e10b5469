"""augment: images, masks and points of each element, transformed by one draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

import attrs
import numpy as np

from flowdsl.elements.specs import UNKNOWN, ArraySpec, Spec, StructSpec, class_of
from flowdsl.elements.structure import Component, arguments_of, assemble, components, form_of
from flowdsl.errors import InvalidFlow, SpecMismatch
from flowdsl.nodes import (
    PARALLEL_KEYWORD_ADVICE,
    A,
    E,
    Elementwise,
    FlowBase,
    T,
    at_least,
    cached_per_node,
    flow,
    format_call,
    frozen_node,
    generator,
    keyword_unless_default,
    name_of,
    plain_int,
    refuse_mismatch,
    rejects_keywords,
    validate_flag,
    with_inferred,
)
from flowdsl.ops.components import may_have_any
from flowdsl.ops.transforms import Parts, Transform, TransformAdapter, adapters_of

if TYPE_CHECKING:
    from flowdsl.flow import Flow

R = TypeVar("R")

Selector: TypeAlias = int | str | Callable[[R], object]
"""The number of a tuple's component, or ``c0`` to ``c7``; a key of a dict; a field's name."""

Names: TypeAlias = tuple[int | str, ...]


def _names_of(selectors: Any) -> Names:
    """An attrs converter: one selector or several, as numbers and names."""
    several = selectors if isinstance(selectors, (list, tuple)) else [selectors]
    return tuple(plain_int(x.index if isinstance(x, Component) else x) for x in several)


def _validate_names(node: Any, field: attrs.Attribute[Any], value: tuple[object, ...]) -> None:
    for x in value:
        if not isinstance(x, (int, str)) or isinstance(x, bool):
            raise InvalidFlow(
                f"augment: {field.name} must be selectors: the numbers of components, c0 to c7, or "
                f"the names of fields; got {name_of(x) if callable(x) else repr(x)}"
            )


@frozen_node
class Augment(Elementwise[A, A, E], Generic[A, E]):
    """Transforms, one after another, applied to the images, masks and points of every element."""

    draws: ClassVar[bool] = True
    adapters: tuple[TransformAdapter, ...]
    images: Names = attrs.field(converter=_names_of, validator=_validate_names)
    masks: Names = attrs.field(converter=_names_of, validator=_validate_names)
    points: Names = attrs.field(converter=_names_of, validator=_validate_names)
    seed: int = attrs.field(converter=plain_int, validator=at_least(0, None))
    salt: int = attrs.field()
    """The number of operators below: it gives equal operators of one chain different random
    numbers."""
    copy: bool = attrs.field(validator=validate_flag)

    def __attrs_post_init__(self) -> None:
        if not self.images:
            raise InvalidFlow(
                "augment: select one image or more, images=...: a draw is made for an image"
            )
        if len(set(self._all)) < len(self._all):
            raise InvalidFlow(f"{self.title}: a component can be selected only once")
        selected = Parts(self.images, self.masks, self.points)
        for adapter in self.adapters:
            if reason := adapter.refusal(selected):
                raise InvalidFlow(f"{self.title}: {reason}")
        refuse_mismatch(self)

    @property
    def title(self) -> str:
        transforms = ", ".join(adapter.title for adapter in self.adapters)
        return format_call(
            "augment",
            transforms if len(self.adapters) == 1 else f"[{transforms}]",
            _names_unless_default("images", self.images, (0,)),
            _names_unless_default("masks", self.masks, ()),
            _names_unless_default("points", self.points, ()),
            keyword_unless_default("seed", self.seed, 0),
            keyword_unless_default("copy", self.copy, True),
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
        arrays = [values[name] for name in names]
        first_mask, first_points = len(self.images), len(self.images) + len(self.masks)
        parts = Parts(arrays[:first_mask], arrays[first_mask:first_points], arrays[first_points:])
        made = self._augmented(parts, [f"component {c!r}" for c in self._all], epoch, position)
        values |= zip(names, chain(made.images, made.masks, made.points), strict=True)
        is_plain_tuple = isinstance(x, tuple) and not hasattr(x, "_fields")
        return cast("A", assemble(tuple if is_plain_tuple else form_of(x), values))

    def _augmented(self, parts: Parts, names: list[str], epoch: int, position: int) -> Parts:
        _check_arrays(parts, names)
        protect = _copy if self.copy else _read_only
        for number, adapter in enumerate(self.adapters):
            # The first transform draws as it does alone, outside of a list.
            salt = f"{self.salt}/{number}" if number else self.salt
            rng = generator(self.seed, salt, epoch, position)
            protected = Parts(
                *([protect(x) for x in some] for some in attrs.astuple(parts, recurse=False))
            )
            parts = _checked(adapter.apply(protected, rng), parts, names, adapter.title)
        return parts

    @cached_per_node
    def spec(self, probe: bool) -> Spec:
        return with_inferred(self, self._known(self.source.spec(probe)), probe)

    def _known(self, source: Spec) -> Spec:
        """The known spec of results: an image may change in dtype and shape, a mask in shape."""
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


def _names_unless_default(argument: str, names: Names, default: Names) -> str:
    return keyword_unless_default(
        argument, names[0] if len(names) == 1 else names, default[0] if default else ()
    )


def _resolved(selectors: Names, form: type, names: Sequence[str]) -> list[str]:
    """The names of the components that selectors refer to.

    Raises:
        SpecMismatch: A component does not exist, cannot be set, or is selected twice.
    """
    has_numbers = issubclass(form, tuple)
    has_names = form is dict or arguments_of(form) is not None or hasattr(form, "_fields")
    found: list[str] = []
    for selector in selectors:
        if isinstance(selector, str):
            exists, name = has_names and selector in names, selector
        else:
            exists = has_numbers and -len(names) <= selector < len(names)
            name = names[selector] if exists else ""
        if not exists:
            valid = ", ".join(map(repr, names)) if has_names else str(len(names))
            of = f" of {valid}" if has_numbers or has_names else ""
            raise SpecMismatch(
                f"there is no component {selector!r} in this {form.__name__}{of}; components of a "
                f"tuple are numbered from 0, components of a dict or a record are named; an "
                f"element that is an array has itself, as images=0"
            )
        if (arguments_of(form) or {}).get(name, name) is None:  # a field without an argument
            raise SpecMismatch(f"{form.__name__} sets its field {name!r} by itself")
        if name in found:
            raise SpecMismatch(f"component {selector!r} is selected twice")
        found.append(name)
    return found


# -- arrays before and after a transform -----------------------------------------------------------


def _copy(x: Any) -> Any:
    return np.array(x, order="C")


def _read_only(x: Any) -> Any:
    view = x.view()
    view.flags.writeable = False
    return view


def _check_arrays(parts: Parts, names: Sequence[str]) -> None:
    arrays = chain(parts.images, parts.masks, parts.points)
    for name, x in zip(names, arrays, strict=True):
        if not isinstance(x, np.ndarray) or not x.ndim:
            raise SpecMismatch(
                f"{name} must be an array, got {type(x).__name__}; decode it first, with map"
            )
    names_of_points = names[len(names) - len(parts.points) :]
    for name, x in zip(names_of_points, parts.points, strict=True):
        _check_points(name, ArraySpec(x.dtype, x.shape))


def _check_points(name: str, points: ArraySpec) -> None:
    """Refuse arrays that are known not to be points: floats of shape (n, 2)."""
    if points.dtype is not None and points.dtype.kind != "f":
        raise SpecMismatch(
            f"{name} is {points}: points are floats, as a transform would round ints; convert them "
            f"with map_component(lambda x: x.astype(np.float32), ...)"
        )
    if points.shape is not None and (len(points.shape) != 2 or points.shape[1] not in (2, None)):
        raise SpecMismatch(f"{name} is {points}: points are of shape (n, 2), each row (x, y)")


def _checked(made: Parts, before: Parts, names: Sequence[str], title: str) -> Parts:
    """Return the results of a transform, if they are valid for its arguments."""
    first_mask, first_points = len(before.images), len(before.images) + len(before.masks)
    for name, x in zip(names, chain(made.images, made.masks, made.points), strict=True):
        if not isinstance(x, np.ndarray):
            raise SpecMismatch(f"{title} must make an array of {name}, got {type(x).__name__}")
    names_of_masks = names[first_mask:first_points]
    for name, mask, was in zip(names_of_masks, made.masks, before.masks, strict=True):
        if mask.dtype != was.dtype:
            raise SpecMismatch(
                f"{title} changed the dtype of {name}, a mask, from {was.dtype} to {mask.dtype}; "
                f"convert it to a dtype that is kept, such as uint8 or int32"
            )
    pairs = zip(names[first_points:], made.points, before.points, strict=True)
    points = [_checked_points(f"{title}: {name}", x, was) for name, x, was in pairs]
    return Parts(made.images, made.masks, points)


def _checked_points(name: str, made: Any, was: Any) -> Any:
    if made.shape != was.shape or made.dtype.kind != "f":
        raise SpecMismatch(
            f"{name} became {ArraySpec(made.dtype, made.shape)} from "
            f"{ArraySpec(was.dtype, was.shape)}; points must stay floats, in number and order"
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
    """Random transforms of images, and of the masks and points in them."""

    @rejects_keywords(
        augmentors="write {name}(t, ...)",
        index="write images=...",
        img_index="write images=...",
        coords_index="write points=...",
        catch_exceptions='leave out elements that fail with prefetch(on_error="skip") after it',
        **PARALLEL_KEYWORD_ADVICE,
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

        Select components by number or ``c0`` to ``c7``, or by name in a dict, a NamedTuple or a
        record; one, or several. An element that is an array is image 0 itself. The other components
        and the class of the element stay the same.

        ``t`` is an ``Augmentation``, with a method ``draw(image, rng)``; a transform that is called
        by keyword, ``t(image=, mask=, keypoints=)``, and returns a dict, as in albumentations; a
        transform of torchvision; a function of one image; or a list of these, applied in order. Its
        draws depend on the seed, this operator's place in the chain, the epoch and the element's
        position, as for ``random_map``: never on the worker.

        For this, a transform of albumentations is copied and gets a random state. The generators
        that ``t`` refers to (of NumPy, Python and torch; in attributes, closures, defaults, or
        global names) are seeded for each element and restored after it: the global generators too,
        if ``t`` uses them or has no convention for a random state. Such a ``t`` runs in one thread
        of a process at a time. The search for generators ends after 10,000 objects, code before
        data, and then assumes that the global generators are used; it skips containers of over
        1,000 items, and containers of over 50 items whose first 50 are numbers, text, arrays, or
        tuples and lists of these. Draws are not reproducible from generators beyond this search,
        from a generator that ``t`` makes without a seed when it runs
        (``np.random.default_rng()``), and from generators of other libraries, such as OpenCV's and
        TensorFlow's; nor may ``t`` depend on the number of its calls.

        ``t`` gets copies of the arrays, or read-only views with ``copy=False``, which saves time if
        ``t`` is known not to change them: arrays of the source are never changed. Images may change
        in dtype and shape, which types do not show. Masks keep their dtype. Points are floats, one
        (x, y) per row; they keep their dtype, their number and their order, and points that leave
        the image are kept, outside of it.

        Shapes: a point array (n, 2); images and masks as ``t`` requires, usually (height, width) or
        (height, width, channels).

        Length: the source's.

        Effects: none.

        Errors: an exception of ``t`` is raised at its place in the sequence, as the cause of an
        ``ElementError``; likewise a ``SpecMismatch`` for components that are not valid images,
        masks or points, before or after the transform. ``InvalidFlow`` for a component that is
        known not to exist, for one that ``t`` cannot accept, for a ``SystemRandom``, which cannot
        be seeded, and if ``seed`` is negative.

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
        return flow(Augment(node, adapters_of(t), images, masks, points, seed, node.depth, copy))
