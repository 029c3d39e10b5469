"""Initial values of a model's variables: by name, or from a checkpoint."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from flowdsl.errors import InvalidArgument, SourceError, StateMismatch
from flowdsl.resources.logs import logger
from flowdsl.tensorflow.train.model import Model
from flowdsl.tensorflow.train.variables import group, held_by, named_variables, untracked

_log = logger(__name__)

Initial: TypeAlias = Mapping[str, ArrayLike] | str | os.PathLike[str]
"""Values by the names of variables, or the path of an ``.npz`` file or of a checkpoint."""


def begin_with(model: Model, initial: Initial) -> None:
    """Set initial values of variables; variables that are not named keep theirs.

    Variables have their Keras names (``dense/kernel``), or their attribute names in the model.

    Raises:
        StateMismatch: A variable does not exist, or has another shape or dtype; or a checkpoint is
            of another model. No variable has been changed.
        InvalidArgument: The file does not exist.
        SourceError: The file is not an ``.npz`` file, or is damaged.
    """
    if isinstance(initial, Mapping):
        _assign(named_variables(model), initial, "session_init")
        return
    path = Path(initial)
    if path.suffix == ".npz":
        if not path.exists():
            raise InvalidArgument(f"TrainConfig: session_init: there is no file {str(path)!r}")
        _assign(named_variables(model), _arrays_in(path), f"session_init {str(path)!r}")
        return
    checkpoint = tf.train.latest_checkpoint(str(path)) if path.is_dir() else str(path)
    if checkpoint is None or not Path(f"{checkpoint}.index").exists():
        raise InvalidArgument(
            f"TrainConfig: session_init: there is no checkpoint {str(path)!r}; pass the path of "
            f"one without its suffix, or a folder of checkpoints"
        )
    try:
        status = tf.train.Checkpoint(model=model).restore(checkpoint)
        status.assert_existing_objects_matched().expect_partial()
        # Variables that ``tf.Module`` does not track, as in private lists, are saved apart.
        others = untracked(model, {f"model/{k}": v for k, v in held_by(model).items()})
        tf.train.Checkpoint(others=group(others)).restore(checkpoint).expect_partial()
    except (AssertionError, ValueError) as error:
        raise StateMismatch(
            f"TrainConfig: session_init: {checkpoint} is of another model than "
            f"{type(model).__name__} ({error})"
        ) from error
    _log.info("variables are initialized from %s", checkpoint)


def _arrays_in(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as values:
            return dict(values)
    except (OSError, ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise SourceError(
            f"TrainConfig: session_init: {str(path)!r}, a file of {path.stat().st_size} bytes, is "
            f"not an .npz file of arrays of numbers, or it is damaged ({error})"
        ) from error


def _assign(
    variables: Mapping[str, tf.Variable], values: Mapping[str, ArrayLike], label: str
) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in values.items():
        if name not in variables:
            known = ", ".join(sorted(variables))
            raise StateMismatch(
                f"TrainConfig: {label}: no variable is called {name!r}; there are {known}"
            )
        variable, array = variables[name], np.asarray(value)
        shape, dtype = tuple(variable.shape), np.dtype(tf.as_dtype(variable.dtype).as_numpy_dtype)
        if array.shape != shape or not np.can_cast(array.dtype, dtype, "same_kind"):
            raise StateMismatch(
                f"TrainConfig: {label}: {name!r} is {dtype}{list(shape)}, the value is "
                f"{array.dtype}{list(array.shape)}"
            )
        with np.errstate(over="ignore"):  # checked below
            arrays[name] = array.astype(dtype)
        was_finite = np.isfinite(array) if array.dtype.kind in "fc" else np.True_
        overflowed = (was_finite & ~np.isfinite(arrays[name])).any()
        wrapped = dtype.kind in "iub" and (arrays[name] != array).any()
        if wrapped or overflowed:
            raise StateMismatch(
                f"TrainConfig: {label}: a value of {name!r} is beyond the range of {dtype}"
            )
    for name, array in arrays.items():
        variables[name].assign(array)
