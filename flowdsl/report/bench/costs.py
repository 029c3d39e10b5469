"""The costs of flows, from samples of several processes, and the file that keeps them."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import numpy as np

from flowdsl.errors import InvalidArgument
from flowdsl.nodes import AnyNode
from flowdsl.report.bench import reference
from flowdsl.report.bench.sampling import Part, Sample, Size
from flowdsl.runtime.state import fingerprints_of

FORMAT: Literal["flowdsl bench"] = "flowdsl bench"
VERSION = 2
"""The version of the file; a reader refuses others."""


class PartCosts(msgspec.Struct, frozen=True):
    """The costs of a part in several processes."""

    part: Part
    size: Size
    ratios: tuple[float, ...]
    """A ratio for each process: the time of an element, divided by the time of the reference."""
    reference: float
    """The median seconds of the reference, on the machine that measured."""
    kinds: dict[str, float]
    """For each kind of work, its median time, divided by the time of the reference."""
    beside_copies: float | None = None
    """The slowdown of the part beside a process that copies memory; None if it was not measured."""

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return median(self.ratios)

    @property
    def seconds(self) -> float:
        """The seconds for an element, on the machine that measured."""
        return self.ratio * self.reference

    @property
    def middle(self) -> tuple[float, float]:
        """The quartiles of the ratios: half of them are between the two."""
        lower, upper = np.quantile(self.ratios, (0.25, 0.75)).tolist()
        return lower, upper

    @property
    def spread(self) -> float:
        """The median distance of a ratio from the median, relative to it: 0.01 is 1%."""
        return median(abs(ratio / self.ratio - 1) for ratio in self.ratios)


class FlowCosts(msgspec.Struct, frozen=True):
    """The costs of a flow's parts."""

    operators: tuple[str, ...]
    """The fingerprints that identify the flow: of its operators and sources, as in a state."""
    parts: tuple[PartCosts, ...]

    def __getitem__(self, part: Part) -> PartCosts:
        return next(costs for costs in self.parts if costs.part == part)

    @property
    def total(self) -> float:
        """The ratio of all operators together."""
        return sum(costs.ratio for costs in self.parts if costs.part.kind == "operator")


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """A file of costs."""

    format: Literal["flowdsl bench"] = FORMAT
    version: int = VERSION
    reference: int = reference.VERSION
    """The version of the reference workload."""
    python: str = msgspec.field(default_factory=platform.python_version)
    machine: str = msgspec.field(default_factory=platform.machine)
    flows: dict[str, FlowCosts]
    """The flows, by the names under which they were measured."""

    def save(self, path: Path) -> None:
        """Write the costs as JSON, indented so that a repository shows which lines changed."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


class _Versions(msgspec.Struct):
    """The fields of a file of any version."""

    format: Literal["flowdsl bench"]
    version: int
    reference: int


def load(path: Path) -> Costs:
    """Read a file of costs.

    Raises:
        InvalidArgument: It is another file, or was written by another version.
    """
    try:
        content = path.read_bytes()
        found = msgspec.json.decode(content, type=_Versions)
        if (found.version, found.reference) != (VERSION, reference.VERSION):
            raise InvalidArgument(
                f"bench: {str(path)!r} has version {found.version} and reference "
                f"{found.reference}; this flowdsl compares version {VERSION} and reference "
                f"{reference.VERSION}: save it again"
            )
        return msgspec.json.decode(content, type=Costs)
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"bench: no file {str(path)!r}; write one first, by bench --save {path}"
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidArgument(
            f"bench: {str(path)!r} is not a file of costs, which bench --save writes: {error}"
        ) from error


def costs_of(
    node: AnyNode,
    processes: Iterable[Sequence[Sample]],
    beside_copies: Iterable[Sequence[Sample]] = (),
) -> FlowCosts:
    """Return the costs of a flow, from the samples of each process.

    ``beside_copies`` are the samples of further processes, beside one that copies memory.
    """
    by_part, slowed = _by_part(processes), _by_part(beside_copies)
    parts = [_part_costs(samples, slowed.get(part, [])) for part, samples in by_part.items()]
    return FlowCosts(tuple(fingerprints_of(node)), tuple(parts))


def _by_part(processes: Iterable[Sequence[Sample]]) -> dict[Part, list[Sample]]:
    found: dict[Part, list[Sample]] = {}
    for samples in processes:
        for sample in samples:
            found.setdefault(sample.part, []).append(sample)
    return found


def _part_costs(samples: list[Sample], beside_copies: list[Sample]) -> PartCosts:
    first = samples[0]
    ratios = tuple(sample.ratio for sample in samples)
    return PartCosts(
        first.part,
        first.size,
        ratios,
        median(sample.reference for sample in samples),
        {kind: median(sample.kinds[kind] for sample in samples) for kind in first.kinds},
        _slowdown(samples, beside_copies),
    )


def _slowdown(before: list[Sample], now: list[Sample]) -> float | None:
    if not now:
        return None
    return median(sample.ratio for sample in now) / median(sample.ratio for sample in before)
