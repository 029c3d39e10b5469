"""Plans and states that are altered on their way, given to workers and to ``resume``.

    python -m tests.workers.fuzz --cases 10000 --seed 0      (make fuzz)

A worker process gets the pickled plan of a random flow with bits flipped, cut short, or with pieces
moved; a flow gets a state with values changed, or its JSON with characters replaced. The pass must
yield its elements or end in an error, in bounded time, with no process left behind. A
state that was altered must be refused, or yield what the original yields. A batch of cases runs in
a process of its own, whose memory is limited, and which may die of one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any
from unittest import mock

import attrs
from rich.console import Console
from rich.progress import Progress

import flowdsl as fl
from flowdsl.testing.outcomes import element_difference
from flowdsl.workers.processes import Process, Processes, start_process
from flowdsl.workers.worker import Setup
from tests.children import workers_of
from tests.storage.fuzz import damaged

SECONDS = 60
MAX_BYTES = 4 << 30
_BATCH = 100


class Found(Exception):
    """Raised for behaviour that is not allowed."""


def _double(i: int) -> int:
    return 2 * i


def _is_even(i: int) -> bool:
    return i % 2 == 0


FLOWS: tuple[Callable[[], fl.Flow[Any, Any]], ...] = (
    lambda: fl.from_range(20).map(_double).batch(3),
    lambda: fl.from_items([{"a": i, "b": f"row {i}"} for i in range(9)]).map(lambda row: row["a"]),
    lambda: fl.from_range(30).shuffle(seed=2).filter(_is_even).batch(4, drop_remainder=True),
    lambda: fl.from_range(8).repeat(2).random_map(lambda x, rng: x + rng.integers(9), seed=1),
    lambda: fl.from_range(12).concat(fl.from_range(5).map(_double)).window(3),
    lambda: fl.from_range(9).flat_map(lambda i: [i] * (i % 3)).enumerate(),
)


def alter_plan(rng: random.Random) -> str:
    """Run a flow whose workers get an altered plan; return what happened."""
    flow = rng.choice(FLOWS)()
    expected = flow.collect()

    def spawn(setup: Setup) -> Process:
        return start_process(attrs.evolve(setup, program=damaged(setup.program, rng)))

    with mock.patch.object(Processes, "spawn", staticmethod(spawn)):
        run = iter(flow.prefetch(procs=1))
        try:
            got = list(run)
        except fl.FlowError:
            return "refused"
        except Exception as error:  # a plan that can be loaded, of operators that cannot run
            return f"an error: {type(error).__name__}"
        finally:
            run.close()
    return "the same elements" if element_difference(got, expected) is None else "other elements"


def alter_state(rng: random.Random) -> str:
    """Resume a flow from an altered state; return what happened."""
    flow = rng.choice(FLOWS)()
    with iter(flow) as run:
        for _ in range(rng.randrange(5)):
            next(run, None)
        state = json.loads(json.dumps(run.state_dict()))
    other = _altered_json(state, rng) if rng.randrange(2) else altered(state, rng)
    if other == state:
        return "unchanged"
    try:
        got = list(flow.resume(other))
    except fl.FlowError:
        return "refused"
    if element_difference(got, list(flow.resume(state))) is None:  # it has an entry of its own more
        return "the same elements"
    raise Found(f"an altered state was accepted: {other} instead of {state}")


def _altered_json(state: Any, rng: random.Random) -> Any:
    for _ in range(100):
        text = list(json.dumps(state))
        for _ in range(rng.choice([1, 1, 2, 5])):
            text[rng.randrange(len(text))] = rng.choice('0123456789abcdef"[]{},:- nulltrue')
        try:
            return json.loads("".join(text))
        except ValueError:
            continue
    return state


_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    5,
    2**62,
    2**64,
    1.5,
    "",
    "x",
    [],
    [1, 2, 3, 4, 5],
    {},
    {"a": 1},
)


def altered(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add one value, at any depth."""
    if isinstance(value, dict) and value and rng.randrange(4):
        key = rng.choice(list(value))
        others = {k: v for k, v in value.items() if k != key}
        match rng.randrange(5):
            case 0:
                return others
            case 1:
                return {**value, "more": rng.choice(_VALUES)}
        return {**others, key: altered(value[key], rng)}
    if isinstance(value, list) and value and rng.randrange(4):
        k = rng.randrange(len(value))
        return [*value[:k], altered(value[k], rng), *value[k + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and rng.randrange(2):
        return value + rng.choice([-1, 1, 7])
    return rng.choice(_VALUES)


TARGETS: dict[str, Callable[[random.Random], str]] = {"plan": alter_plan, "state": alter_state}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.workers.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(TARGETS), help="one target")
    options = parser.parse_args()
    console, happened = Console(), Counter[str]()
    with Progress(console=Console(file=sys.stderr)) as progress:
        for name in [options.only] if options.only else TARGETS:
            task = progress.add_task(name, total=options.cases)
            for first in range(options.seed, options.seed + options.cases, _BATCH):
                last = min(first + _BATCH, options.seed + options.cases)
                counts, text = in_a_process(name, range(first, last))
                happened += Counter({f"{name}: {what}": n for what, n in counts.items()})
                if text:
                    progress.stop()
                    console.print(text, markup=False, highlight=False)
                    return 1
                progress.update(task, advance=last - first)
    for what, count in sorted(happened.items()):
        console.print(f"{what}: {count:,}")
    return 0


def in_a_process(name: str, seeds: range) -> tuple[Counter[str], str]:
    """Run cases in a child process; return what happened, and the text of a finding or ''."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            _run(name, seeds, pipe.write)
            pipe.flush()
            os._exit(0)
    os.close(writing)
    counts, last, text = Counter[str](), seeds.start, ""
    with os.fdopen(reading) as pipe:
        for line in pipe:
            if line.startswith("seed "):
                last = int(line[5:])
            elif line.startswith("did "):
                counts[line[4:].strip()] += 1
            else:
                text += line
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status and not text:
        text = f"the process ended with status {status}"
    again = f"python -m tests.workers.fuzz --only {name} --cases 1 --seed {last}"
    return counts, text and f"{text}\nshown again by: {again}"


def _run(name: str, seeds: range, say: Callable[[str], object]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    try:
        for seed in seeds:
            say(f"seed {seed}\n")
            signal.alarm(SECONDS)  # without a handler: it ends the process
            with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
                say(f"did {TARGETS[name](random.Random(seed))}\n")
        gc.collect()
        if left := workers_of():
            raise Found(f"worker processes are left: {left}")
    except BaseException:
        say(traceback.format_exc())


if __name__ == "__main__":
    sys.exit(main())
