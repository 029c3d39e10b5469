from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):
    import tests.quick_tensorflow  # noqa: F401  # before flowdsl imports TensorFlow
    from flowdsl.tensorflow.inputs import logical_cpus

    logical_cpus(4)  # before any test makes TensorFlow start
