"""Hashes of text, which differ between processes, and a warning of functions that use them.

Python draws the seed of ``hash`` when a process starts, unless ``PYTHONHASHSEED`` sets it. All
workers of a program have one seed, but it cannot equal a seed that Python has drawn for the
program, which it does not report.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dis import get_instructions
from types import CodeType, FunctionType

from flowdsl.resources.logs import logger
from flowdsl.workers.process_environment import HASH_SEED, hashes_like_its_workers

_log = logger()
_warned = set[tuple[str, str]]()


def warn_of_hash(function: FunctionType) -> None:
    """Log a warning, once in a program, if a function for workers calls the builtin ``hash``."""
    where = function.__module__ or "", function.__qualname__
    is_builtin = function.__globals__.get("hash", builtins.hash) is builtins.hash
    if where in _warned or not is_builtin or function.__name__ == "__hash__":
        return
    if any(map(_loads_hash, _codes(function.__code__))) and not hashes_like_its_workers():
        _warned.add(where)
        _log.warning(
            "%s calls hash(), which differs between this process and worker processes for text and "
            "bytes, and between runs of the program: use zlib.crc32 or hashlib, or set %s",
            function.__qualname__,
            HASH_SEED,
        )


def _loads_hash(code: CodeType) -> bool:
    return "hash" in code.co_names and any(  # in `co_names` it may also be an attribute
        instruction.argval == "hash" and instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        for instruction in get_instructions(code)
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
