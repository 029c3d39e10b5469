"""Format figures, and choose the figures shown for a stage."""

from __future__ import annotations

import math

from flowdsl.statistics.stages import StageStatistics

HEADER = (
    "stage",
    "where",
    "elements/s",
    "busy",
    "skew",
    "input",
    "waited for",
    "fill",
    "bytes/s",
    "p50",
    "p99",
)
"""The names of the columns of ``stage_cells``; docs/seeing.md explains them."""


def number(value: float) -> str:
    """A count or a rate, to three digits or to the nearest whole number.

    >>> number(81234.6), number(812.34), number(8.1234), number(0.01234), number(math.inf)
    ('81,235', '812', '8.12', '0.0123', 'inf')
    """
    if value >= 100 and math.isfinite(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def about(value: float) -> str:
    """A forecast, with two significant digits at most.

    >>> about(1587.0), about(162000.0), about(7.77), about(0.0)
    ('1,600', '160,000', '7.8', '0')
    """
    if not value or not math.isfinite(value):
        return number(value)
    digits = 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def share(value: float) -> str:
    """A share of a whole, in percent.

    >>> share(0.384), share(0.0004), share(0)
    ('38%', '<1%', '0%')
    """
    return "<1%" if 0 < value <= 0.005 else f"{value:.0%}"


def duration(seconds: float) -> str:
    """Seconds, in a unit of suitable size.

    >>> duration(2.5), duration(0.0123), duration(4.2e-5), duration(3e-7), duration(0)
    ('2.5 s', '12.3 ms', '42 µs', '300 ns', '0')
    """
    if not seconds:
        return "0"
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit * 0.9995:
            return f"{seconds / unit:.3g} {name}" if seconds < 999.5 else f"{seconds:,.0f} s"
    return f"{seconds / 1e-9:.3g} ns"


def size(nbytes: float) -> str:
    """Bytes, in powers of a thousand.

    >>> size(0), size(999), size(38_000_000), size(4.2e9)
    ('0 B', '999 B', '38 MB', '4.2 GB')
    """
    value, units = float(nbytes), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.3g} {unit}"


def where(stage: StageStatistics, *, one: str = "1") -> str:
    """The place where a stage runs, with its number of workers; ``one`` is the text for 1."""
    if stage.kind is None:
        return "this process"
    return stage.kind.short.counted(len(stage.workers), one)


def name(stage: StageStatistics) -> str:
    """The name of a stage: its first and last operator."""
    return " … ".join(dict.fromkeys((stage.operators[0], stage.operators[-1])))


def stage_cells(stage: StageStatistics) -> tuple[str, ...]:
    """The figures of a stage for the columns in ``HEADER``; empty if a figure does not apply."""
    seconds, workers = stage.seconds, stage.kind is not None
    return (
        name(stage),
        where(stage) + (" (auto)" if stage.auto else ""),
        number(stage.rate) if stage.delivered else "",
        share(stage.utilisation) if workers else "",
        f"+{stage.skew:.0%}" if len(stage.workers) > 1 and not stage.auto else "",
        share(stage.input_seconds / seconds) if stage.input_seconds and seconds else "",
        share(stage.waited / seconds) if workers and seconds else "",
        share(stage.fill) if workers else "",
        f"{size(stage.nbytes / seconds)}/s" if stage.nbytes and seconds else "",
        duration(stage.p50) if stage.p50 else "",
        duration(stage.p99) if stage.p99 else "",
    )


def losses(stage: StageStatistics) -> str:
    """The counts of filtered, skipped and retried elements and of deaths; empty if all are 0."""
    counted = (
        (stage.filtered, "filtered"),
        (stage.skipped, "skipped"),
        (stage.retried, "retried"),
        (stage.deaths, "death" if stage.deaths == 1 else "deaths"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counted if count)
