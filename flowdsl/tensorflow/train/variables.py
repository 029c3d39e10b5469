"""The variables of a model: their names, which are trained, and which a checkpoint must store.

TensorFlow and Keras each see only a part. A ``tf.Module`` does not look into Keras layers. A
TensorFlow checkpoint does not store what Keras keeps outside of its weights, such as the seeds of
dropout, nor variables in objects of other classes. A resumed run would reset these, without an
error. So this module walks the objects of a model, and the trace of a step shows what it uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import tensorflow as tf

Variable: TypeAlias = Any
"""A TensorFlow or Keras variable; a Keras variable contains a TensorFlow variable."""

_KERAS = (tf.keras.layers.Layer, tf.keras.optimizers.Optimizer, tf.keras.metrics.Metric)
"""Classes that list their variables themselves, including nested ones."""

_OPAQUE = (ModuleType, FunctionType, MethodType, type, str, bytes)
"""Classes whose objects are not searched."""

_LIBRARIES = ("tensorflow", "keras", "numpy", "flowdsl")
"""Packages whose objects are not searched, except for known classes."""

_TRACKING_ATTRIBUTES = (
    "_self_unconditional_checkpoint_dependencies",
    "_self_unconditional_dependency_names",
)
"""Attributes of a ``tf.Module`` in which TensorFlow stores what it tracks."""


def trainable_of_keras(module: tf.Module) -> list[Variable]:
    """Return what Keras would train in a module: Keras layers and variables, in any containers."""
    return [
        variable
        for each in (module, *module.submodules)
        for name, value in vars(each).items()
        if name not in _TRACKING_ATTRIBUTES
        for variable in _trainable(value)
    ]


def named_variables(model: object) -> dict[str, Variable]:
    """Return the variables of a model, by name.

    Variables of Keras layers are named by their Keras path, others by their path of attributes.
    """
    named: dict[str, Variable] = {}
    for path, holder in _walk(model, "", set(), private=False):
        if isinstance(holder, tf.keras.layers.Layer):
            named.update({variable.path: variable for variable in holder.variables})
        elif not isinstance(holder, _KERAS):
            named[path] = holder
    return named


def held_by(value: object) -> dict[str, Variable]:
    """Return all variables that an object refers to, by a path that is the same in each run."""
    held: dict[str, Variable] = {}
    for path, holder in _walk(value, "", set(), private=True):
        if isinstance(holder, _KERAS):
            every = [*holder.variables, *getattr(holder, "metrics_variables", ())]
            held.update({f"{path}/{k}": variable for k, variable in enumerate(every)})
        else:
            held[path] = holder
    return held


def untracked(
    root: object,
    held: Mapping[str, Variable],
    used: Iterable[tf.Variable] = (),
    excluded: Iterable[Variable] = (),
) -> dict[str, Variable]:
    """Return the variables that a checkpoint of ``root`` would miss, by their paths.

    ``held`` are variables with known paths; ``used`` are the variables that steps use, in order;
    ``excluded`` are left out.
    """
    seen = {
        each
        for tracked in tf.train.TrackableView(root).descendants()
        if _is_variable(tracked)
        for each in _ids(tracked)
    }
    seen.update(each for variable in excluded for each in _ids(variable))
    missed: dict[str, Variable] = {}
    named = [*held.items(), *((f"used/{k}", variable) for k, variable in enumerate(used))]
    for path, variable in named:
        if seen.isdisjoint(_ids(variable)):
            missed[path] = variable
            seen.update(_ids(variable))
    return missed


class _Group(tf.Module):
    def __init__(self, variables: Mapping[str, Variable]) -> None:
        super().__init__()
        self.by_place = dict(variables)  # checkpoints store this name


def group(variables: Mapping[str, Variable]) -> tf.Module:
    """Return an object that stores these variables in a checkpoint, by these names."""
    return _Group(variables)


def without(variables: Iterable[Variable], known: Iterable[Variable]) -> list[Variable]:
    """Return the variables that are not in ``known``, once each, in order."""
    seen = {each for variable in known for each in _ids(variable)}
    left: list[Variable] = []
    for variable in variables:
        if seen.isdisjoint(_ids(variable)):
            left.append(variable)
            seen.update(_ids(variable))
    return left


def name_of(variable: Variable, named: Mapping[str, Variable]) -> str:
    """Return the name of a variable: its path in a model, or else its own name and shape."""
    for path, each in named.items():
        if not _ids(each).isdisjoint(_ids(variable)):
            return path
    own = getattr(variable, "path", None) or variable.name.removesuffix(":0")
    return f"{own} of shape {list(variable.shape)}"


def _ids(variable: Variable) -> frozenset[int]:
    """Return ids that identify a variable, whichever of its representations is used.

    A Keras variable contains a TensorFlow variable; a distributed one has a copy on each device.
    """
    value = variable.value if isinstance(variable, tf.keras.Variable) else variable
    copies = getattr(value, "values", None)
    return frozenset(map(id, copies if isinstance(copies, tuple) else (value,)))


def _is_variable(value: object) -> bool:
    return isinstance(value, (tf.Variable, tf.keras.Variable))


def _trainable(value: Any) -> Iterator[Variable]:
    if isinstance(value, tf.keras.layers.Layer):
        yield from value.trainable_variables
    elif isinstance(value, tf.keras.Variable):
        yield from [value] if value.trainable else []
    else:
        for _, part in _items(value):
            yield from _trainable(part)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container, with their keys."""
    if isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(k), part) for k, part in enumerate(value))


def _walk(value: Any, path: str, seen: set[int], private: bool) -> Iterator[tuple[str, Any]]:
    """Yield the variables in an object, and objects that list their own, once each, with paths."""
    if id(value) in seen or isinstance(value, _OPAQUE):
        return
    seen.add(id(value))
    if isinstance(value, _KERAS) or _is_variable(value):
        yield path, value
        return
    if isinstance(value, (tf.keras.random.SeedGenerator, tf.random.Generator)):
        yield f"{path}/state", value.state
        return
    parts = _items(value) if isinstance(value, (dict, list, tuple)) else _attributes(value, private)
    for name, part in parts:
        yield from _walk(part, f"{path}/{name}" if path else name, seen, private)


def _attributes(value: Any, private: bool) -> Iterator[tuple[str, Any]]:
    is_module = isinstance(value, tf.Module)
    if not is_module and type(value).__module__.partition(".")[0] in _LIBRARIES:
        return
    slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    for name in (*getattr(value, "__dict__", {}), *slots):
        hidden = name.startswith("__") or (is_module and name in _TRACKING_ATTRIBUTES)
        if not hidden and (private or not name.startswith("_")) and hasattr(value, name):
            yield name, getattr(value, name)
