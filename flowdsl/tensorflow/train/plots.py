"""draw_curves: draws the scalars of a training."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import ListOf, checked_names, checked_path
from flowdsl.tensorflow.train.events import read_events

_LARGEST_WINDOW = 41
"""The most steps over which the smooth line averages."""


def draw_curves(
    logdir: Path | str, path: Path | str, names: ListOf[str] = ("loss", "queue_fill")
) -> None:
    """Draw scalars over the steps, one panel each, from the event files of a log directory.

    The thin line shows every step, the thick line a running mean. The suffix of ``path`` selects
    the format: ``.svg``, ``.png`` or ``.pdf``. Needs matplotlib.

    Raises:
        InvalidArgument: A scalar is not in the event files; the message lists the ones that are.
    """
    from matplotlib.figure import Figure  # an optional dependency

    series = read_events(checked_path("draw_curves: logdir", logdir))
    for name in checked_names("draw_curves: names", names):
        if name not in series:
            known = ", ".join(sorted(series)) or "nothing"
            raise InvalidArgument(f"draw_curves: no scalar {name!r} in {logdir}; it has {known}")
    figure = Figure(figsize=(8, 2.5 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    for panel, name in zip(panels, names, strict=True):
        steps, values = np.array(list(series[name].items()), float).T
        window = max(1, min(_LARGEST_WINDOW, len(values) // 10)) | 1  # odd, to have a middle
        mean = np.convolve(values, np.ones(window) / window, "valid")
        panel.plot(steps, values, color="lightsteelblue", linewidth=0.7)
        panel.plot(steps[window // 2 : len(steps) - window // 2], mean, color="navy")
        panel.set_ylabel(name.replace("_", " "))
        if (values > 0).all() and values.max() > 30 * values.min():
            panel.set_yscale("log")
        elif values.min() >= 0:
            panel.set_ylim(bottom=0)
        panel.grid(color="gainsboro", linewidth=0.5)
    panels[-1].set_xlabel("step")
    figure.savefig(path, dpi=120)
