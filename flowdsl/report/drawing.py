"""A few shapes in SVG, readable on light and dark backgrounds without a script.

Colours are CSS classes, so that one rule can change them. The rules apply only to this picture,
as it may be embedded in a page with other pictures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from textwrap import wrap
from xml.etree import ElementTree

_STYLE = """
.flowdsl text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  font-size: 12px; fill: #1f2328; }
.flowdsl .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
.flowdsl .strong { font-weight: 600; }
.flowdsl .large { font-size: 14px; }
.flowdsl .small { font-size: 11px; }
.flowdsl .end { text-anchor: end; }
.flowdsl .middle { text-anchor: middle; }
.flowdsl .faint { fill: #59636e; }
.flowdsl .hot-text { fill: #bc4c00; }
.flowdsl .on-hot { fill: #ffffff; }
.flowdsl .ground { fill: #ffffff; }
.flowdsl .box { fill: #f6f8fa; stroke: #d1d9e0; }
.flowdsl .hot-box { fill: #fff8f2; stroke: #e16f24; stroke-width: 2; }
.flowdsl .way { stroke: #818b98; stroke-width: 1.5; fill: none; }
.flowdsl .tip { fill: #818b98; }
.flowdsl .rail { fill: #e0e6eb; }
.flowdsl .cost { fill: #54aeff; }
.flowdsl .hot { fill: #e16f24; }
.flowdsl .consumer { fill: #8250df; }
.flowdsl .hosted { fill: #218bff; }
.flowdsl .input { fill: #1a7f37; }
.flowdsl .handing { fill: #d4a72c; }
"""

_DARK = """
.flowdsl text { fill: #e6edf3; }
.flowdsl .faint { fill: #9198a1; }
.flowdsl .hot-text { fill: #f0883e; }
.flowdsl .on-hot { fill: #0d1117; }
.flowdsl .ground { fill: #0d1117; }
.flowdsl .box { fill: #161b22; stroke: #3d444d; }
.flowdsl .hot-box { fill: #241a12; stroke: #f0883e; }
.flowdsl .way { stroke: #9198a1; }
.flowdsl .tip { fill: #9198a1; }
.flowdsl .rail { fill: #343b44; }
.flowdsl .cost { fill: #388bfd; }
.flowdsl .hot { fill: #f0883e; }
.flowdsl .consumer { fill: #ab7df8; }
.flowdsl .hosted { fill: #388bfd; }
.flowdsl .input { fill: #3fb950; }
.flowdsl .handing { fill: #d29922; }
"""

_PROPORTIONAL, _MONOSPACED = 0.56, 0.605
"""The width of a character relative to its height: on average, and in a monospaced font."""

_SIZES = {"large": 14, "small": 11}

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML forbids, though a file's name may contain them."""


class Drawing:
    """Shapes on a canvas that grows to fit them."""

    def __init__(self, title: str) -> None:
        """``title`` is the text for readers who cannot see the picture."""
        self._shapes: list[ElementTree.Element] = []
        self._title = title
        self.width = self.height = 0.0

    def box(
        self, x: float, y: float, width: float, height: float, kind: str, radius: float = 0
    ) -> None:
        """Draw a rectangle."""
        if width <= 0 or height <= 0:
            return
        attributes = {"x": x, "y": y, "width": width, "height": height}
        if radius:
            attributes["rx"] = radius
        self._add("rect", kind, **attributes)
        self._grow_to(x + width, y + height)

    def text(self, x: float, y: float, text: str, kind: str = "", whole: str | None = None) -> None:
        """Draw a line of text; ``whole`` is the full text of a line that was cut, as a tooltip."""
        shape = self._add("text", kind, x=x, y=y)
        shape.text = _clean(text)
        if whole is not None and whole != text:
            ElementTree.SubElement(shape, "title").text = _clean(whole)
        self._grow_to(x if "end" in kind else x + text_width(text, kind), y + 4)

    def arrow(self, x: float, top: float, to: float, bottom: float) -> None:
        """Draw an arrow downwards, curved if it does not end straight below its start."""
        middle = (top + bottom) / 2
        path = f"M{_number(x)},{_number(top)}"
        if abs(x - to) > 0.5:
            path += f" C{_number(x)},{_number(middle)} {_number(to)},{_number(middle)}"
            path += f" {_number(to)},{_number(bottom - 5)}"
        else:
            path += f" V{_number(bottom - 5)}"
        self._add("path", "way", d=path)
        tip = f"M{_number(to - 4.5)},{_number(bottom - 7)} h9 l-4.5,7 z"
        self._add("path", "tip", d=tip)

    def svg(self) -> str:
        """Return the picture as SVG, dark if the reader's device is in dark mode."""
        width, height = _number(self.width), _number(self.height)
        root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "class": "flowdsl",
                "viewBox": f"0 0 {width} {height}",
                "width": width,
                "height": height,
                "role": "img",
            },
        )
        ElementTree.SubElement(root, "title").text = _clean(self._title)
        rules = f"{_STYLE}@media (prefers-color-scheme: dark) {{{_DARK}}}\n"
        ElementTree.SubElement(root, "style").text = rules
        ground = {"width": width, "height": height, "class": "ground", "rx": "8"}
        ElementTree.SubElement(root, "rect", ground)
        root.extend(self._shapes)
        return ElementTree.tostring(root, encoding="unicode")

    def _add(self, tag: str, kind: str, **attributes: float | str) -> ElementTree.Element:
        shape = ElementTree.Element(tag, {"class": kind} if kind else {})
        for name, value in attributes.items():
            shape.set(name, value if isinstance(value, str) else _number(value))
        self._shapes.append(shape)
        return shape

    def _grow_to(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


def text_width(text: str, kind: str = "") -> float:
    """Return the approximate width of a text.

    >>> text_width("mmmm", "mono") > text_width("mmmm") > text_width("mm")
    True
    """
    height = next((size for name, size in _SIZES.items() if name in kind), 12)
    return len(text) * height * (_MONOSPACED if "mono" in kind else _PROPORTIONAL)


def cut(text: str, width: float, kind: str = "") -> str:
    """Return the text, with its end cut off if it does not fit in ``width``.

    >>> cut("from_lmdb('digits.lmdb')", 80), cut("batch(32)", 80)
    ('from_lmdb(…', 'batch(32)')
    """
    if text_width(text, kind) <= width:
        return text
    most = max(1, int(len(text) * width / text_width(text, kind)) - 1)
    return text[:most].rstrip() + "…"


def lines(text: str, width: float, kind: str = "") -> Iterable[str]:
    """Return the text in lines that fit in ``width``."""
    return wrap(text, max(20, int(width / text_width("x", kind))))


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _number(value: float) -> str:
    """Return a number in short form, the same on every machine."""
    return f"{value:.1f}".removesuffix(".0")
