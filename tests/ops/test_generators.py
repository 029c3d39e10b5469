"""The draws of a transform from its own generator depend only on the element."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.random import rand

import flowdsl as fl
from flowdsl.ops.generators import generators_in, global_generators

RNG = np.random.default_rng(7)
LEGACY = np.random.RandomState(7)


def from_a_global(image: Any) -> Any:
    return image + RNG.normal()


def from_python(image: Any) -> Any:
    return image + random.random()


# ruff: noqa: NPY002
def from_numpy(image: Any, legacy: np.random.RandomState = LEGACY) -> Any:
    return image + legacy.rand() + np.random.rand() + rand()


def within(rng: np.random.Generator) -> Callable[[Any], Any]:
    return lambda image: image + rng.normal()


class Own:
    """An ``Augmentation`` whose parts draw from all its generators."""

    __slots__ = ("own",)
    shared = random.Random(7)

    def __init__(self) -> None:
        self.own = {"rng": [np.random.RandomState(7)]}

    def draw(self, image: Any, rng: np.random.Generator) -> Any:
        return self

    def image(self, image: Any) -> Any:
        return image + self.own["rng"][0].rand() + self._more()

    mask = points = image

    def _more(self) -> float:
        import random as python  # in the function, as some write

        return self.shared.random() + python.random() + np.random.rand()


def lambdas() -> Any:
    """A transform of albumentations whose function draws from its own and a global generator."""
    A = import_module("albumentations")  # noqa: N806
    rng = np.random.default_rng(7)

    def noise(image: Any, **_: Any) -> Any:
        return image + np.float32(rng.normal() + np.random.rand())

    return A.Compose([A.HorizontalFlip(p=0.5), A.Lambda(image=noise, p=1.0)])


def of_torch() -> Any:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(7)
    return lambda image: image + float(torch.rand((), generator=generator))


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "a global generator": lambda: from_a_global,
    "Python's generator": lambda: from_python,
    "NumPy's generator": lambda: from_numpy,
    "a generator of a closure": lambda: within(np.random.default_rng(7)),
    "an argument": lambda: partial(lambda rng, image: image + rng.random(), random.Random(7)),
    "an Augmentation": Own,
    "a function in a Compose": lambdas,
    "a generator of torch": of_torch,
}


@pytest.fixture(autouse=True)
def no_look_for_newer_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")


def made(flow: Any) -> list[bytes]:
    return [x.tobytes() for x in flow]


IMAGES = fl.from_items([np.zeros((2, 2), np.float32)] * 12)


@pytest.mark.filterwarnings("ignore:Using lambda is incompatible")
@pytest.mark.parametrize("make", TRANSFORMS.values(), ids=TRANSFORMS)
def test_passes_draw_the_same_and_elements_differ(make: Any) -> None:
    transform = make()
    flow = IMAGES.augment(transform, seed=3)
    first = made(flow)
    assert made(flow) == first
    assert made(flow.prefetch(threads=3)) == first
    assert made(flow.skip(7)) == first[7:]
    assert made(IMAGES.augment(make(), seed=3)) == first
    assert made(IMAGES.augment(transform, seed=4)) != first
    assert len(set(first)) == 12


@pytest.mark.usefixtures("mortals")
@pytest.mark.filterwarnings("ignore:Using lambda is incompatible")
def test_workers_draw_the_same_as_one_process() -> None:
    flow = IMAGES.augment([make() for make in TRANSFORMS.values()], seed=3)
    first = made(flow)
    assert made(flow.prefetch(procs=2)) == first
    assert len(set(first)) == 12


@pytest.mark.filterwarnings("ignore:Using lambda is incompatible")
def test_generators_are_restored_after_drawing() -> None:
    own = np.random.default_rng(5)
    for make in (lambda: within(own), lambda: from_a_global, Own, lambdas):
        before = own.bit_generator.state, RNG.bit_generator.state, Own.shared.getstate()
        made(IMAGES.augment(make()))
        assert (own.bit_generator.state, RNG.bit_generator.state, Own.shared.getstate()) == before


def test_transforms_with_only_the_given_generator_run_concurrently() -> None:
    class Shift:
        def draw(self, image: Any, rng: np.random.Generator) -> Any:
            return np.roll(image, rng.random(3).argmax())

    A = import_module("albumentations")  # noqa: N806
    assert generators_in(Shift()) == []
    assert generators_in(np.flip) == []
    flow: Any = IMAGES.augment(A.Compose([A.HorizontalFlip(), A.GaussNoise(p=1.0)]))
    assert len(set(made(flow))) == 12
    (adapter,) = flow.node.adapters
    assert adapter._of_this_thread({})[1] == []


def test_a_generator_that_cannot_be_seeded_is_refused() -> None:
    system = random.SystemRandom()
    with pytest.raises(fl.InvalidFlow, match=r"augment: <lambda> draws from a SystemRandom"):
        IMAGES.augment(lambda image: image + system.random())


class Endless:
    """An object that has every attribute."""

    def __getattr__(self, name: str) -> Endless:
        return Endless()


class Config:
    """An object with a ``__getattr__`` and empty slots."""

    __slots__ = ("__rng", "empty")

    def __init__(self, rng: np.random.Generator) -> None:
        self.__rng = rng

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


ENDLESS = Endless()


def test_the_search_does_not_call_user_getattr() -> None:
    rng = np.random.default_rng(7)
    config = Config(rng)
    found = generators_in(lambda image: (ENDLESS.some.thing, config.size, image))
    assert [one.generator for one in found] == [rng.bit_generator]
    IMAGES.augment(lambda image: image + (0 if config is None else 1))


def test_data_is_skipped_but_a_generator_beside_it_is_found() -> None:
    boxes = {i: {"boxes": [(i, j, i + j, j) for j in range(900)]} for i in range(900)}
    config = {"p": 0.5, "name": "noise", "rng": random.Random(7)}
    assert [one.generator for one in generators_in([boxes, config])] == [config["rng"]]


def test_a_search_of_too_many_objects_includes_the_global_generators() -> None:
    many = [[[object() for _ in range(60)] for _ in range(60)] for _ in range(5)]
    found = {id(one.generator) for one in generators_in(many)}
    assert found == {id(one.generator) for one in global_generators()}


def of_a_module(rng: Any = np.random) -> Callable[..., Any]:
    return lambda image, **_: image + np.float32(rng.rand())


def by_default(image: Any, rng: Any = np.random, **_: Any) -> Any:
    return image + np.float32(rng.rand())


def by_numpy(image: Any, xp: Any = np, **_: Any) -> Any:
    return image + np.float32(xp.random.rand())


def by_a_local_import(image: Any, **_: Any) -> Any:
    from numpy import random as r

    return image + np.float32(r.rand())


def by_passing_on(image: Any, **_: Any) -> Any:
    return image + noise(np)


def noise(xp: Any) -> Any:
    return np.float32(xp.random.rand())


def by_random() -> Callable[..., Any]:
    import random as r

    return lambda image, **_: image + np.float32(r.random())


@pytest.mark.filterwarnings("ignore:Using lambda is incompatible")
@pytest.mark.parametrize(
    "function",
    [of_a_module(), by_default, by_numpy, by_a_local_import, by_passing_on, by_random()],
)
def test_a_module_as_a_value_includes_its_global_generator(function: Any) -> None:
    A = import_module("albumentations")  # noqa: N806
    flow = IMAGES.augment(A.Compose([A.Lambda(image=function, p=1.0)]), seed=3)
    first = made(flow)
    assert made(flow) == first
    assert made(flow.prefetch(threads=3)) == first
    assert len(set(first)) == 12


def test_numpy_without_random_does_not_count_as_a_draw() -> None:
    def local(image: Any) -> Any:
        import numpy

        return numpy.flip(image)

    def passed(image: Any) -> Any:
        return local(np) if image is None else np.roll(image, 1)

    def own() -> random.Random:
        from random import Random

        return Random(7)

    assert generators_in([local, passed, own, {"xp": np}]) == []


def test_torch_counts_only_where_it_draws() -> None:
    torch = pytest.importorskip("torch")
    F = torch.nn.functional  # noqa: N806
    from torch import rand as drawn

    def local(image: Any) -> Any:
        import torch

        return torch.from_numpy(image)

    def local_draw(image: Any) -> Any:
        from torch import randn

        return randn(image)

    draws = [
        lambda: torch.rand(2),
        lambda: torch.randint(2, (2,)),
        lambda: torch.empty(2).uniform_(),
        lambda: F.dropout(torch.ones(2)),
        lambda: torch.nn.Dropout(0.5),
        lambda: drawn(2),
        local_draw,
    ]
    for function in draws:
        assert [one.generator for one in generators_in(function)] == [torch.default_generator]
    for function in (lambda: torch.tensor([1]), lambda: F.normalize(torch.ones(2)), local):
        assert generators_in(function) == []
