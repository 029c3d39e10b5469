"""How many threads the numerical libraries of a worker process use: its part of the cores.

A library such as OpenBLAS starts a thread for each core of the machine. Where every worker does so,
they get in each other's way: four matrix products of 256x256 in two processes on two cores took
seven times as long as with one thread each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

_VARIABLES: dict[str, tuple[str, ...]] = {
    "OMP_NUM_THREADS": (),
    "OPENBLAS_NUM_THREADS": ("GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "MKL_NUM_THREADS": ("OMP_NUM_THREADS",),
    "BLIS_NUM_THREADS": ("OMP_NUM_THREADS",),
    "NUMEXPR_NUM_THREADS": ("OMP_NUM_THREADS",),
    "OPENCV_FOR_THREADS_NUM": (),
    "TF_NUM_INTRAOP_THREADS": (),
    "TF_NUM_INTEROP_THREADS": (),
}
"""The variables from which libraries read their number of threads, each with those that its library
reads where it is not set."""

_MODULES = {
    "cv2": ("OPENCV_FOR_THREADS_NUM", "setNumThreads"),
    "numexpr": ("NUMEXPR_NUM_THREADS", "set_num_threads"),
    "torch": ("MKL_NUM_THREADS", "set_num_threads"),
}
"""Modules with a number of threads of their own: its variable, and the function that sets it."""


def share_of(cores: int, workers: int) -> int:
    """The threads for each worker, so that all together have as many as there are cores.

    >>> share_of(8, 2), share_of(8, 3), share_of(2, 4)
    (4, 2, 1)
    """
    return max(1, cores // max(1, workers))


def variables(threads: int) -> dict[str, str]:
    """The variables that give libraries so many threads; without those that the user has set."""
    return {
        name: str(threads)
        for name, others in _VARIABLES.items()
        if not any(os.environ.get(variable) for variable in (name, *others))
    }


def use(threads: int) -> None:
    """Let the libraries of this process use so many threads, unless the environment says how many.

    Libraries that are loaded later read the environment, those that are loaded are set. A function
    that sets another number later has it.
    """
    free = variables(threads)
    os.environ.update(free)
    _set_loaded(threads, free)


def _set_loaded(threads: int, free: Collection[str]) -> None:
    from threadpoolctl import ThreadpoolController  # which the fork server has imported

    for library in ThreadpoolController().lib_controllers:
        name = f"{library.internal_api.upper()}_NUM_THREADS"
        if (name if name in _VARIABLES else "OMP_NUM_THREADS") in free:
            library.set_num_threads(threads)
    for module, (name, setter) in _MODULES.items():
        if name in free and (loaded := sys.modules.get(module)):
            getattr(loaded, setter)(threads)
