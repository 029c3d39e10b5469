"""There are fewer devices than towers.

This is refused before anything runs, and the error suggests a correction.
"""

from __future__ import annotations

from flowdsl.tensorflow.inputs import towers

towers(2)

# Seen:
# flowdsl.errors.FlowError: 2 towers need 2 devices, TensorFlow sees 0 GPU and 1 CPU; to run them
# on the CPU call flowdsl.tensorflow.inputs.logical_cpus(2) at the start of the program
