"""The specs that annotations declare, and the elements that were stored without their classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import formatannotation, isabstract
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

import attrs
import numpy as np
from typing_extensions import ReadOnly, TypeForm, is_protocol

from flowdsl.elements.hints import hints_of, without_none
from flowdsl.elements.matching_specs import names_agree
from flowdsl.elements.specs import UNKNOWN, ArraySpec, ListSpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import (
    arguments_of,
    assemble,
    components,
    form_of,
    is_tensor,
    names_with_defaults,
)
from flowdsl.errors import InvalidFlow, SpecMismatch


@attrs.frozen(init=False)
class Shape:
    """Declares a shape: ``Annotated[NDArray[np.uint8], Shape(None, None, 3)]``.

    ``None`` allows any size.
    """

    dims: tuple[int | None, ...]

    def __init__(self, *dims: int | None) -> None:
        object.__setattr__(self, "dims", dims)


def spec_of_type(form: TypeForm[Any], allow_subclasses: bool = False) -> Spec:
    """The spec that an annotation declares; type checkers read the same annotation.

    By default, values are instances of the declared class itself, as a reader makes them. A
    function may return instances of a subclass, which may be batched differently: into an array,
    for example. So with ``allow_subclasses`` the spec is unknown if the annotation is a class with
    subclasses, or a TypedDict whose keys may be missing.

    >>> from numpy.typing import NDArray
    >>> str(spec_of_type(tuple[Annotated[NDArray[np.uint8], Shape(None, 3)], np.int64]))
    '(uint8[?, 3], int64[])'
    """
    tp: Any = form
    origin, args = get_origin(tp), get_args(tp)
    alias = getattr(origin or tp, "__value__", None)
    if alias is not None:  # a lazy alias, such as ``NDArray`` in NumPy >= 2.5
        return spec_of_type(alias[args] if args else alias, allow_subclasses)
    if origin in (Required, NotRequired, ReadOnly):
        return spec_of_type(args[0], allow_subclasses)
    if origin is Annotated:
        spec = spec_of_type(args[0], allow_subclasses)
        dims = next((note.dims for note in args[1:] if isinstance(note, Shape)), None)
        return attrs.evolve(spec, shape=dims) if isinstance(spec, ArraySpec) else spec
    if origin is np.ndarray or tp is np.ndarray:
        scalars = [scalar for arg in args[1:] for scalar in get_args(arg)]
        return ArraySpec(_dtype_of_scalar_type(scalars[0]) if scalars else None)
    if origin is Literal:  # values are not compared, only their class
        classes = {type(value) for value in args}
        return ValueSpec(classes.pop()) if len(classes) == 1 else UNKNOWN
    if origin is tuple and Ellipsis not in args:
        fields = tuple((str(i), spec_of_type(arg, allow_subclasses)) for i, arg in enumerate(args))
        return StructSpec(tuple, fields)
    if origin is list:
        return ListSpec(spec_of_type(args[0], allow_subclasses))
    cls = origin or tp
    if not isinstance(cls, type):
        return UNKNOWN
    names = _declared_names(cls)
    if names is not None:
        hints = hints_of(tp)
        if allow_subclasses and _is_open(cls, hints):
            return UNKNOWN
        fields = tuple(
            (name, spec_of_type(hints.get(name, object), allow_subclasses)) for name in names
        )
        return StructSpec(dict if is_typeddict(cls) else cls, fields)
    if issubclass(cls, np.generic):
        return ArraySpec(_dtype_of_scalar_type(cls), ())
    if is_tensor(cls):
        return ArraySpec()
    is_ambiguous = (
        origin is not None or cls in (Any, tuple, dict) or isabstract(cls) or is_protocol(cls)
    )
    return UNKNOWN if is_ambiguous or (allow_subclasses and _is_open(cls, {})) else ValueSpec(cls)


_STACKABLE_SCALARS = (bool, int, float, complex, str, bytes)
"""Types of scalars; their subclasses are batched like the type itself."""


def _is_open(cls: type, hints: Mapping[str, object]) -> bool:
    """Return True if a value annotated with a class may batch differently from a plain instance.

    It may be of a subclass, or be a dict without some of the keys.
    """
    if is_typeddict(cls):
        return bool(_optional_keys(cls, hints))
    if issubclass(cls, _STACKABLE_SCALARS):
        return False
    if type.__subclasses__(cls) or isabstract(cls):
        return True
    if _declared_names(cls) is not None:
        return False
    # A class with its own instance check, such as ``numbers.Number``, has other instances.
    kind: Any = type(cls)
    has_instance_check = kind.__instancecheck__ is not type.__instancecheck__
    return has_instance_check or issubclass(cls, (np.ndarray, tuple, dict, list))


def _optional_keys(cls: type, hints: Mapping[str, object]) -> frozenset[str]:
    """The keys that may be missing in a TypedDict."""
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    required = {name for name, hint in hints.items() if get_origin(hint) is Required}
    keys: frozenset[str] = getattr(cls, "__optional_keys__", frozenset())
    return (keys | optional) - required


def optional_components(cls: type) -> frozenset[str]:
    """The components of a declared class that may be missing, or that have a default.

    >>> from typing import NamedTuple
    >>> class Sample(NamedTuple):
    ...     image: bytes
    ...     label: int = 0
    >>> optional_components(Sample)
    frozenset({'label'})
    """
    return _optional_keys(cls, hints_of(cls)) if is_typeddict(cls) else names_with_defaults(cls)


_DTYPE_OF_SCALAR_TYPE: dict[object, np.dtype[Any]] = {
    t: np.dtype(t) for t in np.sctypeDict.values() if np.dtype(t).kind in "biufc"
}
"""The dtypes of NumPy's numbers; other scalar types are abstract, or have many sizes or units."""


