"""How a flow looks in a notebook: its plan, as a picture.

Showing a flow makes no element, calls no function of the user's and starts no worker. Nor does it
fail: a notebook shows what stands at the end of a cell, whether it was asked to or not.
"""

from __future__ import annotations

from typing import Any

from flowdsl.node import FlowBase
from flowdsl.plan.lower import plan_of
from flowdsl.report.diagram import diagram_of
from flowdsl.report.picture import picture


def plan_bundle(flow: FlowBase[Any, Any]) -> dict[str, str]:
    """A flow by kind of content; as text alone where an operator cannot be planned.

    >>> import flowdsl as fl
    >>> bundle = plan_bundle(fl.from_range(3).map(abs))
    >>> bundle["text/plain"], "map(abs)" in bundle["text/html"]
    ('from_range(3).map(abs)', True)
    """
    bundle = {"text/plain": object.__repr__(flow)}
    try:  # an operator of the user's may be half written: iterating it will tell
        bundle["text/plain"] = repr(flow)
        bundle["text/html"] = picture(diagram_of(plan_of(flow.node))).svg()
    except Exception:
        return bundle
    return bundle
