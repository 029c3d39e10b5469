"""The settings of a training, stored in checkpoints to detect changes of the program.

A checkpoint stores the learning rate as a variable, so a program that was changed and run again
would train with the old rate. The program's new rate must win, but a rate that a callback lowered
during training must be kept. So a checkpoint also stores the settings with which its training
began: if the program has other settings now, the program was changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Settings: TypeAlias = Mapping[str, object]
"""JSON values by name: ``learning_rate``, or ``inner_optimizer.learning_rate`` if nested."""


def settings_of(optimizer: object) -> dict[str, object]:
    """Return the current configuration of a Keras optimizer; empty for other optimizers."""
    config = getattr(optimizer, "get_config", None)
    if config is None:
        return {}
    settings = dict(_flat("", json.loads(json.dumps(config(), default=repr))))
    # Keras names optimizers adam, adam_1, ... in each process, so a name may differ without a
    # change.
    return {name: v for name, v in settings.items() if name.rpartition(".")[2] != "name"}


def differences(now: Settings, before: Settings) -> dict[str, str]:
    """Describe the settings that differ from before, by name."""
    return {
        name: f"{name} is {now.get(name)!r}, was {before.get(name)!r}"
        for name in dict.fromkeys([*now, *before])
        if now.get(name) != before.get(name)
    }


def learning_rate_in(settings: Settings) -> tuple[str, float] | None:
    """Return the name and value of the learning rate, if it is a number."""
    for name, value in settings.items():
        if name.rpartition(".")[2] == "learning_rate" and isinstance(value, float):
            return name, value
    return None


def set_learning_rate(optimizer: Any, value: float) -> None:
    """Set the learning rate of a Keras optimizer."""
    optimizer.learning_rate = value


def _flat(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        yield name, value
    elif value.keys() >= {"class_name", "config"}:  # a Keras object
        yield f"{name}.class_name" if name else "class_name", value["class_name"]
        yield from _flat(name, value["config"])
    else:
        for key, part in value.items():
            yield from _flat(f"{name}.{key}" if name else key, part)