def _dtype_of_scalar_type(scalar: Any) -> np.dtype[Any] | None:
    """The dtype of a scalar type, also of another package, such as bfloat16; None without one."""
    known = _DTYPE_OF_SCALAR_TYPE.get(scalar)
    if known is None and isinstance(scalar, type) and scalar.__module__ != np.__name__:
        dtype = np.dtype(scalar)
        return dtype if dtype.type is scalar else None
    return known


def _declared_names(cls: type) -> list[str] | None:
    """The names of the declared components of an element class; None for any other class."""
    if (arguments := arguments_of(cls)) is not None:
        return list(arguments)
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ())) or None
    return list(cls.__annotations__) if is_typeddict(cls) else None


def spec_declared(owner: str, form: Any, optional_parts: bool = False) -> Spec:
    """The spec that an annotation declares, for checking elements; ``object`` allows any element.

    For ``list[A]``, ``dict[str, A]`` and ``tuple[A, ...]`` only the container is checked, not its
    items.
    Messages begin with ``owner``, the owner of the elements. With ``optional_parts``, a component
    may be None, or of a class.

    Raises:
        InvalidFlow: Elements cannot be checked against it, or it names a class where a value may be
            of several types: stored without its class, the value would stay a tuple or dict.
    """
    found = _class_among_types(form, owner.rpartition(" ")[2].removesuffix("s"), optional_parts)
    if found is not None:
        raise InvalidFlow(
            f"{owner} cannot be checked against {formatannotation(form)}: {found}, and a class is "
            f"not restored where values may be of several types; declare a tuple, a dict or a "
            f"TypedDict there, and make the class in .map"
        )
    spec = spec_of_type(form)
    if spec != UNKNOWN or form is object:
        return spec
    kind = get_origin(form) or form
    if kind not in (dict, list, tuple):
        raise InvalidFlow(
            f"{owner} cannot be checked against {form!r}; declare a NamedTuple, a record, a "
            f"TypedDict, tuple[A, B], or the type of a single value"
        )
    return ValueSpec(kind)


def _class_among_types(form: Any, path: str, optional_parts: bool = False) -> str | None:
    """Return the first class that is declared where values may be of several types, with its path.

    >>> from typing import NamedTuple
    >>> class Sample(NamedTuple):
    ...     image: bytes
    >>> _class_among_types(tuple[Sample, list[Sample]], "row")
    >>> str(_class_among_types(tuple[Sample, list[Sample | None]], "row")).split()
    ['row.1[]', 'is', 'declared', 'flowdsl.elements.declared_specs.Sample', '|', 'None']
    """
    if (alias := getattr(get_origin(form) or form, "__value__", None)) is not None:
        args = get_args(form)
        return _class_among_types(alias[args] if args else alias, path)
    if get_origin(form) in (Annotated, Required, NotRequired, ReadOnly):
        return _class_among_types(get_args(form)[0], path)
    spec = spec_of_type(form)
    if isinstance(spec, StructSpec):
        hints = hints_of(form)
        if spec.form is tuple:
            hints = {str(k): hint for k, hint in enumerate(get_args(form))}
        if optional_parts:
            hints = {name: without_none(hint)[0] for name, hint in hints.items()}
        parts = [(hints.get(name, object), f"{path}.{name}") for name, _ in spec.fields]
    elif isinstance(spec, ListSpec):
        parts = [(get_args(form)[0], f"{path}[]")]
    elif any(map(_names_class, get_args(form))):
        return f"{path} is declared {formatannotation(form)}"
    else:
        return None
    return next((found for part in parts if (found := _class_among_types(*part))), None)


