"""The same faults in flowdsl, PyTorch's DataLoader, Grain and tf.data, each run and recorded.

``python -m tests.faults.peers`` runs each case with each library, in a program of its own with two
workers, and writes what a user sees to ``peers.json``; ``docs/reliability.md`` shows it as a table.
A case is written once, over a function that a library maps over numbers.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.children import children_of

RECORD = Path(__file__).with_suffix(".json")
LIBRARIES = {"flowdsl": "flowdsl", "DataLoader": "torch", "Grain": "grain", "tf.data": "tensorflow"}
"""The libraries in the order of the table, with the packages whose versions are recorded."""

_SECONDS = 30
"""The time after which a program counts as hanging."""

Function: TypeAlias = Callable[[int], Any]


# -- a function mapped over numbers, in each library -----------------------------------------------


def flowdsl(function: Function, n: int, workers: int, batch: int, chain: int) -> Iterator[Any]:
    import flowdsl as fl

    flow: fl.Flow[Any, Any] = fl.from_range(n)
    for _ in range(chain):
        flow = flow.map(int)
    flow = flow.map(function)
    if batch:
        flow = flow.batch(batch)
    return iter(flow.prefetch(procs=workers, timeout=5))


def dataloader(function: Function, n: int, workers: int, batch: int, chain: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader(
        _Mapped(function, n, chain),  # type: ignore[arg-type]  # a dataset by its methods
        batch_size=batch or None,
        num_workers=workers,
        collate_fn=None if batch else _unchanged,
        timeout=5,
    )
    return iter(loader)


class _Mapped:
    def __init__(self, function: Function, n: int, chain: int) -> None:
        self.function, self.n, self.chain = function, n, chain

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        for _ in range(self.chain):
            i = int(i)
        return self.function(i)


def _unchanged(x: Any) -> Any:
    return x


def grain(function: Function, n: int, workers: int, batch: int, chain: int) -> Iterator[Any]:
    import grain.python as pygrain
    from absl import flags

    flags.FLAGS(sys.argv[:1])  # as absl's app.run does, which Grain expects
    dataset: Any = pygrain.MapDataset.range(n)
    for _ in range(chain):
        dataset = dataset.map(int)
    dataset = dataset.map(function)
    if batch:
        dataset = dataset.batch(batch)
    options = pygrain.MultiprocessingOptions(num_workers=workers)
    return iter(dataset.to_iter_dataset().mp_prefetch(options))


def tf_data(function: Function, n: int, workers: int, batch: int, chain: int) -> Iterator[Any]:
    import tensorflow as tf

    dataset: Any = tf.data.Dataset.range(n)
    for _ in range(chain):
        dataset = dataset.map(lambda i: i)
    held: dict[int, Any] = {}  # a tensor cannot hold any object

    def call(i: Any) -> int:
        held[int(i)] = function(int(i))
        return int(i)

    def mapped(i: Any) -> Any:
        return tf.numpy_function(call, [i], tf.int64)

    dataset = dataset.map(mapped, num_parallel_calls=workers)
    if batch:
        dataset = dataset.map(lambda i: tf.numpy_function(lambda k: held[int(k)], [i], tf.int64))
        return iter(dataset.batch(batch).as_numpy_iterator())
    return (held[int(i)] for i in dataset.as_numpy_iterator())


_OPENED = {"flowdsl": flowdsl, "DataLoader": dataloader, "Grain": grain, "tf.data": tf_data}
_library = ""


def elements(
    function: Function, n: int = 20, *, workers: int = 2, batch: int = 0, chain: int = 0
) -> Iterator[Any]:
    return _OPENED[_library](function, n, workers, batch, chain)


def _take_all(pass_: Callable[[], Iterator[Any]]) -> str:
    """Take all elements; return how many came, and the error that ended the pass."""
    count = 0
    try:
        for _ in pass_():
            count += 1
    except BaseException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("[[")]  # names of TensorFlow's nodes
        last = lines[-1] if lines else ""
        if type(error).__name__ in last.split(":")[0]:
            return f"{count} elements, then {last}"
        return f"{count} elements, then {type(error).__name__}: {last}"
    return f"{count} elements"


# -- the faults ------------------------------------------------------------------------------------


class NoServerError(Exception):
    def __init__(self, *, host: str) -> None:
        super().__init__(f"no server at {host}")


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return _fail, ()


def _fail() -> None:
    raise ValueError("cannot be loaded")


def _raise(i: int) -> int:
    return i if i != 7 else 1 // 0


def _raise_with_arguments(i: int) -> int:
    if i == 7:
        raise NoServerError(host="db")
    return i


def _exit(i: int) -> int:
    return i if i != 7 else sys.exit(3)


def _kill(i: int) -> int:
    if i == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def _kill_once(i: int) -> int:
    if i == 7:
        try:
            os.close(os.open("killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return i
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def _never_return(i: int) -> int:
    while i == 7:
        time.sleep(1)
    return i


def _lock(i: int) -> object:
    return i if i != 7 else threading.Lock()


def _hostile(i: int) -> object:
    return i if i != 7 else Hostile()


def _open_file(i: int) -> object:
    return i if i != 7 else Path("numbers.txt").open()


def _draw(i: int) -> float:
    return random.random() + float(np.random.random())  # noqa: NPY002  # what programs do


def _hash(i: int) -> int:
    return hash(f"row {i}") % 2


def _division(i: int) -> str:
    return np.geterr()["divide"]


def _ragged(i: int) -> Any:
    return np.zeros(2 if i == 7 else 3, np.int64)


def _grow(i: int) -> Any:
    return np.zeros(1 << (20 if i > 3000 else 0), np.uint8)


def _slow(i: int) -> int:
    time.sleep(0.05)
    return i


def raises() -> str:
    """A function raises on one element."""
    return _take_all(lambda: elements(_raise))


def raises_with_arguments() -> str:
    """A function raises an exception whose class has arguments of its own."""
    return _take_all(lambda: elements(_raise_with_arguments))


def exits() -> str:
    """A function calls `sys.exit(3)`."""
    return _take_all(lambda: elements(_exit))


def killed_once() -> str:
    """A worker is killed, once."""
    return _take_all(lambda: elements(_kill_once))


def killed_by_an_element() -> str:
    """An element kills its worker each time."""
    return _take_all(lambda: elements(_kill))


def never_returns() -> str:
    """A function never returns; a timeout of 5 seconds, where there is one."""
    return _take_all(lambda: elements(_never_return))


def lambdas() -> str:
    """The function is a lambda."""
    return _take_all(lambda: elements(lambda i: i))


def not_picklable() -> str:
    """A function returns a lock."""
    return _take_all(lambda: elements(_lock))


def fails_to_unpickle() -> str:
    """A function returns an object that cannot be unpickled."""
    return _take_all(lambda: elements(_hostile))


def open_file() -> str:
    """A function returns an open file."""
    Path("numbers.txt").write_text("1")
    found = {type(x).__name__ for x in elements(_open_file) if not isinstance(x, int)}
    return f"it arrives as {', '.join(found)}"


def random_numbers() -> str:
    """A function draws from `random` and `np.random`."""
    first, second = list(elements(_draw)), list(elements(_draw, workers=1))
    same = sum(a == b for a, b in zip(first, second, strict=True))
    return f"{len(set(first))} of 20 are distinct; with one worker {same} of 20 are the same"


def hash_of_text() -> str:
    """Rows are chosen by `hash(name) % 2`."""
    first = list(elements(_hash, 1000))
    again = list(elements(_hash, 1000, workers=1))
    differ = sum(a != b for a, b in zip(first, again, strict=True))
    return f"{differ} of 1,000 rows are chosen otherwise by one worker"


def numpy_settings() -> str:
    """The program sets `np.seterr(divide="raise")`."""
    np.seterr(divide="raise")
    return f"in the function it is {set(elements(_division))}"


def do_not_stack() -> str:
    """One of the rows of a batch has another shape."""
    return _take_all(lambda: elements(_ragged, batch=4))


def long_chain() -> str:
    """A chain of 2,000 maps."""
    return _take_all(lambda: elements(int, chain=2000))


def few_descriptors() -> str:
    """`ulimit -n 128`, and 500 results are kept."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    kept = list[Any]()

    def keeping() -> Iterator[Any]:
        for x in elements(_grow, 3500):
            kept.append(x)
            yield x

    return _take_all(keeping)


