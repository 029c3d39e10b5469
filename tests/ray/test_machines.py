"""Flows on a cluster whose machines die, join, stop answering, or are too few."""

from __future__ import annotations

import decimal
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.ray import machine
from tests.ray.cluster import STORE, TestCluster

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("cluster")]


def slow_square(i: int) -> int:
    time.sleep(0.005)
    return i * i


def read_until(run: fl.Run[int], true: Callable[[], bool]) -> list[int]:
    read = list[int]()
    while not true():
        read.append(next(run))
    return read


def read_until_all_work(run: fl.Run[int], n: int) -> list[int]:
    def all_work() -> bool:
        stages = run.statistics().stages
        return bool(stages) and sum(worker.elements > 0 for worker in stages[0].workers) == n

    return read_until(run, all_work)


def test_elements_have_the_order_of_the_chain(cluster: TestCluster) -> None:
    flow = fl.from_range(200).shuffle(seed=3).map(slow_square).batch(4)
    expected = [batch.tolist() for batch in flow]
    assert [batch.tolist() for batch in flow.prefetch(actors=3)] == expected


def test_arrays_can_be_written_to(cluster: TestCluster) -> None:
    flow = fl.from_range(4).map(partial(np.full, 50_000)).prefetch(actors=1)
    for i, array in enumerate(flow):
        array += 1
        assert array.sum() == 50_000 * (i + 1)


def test_a_state_is_valid_for_any_kind_of_worker(cluster: TestCluster) -> None:
    flow = fl.from_range(50).shuffle(seed=1).map(slow_square)
    with iter(flow.prefetch(actors=2)) as run:
        first = [next(run) for _ in range(20)]
        state = run.state_dict()
    assert first + list(flow.prefetch(procs=1).resume(state)) == flow.collect()
    with iter(flow.prefetch(threads=2)) as run:
        first = [next(run) for _ in range(20)]
        state = run.state_dict()
    assert first + list(flow.prefetch(actors=3).resume(state)) == flow.collect()


def test_copies_run_on_the_cluster(cluster: TestCluster) -> None:
    stream = fl.from_iterable(partial(range, 5))
    assert stream.replicate(actors=2).collect() == stream.replicate(procs=2).collect()
    rows = fl.from_range(5)
    assert rows.replicate(actors=2).collect() == rows.replicate(procs=2).collect()
    assert str(rows.replicate(actors=2)) == "from_range(5).replicate(actors=2).prefetch(actors=2)"


def test_settings_of_the_program_apply_on_a_machine(cluster: TestCluster) -> None:
    def third(_: int) -> tuple[str, int]:
        return str(decimal.Decimal(1) / 3), hash("text")

    flow = fl.from_range(8).map(third)
    with decimal.localcontext(prec=5):
        here = flow.prefetch(procs=1).collect()
        assert flow.prefetch(actors=2).collect() == here
    assert here[0][0] == "0.33333"


def test_a_large_array_is_sent_to_a_machine(cluster: TestCluster) -> None:
    table = np.arange(3_000_000)

    def looked_up(i: int) -> int:
        return int(table[i * 1000])

    flow = fl.from_range(100).map(looked_up).prefetch(actors=2)
    assert flow.collect() == [i * 1000 for i in range(100)]
    table[5000] = 7  # a change between two passes is seen
    assert flow.collect()[5] == 7


def test_a_tuned_number_of_workers_is_at_most_the_cluster(cluster: TestCluster) -> None:
    flow = fl.from_range(100).map(slow_square).prefetch(actors="auto")
    assert "up to 8 workers of the cluster" in flow.explain()
    assert flow.collect() == [i * i for i in range(100)]


