from __future__ import annotations

from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl.effects import Exact
from flowdsl.nodes import IndexedSource


def refuse(*_: object) -> NoReturn:
    raise AssertionError("showing a flow ran it")


@attrs.frozen
class Unread(IndexedSource[int]):
    @property
    def length(self) -> int:
        return 9

    @property
    def title(self) -> str:
        return "unread"

    def open(self) -> Any:
        refuse()

    def spec(self, probe: bool) -> Any:
        refuse()


@attrs.frozen
class Half(IndexedSource[int]):
    """An operator that is only partly implemented."""

    @property
    def length(self) -> int:
        raise NotImplementedError

    @property
    def title(self) -> str:
        return "half"

    def open(self) -> Any:
        refuse()

    def spec(self, probe: bool) -> Any:
        refuse()


def test_a_flow_shows_its_plan() -> None:
    flow = fl.from_range(9).map(abs).batch(2).prefetch(procs=2)
    bundle = flow._repr_mimebundle_()
    assert bundle["text/plain"] == repr(flow)
    assert flow._repr_html_() == bundle["text/html"]
    texts = {element.text for element in ElementTree.fromstring(bundle["text/html"]).iter()}
    assert {"from_range(9)", "map(abs)", "batch(2)", "2 worker processes"} <= texts


class Sample(NamedTuple):
    image: NDArray[np.uint8]
    label: int


def draw(i: int) -> Sample:
    return Sample(np.zeros((8, 8), np.uint8), i)


def scaled(sample: Sample) -> NDArray[np.float32]:
    return sample.image.astype(np.float32)


def test_arrows_have_the_declared_types_of_the_elements() -> None:
    flow = fl.from_range(9).map(draw).prefetch(procs=2).shuffle(4).map(scaled)
    texts = [element.text for element in ElementTree.fromstring(flow._repr_html_() or "").iter()]
    assert "Sample(image: uint8[...], label: int)" in texts
    assert "float32[...]" in texts
    unknown = fl.from_iterable(lambda: refuse())._repr_html_() or ""
    assert "elements" in [element.text for element in ElementTree.fromstring(unknown).iter()]


def test_showing_a_flow_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr("threading.Thread.start", refuse)
    source: fl.Flow[int, Exact] = fl.Flow(Unread())
    flows: list[fl.Flow[Any, Any]] = [
        source.map(refuse).filter(refuse).prefetch(procs=2),
        source.shuffle(4).flat_map(refuse).prefetch(threads=2),
        fl.from_iterable(refuse).map(refuse).batch(2, collate=refuse).prefetch(procs=1),
    ]
    for flow in flows:
        assert "text/html" in flow._repr_mimebundle_()


@attrs.frozen
class Nameless(Half):
    @property
    def title(self) -> str:
        refuse()


def test_showing_a_flow_never_fails() -> None:
    flow: Any = object.__new__(fl.Flow)
    object.__setattr__(flow, "node", Half())
    assert flow._repr_mimebundle_() == {"text/plain": "half"}
    assert flow._repr_html_() is None
    object.__setattr__(flow, "node", Nameless())
    assert flow._repr_mimebundle_() == {"text/plain": object.__repr__(flow)}


def test_ipython_passes_arguments_by_name() -> None:
    """IPython passes two arguments, by name."""
    assert fl.from_range(3)._repr_mimebundle_(include=None, exclude=None)["text/plain"]
