"""What the figures say: each target, and whether it is met."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TypeAlias

import attrs
from rich.table import Table

from bench.works import WORKS

Figures: TypeAlias = dict[str, dict[str, list[float]]]
"""By what was measured, by contestant: the figure of each repetition."""


@attrs.frozen
class Verdict:
    """One target."""

    what: str
    ours: float
    unit: str
    other: float | None
    """The figure that ours is compared with, if it is."""
    whose: str
    ratio: float
    target: float
    most: bool = False
    """The ratio is to be no greater; else, no less."""

    @property
    def met(self) -> bool:
        return self.ratio <= self.target if self.most else self.ratio >= self.target


def verdicts(figures: Figures) -> list[Verdict]:
    """Every target for which there are figures."""
    parts = (_rates, _passes, _python, _firsts, _starts, _auto, _chains, _sizes)
    return [verdict for part in parts for verdict in part(figures)]


def _rates(figures: Figures) -> Iterator[Verdict]:
    for name, work in WORKS.items():
        rates = {who: median(found) for who, found in figures.get(f"rate {name} rate", {}).items()}
        ours = rates.pop("flowdsl", None)
        if ours is None:
            continue
        limit = rates.pop("prototype", None)
        if limit is not None:
            target = 1.0 if name.startswith("fresh") else 0.0
            yield Verdict(work.name, ours, "rows/s", limit, "prototype", ours / limit, target)
        if alone := figures.get(f"alone {name} rate", {}).get("flowdsl"):
            limit = 2 * median(alone)
            yield Verdict(work.name, ours, "rows/s", limit, "twice one core", ours / limit, 0.95)
        if plain := figures.get(f"limit {name} rate", {}).get("flowdsl"):
            limit = median(plain)
            yield Verdict(work.name, ours, "rows/s", limit, "plain processes", ours / limit, 0.0)
        threads = rates.pop("flowdsl-threads", None)
        if threads is not None:
            what = f"({work.name}: flowdsl in threads)"
            yield Verdict(what, threads, "rows/s", ours, "in processes", threads / ours, 0.0)
        if rates:
            best = max(rates, key=lambda who: rates[who])
            yield Verdict(
                work.name, ours, "rows/s", rates[best], best, ours / rates[best], work.target
            )


def _passes(figures: Figures) -> Iterator[Verdict]:
    for name, work in WORKS.items():
        for which in ("first", "later"):
            rates = {w: median(v) for w, v in figures.get(f"whole {name} {which}", {}).items()}
            ours = rates.pop("flowdsl", None)
            if ours is not None and rates:
                best = max(rates, key=lambda who: rates[who])
                what = f"{work.name}: the {which} whole pass" + "es" * (which == "later")
                target = 1.0 if (name, which) == ("tiny", "first") else 0.0
                yield Verdict(what, ours, "rows/s", rates[best], best, ours / rates[best], target)


def _python(figures: Figures) -> Iterator[Verdict]:
    """Of each contestant: the machine is never quite ours, so a limit alone tells little."""
    rates = figures.get("rate python rate", {})
    limits = figures.get("limit python rate", {}).get("flowdsl", [])
    for who, found in rates.items():
        ratios = [one / limit for one, limit in zip(found, limits, strict=False)]
        what, target = _of(who, "200 µs of Python a row"), 0.98 if who == "flowdsl" else 0.0
        limit, unit = median(limits), "rows/s"
        yield Verdict(what, median(found), unit, limit, "plain processes", median(ratios), target)
    for who, found in figures.get("busy timed share", {}).items():
        what, target = _of(who, "... its share of the time"), 0.98 if who == "flowdsl" else 0.0
        yield Verdict(what, median(found), "", 1, "the cores' limit", median(found), target)


def _of(who: str, what: str) -> str:
    return what if who == "flowdsl" else f"({what}: {who})"


def _firsts(figures: Figures) -> Iterator[Verdict]:
    for name, what, most in (("cold", "first batch", 0.25), ("warm", "of a later pass", 0.05)):
        found = {who: median(v) for who, v in figures.get(f"first tiny {name}", {}).items()}
        ours = found.pop("flowdsl", None)
        if ours is not None:
            best = min(found, key=lambda who: found[who], default="")
            yield Verdict(what, ours, "s", found.get(best), best, ours, most, most=True)


def _starts(figures: Figures) -> Iterator[Verdict]:
    def ours(name: str) -> float | None:
        found = figures.get(name, {}).get("flowdsl")
        return median(found) if found else None

    for what, ours_of, other_of, whose, most in (
        ("import flowdsl", "programs tiny flowdsl", "programs tiny numpy", "numpy", 1.9),
        ("a program's first batch", "programs tiny first", "programs tiny numpy-zmq", "zmq", 2.5),
        ("first element of 25 workers", "workers tiny many", "workers tiny two", "of 2", 1.5),
    ):
        value, other = ours(ours_of), ours(other_of)
        if value is not None and other is not None:
            yield Verdict(what, value, "s", other, whose, value / other, most, most=True)
    if (held := ours("idle tiny private")) is not None:
        yield Verdict("private memory of an idle worker", held, "MB", None, "", held, 10, most=True)
    for who in ("worker", "consumer"):
        if (each := ours(f"faults fresh-uint8 {who}")) is not None:
            what = f"page faults for a newly allocated image ({who})"
            yield Verdict(what, each, "", None, "", each, 0.0)


def _auto(figures: Figures) -> Iterator[Verdict]:
    """Beside the best and the worst of the fixed numbers."""
    works = dict.fromkeys(key.split(": ")[0] for key in figures if key.startswith("auto "))
    for work in works:
        of = {k.split(": ")[1]: median(v["flowdsl"]) for k, v in figures.items() if work in k}
        auto, came_to = of.pop("auto"), of.pop("came to")
        what = f'procs="auto", {work.removeprefix("auto ")}: {came_to:.0f}'
        best = max(of, key=lambda number: of[number])
        yield Verdict(what, auto, "rows/s", of[best], f"of {best}", auto / of[best], 0.9)
        least = min(of.values())
        yield Verdict(what, auto, "rows/s", least, "the worst", auto / least, 1.0)


def _chains(figures: Figures) -> Iterator[Verdict]:
    for key, both in figures.items():
        if key.startswith("chain "):
            loop, flow = both["loop"][0], both["flow"][0]
            what = f"procs=0: {key.removeprefix('chain ')}"
            yield Verdict(what, flow, "ns/row", loop, "a loop", loop / flow, 0.95)


def _sizes(figures: Figures) -> Iterator[Verdict]:
    """What should not grow with the source, beside that of the smallest."""
    for kind, parts, most, unit in (
        ("memory", ("consumer", "worker"), 1.1, "MB"),
        ("flat", ("inline", "workers"), 1.1, "ns/row"),
    ):
        for part in parts:
            sizes = sorted(
                int(key.split()[2])
                for key in figures
                if key.startswith(f"{kind} ") and key.endswith(f" {part}")
            )
            of = {n: median(figures[f"{kind} tiny {n} {part}"]["flowdsl"]) for n in sizes}
            if len(of) > 1:
                least, worst = of[sizes[0]], max(of[n] for n in sizes[1:])
                what = f"{kind} ({part}): up to {sizes[-1]:.0e} rows".replace("e+0", "e")
                of_least = f"{sizes[0]} rows"
                yield Verdict(what, worst, unit, least, of_least, worst / least, most, most=True)


def table(found: list[Verdict], names: dict[str, str]) -> Table:
    """For people."""
    shown = Table("", "flowdsl", "compared with", "", "ratio", "target", "met")
    for verdict in found:
        bound = "" if not verdict.target else f"{'<=' if verdict.most else '>='} {verdict.target:g}"
        met = "" if not verdict.target else "[green]yes" if verdict.met else "[red]no"
        shown.add_row(
            verdict.what,
            f"{_figure(verdict.ours)} {verdict.unit}",
            "" if verdict.other is None else _figure(verdict.other),
            names.get(verdict.whose, verdict.whose),
            f"{verdict.ratio:.3g}",
            bound,
            met,
        )
    return shown


def _figure(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
