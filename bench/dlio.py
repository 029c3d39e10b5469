"""Accelerator utilisation in DLIO, the engine of MLPerf Storage, with flowdsl and its own loaders.

python -m bench.dlio

DLIO simulates a training: it reads real files, and sleeps for the time of an accelerator's step.
Its utilisation is the share of these steps in the whole time; an accelerator waits in the rest. The
workloads are DLIO's own UNet3D, ResNet-50 and CosmoFlow, for one accelerator of the kind "A100",
with fewer files. The files of UNet3D and their steps are a tenth, and so are the batches of
ResNet-50 and their steps. DLIO needs MPI: see bench/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

MEGABYTE = 1_000_000
FLOWDSL = ("data_loader_classname=bench.dlio_loader.FlowLoader", "data_loader_sampler=index")

WORKS: dict[str, tuple[str, ...]] = {
    "unet3d": (
        "dataset.num_files_train=42",
        f"dataset.record_length_bytes={14.66 * MEGABYTE:.0f}",
        "dataset.record_length_bytes_stdev=0",
        "train.computation_time=0.0636",
        "workflow.checkpoint=False",
    ),
    "resnet50": (
        "dataset.num_files_train=400",  # DLIO wants a multiple of a step's records
        "dataset.num_samples_per_file=10",
        "reader.batch_size=40",
        "train.computation_time=0.0435",
    ),
    "cosmoflow": (
        "dataset.num_files_train=256",
        "dataset.record_length_bytes_stdev=0",
    ),
}
"""Each workload of DLIO, and what is changed in it."""


def _run(work: str, folder: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """Run DLIO; return the metrics of its summary.

    Raises:
        SystemExit: It failed; with the last line that it printed.
    """
    output = folder / "output"
    settings = (*WORKS[work], *options, f"dataset.data_folder={folder / work}")
    command = [
        *(sys.executable, "-m", "dlio_benchmark.main", f"workload={work}_a100"),
        *(f"++workload.{setting}" for setting in settings),
        f"++workload.output.folder={output}",
        f"hydra.run.dir={output}",
    ]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{work}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    summary = output / "summary.json"
    return dict(json.loads(summary.read_text())["metric"]) if summary.exists() else {}


def _measured(
    works: list[str], rounds: int, epochs: int, folder: Path, console: Console
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The metrics of each work and loader, which take turns."""
    reading = (f"train.epochs={epochs}", "reader.read_threads=2")
    loaders = {"flowdsl": tuple(f"reader.{x}" for x in FLOWDSL), "its own": ()}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(works) * (1 + rounds * len(loaders)))
        for work in works:
            progress.update(task, description=f"{work}: files")
            _run(work, folder, ("workflow.generate_data=True", "workflow.train=False"))
            progress.advance(task)
            found[work] = {name: [] for name in loaders}
            for _ in range(rounds):
                for name, options in loaders.items():
                    progress.update(task, description=f"{work}: {name}")
                    found[work][name].append(_run(work, folder, (*reading, *options)))
                    progress.advance(task)
    return found


def _table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> Table:
    shown = Table("workload", "loader", "utilisation, %", "samples a second")
    for work, by_loader in found.items():
        for name, metrics in by_loader.items():
            busy = median(x["train_au_mean_percentage"] for x in metrics)
            rate = median(x["train_throughput_mean_samples_per_second"] for x in metrics)
            shown.add_row(work, name, f"{busy:.1f}", f"{rate:,.0f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.dlio", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--works", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--out", type=Path, default=Path("out/dlio.json"))
    chosen = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        found = _measured(chosen.works, chosen.rounds, chosen.epochs, Path(folder), console)
    console.print(_table(found))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
