"""Settings of the site: the pages as they are, and a reference from the docstrings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from sphinx.ext.autodoc.mock import _MockObject  # noqa: E402

import flowdsl  # noqa: E402  # found through the line above

project = "flowdsl"
author = "The flowdsl authors"
project_copyright = author
release = version = flowdsl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
root_doc = "docs/site/index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
include_patterns = ["*.md", "bench/README.md", "changes/README.md", "docs/*.md", "docs/site/**"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # as many levels as pages link to
suppress_warnings = ["misc.highlighting_failure"]  # shortened code, as readers see it elsewhere

highlight_options = {"python": {"stripnl": True}}  # the blank line that ends a doctest

# The reference is made without the frameworks: only their names appear in it.
autodoc_mock_imports = [
    "h5py",
    "hypothesis",
    "jax",
    "keras",
    "matplotlib",
    "ray",
    "tensorflow",
    "torch",
]
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: self  # in aliases: a type, or None
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False

copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"flowdsl {release}"
html_extra_path = ["index.html"]
html_static_path = ["static"]
html_css_files = ["site.css"]


def shorten(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Leave out the tables of contents in docstrings of packages, which are for contributors."""
    if what == "module" and "" in lines and name != "flowdsl.effects":
        del lines[lines.index("") :]


def without_type(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep a first line ``what: why`` of an attribute whole: Napoleon would take a type from it."""
    if what in ("attribute", "data", "property") and lines and ": " in lines[0]:
        lines.insert(0, "\\ ")


def with_defaults(
    app: object,
    what: str,
    name: str,
    obj: Any,
    options: object,
    signature: str | None,
    returns: str,
) -> tuple[str, str] | None:
    """Show the defaults of a class of attrs: its source, which Sphinx reads, has none."""

    def default(found: re.Match[str]) -> str:
        value = attrs.fields_dict(obj)[found[1]].default
        return getattr(value, "__name__", repr(value))

    if signature is None or not attrs.has(obj):
        return None
    return re.sub(r"attr_dict\['(\w+)'\]\.default", default, signature), returns


def setup(app: Any) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", shorten)
    app.connect("autodoc-process-docstring", without_type, priority=400)  # before Napoleon's
    app.connect("autodoc-process-signature", with_defaults)