def growing_rows() -> str:
    """Rows grow from a byte to a megabyte while the consumer waits."""
    most = 0
    for i, _ in enumerate(elements(_grow, 4000)):
        if i == 3001:
            time.sleep(3)
            most = _private_memory(os.getpid())
    return f"{most // 10_000_000 * 10:,} MB in all processes"


def _private_memory(pid: int) -> int:
    total = 0
    for child in [pid, *_descendants(pid)]:
        with suppress(OSError):
            lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
            total += sum(1024 * int(x.split()[1]) for x in lines if x.startswith("Pss:"))
    return total


def resumed() -> str:
    """A pass stops after 5 elements, and goes on in another number of workers."""
    if _library == "flowdsl":
        import flowdsl as fl

        flow = fl.from_range(20).shuffle(seed=1).map(_slow)
        with iter(flow.prefetch(procs=2)) as run:
            first = [*islice(run, 5)]
            state = run.state_dict()
        return _both(first, list(flow.prefetch(procs=1).resume(state)))
    if _library == "DataLoader":
        from torchdata.stateful_dataloader import StatefulDataLoader

        rows: Any = _Mapped(_slow, 20, 0)

        def loader(workers: int) -> Any:
            return StatefulDataLoader(
                rows,
                batch_size=None,
                num_workers=workers,
                shuffle=True,
            )

        one = loader(2)
        first = [int(x) for x in islice(iter(one), 5)]
        state = one.state_dict()
        other = loader(1)
        other.load_state_dict(state)
        return _both(first, [int(x) for x in other])
    if _library == "Grain":
        import grain.python as pygrain
        from absl import flags

        flags.FLAGS(sys.argv[:1])

        def dataset(workers: int) -> Any:
            source = pygrain.MapDataset.range(20).shuffle(seed=1).map(_slow).to_iter_dataset()
            return iter(source.mp_prefetch(pygrain.MultiprocessingOptions(num_workers=workers)))

        one = dataset(2)
        first = [int(next(one)) for _ in range(5)]
        state = one.get_state()
        other = dataset(1)
        other.set_state(state)
        return _both(first, [int(x) for x in other])
    return "its iterators have no state that a program can move; a checkpoint keeps their buffers"


