"""augment: one draw for all parts of a row, with transforms of any library."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import flowdsl as fl
from flowdsl import ElementError, InvalidFlow, SpecMismatch
from flowdsl.nodes import generator
from flowdsl.workers.processes import Processes
from tests.threads import spawn_thread


@pytest.fixture(autouse=True)
def no_look_for_newer_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")


@attrs.frozen
class Moved:
    """Flips at random and rotates by quarter turns, in place."""

    mirrored: bool
    quarters: int
    height: int
    width: int

    def image(self, image: fl.Image) -> fl.Image:
        turned = np.rot90(image[:, ::-1] if self.mirrored else image, self.quarters).copy()
        image += 1  # what it is given is its own
        return turned

    def mask(self, mask: fl.Image) -> fl.Image:
        return np.rot90(mask[:, ::-1] if self.mirrored else mask, self.quarters)

    def points(self, points: NDArray[Any]) -> NDArray[Any]:
        x, y = points.T
        x = self.width - 1 - x if self.mirrored else x
        width, height = self.width, self.height
        for _ in range(self.quarters):
            x, y = y, width - 1 - x
            width, height = height, width
        moved = np.stack([x, y], axis=1)
        points[:] = -1
        return moved


class Move:
    def draw(self, image: fl.Image, rng: np.random.Generator) -> Moved:
        return Moved(rng.random() < 0.5, int(rng.integers(4)), *image.shape[:2])


def albumentations(*transforms: str, remove_invisible: bool = False) -> Any:
    """A Compose of transforms, by their names and with only their probability."""
    return composed(
        *(getattr(library(), name)(p=0.6) for name in transforms), remove_invisible=remove_invisible
    )


def composed(*transforms: Any, remove_invisible: bool = False) -> Any:
    points = library().KeypointParams(format="xy", remove_invisible=remove_invisible)
    return library().Compose(transforms, keypoint_params=points)


def library() -> Any:
    return import_module("albumentations")


def flips() -> Any:
    return albumentations("HorizontalFlip", "VerticalFlip", "Transpose", "RandomRotate90")


def cropped() -> Any:
    return composed(library().RandomCrop(3, 3, p=1.0))


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "ours": Move,
    "ours, twice": lambda: [Move(), Move()],
    "albumentations": flips,
    "albumentations, a crop": cropped,
    "both": lambda: (flips(), Move(), cropped()),
}


class Row(NamedTuple):
    image: Any
    mask: Any
    points: Any
    label: int


def marked(height: int, width: int, n: int, seed: int) -> Row:
    """An image whose only pixels above 100 are at its points, each with another value."""
    rng = np.random.default_rng(seed)
    at = rng.permutation(height * width)[:n]
    image = np.zeros((height, width, 3), np.uint8)
    image.reshape(-1, 3)[at] = 101 + np.arange(n, dtype=np.uint8)[:, None]
    points = np.stack([at % width, at // width], axis=1).astype(np.float32)
    return Row(image, image[..., 0].astype(np.int32), points, seed)


ROWS = [marked(4, 6, 5, i) for i in range(8)]


def all_of(flow: fl.Flow[Any, Any]) -> list[bytes]:
    """The elements in a form that can be compared."""
    return [compared(x) for x in flow]


def compared(element: Any) -> bytes:
    """Pickle twice, since NumPy pickles a view in another form than its copy in a worker."""
    return pickle.dumps(pickle.loads(pickle.dumps(element)))


def check_marks(row: Row) -> None:
    """Check that each point in the image is at its marked pixel, and the mask matches the image."""
    height, width = row.image.shape[:2]
    for i, (x, y) in enumerate(row.points.tolist()):
        if 0 <= x < width and 0 <= y < height:
            assert row.image[round(y), round(x), 0] == 101 + i
    seen = {int(m) for m in row.mask.ravel() if m > 100}
    x, y = row.points.T
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    assert seen == {101 + int(i) for i in np.flatnonzero(inside)}
    assert np.array_equal(row.image[..., 0] > 100, row.mask > 100)


class TestSharedDraw:
    @pytest.mark.parametrize("name", TRANSFORMS)
    def test_points_follow_the_pixels_that_they_mark(self, name: str) -> None:
        transform = TRANSFORMS[name]()

        @given(st.integers(3, 7), st.integers(3, 7), st.integers(0, 9), st.integers(0, 2**40))
        def check(height: int, width: int, n: int, seed: int) -> None:
            row = marked(height, width, n, seed)
            before = pickle.dumps(row)
            flow = fl.from_items([row] * 3)
            moved = flow.augment(transform, images=0, masks=1, points=2, seed=seed)
            for x in moved:
                assert type(x) is Row
                dtypes = [part.dtype for part in x[:3]]
                assert dtypes == [np.uint8, np.int32, np.float32]
                assert (x.points.shape, x.label) == ((n, 2), seed)
                check_marks(x)
            assert pickle.dumps(row) == before

        check()

    @pytest.mark.parametrize("name", TRANSFORMS)
    def test_each_row_has_its_own_draw(self, name: str) -> None:
        flow = fl.from_items([ROWS[0]] * 30)
        made = flow.augment(TRANSFORMS[name](), masks="mask", points="points")
        assert len({x.points.tobytes() for x in made}) > 3
        assert all_of(made) == all_of(made)
        assert all_of(made) != list(map(compared, made.epoch(1)))
        others = flow.augment(TRANSFORMS[name](), masks="mask", points="points", seed=1)
        assert all_of(made) != all_of(others)

    @pytest.mark.parametrize("transform", [Move, flips])
    def test_several_parts_of_each_kind_share_the_draw(self, transform: Callable[[], Any]) -> None:
        rows: list[dict[str, Any]] = [
            {"a": r.image, "b": r.image, "m": r.mask, "n": r.mask, "p": r.points, "q": r.points[1:]}
            for r in ROWS
        ]
        made = fl.from_items(rows).augment(
            transform(), images=("a", "b"), masks=["m", "n"], points=("p", "q")
        )
        for x in made:
            assert list(x) == ["a", "b", "m", "n", "p", "q"]
            assert np.array_equal(x["a"] > 100, x["b"] > 100)
            assert np.array_equal(x["m"], x["n"])
            assert np.array_equal(x["p"][1:], x["q"])
            check_marks(Row(x["a"], x["m"], x["p"], 0))

    def test_the_draws_of_a_compose_are_independent(self) -> None:
        image = np.arange(4, dtype=np.uint8).reshape(2, 2)
        flow = fl.from_items([image] * 40).augment(albumentations("HorizontalFlip", "VerticalFlip"))
        assert len({x.tobytes() for x in flow}) == 4

    def test_transforms_in_a_list_draw_independently_and_in_order(self) -> None:
        def draws(seed: int, salt: str, position: int) -> float:
            return generator(seed, salt, 0, position).random()

        flow = fl.from_items([np.zeros(1)] * 3).augment([Noise(), Noise()], seed=2)
        depth = flow.node.depth - 1
        expected = [2 * draws(2, f"{depth}", i) + draws(2, f"{depth}/1", i) for i in range(3)]
        assert np.concatenate(flow.collect()).tolist() == pytest.approx(expected)


@attrs.frozen
class Added:
    by: float

    def image(self, image: fl.Image) -> fl.Image:
        return 2 * image + self.by

    mask = points = image


class Noise:
    def draw(self, image: fl.Image, rng: np.random.Generator) -> Added:
        return Added(rng.random())


# -- the same under any workers --------------------------------------------------------------------


def asks_all(image: fl.Image) -> fl.Image:
    """A foreign function, which draws from global generators."""
    return image + np.float64(random.random() + np.random.random())  # noqa: NPY002


def by_keywords(*, image: fl.Image, mask: fl.Image) -> dict[str, fl.Image]:
    by = np.uint8(random.randrange(100))
    return {"image": image + by, "mask": mask + by}


FOREIGN: dict[str, Any] = {
    "a function of one image": lambda: (asks_all, {}),
    "a function of keywords": lambda: (by_keywords, {"masks": 1}),
    "albumentations": lambda: (flips(), {"masks": 1, "points": 2}),
    "one alone of albumentations": lambda: (albumentations("HorizontalFlip")[0], {"masks": 1}),
    "ours": lambda: (Move(), {"masks": 1, "points": 2}),
}


class TestAnyWorkers:
    @pytest.mark.parametrize("name", FOREIGN)
    def test_any_workers_draw_the_same(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Processes, "spawn", staticmethod(spawn_thread))
        transform, others = FOREIGN[name]()
        flow = fl.from_items(ROWS * 4).augment(transform, **others)
        alone = all_of(flow)
        assert all_of(flow.prefetch(threads=3)) == alone
        assert all_of(flow.prefetch(procs=2)) == alone
        assert len(set(alone)) > 10

    def test_processes_draw_the_same(self) -> None:
        flow = fl.from_items(ROWS).augment([flips(), Move()], masks=1, points=2)
        flow = flow.augment(asks_all)
        assert all_of(flow.prefetch(procs=2)) == all_of(flow)

    def test_a_row_draws_independently_of_other_rows(self) -> None:
        flow = fl.from_items(ROWS).augment(flips(), masks=1, points=2)
        assert all_of(flow.skip(5)) != all_of(flow)[:3]
        assert all_of(flow.shard(2, 1)) == all_of(flow)[1::2]

    def test_foreign_functions_run_in_one_thread_at_a_time(self) -> None:
        both = threading.Barrier(2)

        def meets(image: fl.Image) -> fl.Image:
            with suppress(threading.BrokenBarrierError):
                both.wait(timeout=0.1)
                return image + 1
            return image

        flow = fl.from_items([IMAGE] * 4).augment(meets).prefetch(threads=2)
        assert [x.tolist() for x in flow] == [IMAGE.tolist()] * 4

    def test_global_generators_are_restored(self) -> None:
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        wanted = random.random(), np.random.random()  # noqa: NPY002
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        assert len(fl.from_items(ROWS).augment(asks_all).collect()) == 8
        assert (random.random(), np.random.random()) == wanted  # noqa: NPY002

    def test_the_given_transform_is_not_changed(self) -> None:
        given, other = flips(), flips()
        given.set_random_seed(3)
        other.set_random_seed(3)
        rows = fl.from_items([(r.image, r.image) for r in ROWS])
        assert len(rows.augment(given, images=(0, 1)).collect()) == 8
        image = ROWS[0].image
        for _ in range(4):
            assert np.array_equal(given(image=image)["image"], other(image=image)["image"])
        assert "image1" not in given._additional_targets


# -- what is given is never changed ----------------------------------------------------------------


def spoils(image: fl.Image) -> fl.Image:
    image[...] = 7
    return image


def spoils_all(image: fl.Image, **others: Any) -> dict[str, Any]:
    for x in (image, *others.values()):
        x[...] = 7
    return {"image": image, **others}


class TestInput:
    @pytest.mark.parametrize("transform", [spoils, [np.asarray, spoils], spoils_all])
    def test_source_images_are_never_changed(self, transform: Any) -> None:
        source = np.zeros((2, 3))
        for flow in (fl.from_items([source]), fl.from_items([source[::-1]])):
            assert flow.augment(transform).collect()[0].tolist() == [[7] * 3] * 2
        assert source.tolist() == [[0] * 3] * 2

    def test_source_masks_and_points_are_never_changed(self) -> None:
        before = pickle.dumps(ROWS)
        rows = fl.from_items(ROWS).augment(spoils_all, masks=1, points=2).collect()
        assert {x.points.max() for x in rows} == {x.mask.min() for x in rows} == {7}
        assert pickle.dumps(ROWS) == before

    def test_arrays_kept_by_a_transform_are_never_changed(self) -> None:
        kept = np.zeros(2)
        flow = fl.from_items([np.ones(2)]).augment([lambda image: kept, spoils])
        assert flow.collect()[0].tolist() == [7, 7]
        assert kept.tolist() == [0, 0]

    def test_without_copy_arrays_are_read_only(self) -> None:
        source = np.zeros((2, 3))
        with pytest.raises(ElementError, match="read-only"):
            fl.from_items([source]).augment(spoils, copy=False).collect()
        assert source.tolist() == [[0] * 3] * 2
        assert source.flags.writeable

    def test_without_copy_arrays_share_memory(self) -> None:
        source = np.zeros((2, 3))
        seen: list[bool] = []

        def look(image: fl.Image) -> fl.Image:
            seen.append(np.shares_memory(image, source))
            return image

        for copy in (True, False):
            fl.from_items([(source,)]).augment(look, copy=copy).collect()
        assert seen == [False, True]

    def test_read_only_rows_are_accepted(self) -> None:
        image = ROWS[0].image.copy()
        image.flags.writeable = False
        for copy in (True, False):
            rows = fl.from_items([image]).augment(flips(), copy=copy)
            assert rows.collect()[0].dtype == np.uint8


# -- elements of every form ------------------------------------------------------------------------


@attrs.frozen
class Record:
    image: fl.Image
    _name: str
    size: int = attrs.field(init=False, default=3)


@dataclass(frozen=True)
class Plain:
    name: str
    image: fl.Image


IMAGE = np.arange(3)
FLIPPED = [2, 1, 0]


class TestElementClasses:
    @pytest.mark.parametrize(
        ("element", "images", "of"),
        [
            (IMAGE, 0, lambda x: x),
            ((IMAGE, 1), 0, lambda x: x[0]),
            ((1, IMAGE), fl.c1, lambda x: x[1]),
            ((1, IMAGE), -1, lambda x: x[1]),
            ((1, IMAGE), np.int64(1), lambda x: x[1]),
            (Row(IMAGE, IMAGE, IMAGE, 1), 1, lambda x: x.mask),
            (Row(IMAGE, IMAGE, IMAGE, 1), "mask", lambda x: x.mask),
            ({"a": 1, "b": IMAGE}, "b", lambda x: x["b"]),
            (Record(IMAGE, "a"), ["image"], lambda x: x.image),
            (Plain("a", IMAGE), ("image",), lambda x: x.image),
        ],
    )
    def test_the_class_and_other_components_are_kept(
        self, element: Any, images: Any, of: Callable[[Any], Any]
    ) -> None:
        made = fl.from_items([element]).augment(np.flip, images=images).collect()[0]
        assert type(made) is type(element)
        assert of(made).tolist() == FLIPPED
        back = fl.from_items([made]).augment(np.flip, images=images).collect()[0]
        assert str(back) == str(element)

    def test_the_spec_describes_the_transformed_element(self) -> None:
        def wider(image: fl.Image) -> fl.Image:
            return np.stack([image] * 2).astype(np.float32)

        flow = fl.from_items([(IMAGE, 1)] * 3).augment(wider)
        assert str(flow.node.spec(probe=False)) == "(?[...], int)"
        assert str(flow.node.spec(probe=True)) == "(float32[2, 3], int)"
        assert flow.batch(3).collect()[0][0].shape == (3, 2, 3)
        rows = fl.from_items(ROWS).augment(Move(), masks=1, points=2)
        known = "Row(image: ?[...], mask: int32[...], points: float32[?, 2], label: int)"
        assert str(rows.node.spec(probe=False)) == known


# -- errors ----------------------------------------------------------------------------------------


def fails_on_7(image: fl.Image) -> fl.Image:
    if image[0] == 7:
        raise ValueError("seven")
    return image


class TestErrors:
    def test_a_failure_names_the_row_and_can_be_left_out(self) -> None:
        rows = fl.from_items([(np.array([i]), i) for i in (5, 7, 9)]).augment(fails_on_7)
        with pytest.raises(
            ElementError, match=r"augment\(fails_on_7\) failed on element 1 .*seven"
        ):
            rows.collect()
        for threads in (0, 2):
            kept = rows.prefetch(threads=threads, on_error="skip")
            assert [i for _, i in kept] == [5, 9]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"t": 7}, "draw"),
            ({"t": []}, "one or more"),
            ({"t": [Move(), "flip"]}, "'flip'"),
            ({"t": Move}, r"Move\(\.\.\.\)"),
            ({"images": ()}, "one image or more"),
            ({"images": 1.5}, "images must be selectors.*1.5"),
            ({"masks": True}, "masks must be selectors.*True"),
            ({"points": len}, "points must be selectors.*len"),
            ({"masks": 0}, "only once"),
            ({"masks": "image"}, "selected twice"),
            ({"masks": -4}, "selected twice"),
            ({"masks": 4}, "no component 4 in this Row of 'image', 'mask', 'points', 'label'"),
            ({"masks": "maks"}, "no component 'maks'"),
            ({"masks": 3}, "component 3 must be an array, got int; decode"),
            ({"points": 1}, "component 1 is int32.*floats.*astype"),
            ({"masks": 2, "points": "mask"}, "component 'mask' is int32"),
            ({"seed": -1}, "seed must be"),
            ({"copy": None}, "copy must be"),
            ({"t": np.flip, "masks": 1}, "flip is a function of one image"),
            ({"t": [Move(), np.flip], "images": (0, 1)}, "flip is a function of one image"),
            ({"t": by_keywords, "images": (0, 1)}, "no add_targets"),
        ],
    )
    def test_invalid_arguments_are_refused_when_the_chain_is_built(
        self, arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidFlow, match=f"augment.*{message}"):
            fl.from_items(ROWS).augment(**{"t": Move(), **arguments})

    @pytest.mark.parametrize(
        ("element", "message"),
        [
            ((b"\xff\xd8", ROWS[0].points), "component 0 must be an array, got bytes; decode"),
            ((np.uint8(3), ROWS[0].points), "component 0 must be an array"),
            ((IMAGE, np.zeros(2)), r"shape \(n, 2\)"),
            ((IMAGE, np.zeros((2, 2), int)), "points are floats"),
            ((IMAGE,), "no component 1 in this tuple of 1"),
            (IMAGE, "no component 0 in this ndarray"),
            ({"a": IMAGE}, "no component 0 in this dict of 'a'"),
            (Record(IMAGE, "a"), "no component 0 in this Record of 'image', '_name', 'size'"),
        ],
    )
    def test_components_that_are_not_arrays_are_refused(self, element: Any, message: str) -> None:
        with pytest.raises(InvalidFlow, match=message):
            fl.from_items([element]).augment(Move(), points=1)

        def hidden(i: int) -> Any:
            return element

        with pytest.raises(ElementError, match="element 0") as caught:
            fl.from_range(1).map(hidden).augment(Move(), points=1).collect()
        assert isinstance(caught.value.__cause__, SpecMismatch)
        assert caught.match(message)

    def test_a_field_set_by_its_class_is_refused(self) -> None:
        with pytest.raises(InvalidFlow, match="sets its field 'size' by itself"):
            fl.from_items([Record(IMAGE, "a")]).augment(np.flip, images="size")

    @pytest.mark.parametrize(
        ("made", "message"),
        [
            ({"image": [1]}, "must make an array of component 'image', got list"),
            ({"mask": np.zeros((2, 2))}, "changed the dtype of component 'mask'.*int32 to float64"),
            ({"keypoints": np.zeros((4, 2))}, "got 5 points and returned 4"),
            ({"keypoints": np.zeros((5, 3))}, r"component 'points' became float64\[5, 3\]"),
            ({"keypoints": np.zeros((5, 2), int)}, r"component 'points' became int64\[5, 2\]"),
            ({}, r"must return a dict.*got one with \[\]"),
            (7, "must return a dict.*int"),
        ],
    )
    def test_results_of_a_transform_are_checked(self, made: Any, message: str) -> None:
        def change(**given: Any) -> Any:
            return made if made in ({}, 7) else given | made

        rows = fl.from_items(ROWS).augment(change, images="image", masks="mask", points="points")
        with pytest.raises(ElementError, match=message):
            rows.collect()

    def test_points_may_come_back_as_a_list_in_their_dtype(self) -> None:
        def listed(image: fl.Image, keypoints: Any) -> dict[str, Any]:
            return {"image": image, "keypoints": [tuple(p) for p in (keypoints + 0.5).tolist()]}

        rows = [(IMAGE, np.zeros((n, 2), np.float32)) for n in (2, 0)]
        made = fl.from_items(rows).augment(listed, points=1).collect()
        assert [(p.dtype.str, p.tolist()) for _, p in made] == [
            ("<f4", [[0.5, 0.5]] * 2),
            ("<f4", []),
        ]
        assert made[1][1].shape == (0, 2)

    def test_a_compose_that_drops_points_is_refused(self) -> None:
        dropping = albumentations("HorizontalFlip", remove_invisible=True)
        alone = library().HorizontalFlip()
        for t in (dropping, library().Compose([alone]), alone):
            with pytest.raises(InvalidFlow, match="remove_invisible=False"):
                fl.from_items(ROWS).augment(t, points=2)
        assert len(fl.from_items(ROWS).augment(dropping, masks=1).collect()) == 8


# -- torchvision -----------------------------------------------------------------------------------


@pytest.fixture
def v2() -> Any:
    return pytest.importorskip("torchvision.transforms.v2")


class TestTorchvision:
    def test_points_follow_the_pixels_that_they_mark(self, v2: Any) -> None:
        t = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()])
        made = fl.from_items(ROWS * 4).augment(t, masks=1, points=2)
        for x in made:
            assert (x.image.shape, x.image.dtype) == ((4, 6, 3), np.uint8)
            assert x.points.dtype == np.float32
            check_marks(x)
        assert len({x.image.tobytes() for x in made}) > 16
        assert all_of(made.prefetch(threads=2)) == all_of(made)

    def test_several_images_share_the_draw(self, v2: Any) -> None:
        rows = fl.from_items([(r.image, r.image[..., 0]) for r in ROWS])
        for image, gray in rows.augment(v2.RandomCrop((2, 3)), images=(0, 1)):
            assert image.shape == (2, 3, 3)
            assert np.array_equal(image[..., 0], gray)

    def test_version_1_transforms_accept_only_one_image(self, v2: Any) -> None:
        transforms = pytest.importorskip("torchvision.transforms")
        rows = fl.from_items(ROWS)
        assert rows.augment(transforms.RandomCrop((2, 3))).collect()[0].image.shape == (2, 3, 3)
        with pytest.raises(InvalidFlow, match="v2"):
            rows.augment(transforms.RandomCrop((2, 3)), masks=1)

    def test_torchvision_keeps_the_input_and_the_global_state(self, v2: Any) -> None:
        torch = pytest.importorskip("torch")
        before = pickle.dumps(ROWS)
        torch.manual_seed(1)
        state = torch.get_rng_state()
        rows = fl.from_items(ROWS).augment(v2.Lambda(lambda x: x.fill_(7)), masks=1)
        assert {int(x.image.max()) for x in rows} == {7}
        assert pickle.dumps(ROWS) == before
        assert torch.equal(torch.get_rng_state(), state)


def test_a_function_of_an_image_and_a_generator_is_refused_with_advice() -> None:
    def flip(image: Any, rng: np.random.Generator) -> Any:
        return image

    with pytest.raises(InvalidFlow, match=r"flip takes \(image.*\.random_map\(f, seed="):
        fl.from_items([np.zeros((2, 2, 3), np.uint8)]).augment(flip)
