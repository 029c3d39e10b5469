"""The environment that a process inherits from its parent, as data to be sent and applied."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import attrs

_READ_AT_START = (
    "PYTHON", "LC_", "LANG", "TZ",  # by the interpreter
    "LD_", "GLIBC_", "MALLOC_",  # by the loader and the C library
    "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "NPY_", "NUMPY_",  # by NumPy
)  # fmt: skip
"""Prefixes of variables that take effect when an interpreter starts and imports NumPy."""


_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _limits() -> dict[int, tuple[int, int]]:
    return {limit: resource.getrlimit(limit) for limit in _LIMITS}


def _umask() -> int:
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("Umask:")[2].split(maxsplit=1)[0], 8)
    except FileNotFoundError:  # os.umask returns it only by setting another, for other threads too
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


@attrs.frozen
class ProcessEnvironment:
    """The current environment of this process, as a new process would inherit it.

    The working folder, standard output and standard error are sent as descriptors instead.
    """

    environment: dict[str, str] = attrs.field(factory=lambda: dict(os.environ))
    path: tuple[str, ...] = attrs.field(factory=lambda: tuple(sys.path))
    """The search path of modules."""
    users: tuple[object, ...] = attrs.field(
        factory=lambda: (os.getresuid(), os.getresgid(), tuple(os.getgroups()))
    )
    priority: int = attrs.field(factory=lambda: os.getpriority(os.PRIO_PROCESS, 0))
    cores: frozenset[int] = attrs.field(factory=lambda: frozenset(os.sched_getaffinity(0)))
    limits: dict[int, tuple[int, int]] = attrs.field(factory=_limits)
    umask: int = attrs.field(factory=_umask)

    def inherited(self, environment: bool = False) -> tuple[object, ...]:
        """Return the settings that a process can only inherit, not change after its start.

        With ``environment`` these include all variables except those that pytest sets.
        """
        variables = {
            name: value
            for name, value in self.environment.items()
            if name.startswith(_READ_AT_START) or (environment and not name.startswith("PYTEST_"))
        }
        return variables, self.users, self.priority

    def take_on(self) -> None:
        """Apply this environment to this process, except for inherited settings."""
        if os.environ != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        sys.path[:] = self.path
        os.umask(self.umask)
        if frozenset(os.sched_getaffinity(0)) != self.cores:
            os.sched_setaffinity(0, self.cores)
        for limit, now in _limits().items():
            if now != self.limits[limit]:
                resource.setrlimit(limit, self.limits[limit])
