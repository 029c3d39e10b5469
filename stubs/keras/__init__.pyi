from typing import Any

from keras import callbacks as callbacks

def __getattr__(name: str) -> Any: ...
