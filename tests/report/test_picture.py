from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowdsl as fl
from flowdsl.plan.lower import plan_of
from flowdsl.report.bottleneck import verdict
from flowdsl.report.diagram import Diagram, diagram_of
from flowdsl.report.drawing import cut, lines, text_width
from flowdsl.report.picture import Figures, page, picture
from flowdsl.statistics.stages import OperatorCost
from tests.report.books import run, stage

SVG = "{http://www.w3.org/2000/svg}"


def decode(i: int) -> int:
    return i


def words() -> Any:
    return iter(range(50))


FLOW = fl.from_range(1437).shuffle(seed=7).map(decode).batch(32).prefetch(procs=4)
TITLES = ("from_range(1437)", "shuffle(seed=7)", "map(decode)", "batch(32)")
SLOW = stage(
    *TITLES,
    busy=(9.9, 9.7, 9.8, 9.6),
    waited=3.1,
    nbytes=380_000_000,
    fill=0.04,
    costs={"from_range(1437)": 0.2, "map(decode)": 32.0, "batch(32)": 3.5},
)
FIGURES = run(SLOW, consumer=6.2)

FLOWS: list[fl.Flow[Any, Any]] = [
    FLOW,
    fl.from_range(3),
    fl.from_range(50)
    .filter(bool)
    .prefetch(procs=2)
    .choose(fl.from_range(9).filter(bool).map(decode).prefetch(procs=1)),
    fl.from_items(range(50)).map(decode).prefetch(procs=2).batch(2),
    fl.from_range(50).zip(fl.from_range(50).map(decode).zip(fl.from_range(50))),
    fl.from_iterable(words).replicate(procs=3),
]


def drawn(svg: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter())


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in drawn(svg) if element.tag == f"{SVG}text"]


def classed(svg: str, kind: str) -> list[ElementTree.Element]:
    return [element for element in drawn(svg) if kind in element.get("class", "").split()]


def with_figures(plan: Diagram, figures: Any) -> str:
    whole = plan.arrange(figures)
    return picture(plan, Figures(whole, verdict(whole, 8))).svg()


@pytest.mark.parametrize("flow", FLOWS, ids=repr)
def test_every_operator_is_in_the_picture(flow: fl.Flow[Any, Any]) -> None:
    svg = picture(diagram_of(plan_of(flow.node))).svg()

    def titles(node: Any) -> Iterator[str]:
        for source in node.sources:
            yield from titles(source)
        yield node.title

    for title in titles(flow.node):
        assert title.startswith("prefetch") or title in texts(svg)


@pytest.mark.parametrize("flow", FLOWS, ids=repr)
def test_all_shapes_are_within_the_background(flow: fl.Flow[Any, Any]) -> None:
    svg = picture(diagram_of(plan_of(flow.node))).svg()
    width, height = map(float, ElementTree.fromstring(svg).get("viewBox", "").split()[2:])
    for element in drawn(svg):
        if element.tag == f"{SVG}rect":
            x, y = float(element.get("x", 0)), float(element.get("y", 0))
            assert 0 <= x <= x + float(element.get("width", 0)) <= width
            assert 0 <= y <= y + float(element.get("height", 0)) <= height
        if element.tag == f"{SVG}text":
            kind, x = element.get("class", ""), float(element.get("x", 0))
            wide = text_width(element.text or "", kind)
            left = x - wide if "end" in kind else x - wide / 2 if "middle" in kind else x
            assert 0 <= left <= left + wide <= width + 1
            assert 0 <= float(element.get("y", 0)) <= height


def test_no_box_covers_another() -> None:
    svg = picture(diagram_of(plan_of(FLOWS[2].node))).svg()
    found = []
    for box in classed(svg, "box"):
        x, y, w, h = (float(box.get(name, 0)) for name in ("x", "y", "width", "height"))
        found.append((x, y, x + w, y + h))
    assert len(found) == 4  # two branches, where they meet, and the consumer
    for k, one in enumerate(found):
        for other in found[:k]:
            apart = one[0] >= other[2] or other[0] >= one[2]
            assert apart or one[1] >= other[3] or other[1] >= one[3]


