"""What the variables of a model begin with: values by name, or those of a checkpoint."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from flowdsl.errors import InvalidFlow, StateMismatch
from flowdsl.train.model import CompiledModel, Model

_log = logging.getLogger(__name__)

Initial: TypeAlias = Mapping[str, ArrayLike] | str | os.PathLike[str]
"""Values by the names of variables, or the path of an ``.npz`` file or of a checkpoint."""


def begin_with(model: Model, initial: Initial) -> None:
    """Give variables their first values; those that are not named keep theirs.

    Variables have the names of Keras (``dense/kernel``), or their attribute's in the model.

    Raises:
        StateMismatch: There is no such variable, or it has another shape or dtype; or a checkpoint
            is of another model. No variable has been changed.
        InvalidFlow: There is no such file.
    """
    if isinstance(initial, Mapping):
        _assign(named_variables(model), initial, "session_init")
        return
    path = Path(initial)
    if path.suffix == ".npz":
        if not path.exists():
            raise InvalidFlow(f"TrainConfig: session_init: there is no file {str(path)!r}")
        with np.load(path, allow_pickle=False) as values:
            _assign(named_variables(model), dict(values), f"session_init {str(path)!r}")
        return
    found = tf.train.latest_checkpoint(str(path)) if path.is_dir() else str(path)
    if found is None or not Path(f"{found}.index").exists():
        raise InvalidFlow(
            f"TrainConfig: session_init: there is no checkpoint {str(path)!r}; give the path of "
            f"one without its ending, or a folder of checkpoints"
        )
    try:
        status = tf.train.Checkpoint(model=model).restore(found)
        status.assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:
        raise StateMismatch(
            f"TrainConfig: session_init: {found} is of another model than {type(model).__name__} "
            f"({error})"
        ) from error
    _log.info("variables begin with those of %s", found)


def named_variables(model: Model) -> dict[str, tf.Variable]:
    """The variables of a model, by name.

    Those of Keras layers have their Keras path, others the path of attributes to them.
    """
    if isinstance(model, CompiledModel):
        return {variable.path: variable for variable in model.net.variables}
    found: dict[str, tf.Variable] = {}
    _collect(model, "", found, set())
    return found


def _collect(value: Any, path: str, found: dict[str, tf.Variable], seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, tf.keras.layers.Layer):
        found.update({variable.path: variable for variable in value.variables})
    elif isinstance(value, tf.Variable):
        found[path] = value
    elif isinstance(value, (list, tuple)):
        for k, part in enumerate(value):
            _collect(part, f"{path}/{k}", found, seen)
    elif isinstance(value, dict):
        for name, part in value.items():
            _collect(part, f"{path}/{name}", found, seen)
    elif isinstance(value, tf.Module):
        for name, part in vars(value).items():
            if not name.startswith("_"):
                _collect(part, f"{path}/{name}" if path else name, found, seen)


def _assign(
    variables: Mapping[str, tf.Variable], values: Mapping[str, ArrayLike], told: str
) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in values.items():
        if name not in variables:
            known = ", ".join(sorted(variables))
            raise StateMismatch(f"TrainConfig: {told}: no variable is called {name!r}; of {known}")
        variable, array = variables[name], np.asarray(value)
        shape, dtype = tuple(variable.shape), np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype)
        if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise StateMismatch(
                f"TrainConfig: {told}: {name!r} is {dtype}{list(shape)}, the value is "
                f"{array.dtype}{list(array.shape)}"
            )
        arrays[name] = array.astype(dtype)
    for name, array in arrays.items():
        variables[name].assign(array)
