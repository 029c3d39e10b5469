"""Native threads: limits the threads of numerical libraries in each worker to its share of cores.

A library such as OpenBLAS starts a thread for each core of the machine. If every worker does so,
the threads compete for the cores: four matrix products of 256x256 in two processes on two cores
took seven times as long as with one thread each.
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
"""The variables from which libraries read their number of threads, each with the variables that its
library reads as a fallback."""

_SPIN = "OPENBLAS_THREAD_TIMEOUT"
_CYCLES_OF_SPIN = 16
"""A thread of OpenBLAS that has no work sleeps after 2^16 cycles of the processor, 30 microseconds.

In NumPy's build it spins for 2^28 cycles first, also when it is created, on a core where the
consumer and other workers compute: a worker that only slept took 140 ms of processor time instead
of 26."""

AT_FIRST = 1
"""The threads of libraries when a worker starts, by ``variables(AT_FIRST)`` in its environment.

``use`` is called later, when the worker has the environment of the consumer."""

_MODULES = {
    "cv2": ("OPENCV_FOR_THREADS_NUM", "setNumThreads"),
    "numexpr": ("NUMEXPR_NUM_THREADS", "set_num_threads"),
    "torch": ("MKL_NUM_THREADS", "set_num_threads"),
}
"""Modules with their own thread count: the variable and the function that set it."""


def share_of(cores: int, workers: int) -> int:
    """Return the threads for each worker, so that all workers together use each core once.

    >>> share_of(8, 2), share_of(8, 3), share_of(2, 4)
    (4, 2, 1)
    """
    return max(1, cores // max(1, workers))


def variables(threads: int) -> dict[str, str]:
    """Return the variables for this number of threads, without those the user has set."""
    numbers = {
        name: str(threads)
        for name, others in _VARIABLES.items()
        if not any(os.environ.get(variable) for variable in (name, *others))
    }
    return numbers if os.environ.get(_SPIN) else {**numbers, _SPIN: str(_CYCLES_OF_SPIN)}


def use(threads: int) -> None:
    """Set the number of threads of libraries in this process, unless the environment sets it.

    Libraries loaded later read it from the environment. Libraries for BLAS and OpenMP that are
    loaded are configured by threadpoolctl, unless the number is the one with which the worker
    started; the modules in ``_MODULES`` are configured always. A function of the user can still set
    another number later.
    """
    unset = variables(threads)
    os.environ.update(unset)
    if threads > AT_FIRST:
        _set_loaded(threads, unset)
    for module, (name, setter) in _MODULES.items():
        if name in unset and (loaded := sys.modules.get(module)):
            getattr(loaded, setter)(threads)


def modules(threads: int) -> set[str]:
    """Return the modules that ``use`` needs, which the fork server imports for all workers."""
    return {"threadpoolctl"} if threads > AT_FIRST else set()


def _set_loaded(threads: int, unset: Collection[str]) -> None:
    """Set the number of threads of loaded libraries whose variables the user has not set."""
    from threadpoolctl import ThreadpoolController  # here: a worker of one thread does not need it

    for library in ThreadpoolController().lib_controllers:
        name = f"{library.internal_api.upper()}_NUM_THREADS"
        if (name if name in _VARIABLES else "OMP_NUM_THREADS") in unset:
            library.set_num_threads(threads)
