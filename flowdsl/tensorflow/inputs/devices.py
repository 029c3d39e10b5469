"""The devices on which a data-parallel step runs."""

from __future__ import annotations

import tensorflow as tf

from flowdsl.errors import FlowError, InvalidArgument
from flowdsl.nodes import ListOf, checked_int, checked_list


def logical_cpus(n: int) -> tuple[str, ...]:
    """Split the CPU into ``n`` logical devices, and return their names.

    Logical devices run a step for several devices on a machine without GPUs. TensorFlow creates its
    devices at its first operation and cannot change them later, so call this at the start of a
    program. A second call for no more devices is allowed.

    >>> logical_cpus(2)
    ('/cpu:0', '/cpu:1')

    Raises:
        FlowError: TensorFlow has already created fewer devices.
        InvalidArgument: ``n`` is not an int of at least 1.
    """
    n = checked_int("logical_cpus: n", n, 1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    present = len(tf.config.get_logical_device_configuration(cpu) or (None,))
    if present < n:
        split = [tf.config.LogicalDeviceConfiguration() for _ in range(n)]
        try:
            tf.config.set_logical_device_configuration(cpu, split)
        except RuntimeError as error:
            raise FlowError(
                f"logical_cpus({n}): TensorFlow has already started, with {present} CPU device(s); "
                f"call it before the first TensorFlow operation of the program"
            ) from error
    return tuple(f"/cpu:{i}" for i in range(n))


def towers(n: int) -> tuple[str, ...]:
    """Return the names of the first ``n`` GPUs, or of CPU devices if there are fewer GPUs.

    Raises:
        FlowError: There are not enough of either.
        InvalidArgument: ``n`` is not an int of at least 1.
    """
    n = checked_int("towers: n", n, 1)
    seen: list[str] = []
    for kind in ("GPU", "CPU"):
        count = len(tf.config.list_logical_devices(kind))
        if count >= n:
            return tuple(f"/{kind.lower()}:{i}" for i in range(n))
        seen.append(f"{count} {kind}")
    raise FlowError(
        f"{n} towers need {n} devices, TensorFlow sees {' and '.join(seen)}; to run "
        f"them on the CPU call flowdsl.tensorflow.inputs.logical_cpus({n}) at the start of "
        "the program"
    )


def device_of(argument: str, device: int | str) -> str:
    """Return the name of a device; a GPU may be a number, and -1 is the CPU.

    On a machine without GPUs, a number refers to a CPU device.

    Raises:
        FlowError: The device does not exist; the message begins with ``argument``.
    """
    gpus, cpus = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    if isinstance(device, str):
        name = device
    elif device < 0:
        name = "/cpu:0"
    else:
        name = f"/gpu:{device}" if gpus else f"/cpu:{device}"
    known = [
        f"/{each.device_type.lower()}:{k}" for kind in (gpus, cpus) for k, each in enumerate(kind)
    ]
    spelt = name.lower().replace("device:", "")
    if not any(spelt.endswith(each) for each in known):
        raise FlowError(
            f"{argument}: there is no device {device!r}, TensorFlow sees {', '.join(known)}; "
            f"to split the CPU, call flowdsl.tensorflow.inputs.logical_cpus(n) at the start"
        )
    return name


def devices_of(argument: str, devices: ListOf[str]) -> tuple[str, ...]:
    """Return the names of devices that exist, one or more.

    Raises:
        InvalidArgument: It is not a list of names.
        FlowError: A device does not exist.
    """
    names = checked_list(argument, devices, str, "devices, such as '/gpu:0'")
    if not names:
        raise InvalidArgument(f"{argument} must list a device or more, got none")
    return tuple(device_of(argument, name) for name in names)
