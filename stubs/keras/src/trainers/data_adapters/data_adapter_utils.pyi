from collections.abc import Iterable
from typing import Any

def get_torch_dataloader(iterable: Iterable[Any]) -> Any: ...
