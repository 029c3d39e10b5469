"""A reservation: an actor that reserves CPUs of its machine, and ends when it is not used."""

from __future__ import annotations

import threading
import time

import ray
from ray.actor import exit_actor

SECONDS_IDLE = 10.0
"""A released actor ends after this time, so that Ray can give its CPUs to others."""


class Reservation:
    """Reserves CPUs for the workers that the consumer's process starts on its own machine."""

    def __init__(self) -> None:
        self.idle_since: float | None = time.monotonic()
        """The time of its release, by ``time.monotonic``; None if it is in use."""
        self._actor = ray.get_runtime_context().current_actor
        threading.Thread(target=self._end_when_idle, name="flowdsl-idle", daemon=True).start()

    def hold(self) -> None:
        """Stay until ``release``."""
        self.idle_since = None

    def release(self) -> None:
        """End after ``SECONDS_IDLE``, unless ``hold`` is called before."""
        self.idle_since = time.monotonic()

    def end(self) -> None:
        """End this actor, unless it is in use again."""
        if self.idle_since is not None:
            exit_actor()  # type: ignore[no-untyped-call]  # Ray does not annotate it

    def _end_when_idle(self) -> None:
        while True:
            time.sleep(0.5)
            if self.idle_since is not None and time.monotonic() - self.idle_since > SECONDS_IDLE:
                # in a call: Ray reports the end of an actor as unexpected if a thread causes it
                self._actor.end.remote()
                time.sleep(SECONDS_IDLE)