def _names_class(form: Any) -> bool:
    """Return True if values of this type are stored without a class that the type names."""
    spec = spec_of_type(form)
    return names_classes(spec) or (spec == UNKNOWN and any(map(_names_class, get_args(form))))


def as_declared(seen: Spec, declared: Spec) -> Spec:
    """The spec of stored tuples and dicts, with the classes that are declared for them.

    A declared class matches a dict by name, and a tuple by position; if the tuple was stored with
    names, they must be equal too.
    """
    if isinstance(declared, ListSpec) and isinstance(seen, ListSpec):
        return ListSpec(as_declared(seen.item, declared.item), seen.length)
    if not isinstance(declared, StructSpec) or not isinstance(seen, StructSpec):
        return seen
    parts = [part for _, part in seen.fields]
    if seen.form is dict and declared.form is not tuple:
        by_name = dict(seen.fields)
        if by_name.keys() != dict(declared.fields).keys():
            return seen
        parts = [by_name[name] for name, _ in declared.fields]
    elif (
        declared.form is dict
        or seen.form is dict
        or len(parts) != len(declared.fields)
        or (seen.form is tuple and not names_agree(seen, declared))
    ):
        return seen
    pairs = zip(declared.fields, parts, strict=True)
    fields = tuple((name, as_declared(part, spec)) for (name, spec), part in pairs)
    return StructSpec(declared.form, fields)


def names_classes(spec: Spec) -> bool:
    """Return True if a spec names classes, which are not stored with its elements."""
    if isinstance(spec, ListSpec):
        return names_classes(spec.item)
    if not isinstance(spec, StructSpec):
        return False
    return spec.form not in (tuple, dict) or any(names_classes(part) for _, part in spec.fields)


def only_classes(spec: Spec) -> Spec:
    """The classes that a spec names, and where; all else is unknown.

    >>> from typing import NamedTuple
    >>> class Sample(NamedTuple):
    ...     image: np.ndarray
    >>> str(only_classes(spec_of_type(tuple[Sample, int])))
    '(Sample(image: ?), ?)'
    """
    if isinstance(spec, ListSpec) and names_classes(spec):
        return ListSpec(only_classes(spec.item))
    if isinstance(spec, StructSpec) and names_classes(spec):
        return StructSpec(spec.form, tuple((n, only_classes(part)) for n, part in spec.fields))
    return UNKNOWN


def has_only_classes(x: object, classes: Spec) -> bool:
    """Return True if ``restore_classes`` makes an equal value of what is stored of a value.

    ``classes`` is the result of ``only_classes``.
    """
    if x is None:
        return True
    if isinstance(x, list):
        if not isinstance(classes, ListSpec) and classes != UNKNOWN:
            return False
        item = classes.item if isinstance(classes, ListSpec) else UNKNOWN
        plain = item == UNKNOWN and {*map(type, cast("list[object]", x))} <= {*_STACKABLE_SCALARS}
        return plain or all(has_only_classes(part, item) for part in cast("list[object]", x))
    parts = components(x)
    if parts is None:
        return classes == UNKNOWN
    if classes == UNKNOWN:
        is_plain = form_of(x) in (tuple, dict)
        return is_plain and all(has_only_classes(part, UNKNOWN) for _, part in parts)
    if not isinstance(classes, StructSpec) or form_of(x) is not classes.form:
        return False
    expected = dict(classes.fields)
    if {name for name, _ in parts} != expected.keys():
        return False
    return all(has_only_classes(part, expected[name]) for name, part in parts)


def restore_classes(
    x: Any, spec: Spec, make: Callable[[type, dict[str, Any]], Any] = assemble
) -> Any:
    """Convert a value to the classes that its spec names; a pickled value has them already.

    None stays None, in place of a value that is missing. ``make`` makes a value of a class from its
    components: by its constructor, or as they are.

    Raises:
        SpecMismatch: A list contains an item of another kind.
    """
    if isinstance(spec, ListSpec) and names_classes(spec):
        try:
            return [restore_classes(item, spec.item, make) for item in x]
        except (KeyError, TypeError, ValueError) as error:
            # A list has one spec for all items, so an item of another kind is found only here.
            raise SpecMismatch(f"an item of a list is not {spec.item}: {error}") from error
    if not isinstance(spec, StructSpec) or x is None:
        return x
    if type(x) is spec.form and spec.form not in (tuple, dict):
        return x
    values = x if isinstance(x, tuple) else [x[name] for name, _ in spec.fields]
    pairs = zip(spec.fields, values, strict=True)
    return make(
        spec.form, {name: restore_classes(value, part, make) for (name, part), value in pairs}
    )
