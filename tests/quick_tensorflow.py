"""Imports TensorFlow in three quarters of the time, and runs a program that uses it.

    python -m tests.quick_tensorflow PROGRAM [ARGUMENT]...

Keras imports scikit-learn to wrap its models for it. Modules stay: a collection frees next to
nothing while they are imported.
"""

from __future__ import annotations

import gc
import runpy
import sys

if not {"sklearn", "tensorflow"} & sys.modules.keys():
    gc.disable()
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # as if it were not installed
    import tensorflow as tf  # noqa: F401

    del sys.modules["sklearn"]
    gc.freeze()
    gc.enable()

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
