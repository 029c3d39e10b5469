"""The callbacks of one training, called in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal, TypeAlias, cast

from flowdsl.errors import InvalidArgument, StateMismatch
from flowdsl.tensorflow.train.callbacks.base import Callback, StopTraining

Method: TypeAlias = Literal[
    "before_epoch", "before_run", "after_run", "trigger_step", "after_epoch", "trigger_epoch"
]
_METHODS: tuple[Method, ...] = (
    *("before_epoch", "before_run", "after_run", "trigger_step"),
    *("after_epoch", "trigger_epoch"),
)


class Callbacks:
    """Calls a method of all callbacks, in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.all = tuple(callbacks)
        # Leaves out empty methods: a hundred calls of them take as long as a step of a small model.
        self._methods = {name: _overridden(name, self.all) for name in _METHODS}
        self._remaining: dict[Method, list[Callable[[], None]]] = {}
        """The methods that an error has left uncalled, beginning with the one that failed."""

    def call(self, name: Method) -> None:
        """Call each callback; if one stops the training, the others are still called.

        If one fails, ``call_rest`` calls it again, and those after it.
        """
        self._call(name, self._methods[name])

    def call_rest(self, name: Method) -> None:
        """Like ``call``, but after a call that failed, only call the callbacks that remain."""
        self._call(name, self._remaining.pop(name, self._methods[name]))

    def _call(self, name: Method, methods: Sequence[Callable[[], None]]) -> None:
        stopped: StopTraining | None = None
        for k, method in enumerate(methods):
            try:
                method()
            except StopTraining as stop:
                stopped = stop
            except BaseException:
                self._remaining[name] = [*methods[k:]]
                raise
        if stopped is not None:
            raise stopped

    def before_train(self, ends: ExitStack) -> None:
        """Call each at the start; when ``ends`` closes, it calls them again in reverse order."""
        for callback in self.all:
            callback.before_train()
            ends.callback(callback.after_train)

    def state_dict(self) -> dict[str, Mapping[str, object]]:
        states = {key: callback.state_dict() for key, callback in self._named()}
        return {key: state for key, state in states.items() if state}

    def check_states(self) -> None:
        """Check that the states of callbacks can be saved, before steps are run that would be lost.

        Raises:
            InvalidArgument: A state is not made of JSON values; the error names the callback.
        """
        if any(callback.runs_last for callback in self.all):
            for key, state in self.state_dict().items():
                name = f"{key.partition(':')[0]}.state_dict"
                if (found := not_json(state)) is not None:
                    raise InvalidArgument(
                        f"{name}: return what a checkpoint can store (dicts with text as keys, "
                        f"lists, text, numbers, True, False, None); {found}"
                    )

    def load_state_dict(self, states: Mapping[str, Mapping[str, object]]) -> None:
        """Restore the states of callbacks that are in both: callbacks may change between runs."""
        for key, callback in self._named():
            if key in states:
                try:
                    callback.load_state_dict(states[key])
                except (ValueError, TypeError, LookupError, AttributeError) as error:
                    raise StateMismatch(
                        f"{key.partition(':')[0]}.load_state_dict: the state in the checkpoint "
                        f"does not fit: {error!r}"
                    ) from error

    def _named(self) -> list[tuple[str, Callback]]:
        """Return each callback with its key: its class name, and its number within the class."""
        counts: dict[str, int] = {}
        named: list[tuple[str, Callback]] = []
        for callback in self.all:
            name = type(callback).__name__
            counts[name] = counts.get(name, -1) + 1
            named.append((f"{name}:{counts[name]}", callback))
        return named


def not_json(value: object, at: str = "the state") -> str | None:
    """Return the first part of a state that is not a JSON value, described; None if all are.

    >>> not_json({"best": [0.5, None]})
    >>> not_json({"best": {3: 0.5}})
    "the state['best'] has the key 3"
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return None
    if isinstance(value, (list, tuple)):
        parts: list[tuple[object, object]] = list(enumerate(value))
    elif isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            return f"{at} has the key {wrong[0]!r}"
        parts = list(value.items())
    else:
        return f"{at} is {value!r}"
    found = (not_json(part, f"{at}[{key!r}]") for key, part in parts)
    return next(filter(None, found), None)


def _overridden(name: Method, callbacks: Sequence[Callback]) -> list[Callable[[], None]]:
    """Return this method of each callback that overrides it."""
    defaults = (Callback.trigger_epoch, Callback.trigger) if name == "trigger_epoch" else ()
    methods: list[Callable[[], None]] = []
    for callback in callbacks:
        own = getattr(type(callback), name, None) is not getattr(Callback, name)
        triggered = bool(defaults) and type(callback).trigger is not Callback.trigger
        if own or triggered or name in vars(callback):
            methods.append(cast("Callable[[], None]", getattr(callback, name)))
    return methods
