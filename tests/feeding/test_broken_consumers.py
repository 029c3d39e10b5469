"""Broken consumers: every law of consumers fails for at least one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest

import flowdsl as fl
from flowdsl.feeding.loader import ALONE, Loader, Ranks
from flowdsl.testing import check_consumer
from flowdsl.testing.consumers import (
    CONSUMER_LAWS,
    ConsumerKind,
    ConsumerLaw,
    a_pass_without_elements_does_not_count,
    a_state_at_the_end_begins_the_next_epoch,
    a_state_of_another_flow_is_refused,
    an_abandoned_consumer_is_collected,
    an_endless_flow_never_stops,
    an_error_is_raised_at_its_position,
    an_interrupt_is_immediate,
    closing_leaves_nothing,
    each_pass_is_the_next_epoch,
    elements_come_once_and_in_order,
    few_elements_are_computed_ahead,
    kept_elements_stay_valid,
    no_memory_is_copied,
    no_use_of_an_element_shows_in_another,
    ranks_divide_the_elements_and_end_together,
    resuming_gives_the_rest,
)
from flowdsl.testing.recipes import AnyFlow
from tests.states import changed


class Whole(Loader[Any]):
    """The correct consumer, which the others break."""

    def __init__(self, flow: AnyFlow, ahead: int = 2, ranks: Ranks = ALONE) -> None:
        super().__init__(flow, self.converted, ahead=ahead, ranks=ranks)

    @staticmethod
    def converted(element: Any, position: int) -> Any:
        return element


class DropsTheSmallBatch(Whole):
    def __iter__(self) -> Iterator[Any]:
        return (x for x in super().__iter__() if len(x[0]) == 2)


class SwapsTwo(Whole):
    def __iter__(self) -> Iterator[Any]:
        elements = super().__iter__()
        first = list(islice(elements, 2))
        yield from reversed(first)
        yield from elements


class Repeats(Whole):
    def __iter__(self) -> Iterator[Any]:
        elements = list(super().__iter__())
        yield from elements
        yield from elements[-1:]


class SameEpoch(Whole):
    def __iter__(self) -> Iterator[Any]:
        elements = super().__iter__()
        if self.epoch:
            self.set_epoch(0)
            elements = super().__iter__()
        return elements


class CountsEachIter(Whole):
    def __iter__(self) -> Iterator[Any]:
        self._pass.began = self._begun
        self._begun = True
        return super().__iter__()

    _begun = False


class EndsSomeWhere(Whole):
    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), 15)


class EndsAtAnError(Whole):
    def __iter__(self) -> Iterator[Any]:
        with suppress(fl.ElementError):
            yield from super().__iter__()


_MEMORY: dict[Any, Any] = {}


class OneBuffer(Whole):
    """Overwrites the last array of the same size."""

    @staticmethod
    def converted(element: Any, position: int) -> Any:
        kept = []
        for part in element:
            memory = _MEMORY.setdefault((part.shape, part.dtype), part.copy())
            memory[...] = part
            kept.append(memory)
        return tuple(kept)


class FarAhead(Whole):
    def __init__(self, flow: AnyFlow) -> None:
        super().__init__(flow, ahead=40)


class Copies(Whole):
    @staticmethod
    def converted(element: Any, position: int) -> Any:
        return tuple(map(np.array, element))


class StateOfWhatIsReady(Whole):
    """Counts elements computed ahead as taken."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return changed(state, position=min(state["position"] + 1, 6), places=[])


class StateStaysAtTheEnd(Whole):
    def state_dict(self) -> dict[str, Any]:
        ended, self._pass.ended = self._pass.ended, False
        try:
            return super().state_dict()
        finally:
            self._pass.ended = ended


class TheFirstRanksTakeMore(Whole):
    def __init__(self, flow: AnyFlow, ranks: Ranks = ALONE) -> None:
        super().__init__(flow, ranks=Ranks(ranks.n, ranks.i, None))


class AnyState(Whole):
    def load_state_dict(self, state: Mapping[str, object]) -> None:
        with suppress(fl.StateMismatch):
            super().load_state_dict(state)


class CloseForgets(Whole):
    kept: list[Any] = []  # noqa: RUF012  # kept for ever is the fault

    def close(self) -> None:
        self.kept.append(self._pass)
        self._pass = self.begin(0)


class IsKept(Whole):
    def __init__(self, flow: AnyFlow) -> None:
        super().__init__(flow)
        CloseForgets.kept.append(self)


class TakesAnInterruptForTheEnd(Whole):
    def __iter__(self) -> Iterator[Any]:
        with suppress(KeyboardInterrupt):
            yield from super().__iter__()


def _write(element: Any) -> None:
    for array in element:
        array += 1


def _address(array: Any) -> int:
    return int(array.ctypes.data)


BROKEN: dict[type[Whole], set[ConsumerLaw]] = {
    DropsTheSmallBatch: {elements_come_once_and_in_order},
    SwapsTwo: {elements_come_once_and_in_order, an_error_is_raised_at_its_position},
    Repeats: {elements_come_once_and_in_order},
    SameEpoch: {each_pass_is_the_next_epoch},
    CountsEachIter: {a_pass_without_elements_does_not_count},
    EndsSomeWhere: {an_endless_flow_never_stops},
    EndsAtAnError: {an_error_is_raised_at_its_position},
    OneBuffer: {
        kept_elements_stay_valid,
        no_memory_is_copied,
        no_use_of_an_element_shows_in_another,
    },
    FarAhead: {few_elements_are_computed_ahead},
    Copies: {no_memory_is_copied},
    StateOfWhatIsReady: {resuming_gives_the_rest},
    StateStaysAtTheEnd: {a_state_at_the_end_begins_the_next_epoch},
    TheFirstRanksTakeMore: {ranks_divide_the_elements_and_end_together},
    AnyState: {a_state_of_another_flow_is_refused},
    CloseForgets: {closing_leaves_nothing},
    IsKept: {an_abandoned_consumer_is_collected},
    TakesAnInterruptForTheEnd: {an_interrupt_is_immediate},
}


def _kind(make: Callable[..., Any]) -> ConsumerKind:
    return ConsumerKind(
        make,
        address=_address,
        use=_write,
        ahead=2,
        shard=lambda flow, n, i: make(flow, ranks=Ranks(n, i)),
    )


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("flowdsl.testing.endings.PATIENCE", 0.3)
    _MEMORY.clear()
    yield
    for kept in CloseForgets.kept:
        kept.close()
    CloseForgets.kept.clear()


def test_every_law_is_broken_by_a_broken_consumer() -> None:
    assert {law for laws in BROKEN.values() for law in laws} == {*CONSUMER_LAWS}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_broken_consumers_are_detected(broken: type[Whole]) -> None:
    for law in BROKEN[broken]:
        with pytest.raises(AssertionError):
            law(_kind(broken))


def test_the_check_names_the_law() -> None:
    with pytest.raises(AssertionError) as failed:
        check_consumer(SwapsTwo)
    (note,) = failed.value.__notes__
    assert note.startswith("the law: A pass is the elements of the flow: each once, in order")
