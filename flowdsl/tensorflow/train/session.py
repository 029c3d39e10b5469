"""Applies the settings of a TensorFlow 1 ``ConfigProto`` to TensorFlow 2."""

from __future__ import annotations

from typing import TypeAlias

import tensorflow as tf

from flowdsl.errors import InvalidArgument

SessionConfig: TypeAlias = tf.compat.v1.ConfigProto

_KNOWN = (
    *("intra_op_parallelism_threads", "inter_op_parallelism_threads"),
    *("allow_soft_placement", "log_device_placement", "gpu_options"),
)


def configure(config: SessionConfig) -> None:
    """Set the threads, the placement and the GPU memory of a session's configuration.

    Raises:
        InvalidArgument: A setting does not exist in TensorFlow 2, or TensorFlow has started.
    """
    for field, _ in config.ListFields():
        if field.name not in _KNOWN:
            raise InvalidArgument(
                f"TrainConfig: session_config sets {field.name}, which TensorFlow 2 does not "
                f"have; it may set {', '.join(_KNOWN)}"
            )
    for field, _ in config.gpu_options.ListFields():
        if field.name != "allow_growth":
            raise InvalidArgument(
                f"TrainConfig: session_config sets gpu_options.{field.name}; of GPU memory only "
                f"allow_growth is supported; for limits use tf.config.LogicalDeviceConfiguration"
            )
    try:
        if config.intra_op_parallelism_threads:
            tf.config.threading.set_intra_op_parallelism_threads(
                config.intra_op_parallelism_threads
            )
        if config.inter_op_parallelism_threads:
            tf.config.threading.set_inter_op_parallelism_threads(
                config.inter_op_parallelism_threads
            )
        if config.gpu_options.allow_growth:
            for device in tf.config.list_physical_devices("GPU"):
                tf.config.experimental.set_memory_growth(device, True)
    except RuntimeError as error:
        raise InvalidArgument(
            f"TrainConfig: session_config comes too late, TensorFlow has started: make the trainer "
            f"before the first TensorFlow operation of the program ({error})"
        ) from error
    if config.allow_soft_placement:
        tf.config.set_soft_device_placement(True)
    if config.log_device_placement:
        tf.debugging.set_log_device_placement(True)
