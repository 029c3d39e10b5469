"""The log directory of a training: it is created and locked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf
from filelock import FileLock, Timeout

from flowdsl.errors import FlowError, InvalidArgument


@contextmanager
def locked(logdir: Path | None) -> Iterator[None]:
    """Lock the folder for the time of the block; it is created if it does not exist.

    Two trainings with one folder would replace each other's checkpoints and scalars.

    Raises:
        InvalidArgument: The folder cannot be created or written.
        FlowError: Another training is using it.
    """
    if logdir is None:
        yield
        return
    lock = FileLock(logdir / ".lock", thread_local=False)
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        lock.acquire(blocking=False)
    except Timeout as error:
        raise FlowError(
            f"TrainConfig: logdir: another training is writing to {str(logdir)!r}; use another "
            f"logdir, or wait until it has ended"
        ) from error
    except OSError as error:
        raise InvalidArgument(
            f"TrainConfig: logdir must be a folder that can be written, got {str(logdir)!r}: "
            f"{error.strerror}"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(who: str, path: Path | str) -> Iterator[None]:
    """Name the writer and its file in errors of the disk: it is full, or the folder was removed."""
    try:
        yield
    except OSError as error:
        raise FlowError(f"{who}: {str(path)!r} cannot be written: {error.strerror}") from error
    except tf.errors.OpError as error:
        raise FlowError(f"{who}: {str(path)!r} cannot be written: {error.message}") from error
