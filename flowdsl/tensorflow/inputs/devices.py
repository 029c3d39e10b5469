"""The devices that a data-parallel step is spread over."""

from __future__ import annotations

import tensorflow as tf

from flowdsl.errors import FlowError
from flowdsl.nodes import checked_int


def logical_cpus(n: int) -> tuple[str, ...]:
    """Split the CPU into ``n`` logical devices, and give their names.

    They run what several GPUs would, on any machine. TensorFlow makes its devices at its first
    operation and never changes them, so call this at the start of a program; a second call that
    asks for no more is fine.

    >>> logical_cpus(2)
    ('/cpu:0', '/cpu:1')

    Raises:
        FlowError: TensorFlow has already made fewer devices.
        InvalidFlow: ``n`` is no int of at least 1.
    """
    n = checked_int("logical_cpus: n", n, 1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    made = len(tf.config.get_logical_device_configuration(cpu) or (None,))
    if made < n:
        split = [tf.config.LogicalDeviceConfiguration() for _ in range(n)]
        try:
            tf.config.set_logical_device_configuration(cpu, split)
        except RuntimeError as error:
            raise FlowError(
                f"logical_cpus({n}): TensorFlow has already started, with {made} CPU device(s); "
                f"call it before the first TensorFlow operation of the program"
            ) from error
    return tuple(f"/cpu:{i}" for i in range(n))


def towers(n: int) -> tuple[str, ...]:
    """The first ``n`` GPUs; where there are fewer, the first ``n`` CPU devices.

    Raises:
        FlowError: There are not enough of either.
        InvalidFlow: ``n`` is no int of at least 1.
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
    """The name of a device: of a GPU by its number, of the CPU by -1, or as it is.

    Where there is no GPU at all, a number is that of a CPU device.

    Raises:
        FlowError: There is no such device; the message begins with ``argument``.
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
            f"several on the CPU are made by flowdsl.tensorflow.inputs.logical_cpus(n) at the start"
        )
    return name
