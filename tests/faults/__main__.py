"""Runs each fault, and reports those that do not end as documented: ``python -m tests.faults``."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from tests.faults.scene import faults, sample, seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help="of those, by default all")
    parser.add_argument("--show", action="store_true", help="print what each prints")
    parser.add_argument("--quick", action="store_true", help="a sample of each kind")
    options = parser.parse_args()
    console, wrong = Console(), 0
    every = sample() if options.quick else faults()
    chosen = [fault for fault in every if not options.names or fault.name in options.names]
    # After the import of a framework, forks take longer.
    for fault in sorted(chosen, key=lambda fault: len(fault.frameworks)):
        text = seen(fault)
        ended = fault.ends_so(text)
        wrong += not ended
        if options.show or not ended:
            console.print(
                f"{fault.name}: {'as documented' if ended else 'otherwise'}", markup=False
            )
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(chosen)} faults; {wrong} end otherwise")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