def test_the_picture_shows_the_figures() -> None:
    svg = with_figures(diagram_of(plan_of(FLOW.node)), FIGURES)
    text = " ".join(texts(svg))
    assert "prefetch(procs=6) would give about 140 elements/s." in text
    assert "map(decode) limits the run to 100 elements/s" in text
    for said in ("busy 98%", "waited for 31%", "fill 4%", "p50 1.02 ms", "p99 2.04 ms", "38 MB/s"):
        assert said in text
    assert "32 ms" in text  # what map(decode) takes a call
    assert "the consumer's own work 62%" in text
    assert "100 elements/s" in texts(svg)  # on the way to the consumer


def test_the_limiting_box_and_operator_are_highlighted() -> None:
    svg = with_figures(diagram_of(plan_of(FLOW.node)), FIGURES)
    (operator,) = classed(svg, "hot-text")
    assert operator.text == "map(decode)"
    assert len(classed(svg, "hot-box")) == 1
    assert texts(svg).count("limits") == 1


@pytest.mark.parametrize(
    ("consumer", "waited", "busy", "where"),
    [(9.7, 0.1, 2.0, "the thread that iterates"), (0.2, 9.4, 9.9, "4 worker processes")],
)
def test_the_limiting_part_is_marked(
    consumer: float, waited: float, busy: float, where: str
) -> None:
    slow = attrs.evolve(stage(*TITLES, busy=(busy,) * 4, waited=waited))
    svg = with_figures(diagram_of(plan_of(FLOW.node)), run(slow, consumer=consumer))
    (box,) = classed(svg, "hot-box")
    (heading,) = [t for t in drawn(svg) if t.tag == f"{SVG}text" and t.text == where]
    top, y = float(box.get("y", 0)), float(heading.get("y", 0))
    assert top < y < top + 30


def test_the_limiting_thread_is_marked_with_all_its_operators() -> None:
    """Two stages of figures share one box, as one thread runs both."""
    flow = fl.from_range(50).map(decode).flat_map(lambda i: [i])
    slow = stage("from_range(50)", "map(decode)", costs={"map(decode)": 9.0})
    svg = with_figures(diagram_of(plan_of(flow.node)), run(slow, consumer=0.2))
    assert len(classed(svg, "hot-box")) == 1
    (operator,) = classed(svg, "hot-text")
    assert operator.text == "map(decode)"


def test_operators_with_the_same_title_have_their_own_costs() -> None:
    flow = fl.from_range(50).map(decode).map(decode)
    costs = tuple(OperatorCost("map(decode)", 1000, seconds) for seconds in (7.0, 2.0))
    seen = attrs.evolve(stage("from_range(50)", "map(decode)", "map(decode)"), costs=costs)
    text = texts(with_figures(diagram_of(plan_of(flow.node)), run(seen)))
    assert [line for line in text if line.endswith(" ms")] == ["7 ms", "2 ms"]


def test_the_bar_of_a_worker_shows_its_busy_share() -> None:
    uneven = stage(*TITLES, busy=(9.8, 1.0, 1.0, 1.0), waited=9.4)
    svg = with_figures(diagram_of(plan_of(FLOW.node)), run(uneven, consumer=0.2))
    full = [float(box.get("height", 0)) for box in drawn(svg) if box.get("width") == "8"]
    rails, bars = full[::2], full[1::2]
    assert bars == pytest.approx([14 * part for part in (0.98, 0.1, 0.1, 0.1)], abs=0.06)
    assert rails == [14.0] * 4
    assert "busy 32%, the busiest 98%" in " ".join(texts(svg))


def test_workers_that_have_not_started_have_no_figures() -> None:
    """Such workers belong to an earlier pass, for a branch that this pass has not reached."""
    idle = attrs.evolve(stage(*TITLES, busy=(0.0,) * 4), seconds=0.0, delivered=0)
    assert "busy" not in " ".join(texts(with_figures(diagram_of(plan_of(FLOW.node)), run(idle))))


