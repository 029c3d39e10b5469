"""Show a flow in a notebook: its plan as a picture.

Showing a flow does not compute elements, call user functions or start workers. It also never fails,
as a notebook shows the last value of a cell without an explicit request.
"""

from __future__ import annotations

from typing import Any

from flowdsl.nodes import FlowBase
from flowdsl.plan.lower import plan_of
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture


def plan_bundle(flow: FlowBase[Any, Any]) -> dict[str, str]:
    """Return the representations of a flow by MIME type; only text if it cannot be planned.

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
