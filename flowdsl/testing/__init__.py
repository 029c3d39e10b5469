"""The laws that flowdsl's own operators are held to, for those of your package too.

``check_operator``  an operator, on random chains     ``check_source``  a source, by its rows
``check_format``    a reader and a writer of files    ``check_input``   what feeds a step function

Each is a call in a test of your own. What they are made of:

``laws``       each a sentence, and a function that fails when it is broken
``outcomes``   what a pass gave, and in what it differs from what it should have given
``model``      what a flow means, in plain Python           ``models``     of some operators
``recipes``    a flow and its model, side by side           ``elements``   rows that can be told
``catalogue``  random chains of sources and operators       ``standard``   those that are drawn here
``sources``, ``operators``, ``combining``                   how each of them is drawn
``functions``  what they call       ``checks``, ``formats``, ``inputs``    the four calls above

They are drawn by hypothesis: ``pip install "flowdsl[testing]"``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING


def _is_installed(package: str) -> bool:
    """Looks for it and imports nothing."""
    try:
        return find_spec(package) is not None
    except ValueError:  # it is known to be missing
        return False


if not _is_installed("hypothesis"):
    raise ImportError(
        'flowdsl.testing needs hypothesis: pip install "flowdsl[testing]"', name="hypothesis"
    )

if TYPE_CHECKING:
    from flowdsl.testing.catalogue import Catalogue, Draw
    from flowdsl.testing.checks import check_operator, check_source
    from flowdsl.testing.formats import FORMAT_LAWS, Format, check_format
    from flowdsl.testing.inputs import INPUT_LAWS, check_input
    from flowdsl.testing.laws import LAWS
    from flowdsl.testing.model import BAD, Failed, Model
    from flowdsl.testing.recipes import Recipe, Source
    from flowdsl.testing.standard import chains

__all__ = [
    "BAD",
    "FORMAT_LAWS",
    "INPUT_LAWS",
    "LAWS",
    "Catalogue",
    "Draw",
    "Failed",
    "Format",
    "Model",
    "Recipe",
    "Source",
    "chains",
    "check_format",
    "check_input",
    "check_operator",
    "check_source",
]

_PLACES = {
    "BAD": "model",
    "FORMAT_LAWS": "formats",
    "INPUT_LAWS": "inputs",
    "LAWS": "laws",
    "Catalogue": "catalogue",
    "Draw": "catalogue",
    "Failed": "model",
    "Format": "formats",
    "Model": "model",
    "Recipe": "recipes",
    "Source": "recipes",
    "chains": "standard",
    "check_format": "formats",
    "check_input": "inputs",
    "check_operator": "checks",
    "check_source": "checks",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Imported when it is asked for: workers import ``functions`` from here, and draw nothing."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"flowdsl.testing.{_PLACES[name]}"), name)
