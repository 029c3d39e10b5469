"""Imports TensorFlow in half of the time, and runs a program that uses it.

    python -m tests.quick_tensorflow PROGRAM [ARGUMENT]...

TensorFlow and Keras import the libraries below if they are installed: to wrap models for
scikit-learn, to accept frames of pandas, to draw, to convert functions of JAX. Modules stay: a
collection frees next to nothing while they are imported.
"""

from __future__ import annotations

import gc
import runpy
import sys

OPTIONAL = ("jax", "matplotlib", "pandas", "sklearn")

if not {*OPTIONAL, "tensorflow"} & sys.modules.keys():
    collects = gc.isenabled()
    gc.disable()
    # As if they were not installed.
    sys.modules.update(dict.fromkeys(OPTIONAL))  # type: ignore[arg-type]  # None refuses an import
    try:
        # Keras is loaded at the first use of ``tf.keras``.
        import keras  # noqa: F401
        import tensorflow as tf  # noqa: F401
    finally:
        for name in OPTIONAL:
            del sys.modules[name]
        gc.freeze()
        if collects:
            gc.enable()

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
