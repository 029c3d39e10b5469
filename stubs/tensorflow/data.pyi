from collections.abc import Iterator, Sequence

from tensorflow._tensor import Tensor

class TFRecordDataset:
    def __init__(
        self, filenames: str | Sequence[str], *, buffer_size: int | None = None
    ) -> None: ...
    def __iter__(self) -> Iterator[Tensor]: ...
