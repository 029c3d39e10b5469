"""check: whether a flow builds, has the right types and effects, and what its runs promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import get_args

import attrs
import click

from flowdsl import effects
from flowdsl.cli.first_element import NotComputed, spec_computed
from flowdsl.cli.printing import json_option, print_json, print_lines
from flowdsl.cli.targets import BadInput, Target, target_argument
from flowdsl.effects import TAGS, Endless, Exact, Reordered, Resampled, Tag, Unsized, describe
from flowdsl.errors import ElementError, FlowError, NotResumable
from flowdsl.nodes import AnyNode
from flowdsl.plan.tree import walk
from flowdsl.runtime.state import state_of

_PROMISES: dict[Tag, tuple[str, str]] = {
    Reordered: ("rows in source order", "rows in another order"),
    Resampled: ("each row once", "rows may repeat or be missing"),
    Unsized: ("a known length", "a length known at the end"),
    Endless: ("an end", "no end"),
}
"""For each tag, what a flow promises without it, and with it."""

CHECKERS = ("mypy", "basedpyright", "pyright")
"""The type checkers, by the name of the package and of its module; the first installed is run."""

_ALIASES = ("Counted", "Finite", "InOrder", "Unmoved")


def effects_named(text: str) -> frozenset[Tag]:
    """Return the tags of effects as written in a type: ``Reordered | Endless``, ``Finite``.

    Raises:
        BadInput: A name is not an effect.
    """
    known = {Exact.__name__: (), **{tag.__name__: (tag,) for tag in TAGS}}
    known |= {alias: get_args(getattr(effects, alias)) for alias in _ALIASES}
    names = [name.strip() for name in text.replace(",", "|").split("|")]
    for name in names:
        if name not in known:
            raise BadInput(f"--needs: {name!r} is not an effect; expected {', '.join(known)}")
    return frozenset(tag for name in names for tag in known[name])


@attrs.frozen
class Finding:
    """One line of the report."""

    text: str
    ok: bool = True


@click.command()
@target_argument
@click.option(
    "--needs",
    type=effects_named,
    metavar="EFFECTS",
    multiple=True,
    help="The effects it may have; if it is repeated, the flow must satisfy all.",
)
@click.option("--types/--no-types", default=None, help="Require a type check, or leave it out.")
@json_option
def check(
    target: Target, needs: Sequence[frozenset[Tag]], types: bool | None, as_json: bool
) -> None:
    """Check a flow: that it builds, its types, its spec, its effects, its states.

    The first element is computed, in this process. The types are checked by mypy, basedpyright or
    pyright, whichever is installed. --needs is what a function of flows asks for, such as Exact,
    Reordered or "Reordered | Endless". The exit status is 1 if a check fails.
    """
    node = target.flow.node
    findings = {
        "flow": Finding(repr(target.flow)),
        "types": _types(target.file, types),
        "spec": _spec(node),
        "effects": _effects(node, frozenset.intersection(*needs) if needs else None),
        "promises": Finding(", ".join(_promises(node))),
        "states": _states(node),
    }
    ok = all(finding.ok for finding in findings.values())
    if as_json:
        found = {name: attrs.asdict(finding) for name, finding in findings.items()}
        print_json({"target": target.name, "ok": ok, "checks": found})
    else:
        print_lines({name: _marked(finding) for name, finding in findings.items()})
    sys.exit(not ok)


def _marked(finding: Finding) -> str:
    return finding.text if finding.ok else f"{click.style('failed:', fg='red')} {finding.text}"


def _types(file: str | None, wanted: bool | None) -> Finding:
    if wanted is False:
        return Finding("not checked")
    checker = next((name for name in CHECKERS if find_spec(name) is not None), None)
    if checker is None:
        text = f"not checked: none of {', '.join(CHECKERS)} is installed"
        return Finding(text, ok=not wanted)
    if file is None or not file.endswith(".py"):
        return Finding("not checked: the module has no source file", ok=not wanted)
    done = subprocess.run(
        [sys.executable, "-m", checker, file], capture_output=True, text=True, check=False
    )
    name = f"{checker} {metadata.version(checker)}"
    if done.returncode == 0:
        return Finding(f"no errors ({name})")
    return Finding(f"{name}\n{(done.stdout + done.stderr).rstrip()}", ok=False)


def _spec(node: AnyNode) -> Finding:
    """Find the spec, and whether the first element can be computed."""
    try:
        return Finding(str(spec_computed(node)))
    except NotComputed as reason:
        return Finding(f"{reason.spec}; the first element was not computed: {reason}")
    except ElementError as error:
        return Finding(str(error), ok=False)
    except FlowError as error:
        cause = "" if error.__cause__ is None else f": {error.__cause__!r}"
        return Finding(f"{error}{cause}", ok=False)


def _effects(node: AnyNode, needs: frozenset[Tag] | None) -> Finding:
    text = describe(node.effects)
    if needs is None:
        return Finding(text)
    excess = node.effects - needs
    if not excess:
        return Finding(f"{text}, within {describe(needs)}")
    added = "; ".join(_added(node, excess))
    return Finding(f"{text}, but {describe(needs)} is needed: {added}", ok=False)


def _added(node: AnyNode, tags: frozenset[Tag]) -> Iterator[str]:
    """Say which operator adds each unwanted effect."""
    for part in walk(node):
        inherited = frozenset[Tag]().union(*(source.effects for source in part.sources))
        new = (part.effects - inherited) & tags
        if new:
            yield f"{part.title} adds {describe(new).replace(' | ', ' and ')}"


def _promises(node: AnyNode) -> Iterator[str]:
    for tag, (without, with_it) in _PROMISES.items():
        if tag is Unsized and Endless in node.effects:
            continue
        yield with_it if tag in node.effects else without


def _states(node: AnyNode) -> Finding:
    try:
        state_of(node, 0, 0)
    except NotResumable as error:
        return Finding(f"none: {str(error).removeprefix('state_dict: ')}")
    return Finding("a run can be saved and resumed")
