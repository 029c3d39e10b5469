"""Draws the figures of ``bench.storage``: ``python -m bench.picture out/storage.json a.svg``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

import matplotlib as mpl
from matplotlib.figure import Figure

OURS, OTHERS = "#2b6cb0", "#a0aec0"
COLUMNS = 2


def picture(rates: dict[str, dict[str, list[float]]]) -> Figure:
    """A panel for each work, and in it a bar for each contestant: rows a second, flowdsl first."""
    rows = -(-len(rates) // COLUMNS)
    figure = Figure(figsize=(9, 1.9 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False)
    for panel in panels.flat[len(rates) :]:
        panel.set_axis_off()
    for panel, (work, found) in zip(panels.flat, rates.items(), strict=False):
        names = sorted(
            found, key=lambda name: (not name.startswith("flowdsl"), -median(found[name]))
        )
        values = [median(found[name]) for name in names]
        colors = [OURS if name.startswith("flowdsl") else OTHERS for name in names]
        bars = panel.barh(names, values, color=colors)
        panel.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3, fontsize=8)
        panel.set_title(f"{work}: rows a second", fontsize=9, loc="left")
        panel.invert_yaxis()
        panel.margins(x=0.2)
        panel.set_xticks([])
        panel.tick_params(axis="y", length=0, labelsize=8)
        panel.spines[:].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.picture", description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    chosen = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "flowdsl"  # the file changes only where the figures do
    figure = picture(json.loads(chosen.figures.read_text()))
    figure.savefig(
        chosen.picture, metadata={"Date": None} if chosen.picture.suffix == ".svg" else {}
    )


if __name__ == "__main__":
    main()
