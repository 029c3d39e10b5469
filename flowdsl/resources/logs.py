"""Loggers, in a module of their own: ``import flowdsl`` does not need ``logging``."""

from __future__ import annotations

import contextlib
import logging
from typing import Any


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Logs, and ignores a closed stream: a message must not stop the elements.

    The handler of last resort raises ``ValueError`` if the standard error stream is closed.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        with contextlib.suppress(ValueError):
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})


def logger(name: str = "flowdsl") -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module of flowdsl."""
    return _Logger(logging.getLogger(name), {})
