"""Components reach the arguments of a loss by name, unless they have another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.tensorflow.inputs import QueueInput
from flowdsl.tensorflow.train import SimpleTrainer, TrainConfig
from flowdsl.tensorflow.train.binding import binding_of
from tests.tensorflow.train.regression import Linear, points, sgd


class Sample(NamedTuple):
    image: Any
    label: Any


IMAGE, LABEL = np.zeros((2, 2), np.uint8), np.int64(3)
DICT = {"image": IMAGE, "label": LABEL}
PLAIN, NAMED = (IMAGE, LABEL), Sample(IMAGE, LABEL)


def passed(function: Callable[..., Any], element: object) -> Any:
    """Call the function with an element, whose components are identified by their dtypes."""
    source = QueueInput(fl.from_items([element]))
    kinds: list[Any] = ["image" if s.dtype == tf.uint8 else "label" for s in source.specs]
    return binding_of(function, "f", source).call(function, kinds)


@pytest.mark.parametrize("element", [DICT, NAMED])
@pytest.mark.parametrize(
    "function",
    [
        lambda image, label: (image, label),
        lambda label, image: (image, label),
        lambda label, *, image: (image, label),
        lambda label, image, weight="label": (image, weight),
    ],
)
def test_names_find_their_arguments(element: object, function: Callable[..., Any]) -> None:
    assert passed(function, element) == ("image", "label")


@pytest.mark.parametrize(
    ("function", "element"),
    [
        (lambda label, image: (label, image), PLAIN),
        (lambda x, y: (x, y), PLAIN),
        (lambda x, y: (x, y), NAMED),
        (lambda image, y: (image, y), NAMED),
        (lambda *parts: parts, NAMED),
        (lambda *parts: parts, PLAIN),
        (lambda x, /, label: (x, label), NAMED),
        (lambda **parts: (parts["image"], parts["label"]), DICT),
        (lambda label, **parts: (parts["image"], label), DICT),
    ],
)
def test_tuples_bind_by_position(function: Callable[..., Any], element: object) -> None:
    assert passed(function, element) == ("image", "label")


@pytest.mark.parametrize(
    ("function", "element", "message"),
    [
        (
            lambda x, y: (x, y),
            DICT,
            r"f\(x, y\) .*\(image, label\): it has no argument 'image' nor 'la",
        ),
        (lambda image: 0, DICT, r"f\(image\) .*\(image, label\): it has no argument 'label'"),
        (lambda image, label, weight: 0, DICT, r"\(image, label\): missing .*'weight'"),
        (lambda *parts: 0, DICT, r"f\(\*parts\) .* it has no argument 'image' nor 'label'"),
        (lambda image, label, /: 0, DICT, "it has no argument 'image' nor 'label'"),
        (
            lambda label, x: 0,
            NAMED,
            r"f\(label, x\) has label at another position .*\(image, label\)",
        ),
        (lambda x: 0, PLAIN, r"f\(x\) does not take an element, .*\(0, 1\): too many"),
        (lambda x: 0, NAMED, r"f\(x\) does not take an element, .*\(image, label\): too many"),
        (lambda image, label, weight: 0, NAMED, "missing .*'weight'"),
    ],
)
def test_mismatch_error_shows_both_sides(
    function: Callable[..., Any], element: object, message: str
) -> None:
    with pytest.raises(fl.InvalidFlow, match=message):
        passed(function, element)


@given(st.permutations(["a", "b", "c", "d"]), st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_names_does_not_matter(given: list[str], taken: list[str]) -> None:
    element = {name: np.full(ord(name), 0, np.uint8) for name in given}
    source = QueueInput(fl.from_items([element]))
    scope: dict[str, Any] = {}
    exec(f"def f({', '.join(taken)}): return [{', '.join(taken)}]", scope)
    sizes = [spec.shape.as_list()[0] for spec in source.specs]
    got: Any = binding_of(scope["f"], "f", source).call(scope["f"], sizes)  # type: ignore[arg-type]  # any values
    assert got == [ord(name) for name in taken]


def ordered(names: Sequence[str], batch: Any) -> dict[str, Any]:
    x, y = batch
    return {name: x if name == "x" else y for name in names}


def test_trainer_does_not_swap_named_components() -> None:
    """The steps are equal for any order of a dict's components."""
    ends: list[Any] = []
    for order in ("xy", "yx"):
        flow = points().batch(8).map(partial(ordered, order))
        config = TrainConfig(
            dataflow=flow,
            model=Linear,
            optimizer=sgd,
            extra_callbacks=(),
            monitors=(),
            max_epoch=1,
        )
        trainer = SimpleTrainer(config)
        trainer.train()
        ends.append(trainer.model.weights())  # type: ignore[attr-defined]  # of Linear
    assert np.array_equal(*ends)
    wrong = points().batch(8).map(partial(ordered, ["x", "target"]))
    with pytest.raises(fl.InvalidFlow, match=r"Linear\.loss.*it has no argument 'target'"):
        SimpleTrainer(
            TrainConfig(
                dataflow=wrong, model=Linear, optimizer=sgd, extra_callbacks=(), monitors=()
            )
        )
