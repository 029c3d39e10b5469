"""``python -m flowdsl``: the command line."""

from __future__ import annotations

from flowdsl.cli.main import main

if __name__ == "__main__":
    main()
