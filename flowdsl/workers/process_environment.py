"""The environment that a process inherits from its parent, as data to be sent and applied."""

from __future__ import annotations

import decimal
import faulthandler
import locale
import os
import resource
import sys
import warnings
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

_READ_AT_START = (
    "PYTHON", "LC_", "LANG", "TZ",  # by the interpreter
    "LD_", "GLIBC_", "MALLOC_",  # by the loader and the C library
    "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "NPY_", "NUMPY_",  # by NumPy
)  # fmt: skip
"""Prefixes of variables that take effect when an interpreter starts and imports NumPy."""

HASH_SEED = "PYTHONHASHSEED"
_OWN_HASH_SEED = str(int.from_bytes(os.urandom(4), "little"))


def hash_seed() -> str:
    """Return the seed with which all workers of this program hash text.

    It is the seed of this process if that is known. Python does not report a seed that it has
    chosen itself.
    """
    given = os.environ.get(HASH_SEED, "random")
    return _OWN_HASH_SEED if given in ("", "random") else given


def hashes_like_its_workers() -> bool:
    """Return True if text has the same hash in this process and in its workers.

    A seed that the program has set itself has no effect on it: Python reads it when it starts.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            at_start = file.read().split(b"\0")
    except OSError:
        at_start = []
    return not sys.flags.ignore_environment and f"{HASH_SEED}={hash_seed()}".encode() in at_start


@attrs.frozen
class Setting:
    """A setting of a process: how it is read, and how it is applied to another process."""

    read: Callable[[], Any]
    apply: Callable[[Any], object]


def _set_variables(variables: dict[str, str]) -> None:
    if os.environ != variables:
        os.environ.clear()
        os.environ.update(variables)


def _set_path(path: tuple[str, ...]) -> None:
    sys.path[:] = path


def _umask() -> int:
    try:
        with open("/proc/self/status") as file:
            return int(file.read().partition("Umask:")[2].split(maxsplit=1)[0], 8)
    except FileNotFoundError:  # os.umask returns it only while it sets another, for all threads
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def _set_cores(cores: frozenset[int]) -> None:
    if frozenset(os.sched_getaffinity(0)) != cores:
        os.sched_setaffinity(0, cores)


_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _limits() -> dict[int, tuple[int, int]]:
    return {limit: resource.getrlimit(limit) for limit in _LIMITS}


def _set_limits(limits: dict[int, tuple[int, int]]) -> None:
    for limit, now in _limits().items():
        if now != limits[limit]:
            resource.setrlimit(limit, limits[limit])


def _locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def _set_locale(name: str) -> None:
    if _locale() != name:
        locale.setlocale(locale.LC_ALL, name)


def _set_faulthandler(enabled: bool) -> None:
    if enabled and not faulthandler.is_enabled():
        faulthandler.enable()


_Filters = tuple[tuple[Any, ...], ...]


def _warning_filters() -> _Filters:
    """The filters, with the names of categories: a worker need not import their modules."""
    filters: list[Any] = [*warnings.filters]
    return tuple(
        (action, message, (category.__module__, category.__qualname__), module, line)
        for action, message, category, module, line in filters
    )


def _set_warning_filters(filters: _Filters) -> None:
    """Apply the filters whose categories are in modules that this process has imported."""
    if _warning_filters() == filters:
        return
    warnings.resetwarnings()  # so that decisions made by the old filters are forgotten
    found: Any = warnings.filters
    for action, message, (name, category), module, line in filters:
        if name in sys.modules:
            try:
                kind = attrgetter(category)(sys.modules[name])
            except AttributeError:  # of a script, which is another module here
                continue
            found.append((action, message, kind, module, line))


_OF_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _decimal_context() -> dict[str, Any]:
    """The settings of the context, without its flags, which computations set."""
    context = decimal.getcontext()
    settings: dict[str, Any] = {name: getattr(context, name) for name in _OF_DECIMAL}
    return settings | {"traps": [signal for signal, is_set in context.traps.items() if is_set]}


def _set_decimal_context(settings: dict[str, Any]) -> None:
    decimal.setcontext(decimal.Context(**settings))


def _floating_point_errors() -> dict[str, Any]:
    """NumPy's handling of each kind of them, unless it calls a function of this process."""
    handled: dict[str, Any] = dict(np.geterr())
    return {kind: how for kind, how in handled.items() if how not in ("call", "log")}


def _print_options() -> dict[str, Any]:
    options: dict[str, Any] = dict(np.get_printoptions())
    functions = ("formatter", "override_repr")
    return {name: value for name, value in options.items() if name not in functions}


SETTINGS = {
    "environment variables": Setting(lambda: dict(os.environ), _set_variables),
    "search path of modules": Setting(lambda: tuple(sys.path), _set_path),
    "umask": Setting(_umask, os.umask),
    "cores": Setting(lambda: frozenset(os.sched_getaffinity(0)), _set_cores),
    "resource limits": Setting(_limits, _set_limits),
    "recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "digits of an int": Setting(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "locale": Setting(_locale, _set_locale),
    "faulthandler": Setting(faulthandler.is_enabled, _set_faulthandler),
    "warning filters": Setting(_warning_filters, _set_warning_filters),
    "decimal context": Setting(_decimal_context, _set_decimal_context),
    "floating-point errors of NumPy": Setting(
        _floating_point_errors, lambda handled: np.seterr(**handled)
    ),
    "print options of NumPy": Setting(
        _print_options, lambda options: np.set_printoptions(**options)
    ),
}
"""The state that a worker takes on when it starts, besides what it inherits. A change between two
passes starts new workers. The working folder, standard output and standard error are sent as
descriptors.
"""


_OF_ANY_MACHINE = (
    *("recursion limit", "digits of an int", "warning filters", "decimal context"),
    *("floating-point errors of NumPy", "print options of NumPy"),
)


def read_settings(names: Iterable[str] = SETTINGS) -> dict[str, Any]:
    """Return the current values of settings of this process."""
    return {name: SETTINGS[name].read() for name in names}


def settings_for_other_machines() -> dict[str, Any]:
    """Return the settings that do not depend on this machine."""
    return read_settings(_OF_ANY_MACHINE)


def apply_settings(settings: dict[str, Any]) -> None:
    """Apply settings to this process, and to this thread."""
    for name, value in settings.items():
        SETTINGS[name].apply(value)


@attrs.frozen
class ProcessEnvironment:
    """The current environment of this process, as a new process would inherit it."""

    settings: dict[str, Any] = attrs.field(factory=read_settings)
    users: tuple[object, ...] = attrs.field(
        factory=lambda: (os.getresuid(), os.getresgid(), tuple(os.getgroups()))
    )
    priority: int = attrs.field(factory=lambda: os.getpriority(os.PRIO_PROCESS, 0))

    def inherited(self, every_variable: bool = False) -> tuple[object, ...]:
        """Return the settings that a process can only inherit, not change after its start.

        With ``every_variable`` these include all variables except those that pytest sets, which
        change with each test.
        """
        variables: dict[str, str] = self.settings["environment variables"]
        if every_variable:
            kept = {name: x for name, x in variables.items() if not name.startswith("PYTEST_")}
        else:
            kept = {name: x for name, x in variables.items() if name.startswith(_READ_AT_START)}
        return kept, self.users, self.priority

    def take_on(self, *names: str) -> None:
        """Apply the settings to this process; with ``names``, only these."""
        apply_settings({name: self.settings[name] for name in names or self.settings})
