# Only what the guided fuzzer uses.

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Never

def Setup(
    args: Sequence[str],
    test_one_input: Callable[[bytes], object],
    *,
    custom_mutator: Callable[[bytes, int, int], bytes] = ...,
) -> list[str]: ...
def Fuzz() -> Never: ...
def Mutate(data: bytes, max_size: int) -> bytes: ...
def instrument_imports(
    include: Sequence[str] = ..., exclude: Sequence[str] = ...
) -> AbstractContextManager[None]: ...
