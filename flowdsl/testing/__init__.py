"""Property-based tests of your own operators, sources and formats, as for flowdsl's own.

``check_operator``     tests an operator, on random chains of operators
``check_source``       tests a source against its rows
``check_format``       tests a reader and a writer of a file format
``check_input``        tests an input source of a step function, which reads a flow
``check_other_input``  tests an input source that does not read a flow
``check_consumer``     tests a loader for another framework
``check_flow``         tests a whole flow of yours, with your data and functions

Call them in your tests. They are implemented by these modules:

``laws``       the laws of flows: functions that fail if a property does not hold
``outcomes``   the outcome of a pass, and comparisons of outcomes
``model``      the meaning of a flow in plain Python        ``models``     models of operators
``recipes``    a flow together with its model               ``elements``   rows with identities
``catalogue``  random chains of sources and operators       ``standard``   flowdsl's own catalogue
``sources``, ``operators``, ``combining``                   random sources and operators
``functions``  functions used in chains                     ``endings``    errors, leftover threads
``checks``, ``formats``, ``inputs``, ``other_inputs``, ``consumers``, ``flows``   the calls above

``pytest_plugin`` is a plugin of pytest, with a fixture that times a flow.

Hypothesis draws the chains: ``pip install "flowdsl[testing]"``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from flowdsl.errors import MissingLibrary


def _is_installed(package: str) -> bool:
    """Return True if a package is installed, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # the package is known to be missing
        return False


if not _is_installed("hypothesis"):
    raise MissingLibrary(
        'flowdsl.testing needs hypothesis: pip install "flowdsl[testing]"', name="hypothesis"
    )

if TYPE_CHECKING:
    from flowdsl.testing.catalogue import Catalogue, Draw
    from flowdsl.testing.checks import check_operator, check_source
    from flowdsl.testing.consumers import CONSUMER_LAWS, ConsumerKind, check_consumer
    from flowdsl.testing.flows import FLOW_LAWS, Finding, FlowReport, check_flow
    from flowdsl.testing.formats import FORMAT_LAWS, Format, check_format
    from flowdsl.testing.inputs import INPUT_LAWS, check_input
    from flowdsl.testing.laws import LAWS
    from flowdsl.testing.model import BAD, Failed, Model
    from flowdsl.testing.other_inputs import OTHER_INPUT_LAWS, check_other_input
    from flowdsl.testing.recipes import Recipe, Source
    from flowdsl.testing.standard import chains

__all__ = [
    "BAD",
    "CONSUMER_LAWS",
    "FLOW_LAWS",
    "FORMAT_LAWS",
    "INPUT_LAWS",
    "LAWS",
    "OTHER_INPUT_LAWS",
    "Catalogue",
    "ConsumerKind",
    "Draw",
    "Failed",
    "Finding",
    "FlowReport",
    "Format",
    "Model",
    "Recipe",
    "Source",
    "chains",
    "check_consumer",
    "check_flow",
    "check_format",
    "check_input",
    "check_operator",
    "check_other_input",
    "check_source",
]

_MODULES = {
    "BAD": "model",
    "CONSUMER_LAWS": "consumers",
    "FLOW_LAWS": "flows",
    "FORMAT_LAWS": "formats",
    "INPUT_LAWS": "inputs",
    "LAWS": "laws",
    "OTHER_INPUT_LAWS": "other_inputs",
    "Catalogue": "catalogue",
    "ConsumerKind": "consumers",
    "Draw": "catalogue",
    "Failed": "model",
    "Finding": "flows",
    "FlowReport": "flows",
    "Format": "formats",
    "Model": "model",
    "Recipe": "recipes",
    "Source": "recipes",
    "chains": "standard",
    "check_consumer": "consumers",
    "check_flow": "flows",
    "check_format": "formats",
    "check_input": "inputs",
    "check_operator": "checks",
    "check_other_input": "other_inputs",
    "check_source": "checks",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Import a name on first use: workers import only ``functions``, and need no hypothesis."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"flowdsl.testing.{_MODULES[name]}"), name)