def test_skips_and_deaths_are_shown() -> None:
    died = stage(*TITLES, busy=(9.0,) * 4, deaths=1, skipped=3)
    assert "3 skipped, 1 death" in texts(with_figures(diagram_of(plan_of(FLOW.node)), run(died)))


def test_the_page_is_self_contained() -> None:
    svg = with_figures(diagram_of(plan_of(FLOW.node)), FIGURES)
    html = page(svg, "<&>")
    assert svg in html
    assert "&lt;&amp;&gt;" in html
    for whole in (svg, html):
        assert "<script" not in whole
        assert set(re.findall(r"https?://[^\"]*", whole)) == {"http://www.w3.org/2000/svg"}
        assert not re.search(r"\b(src|href|url)\b", whole)


LIGHT, DARK = "ground { fill: #ffffff; }", "ground { fill: #0d1117; }"


def rules() -> tuple[str, str]:
    """The style on a light background, and the changes on a dark background."""
    style = re.search(
        "<style>(.*?)</style>", picture(diagram_of(plan_of(FLOW.node))).svg(), re.DOTALL
    )
    assert style is not None
    light, media, dark = style[1].partition("@media (prefers-color-scheme: dark) {")
    assert media
    return light, dark.removesuffix("}\n")


def test_the_picture_has_light_and_dark_colours() -> None:
    light, dark = rules()
    assert LIGHT in light
    assert DARK not in light
    assert DARK in dark


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as defined by the Web Content Accessibility Guidelines."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_contrast_is_sufficient(dark: bool) -> None:
    light, changed = rules()
    found = re.findall(
        r"\.flowdsl ([\w.-]+) {[^}]*?fill: (#\w{6})", light + changed if dark else light
    )
    fills = {name.lstrip("."): colour for name, colour in found}  # the later rule holds
    for ground in ("ground", "box", "hot-box"):
        for text in ("text", "faint", "hot-text"):
            assert contrast(fills[ground], fills[text]) >= 4.5, (ground, text)
    for bar in ("cost", "hot", "consumer", "hosted", "input", "handing"):
        assert contrast(fills["box"], fills[bar]) >= 1.9, bar


def test_css_rules_apply_only_to_the_picture() -> None:
    selectors = re.findall(r"([^{}]+){", "".join(rules()))
    assert all(selector.strip().startswith(".flowdsl ") for selector in selectors)


@given(st.text(max_size=80))
def test_any_title_can_be_drawn(title: str) -> None:
    plan = diagram_of(plan_of(FLOW.node))
    line = attrs.evolve(plan.root.operators[0], title=title)
    root = attrs.evolve(plan.root, operators=(line, *plan.root.operators[1:]))
    svg = picture(attrs.evolve(plan, root=root)).svg()
    assert ElementTree.fromstring(svg) is not None


def test_a_long_title_is_cut_and_kept_as_a_tooltip() -> None:
    title = "from_lmdb('" + "x" * 80 + "')"
    plan = diagram_of(plan_of(FLOW.node))
    line = attrs.evolve(plan.root.operators[0], title=title)
    root = attrs.evolve(plan.root, operators=(line, *plan.root.operators[1:]))
    svg = picture(attrs.evolve(plan, root=root)).svg()
    (shown,) = [text for text in texts(svg) if text.startswith("from_lmdb")]
    assert shown.endswith("…")
    assert title in [element.text for element in drawn(svg) if element.tag == f"{SVG}title"]


@given(st.text(min_size=1), st.floats(30, 500), st.sampled_from(["", "mono", "small"]))
def test_cut_text_fits_the_width(text: str, width: float, kind: str) -> None:
    assert text_width(cut(text, width, kind), kind) <= width


def test_lines_fit_the_width() -> None:
    words = "it limits the run to 100 elements/s " * 8
    for line in lines(words, 300):
        assert text_width(line) <= 300
    assert " ".join(lines(words, 300)).split() == words.split()
