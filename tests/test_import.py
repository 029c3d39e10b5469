"""What ``import flowdsl`` costs, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("tensorflow", "keras", "matplotlib", "h5py", "sklearn", "scipy", "rich", "pandas", "torch")
LIMIT_S = 0.25


def fresh(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_import_loads_nothing_heavy() -> None:
    loaded = fresh("import sys, flowdsl; print(*{name.partition('.')[0] for name in sys.modules})")
    assert "flowdsl" in loaded.split()
    assert not set(HEAVY) & set(loaded.split())


def test_import_is_quick() -> None:
    # The least of several: a busy machine makes an import slower, never quicker.
    program = (
        "from time import perf_counter; start = perf_counter(); import flowdsl; "
        "print(perf_counter() - start)"
    )
    assert min(float(fresh(program)) for _ in range(5)) < LIMIT_S


def test_every_public_name_is_there() -> None:
    fresh("import flowdsl; [getattr(flowdsl, name) for name in flowdsl.__all__]")
    assert fresh("import flowdsl; print(sorted(flowdsl.__all__) == flowdsl.__all__)") == "True\n"
