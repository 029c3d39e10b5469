"""bench: save what each operator of a flow costs, or compare it with what was saved."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

import click
import msgspec

from flowdsl.cli.printing import OutputPath, json_option, print_json, print_table, writing
from flowdsl.cli.sampling import Request, copying_memory, sample_in_a_process
from flowdsl.cli.targets import BadInput, Target, load_target
from flowdsl.report.bench.comparing import Change, changes
from flowdsl.report.bench.costs import Costs, FlowCosts, PartCosts, costs_of, load
from flowdsl.report.bench.sampling import KINDS, Kind, Part, Sample, Size
from flowdsl.statistics.figures import duration
from flowdsl.storage.progress import bar

_PROCESSES_TO_SAVE, _PROCESSES_TO_COMPARE = 10, 5
_MAX_ROUNDS = 3
"""The maximum number of measurements of a part while it seems to be slower."""

_FILE = OutputPath(dir_okay=False, path_type=Path)


def percentage(text: str) -> float:
    """Return the share that is written ``10%`` on the command line.

    Raises:
        BadInput: It is not a percentage above 0.
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not text.endswith("%") or not 0 < share < math.inf:
        raise BadInput(f"--fail-above must be a percentage above 0%, such as 10%, got {text!r}")
    return share


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--save", type=_FILE, metavar="FILE", help="Save the costs in this file.")
@click.option("--compare", type=_FILE, metavar="FILE", help="Compare them with the costs saved.")
@click.option(
    "--fail-above",
    type=percentage,
    metavar="PERCENT",
    default="10%",
    show_default=True,
    help="The slowdown of a part at which the comparison fails.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help=f"Measure in this many processes: by default {_PROCESSES_TO_COMPARE}, and "
    f"{_PROCESSES_TO_SAVE} to save.",
)
@click.option("--seconds", default=1.0, show_default=True, help="Measure this long in each.")
@json_option
def bench(
    targets: tuple[str, ...],
    save: Path | None,
    compare: Path | None,
    fail_above: float,
    processes: int | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Measure what each operator of a flow costs, in ratios to a reference workload.

    With --compare, the exit status is 1 if a part has become slower by more than --fail-above.
    Without targets, all flows in the saved file are compared.
    """
    if save is not None and compare is not None:
        raise click.UsageError("--save and --compare exclude each other")
    before = None if compare is None else load(compare)
    names = targets or tuple(before.flows if before is not None else ())
    if not names:
        raise click.UsageError("name a flow: flowdsl bench train.py:train")
    flows = [load_target(name) for name in names]
    for flow in flows:
        if flow.flow.node.length == 0:
            raise BadInput(f"bench: {quote(flow.name)} has no elements, so it has no costs")
    if before is None:
        count = processes or (_PROCESSES_TO_COMPARE if save is None else _PROCESSES_TO_SAVE)
        beside_copies = 0 if save is None else math.ceil(count / 2)
        measured = {flow.name: _measured(flow, count, beside_copies, seconds) for flow in flows}
        costs = Costs(flows=measured)
        _print_costs(costs, as_json)
        if save is not None:
            with writing(save):
                costs.save(save)
    else:
        found = {
            flow.name: _compared(flow, _saved(before, flow), processes, seconds, fail_above)
            for flow in flows
        }
        _print_changes(found, before, fail_above, as_json)
        sys.exit(any(change.is_slower(fail_above) for change in _all(found)))


def _saved(costs: Costs, flow: Target) -> FlowCosts:
    if flow.name not in costs.flows:
        saved = ", ".join(map(quote, costs.flows))
        raise BadInput(f"bench: {quote(flow.name)} was not saved; saved are {saved}")
    return costs.flows[flow.name]


def _measured(flow: Target, processes: int, beside_copies: int, seconds: float) -> FlowCosts:
    """Return the costs of a flow; the first process decides how much of it all of them run.

    ``beside_copies`` further processes show by how much each part slows beside a program that
    copies memory.
    """
    (first,) = _samples(flow, 1, seconds)
    sizes = {sample.part: sample.size for sample in first}
    calm = [first, *_samples(flow, processes - 1, seconds, sizes)]
    if not beside_copies:
        return costs_of(flow.flow.node, calm)
    with copying_memory():
        slowed = list(_samples(flow, beside_copies, seconds, sizes))
    return costs_of(flow.flow.node, calm, slowed)


def _compared(
    flow: Target, before: FlowCosts, processes: int | None, seconds: float, limit: float
) -> list[Change]:
    """Return the changes; a part that seems to be slower is measured again in other processes."""
    sizes = {costs.part: costs.size for costs in before.parts}
    unmeasured = FlowCosts(costs_of(flow.flow.node, []).operators, before.parts)
    changes(before, unmeasured)  # refuses another flow before anything is measured
    count, found = processes or _PROCESSES_TO_COMPARE, list[list[Sample]]()
    kinds: list[Kind] = list(KINDS)
    while True:
        found += _samples(flow, count, seconds, sizes, kinds)
        now = changes(before, costs_of(flow.flow.node, found))
        suspicious = {change.now.part.kind for change in now if change.is_suspicious(limit)}
        kinds = [kind for kind in KINDS if kind in suspicious]
        if not kinds or len(found) >= _MAX_ROUNDS * count:
            return now


def _samples(
    flow: Target,
    processes: int,
    seconds: float,
    sizes: Mapping[Part, Size] | None = None,
    kinds: Sequence[Kind] = KINDS,
) -> Iterator[list[Sample]]:
    request = Request(flow.name, seconds, kinds, list((sizes or {}).items()))
    with bar(f"bench {flow.name}", processes) as draw:
        for number in range(processes):
            draw(number)
            yield sample_in_a_process(request)


# -- printing --------------------------------------------------------------------------------------


def _print_costs(costs: Costs, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(costs))
        return
    for name, flow in costs.flows.items():
        click.echo(name)
        rows = [(*_names(part), *_figures(part), f"±{part.spread:.1%}") for part in flow.parts]
        print_table(("#", "part", "an element", "ratio", "spread"), rows)


def _print_changes(
    found: Mapping[str, list[Change]], before: Costs, limit: float, as_json: bool
) -> None:
    if as_json:
        print_json(
            [_as_json(name, change, limit) for name, all_ in found.items() for change in all_]
        )
        return
    for name, parts in found.items():
        click.echo(name)
        rows = [
            (
                *_names(change.now),
                *_figures(change.now),
                f"{change.before.ratio:.4g}",
                _change(change, limit),
            )
            for change in parts
        ]
        print_table(("#", "part", "an element", "ratio", "saved", "change"), rows)
    click.echo("\n".join(_conclusion(found, before, limit)))


def _all(found: Mapping[str, list[Change]]) -> Iterable[Change]:
    return (change for parts in found.values() for change in parts)


def _names(costs: PartCosts) -> tuple[str, str]:
    return str(costs.part.step) if costs.part.kind == "operator" else "", costs.part.title


def _figures(costs: PartCosts) -> tuple[str, str]:
    return duration(costs.seconds), f"{costs.ratio:.4g}"


def _change(change: Change, limit: float) -> str:
    if not change.counts:
        remark = "  (too small to count)"
    elif change.is_slower(limit):
        remark = "  slower"
    else:
        remark = "  (within the noise)" if change.relative > limit else ""
    return f"{change.relative:+.1%}{remark}"


def _conclusion(found: Mapping[str, list[Change]], before: Costs, limit: float) -> Iterator[str]:
    slower = [change for change in _all(found) if change.is_slower(limit)]
    parts = ", ".join(f"{change.now.part.title} {change.relative:+.1%}" for change in slower)
    yield (
        f"more than {limit:.0%} slower: {parts}"
        if slower
        else f"no part is more than {limit:.0%} slower"
    )
    for change in _all(found):
        if change.counts and max(change.now.spread, change.before.spread) > limit / 2:
            spread = max(change.now.spread, change.before.spread)
            yield (
                f"note: {change.now.part.title} differs by {spread:.1%} between processes; "
                f"more processes find a smaller change: --processes"
            )
    by_kind: dict[str, dict[str, float]] = {}
    for change in _all(found):
        contention, kind = change.contention
        if change.counts and contention > 1 + limit / 2:
            parts_slowed = by_kind.setdefault(kind, {})
            title = change.now.part.title
            parts_slowed[title] = max(contention, parts_slowed.get(title, 1.0))
    for kind, slowed in by_kind.items():
        each = ", ".join(f"{title} up to {most - 1:.0%}" for title, most in slowed.items())
        yield (
            f"note: {kind} are slower beside the reference than when the costs were saved, because "
            f"of other programs or the speed of the core; that may slow {each}"
        )
    if before.python != platform.python_version():
        yield f"note: the costs were saved by Python {before.python}, whose ratios may differ"
    if before.machine != platform.machine():
        yield f"note: the costs were saved on {before.machine}, whose ratios may differ"


def _as_json(name: str, change: Change, limit: float) -> dict[str, object]:
    return {
        "target": name,
        **msgspec.to_builtins(change.now.part),
        "ratio": change.now.ratio,
        "saved": change.before.ratio,
        "change": change.relative,
        "seconds": change.now.seconds,
        "counts": change.counts,
        "slower": change.is_slower(limit),
        "processes": len(change.now.ratios),
    }
