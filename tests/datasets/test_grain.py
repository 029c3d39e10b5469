"""from_dataset: datasets read by index, with filters or repeats, and datasets read in order."""

from __future__ import annotations

import os
import threading
from typing import Any

import grain
import numpy as np
import pytest

import flowdsl as fl
from flowdsl import ElementError, EndlessFlow, InvalidFlow
from flowdsl.effects import Endless, Resampled, Unsized
from flowdsl.testing import check_source

NUMBERS: Any = grain.MapDataset.range(12).map(lambda i: i * i)


def itself(x: Any) -> Any:
    return x


def square_of(i: int) -> int:
    return i * i


class TestLaws:
    def test_map_datasets_obey_the_laws(self) -> None:
        dataset = grain.MapDataset.range(7).map(square_of)
        check_source(lambda: fl.from_dataset(dataset), [i * i for i in range(7)], examples=6)

    def test_iter_datasets_obey_the_laws(self) -> None:
        batches = grain.MapDataset.range(8).to_iter_dataset().batch(2)
        rows = [np.array([i, i + 1]) for i in range(0, 8, 2)]
        check_source(lambda: fl.from_dataset(batches), rows, examples=4)

    @pytest.mark.parametrize(
        "dataset",
        [
            grain.MapDataset.range(9).filter(lambda i: i % 3 != 1),
            grain.MapDataset.range(4).shuffle(seed=1).repeat().map_with_index(lambda k, i: (k, i)),
            grain.MapDataset.range(6).filter(lambda i: i != 3).repeat(),
        ],
    )
    def test_a_resumed_pass_yields_the_rest(self, dataset: Any) -> None:
        flow = fl.from_dataset(dataset).map(itself).take(6)
        whole = flow.collect()
        for position in range(6):
            with iter(flow) as run:
                begun = [next(run) for _ in range(position)]
                assert begun + list(flow.resume(run.state_dict())) == whole
        assert flow.prefetch(procs=1).collect() == whole == flow.prefetch(threads=2).collect()


class TestMapDataset:
    def test_is_read_by_index(self) -> None:
        flow = fl.from_dataset(NUMBERS)
        assert (len(flow), flow.effects, str(flow.spec)) == (12, frozenset(), "int")
        assert flow.at(3) == 9
        assert sorted(flow.shuffle(seed=1)) == [i * i for i in range(12)]

    def test_is_read_by_workers(self) -> None:
        flow = fl.from_dataset(NUMBERS.map(lambda i: (i, os.getpid())))
        got = flow.prefetch(procs=2).collect()
        assert [i for i, _ in got] == list(NUMBERS)
        assert os.getpid() not in {pid for _, pid in got}

    @pytest.mark.parametrize(
        "dataset",
        [
            NUMBERS.filter(lambda i: i % 2),
            NUMBERS.filter(lambda i: i % 2).map(lambda i: i),
            grain.MapDataset.concatenate([NUMBERS.filter(lambda i: i % 2 and i < 30)] * 2),
        ],
    )
    def test_filtered_entries_are_left_out(self, dataset: Any) -> None:
        flow = fl.from_dataset(dataset)
        assert flow.effects == {Unsized}
        assert flow.collect() == flow.prefetch(procs=2).collect() == list(dataset)
        assert None not in flow.collect()

    def test_repeat_is_endless_and_read_by_index(self) -> None:
        dataset = NUMBERS.shuffle(seed=1).repeat()
        flow = fl.from_dataset(dataset)
        assert flow.effects == {Resampled, Endless}
        with pytest.raises(EndlessFlow):
            len(flow)
        assert flow.take(30).prefetch(procs=2).collect() == [dataset[i] for i in range(30)]
        assert flow.at(10**9) == dataset[10**9]
        kept = fl.from_dataset(NUMBERS.filter(lambda i: i > 50).repeat())
        assert kept.effects == {Resampled, Unsized, Endless}
        assert kept.take(6).collect() == [64, 81, 100, 121, 64, 81]
        assert len(fl.from_dataset(NUMBERS.repeat(3))) == 36

    def test_a_none_without_a_filter_is_an_error(self) -> None:
        dataset: Any = grain.MapDataset.range(5).map(lambda i: None if i == 3 else i)
        for flow in (fl.from_dataset(dataset), fl.from_dataset(dataset.repeat()).take(9)):
            with pytest.raises(ElementError, match=r"element 3 .*row 3 .*add \.filter\(lambda x"):
                flow.collect()
        assert fl.from_dataset(dataset.filter(lambda x: x is not None)).collect() == [0, 1, 2, 4]

    def test_an_error_has_its_position(self) -> None:
        dataset = grain.MapDataset.range(5).map(lambda i: 6 // (i - 3))
        for flow in (fl.from_dataset(dataset), fl.from_dataset(dataset.repeat())):
            for run in (flow, flow.prefetch(procs=1)):
                with pytest.raises(ElementError, match=r"on element 3 \(row 3 of from_dataset\("):
                    run.take(5).collect()

    def test_an_empty_dataset_is_an_empty_flow(self) -> None:
        assert fl.from_dataset(grain.MapDataset.source([])).collect() == []


class TestIterDataset:
    def test_threads_end_with_the_pass(self) -> None:
        before = threading.active_count()
        flow = fl.from_dataset(grain.MapDataset.range(1000).to_iter_dataset())
        assert flow.effects == {Unsized}
        with iter(flow) as run:
            assert [next(run), next(run)] == [0, 1]
        assert threading.active_count() == before
        assert flow.map(abs).prefetch(procs=2).collect() == list(range(1000))


@pytest.mark.parametrize("given", [None, grain.MapDataset, iter([1])])
def test_objects_that_are_not_datasets_are_refused(given: Any) -> None:
    with pytest.raises(InvalidFlow, match=r"^from_dataset: dataset must have numbered items and a"):
        fl.from_dataset(given)
