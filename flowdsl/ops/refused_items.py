"""Objects that cannot be the items of a source, and what to pass in their place."""

from __future__ import annotations

from collections.abc import Mapping

from flowdsl.errors import InvalidFlow
from flowdsl.nodes import FlowBase


def refuse_flow(argument: str, value: object) -> None:
    """Refuse a flow: as a sequence of items, each of its elements would be computed by itself.

    Raises:
        InvalidFlow: It is a flow.
    """
    if isinstance(value, FlowBase):
        raise InvalidFlow(f"{argument} is a flow already: chain operators to it")


def refuse_splits(argument: str, value: object) -> None:
    """Refuse a dict of datasets, such as the splits from ``load_dataset`` of Hugging Face.

    Raises:
        InvalidFlow: It is a dict of datasets; the message names them.
    """
    if not isinstance(value, Mapping) or type(value) is dict or not value:
        return
    if all(hasattr(part, "column_names") and hasattr(part, "features") for part in value.values()):
        names = ", ".join(map(repr, value))
        raise InvalidFlow(
            f"{argument} must be one dataset, and this {type(value).__name__} has several: "
            f"{names}; pass one of them, such as [{next(iter(value))!r}]"
        )


def is_table(value: object) -> bool:
    """Return True for a data frame or a table: its items are columns, or are chosen by label."""
    kind = type(value)
    has_columns = hasattr(kind, "columns") and (
        hasattr(kind, "iloc") or hasattr(kind, "__arrow_c_stream__")
    )
    return not isinstance(value, Mapping) and (has_columns or hasattr(kind, "__dataframe__"))


def is_of_arrow(value: object) -> bool:
    """Return True for an array of Arrow."""
    return hasattr(type(value), "to_pylist") and hasattr(type(value), "to_numpy")


def refuse_tables(argument: str, value: object) -> None:
    """Refuse a data frame or a table: its items are columns, or rows selected by label.

    An array of Arrow is refused too: its items are Arrow's scalars, which do not stack.

    Raises:
        InvalidFlow: It is one of these; the message contains the code to write.
    """
    if is_table(value):
        raise InvalidFlow(
            f"{argument} must not be a table, whose items are columns or are chosen by label, got "
            f"{type(value).__name__}; from_items(x) yields its rows"
        )
    if is_of_arrow(value):
        raise InvalidFlow(
            f"{argument} must not be an array of Arrow, whose items are Arrow's scalars, got "
            f"{type(value).__name__}; pass x.to_numpy(zero_copy_only=False), or x.to_pylist() for "
            f"Python's values"
        )


def refuse_labels(argument: str, value: object) -> None:
    """Refuse a table, an array of Arrow, or an object indexed by label, as a Series of pandas.

    Raises:
        InvalidFlow: It is one of these; the message contains the code to write.
    """
    refuse_tables(argument, value)
    if hasattr(type(value), "iloc"):
        raise InvalidFlow(
            f"{argument} must be numbered by position, and the items of a {type(value).__name__} "
            f"are chosen by label; pass its values in their order, x.to_numpy()"
        )