def test_too_few_cpus_are_an_error(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowdsl.ray.backend.SECONDS_TO_RESERVE", 0.2)
    with pytest.raises(
        fl.FlowError, match=r"actors=9 needs 9 free CPUs, .* cluster has 8: 0 of 0 on machine .*, 8"
    ):
        fl.from_range(9).map(abs).prefetch(actors=9).collect()


def test_parked_workers_make_room_for_another_flow(cluster: TestCluster) -> None:
    first, second = (fl.from_range(9).map(f).prefetch(actors=5) for f in (abs, slow_square))
    for _ in range(2):
        assert first.collect() == list(range(9))
        assert second.collect() == [i * i for i in range(9)]


def test_a_machine_that_dies_loses_nothing(cluster: TestCluster) -> None:
    other = cluster.add(cpus=2)
    with iter(fl.from_range(10**6).map(slow_square).prefetch(actors=10)) as run:
        got = read_until_all_work(run, 10)
        cluster.remove(other)
        got += read_until(run, lambda: run.statistics().stages[0].deaths == 2)
        got += islice(run, 200)
        assert got == [i * i for i in range(len(got))]


def test_a_machine_that_does_not_answer_counts_as_dead(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SECONDS_TO_ANSWER", 3.0)
    monkeypatch.setattr(machine, "SECONDS_BETWEEN_PINGS", 0.5)
    other = cluster.add(cpus=2)
    with iter(fl.from_range(10**6).map(slow_square).prefetch(actors=10)) as run:
        got = read_until_all_work(run, 10)
        stopped = cluster.stop(other)
        got += read_until(run, lambda: run.statistics().stages[0].deaths == 2)
        got += islice(run, 200)
        assert got == [i * i for i in range(len(got))]
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    cluster.remove(other)


def test_a_machine_that_joins_takes_over(cluster: TestCluster) -> None:
    """All workers are on one machine, which dies; then another joins."""
    with (
        iter(fl.from_range(10**6).map(abs).prefetch(actors=8)) as occupied,
        iter(fl.from_range(10**6).map(slow_square).prefetch(actors=3)) as run,
    ):
        read_until_all_work(occupied, 8)
        first = cluster.add(cpus=3)
        got = read_until_all_work(run, 3)
        cluster.remove(first)
        second = cluster.add(cpus=1)
        got += islice(run, 500)
        assert got == [i * i for i in range(len(got))]
        assert run.statistics().stages[0].deaths == 3
    cluster.remove(second)


def test_a_file_that_a_machine_lacks_is_an_error_before_the_pass(
    cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.lmdb"
    fl.from_range(20).write_lmdb(path)
    read = fl.from_lmdb(path, int).map(abs)
    assert read.prefetch(actors=2).collect() == list(range(20))
    monkeypatch.setattr("flowdsl.ray.backend.files_of", lambda _: (f"{path}.of this machine",))
    with pytest.raises(fl.FlowError, match=r"machine .* does not have '.*of this machine'"):
        next(iter(read.map(abs).prefetch(actors=2)))


def test_a_result_that_does_not_fit_in_the_object_store_is_an_error(cluster: TestCluster) -> None:
    flow = fl.from_range(3).map(lambda i: np.full(STORE, i, np.uint8)).prefetch(actors=1)
    with pytest.raises(fl.FlowError, match=r"result of 209,.* does not fit in the object store .*"):
        flow.collect()


PROGRAM = """
import sys, time, ray, attrs
import flowdsl as fl
@attrs.frozen
class Sample:
    value: int
def sample(i):
    return Sample(i)
if __name__ == "__main__":
    ray.init(address=sys.argv[1], log_to_driver=False)
    run = iter(fl.from_range(10**9).map(sample).prefetch(actors=3))
    assert [next(run) for _ in range(5)] == [Sample(i) for i in range(5)]
    print("reading", flush=True)
    for _ in run:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_program_that_is_ended(
    number: signal.Signals, cluster: TestCluster, tmp_path: Path
) -> None:
    before = cluster.worker_processes()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, script, cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as program:
        try:
            assert program.stdout is not None
            # Ray may print lines of its own before it, such as that an earlier node has died
            assert any(line == b"reading\n" for line in program.stdout)
            # workers at rest of an earlier test may end at any time
            assert cluster.worker_processes() - before
            program.send_signal(number)
            program.wait(60)
        finally:
            program.kill()
    deadline = time.monotonic() + 60
    while not cluster.worker_processes() <= before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert cluster.worker_processes() <= before


ALONE = """
import time, ray, flowdsl as fl
def square(i):
    return i * i
ray.init("local", num_cpus=2, log_to_driver=False)
flow = fl.from_range(20).map(square).prefetch(actors=2)
assert flow.collect() == [i * i for i in range(20)]
# the CPUs of a flow at rest are free again after a while
began = time.monotonic()
assert ray.get(ray.remote(num_cpus=2)(square).remote(3), timeout=60) == 9
# a flow of Ray Data needs a CPU
rows = fl.from_ray(ray.data.range(100)).map(dict)
try:
    rows.prefetch(actors=2).collect()
except fl.FlowError as error:
    assert "from_ray needs one" in str(error), error
assert len(rows.prefetch(actors=1).collect()) == 100
# a connection that is closed in mid-pass
run = iter(fl.from_range(10**6).map(square).prefetch(actors=2))
next(run)
ray.shutdown()
try:
    list(run)
except fl.FlowError as error:
    assert "connection to Ray was closed" in str(error), error
else:
    raise AssertionError
run.close()
ray.init("local", num_cpus=2, log_to_driver=False)
assert flow.collect() == [i * i for i in range(20)]
print("done")
"""


def test_a_cluster_that_the_program_shares(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ALONE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert found.stdout.endswith("done\n"), found.stderr


def test_without_a_cluster_the_error_says_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import flowdsl as fl; fl.from_range(9).prefetch(actors=2).collect()")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("RAY_ADDRESS", None)
    found = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert "needs a Ray cluster: call ray.init() first, or set RAY_ADDRESS" in found.stderr
