"""Every reader and decoder of files, messages and states, fuzzed with coverage as the guide.

    python -m tests.guided --minutes 60      (make fuzz-guided)

The other fuzzers damage valid input at random, so they rarely reach code that takes two particular
faults at once. Atheris, which is libFuzzer for Python, sees which branches of ``flowdsl`` an input
runs. It keeps an input that runs a new one, and mutates it further.

Each target is fuzzed by a process of its own, as a fault may end it. A fault's input stays in a
file: ``python -m tests.guided --run NAME FILE`` reads it again.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Never

import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

_SECONDS = 60
"""The limit on the time for one input."""
_MAX_BYTES = 2 << 30
"""Address space beyond what the process has before the first input."""
_COVERAGE = re.compile(r"cov: (\d+)")
_RUNS = re.compile(r"^Done (\d+) runs", re.MULTILINE)
_FAULT = re.compile(r"^==\d+== ?ERROR.*|^artifact_prefix.*", re.MULTILINE)


@attrs.frozen
class Outcome:
    """What came of the fuzzing of one target."""

    name: str
    runs: int
    before: int
    """The covered edges of the code after the valid input."""
    after: int
    fault: str = ""


def fuzz(name: str, seconds: float, folder: Path) -> Outcome:
    """Fuzz a target in a process; the inputs of faults are left in the folder."""
    command = [sys.executable, "-m", "tests.guided", "--run", name]
    options = [f"-max_total_time={max(1, round(seconds))}", f"-artifact_prefix={folder}/"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, errors="replace")
    covered = [int(edges) for edges in _COVERAGE.findall(done.stderr)] or [0]
    runs = _RUNS.search(done.stderr)
    fault = ""
    if done.returncode:  # libFuzzer says which input it was, and before it what was wrong
        said = "\n".join(_FAULT.findall(done.stderr)) or done.stderr[-5000:]
        fault = f"{done.stdout}\n{said}".strip()
    return Outcome(name, int(runs[1]) if runs else 0, covered[0], covered[-1], fault)


def run(name: str, options: Sequence[str]) -> Never:
    """Run libFuzzer with its own options on a target, in this process, which it ends."""
    # Imported before ``flowdsl``, whose code it instruments. Only `make fuzz-guided` installs it.
    import atheris  # pyright: ignore[reportMissingModuleSource]

    with tempfile.TemporaryDirectory() as folder, atheris.instrument_imports(include=["flowdsl"]):
        from tests.guided.targets import target_of

        files, corpus = Path(folder, "files"), Path(folder, "corpus")
        files.mkdir()
        corpus.mkdir()
        target = target_of(name, files)
        for k, data in enumerate(target.valid):
            (corpus / str(k)).write_bytes(data)
            target.read(data)  # imports what it needs

        def mutate(data: bytes, size: int, seed: int) -> bytes:
            rng = random.Random(seed)
            if rng.randrange(2):
                return atheris.Mutate(data, size)
            return target.mutate(data, rng)[:size]

        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + _MAX_BYTES, held + _MAX_BYTES))
        size = max(4096, *(2 * len(data) for data in target.valid))
        limits = [f"-max_len={size}", f"-timeout={_SECONDS}", "-rss_limit_mb=0"]
        inputs = [] if any(not option.startswith("-") for option in options) else [str(corpus)]
        program = [sys.argv[0], *limits, *options, *inputs]
        atheris.Setup(program, target.read, custom_mutator=mutate)
        atheris.Fuzz()


def main() -> int:
    """Fuzz the targets one after the other; return 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.guided", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these targets")
    parser.add_argument("--folder", type=Path, default=Path("out/guided"), help="for the inputs")
    parser.add_argument("--run", metavar="NAME", help="one target, with options of libFuzzer")
    asked, options = parser.parse_known_args()
    if asked.run:
        run(asked.run, options)
    from tests.guided.targets import NAMES  # ``run`` imports it instrumented

    if unknown := {*options, *(asked.only or ())} - {*NAMES}:
        parser.error(f"no targets: {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    names = asked.only or NAMES
    asked.folder.mkdir(parents=True, exist_ok=True)
    console, faults = Console(), 0
    table = Table("target", "inputs", "edges of valid input", "edges", title="guided fuzzing")
    with Progress(console=console) as progress:
        for name in progress.track(names, description="targets"):
            outcome = fuzz(name, 60 * asked.minutes / len(names), asked.folder)
            table.add_row(name, *(f"{n:,}" for n in (outcome.runs, outcome.before, outcome.after)))
            if outcome.fault:
                faults += 1
                console.print(f"{name}:\n{outcome.fault}", markup=False, highlight=False)
    console.print(table)
    console.print(f"{faults} of {len(names)} targets have a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
