from __future__ import annotations

from contextlib import suppress

from flowdsl.errors import MissingLibrary

with suppress(MissingLibrary):
    from flowdsl.tensorflow.inputs import logical_cpus

    logical_cpus(4)  # before any test makes TensorFlow start
