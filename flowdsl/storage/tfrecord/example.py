"""parse_example and to_example: encoding and decoding of ``tf.train.Example``, typed by a record.

An Example maps names to lists of bytes, of float32 numbers or of int64 numbers. Protobuf's own
runtime reads and writes it; the message classes are built here, as TensorFlow's classes would
need TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_origin

import attrs
import numpy as np
from typing_extensions import TypeForm

from flowdsl.elements.declared_specs import optional_components, spec_of_type
from flowdsl.elements.hints import hints_of, without_none
from flowdsl.elements.specs import ArraySpec, ListSpec, Spec, StructSpec, ValueSpec
from flowdsl.elements.structure import assemble, components
from flowdsl.errors import InvalidFlow, SourceError, SpecMismatch
from flowdsl.storage.libraries import library

A = TypeVar("A")
Convert: TypeAlias = Callable[[Any], Any]
"""Converts the values of a feature to a component."""

_KINDS = {"bytes_list": "bytes", "float_list": "float32", "int64_list": "int64"}
"""The kinds of features, as error messages name them."""

_LISTS: dict[type, str] = {
    bytes: "bytes_list",
    str: "bytes_list",
    float: "float_list",
    np.float32: "float_list",
    bool: "int64_list",
    int: "int64_list",
    np.int64: "int64_list",
}
"""The kind of feature that stores values of a class."""

_MIN, _MAX = -(2**63), 2**63 - 1


@cache
def _example(operator: str) -> Any:
    """Return the message class of an Example, from its definition in tensorflow/core/example.

    The class is in a pool of its own: TensorFlow registers its classes in the default pool.
    """
    protobuf = partial(library, operator=operator, extra="tfrecord")
    field = protobuf("google.protobuf.descriptor_pb2").FieldDescriptorProto
    file = protobuf("google.protobuf.descriptor_pb2").FileDescriptorProto(
        name="flowdsl/example.proto", package="tensorflow", syntax="proto3"
    )
    one, many, message = field.LABEL_OPTIONAL, field.LABEL_REPEATED, field.TYPE_MESSAGE
    values = {"Bytes": field.TYPE_BYTES, "Float": field.TYPE_FLOAT, "Int64": field.TYPE_INT64}
    for name, kind in values.items():
        file.message_type.add(name=f"{name}List").field.add(
            name="value", number=1, type=kind, label=many
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(values, 1):
        feature.field.add(
            name=f"{name.lower()}_list",
            number=number,
            type=message,
            label=one,
            type_name=f".tensorflow.{name}List",
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    part = entry.field.add(name="value", number=2, type=message, label=one)
    part.type_name = ".tensorflow.Feature"
    part = features.field.add(name="feature", number=1, type=message, label=many)
    part.type_name = ".tensorflow.Features.FeatureEntry"
    example = file.message_type.add(name="Example")
    part = example.field.add(name="features", number=1, type=message, label=one)
    part.type_name = ".tensorflow.Features"
    # A SequenceExample has lists of features too: only their names are read, to describe it.
    lists = file.message_type.add(name="FeatureLists")
    entry = lists.nested_type.add(name="FeatureListEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_BYTES, label=one)
    part = lists.field.add(name="feature_list", number=1, type=message, label=many)
    part.type_name = ".tensorflow.FeatureLists.FeatureListEntry"
    part = example.field.add(name="feature_lists", number=2, type=message, label=one)
    part.type_name = ".tensorflow.FeatureLists"
    pool = protobuf("google.protobuf.descriptor_pool").DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    get = protobuf("google.protobuf.message_factory").GetMessageClass
    return get(pool.FindMessageTypeByName("tensorflow.Example"))


# -- reading ---------------------------------------------------------------------------------------


@attrs.frozen
class _Feature:
    """The kind and conversion of one feature to parse."""

    name: str
    kind: str
    convert: Convert
    is_one: bool
    """True if it must have exactly one value; False for a list of any length."""
    optional: bool
    """True if the value is None where the feature is missing."""
    left_out: bool
    """True if the component is left out when the feature is missing; it may have a default."""


class ExampleParser(Generic[A]):
    """Parses the bytes of an Example into a record; can be sent to workers."""

    def __init__(self, record: TypeForm[A], form: type, features: Sequence[_Feature]) -> None:
        self._record, self._form, self._features = record, form, features
        self._decode = _example("parse_example").FromString
        self._undecodable = library(
            "google.protobuf.message", "parse_example", "tfrecord"
        ).DecodeError
        self.__annotations__ = {"return": record}  # read by ``map``, for the spec and the title
        self.__qualname__ = f"parse_example({form.__name__})"

    def __reduce__(self) -> tuple[object, ...]:
        # includes the evaluated annotations: their names may be missing in a worker
        return ExampleParser, (self._record, self._form, self._features)

    def __repr__(self) -> str:
        return self.__qualname__

    def __call__(self, data: bytes, /) -> A:
        try:
            example = self._decode(data)
        except self._undecodable as error:
            raise SourceError(f"parse_example: not a tf.train.Example: {error}") from error
        stored = example.features.feature
        values = {
            feature.name: _value(example, stored, feature)
            for feature in self._features
            if not (feature.left_out and _is_missing(stored, feature))
        }
        return cast("A", assemble(self._form, values))


def _is_missing(stored: Any, wanted: _Feature) -> bool:
    if wanted.name not in stored:  # indexing would create it
        return True
    kind = stored[wanted.name].WhichOneof("kind")
    return wanted.is_one and (kind is None or not getattr(stored[wanted.name], kind).value)


def _value(example: Any, stored: Any, wanted: _Feature) -> Any:
    name = wanted.name
    if wanted.optional and _is_missing(stored, wanted):
        return None
    if name not in stored:
        raise _no_feature(example, stored, name)
    feature = stored[name]
    kind = feature.WhichOneof("kind")
    if kind not in (wanted.kind, None):
        raise SpecMismatch(
            f"parse_example: feature {name!r} is declared {_KINDS[wanted.kind]}, but holds "
            f"{_KINDS[kind]}"
        )
    try:
        return wanted.convert(getattr(feature, wanted.kind).value)
    except ValueError as error:
        raise SpecMismatch(f"parse_example: feature {name!r}: {error}") from error


def _no_feature(example: Any, stored: Any, name: str) -> SpecMismatch:
    listed = ", ".join(map(repr, sorted(stored))) or "no features"
    lists = sorted(example.feature_lists.feature_list)
    if not lists:
        return SpecMismatch(f"parse_example: no feature {name!r}; there are {listed}")
    return SpecMismatch(
        f"parse_example: no feature {name!r} in the context of a tf.train.SequenceExample; there "
        f"are {listed}; its feature lists {', '.join(map(repr, lists))} are not read: parse them "
        f"with TensorFlow, in .map(tf.io.parse_single_sequence_example)"
    )


def _feature(name: str, spec: Spec, optional: bool, left_out: bool) -> _Feature:
    kind, convert, is_one = _conversion(name, spec)
    return _Feature(name, kind, convert, is_one, optional, left_out)


def _conversion(name: str, spec: Spec) -> tuple[str, Convert, bool]:
    """Return the kind of a feature, its conversion, and True if it has one value."""
    if isinstance(spec, ListSpec) and isinstance(spec.item, ValueSpec) and spec.item.type in _LISTS:
        item = spec.item.type
        convert = _CONVERSIONS.get(item)
        return _LISTS[item], partial(_each, convert) if convert else list, False
    if isinstance(spec, ValueSpec) and spec.type in _LISTS:
        return _LISTS[spec.type], partial(_single, _CONVERSIONS.get(spec.type)), True
    if isinstance(spec, ArraySpec) and spec.dtype is not None and spec.dtype.type in _LISTS:
        scalar = spec.dtype.type
        if spec.shape == ():
            return _LISTS[scalar], partial(_single, scalar), True
        shape = (None,) if spec.shape is None else spec.shape
        if shape.count(None) < 2:
            wanted = tuple(-1 if n is None else n for n in shape)
            return _LISTS[scalar], partial(_array, spec.dtype, wanted), False
    raise InvalidFlow(
        f"parse_example: the field {name!r} is {spec}, and a feature holds bytes, float32 or int64 "
        f"numbers: declare bytes, str, int, bool, float, a list of one of these, np.int64, "
        f"np.float32, an NDArray of these with at most one unknown size in its Shape, or one of "
        f"these or None"
    )


def _single(convert: Convert | None, values: Any) -> Any:
    if len(values) != 1:
        raise ValueError(f"it holds {len(values)} values, but one was declared")
    return convert(values[0]) if convert else values[0]


def _each(convert: Convert, values: Any) -> list[Any]:
    return [convert(value) for value in values]


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], values: Any) -> Any:
    array = np.array(values, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def _text(value: bytes) -> str:
    return value.decode()


def _truth(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError(f"{value} is neither 0 nor 1, but a bool was declared")
    return value == 1


_CONVERSIONS: dict[type, Convert] = {str: _text, bool: _truth}
"""Conversions for classes that protobuf does not return itself."""


def parse_example(record: TypeForm[A]) -> Callable[[bytes], A]:
    """Create a function that parses a ``tf.train.Example`` into a record, for ``flow.map``.

    The record's annotations declare its features: ``bytes``, ``str``, ``int``, ``bool`` or
    ``float`` for a feature of one value; a ``list`` of one of these; ``np.int64`` or
    ``np.float32``; ``NDArray[np.int64]`` or ``NDArray[np.float32]``, flat unless ``Annotated`` with
    a ``Shape``, like the shape of ``tf.io.FixedLenFeature``. Arrays are read-only. Other features
    are ignored. If a feature is missing, ``A | None`` is None, a field with a default has it, and a
    ``NotRequired`` key is left out. The function can be sent to workers, and needs no TensorFlow.

    Errors: ``InvalidFlow`` at once for a field of another type; for an element, ``SourceError`` if
    it is not an Example, and ``SpecMismatch`` if a feature is missing (only the context of a
    SequenceExample is read), has another kind or number of values, or is not UTF-8;
    ``MissingLibrary`` at once, if protobuf is not installed.

    >>> import flowdsl as fl
    >>> from typing import NamedTuple
    >>> class Sample(NamedTuple):
    ...     image: bytes
    ...     label: int
    >>> fl.from_items([fl.to_example(Sample(b"...", 7))]).map(fl.parse_example(Sample)).collect()
    [Sample(image=b'...', label=7)]

    Source: ``tf.io.parse_single_example``.

    Elsewhere: tensorpack none; tf.data ``tf.io.parse_single_example``; Grain none; torchdata
    ``TFRecordLoader``.
    """
    spec = spec_of_type(record)
    if not isinstance(spec, StructSpec) or spec.form is tuple or not spec.fields:
        raise InvalidFlow(
            f"parse_example: record must be a NamedTuple, a record, a dataclass or a TypedDict "
            f"with named fields, got {record!r}"
        )
    cls = cast("type", get_origin(record) or record)
    hints, left_out = hints_of(record), optional_components(cls)
    features = []
    for name, part in spec.fields:
        inner, optional = without_none(hints.get(name))
        part = spec_of_type(inner) if optional else part
        features.append(_feature(name, part, optional, name in left_out))
    return ExampleParser(record, spec.form, features)


# -- writing ---------------------------------------------------------------------------------------


def to_example(element: object, /) -> bytes:
    r"""Encode an element as a ``tf.train.Example`` with its components as features.

    The element has named components: a NamedTuple, a record, a dataclass or a dict. The components
    have the types that ``parse_example`` reads; arrays are flat, as a feature has no shape. None
    is not stored. Equal elements are encoded as equal bytes.

    Errors: ``SpecMismatch``, with the component's name, for a component that a feature cannot store
    exactly: first cast numbers of other dtypes, and a ``float`` that is not a float32.
    ``MissingLibrary`` if protobuf is not installed.

    >>> import flowdsl as fl, numpy as np
    >>> fl.to_example({"label": 7})
    b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07'

    Source: ``tf.train.Example``.

    Elsewhere: tensorpack none; tf.data ``tf.train.Example(...).SerializeToString()``; Grain none;
    torchdata none.
    """
    parts = components(element)
    if parts is None or (isinstance(element, tuple) and not hasattr(element, "_fields")):
        raise SpecMismatch(
            f"to_example: {type(element).__name__} has no names for features; pass a "
            f"NamedTuple, a record, a dataclass or a dict"
        )
    example = _example("to_example")()
    for name, value in parts:
        if type(name) is not str:
            raise SpecMismatch(f"to_example: the name of a feature must be str, got {name!r}")
        if value is None:
            continue
        kind, values = _stored(f"element.{name}", value)
        try:
            feature = example.features.feature[name]
        except ValueError as error:
            raise SpecMismatch(f"to_example: {name!r} is not a valid UTF-8 name") from error
        if kind is not None:
            getattr(feature, kind).value.extend(values)
    return cast("bytes", example.SerializeToString(deterministic=True))


def _stored(at: str, value: Any) -> tuple[str | None, Any]:
    """Return the kind of feature that stores a value, and its list of values."""
    is_array = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
    if is_array and value.dtype.type in _LISTS and value.ndim == 1:
        return _LISTS[value.dtype.type], value.tolist()
    values = value if isinstance(value, list) else [value]
    classes = set(map(type, values))
    if not classes:
        return None, []
    only = classes.pop()
    if classes or only not in _LISTS or (values is value and issubclass(only, np.generic)):
        raise SpecMismatch(f"to_example: {at}: {_described(value)} {_NOT_STORED}")
    return _LISTS[only], [_converted(at, item) for item in values]


_NOT_STORED = (
    "cannot be stored in a feature: bytes, str, int, bool, float, lists of one of these, "
    "np.int64, np.float32 and flat arrays of them can; first cast it, or ravel() it"
)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return f"an array {value.dtype}{list(value.shape)}"
    if isinstance(value, list):
        return f"a list of {', '.join(sorted({type(item).__name__ for item in value}))}"
    return type(value).__name__


def _converted(at: str, value: Any) -> Any:
    if type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SpecMismatch(f"to_example: {at}: text that is not Unicode: {error}") from error
    if type(value) is int and not _MIN <= value <= _MAX:
        raise SpecMismatch(f"to_example: {at}: {value} has more than 64 bits")
    if type(value) is float and not _is_float32(value):
        raise SpecMismatch(
            f"to_example: {at}: a feature stores float32, which {value!r} is not; first cast it, "
            f"with np.float32(x)"
        )
    return int(value) if type(value) is bool else value


def _is_float32(value: float) -> bool:
    with np.errstate(over="ignore"):
        return math.isnan(value) or float(np.float32(value)) == value
