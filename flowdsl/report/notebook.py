"""How a notebook shows a flow: its plan as a picture.

Showing a flow makes no element, calls no user function and starts no worker. It also never fails,
since a notebook shows the last value of a cell even when the user did not ask for it.
"""

from __future__ import annotations

from typing import Any

from flowdsl.nodes import FlowBase
from flowdsl.plan.lower import plan_of
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture


def plan_bundle(flow: FlowBase[Any, Any]) -> dict[str, str]:
    """A flow by MIME type; only as text if an operator cannot be planned.

    >>> import flowdsl as fl
    >>> bundle = plan_bundle(fl.from_range(3).map(abs))
    >>> bundle["text/plain"], "map(abs)" in bundle["text/html"]
    ('from_range(3).map(abs)', True)
    """
    bundle = {"text/plain": object.__repr__(flow)}
    try:  # a user's operator may be half written; iterating it will raise the error
        bundle["text/plain"] = repr(flow)
        bundle["text/html"] = picture(diagram_of(plan_of(flow.node))).svg()
    except Exception:
        return bundle
    return bundle
