from __future__ import annotations

import subprocess
import sys

import pytest
import tensorflow as tf

import flowdsl as fl
from flowdsl.tensorflow.inputs import logical_cpus, towers


def test_repeated_call_for_no_more_cpus_is_allowed() -> None:
    assert logical_cpus(2) == ("/cpu:0", "/cpu:1")
    assert logical_cpus(1) == ("/cpu:0",)


def test_more_cpus_after_the_start_is_an_error() -> None:
    tf.constant(0)
    with pytest.raises(fl.FlowError, match=r"already started, with 4 CPU.*before the first"):
        logical_cpus(5)


def test_towers_are_the_first_devices() -> None:
    assert towers(2) in (("/cpu:0", "/cpu:1"), ("/gpu:0", "/gpu:1"))


def test_too_few_devices_is_an_error_with_a_remedy() -> None:
    with pytest.raises(fl.FlowError, match=r"9 towers need 9 devices.*4 CPU.*logical_cpus\(9\)"):
        towers(9)


def test_missing_tensorflow_error_has_the_install_command() -> None:
    code = "import sys; sys.modules['tensorflow'] = None\nimport flowdsl\nimport flowdsl.train"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "MissingLibrary: flowdsl.tensorflow needs TensorFlow" in ran.stderr
    assert 'pip install "flowdsl[tensorflow]"' in ran.stderr