def _both(first: list[int], rest: list[int]) -> str:
    seen = first + rest
    return f"{len(set(seen))} of 20 rows, {len(seen) - len(set(seen))} of them twice"


def interrupted() -> str:
    """Ctrl-C in the middle of a pass."""
    threading.Timer(2.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    outcome = _take_all(lambda: elements(_slow, 200))
    name = outcome.partition("then ")[2].partition(":")[0] or "no error"
    seconds = time.monotonic() - began - 2
    time.sleep(1)
    late = "" if seconds < 1 else f" after {seconds:.0f} s"
    return f"{name}{late}; {_workers_left(os.getpid())} workers are left"


def left_early() -> str:
    """The loop over a pass is left by `break`."""
    for i, _ in enumerate(elements(_slow, 200)):
        if i == 3:
            break
    time.sleep(1)
    return f"{_workers_left(os.getpid())} workers are left"


def parent_killed() -> str:
    """The program is killed in the middle of a pass."""
    command = [sys.executable, "-m", "tests.faults.peers", "--run", "left_running", _library]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        program.stdout.readline()
        workers = _descendants(program.pid)
        program.kill()
        program.stdout.close()
    time.sleep(7)
    left = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return f"{len(left)} of its {len(workers)} processes run on after 7 seconds"


def left_running() -> str:
    for i, _ in enumerate(elements(_slow, 2000)):
        if i == 3:
            print("running", flush=True)
    return ""


def _descendants(pid: int) -> list[int]:
    own = children_of(pid)
    return [*own, *(below for child in own for below in _descendants(child))]


def _workers_left(pid: int) -> int:
    """Count processes that compute elements; not those that only start or watch others."""
    names = [Path(f"/proc/{p}/cmdline") for p in _descendants(pid)]
    count = 0
    for name in names:
        with suppress(OSError):
            text = name.read_text()
            count += not any(word in text for word in ("resource_tracker", "flowdsl forks"))
    return count


CASES: tuple[Callable[[], str], ...] = (
    raises,
    raises_with_arguments,
    exits,
    killed_once,
    killed_by_an_element,
    never_returns,
    lambdas,
    not_picklable,
    fails_to_unpickle,
    open_file,
    do_not_stack,
    long_chain,
    random_numbers,
    hash_of_text,
    numpy_settings,
    resumed,
    few_descriptors,
    growing_rows,
    interrupted,
    left_early,
    parent_killed,
)


def title(case: Callable[[], str]) -> str:
    return (case.__doc__ or "").rstrip(".")


# -- running and recording -------------------------------------------------------------------------


def outcome(case: str, library: str) -> str:
    """Run a case in a program of its own, in an empty folder, and return what it printed last."""
    root = Path(__file__).parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.faults.peers", "--run", case, library]
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, errors = program.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            printed, errors = "", f"it hangs (ended after {_SECONDS} seconds)"
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        status = program.wait()
    last = [line for line in printed.splitlines() if line.startswith("=> ")]
    if last:
        return last[-1].removeprefix("=> ").replace(folder, "...")
    if status < 0 and "hangs" not in errors:
        return f"the program is ended by {signal.Signals(-status).name}"
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else f"the program ends with status {status}"


def main() -> None:
    global _library
    if sys.argv[1:2] == ["--run"]:
        _library = sys.argv[3]
        warnings.simplefilter("ignore")
        print("=>", globals()[sys.argv[2]]())
        sys.stdout.flush()
        os._exit(0)
    chosen = sys.argv[1:]
    record = json.loads(RECORD.read_text()) if chosen and RECORD.exists() else {"cases": {}}
    record["versions"] = {name: version(package) for name, package in LIBRARIES.items()}
    for case in CASES:
        if not chosen or case.__name__ in chosen:
            record["cases"][case.__name__] = {
                library: outcome(case.__name__, library) for library in LIBRARIES
            }
            print(title(case), json.dumps(record["cases"][case.__name__], indent=2), flush=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
