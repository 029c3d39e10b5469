from collections.abc import Callable

from tensorflow.data import Dataset

def assert_cardinality(expected_cardinality: int) -> Callable[[Dataset], Dataset]: ...
