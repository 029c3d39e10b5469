from __future__ import annotations

import pytest

pytest.importorskip("tests.quick_tensorflow")
pytest.importorskip("tensorflow")

import tensorflow as tf

# Steps of tests run a few times: to optimize their graphs took a fifth of the time of all tests
# here. The programs that tests start, such as the examples, optimize theirs.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
