from collections.abc import Iterable, Sequence

class _FieldDescriptor:
    name: str

class GPUOptions:
    allow_growth: bool
    def __init__(self, *, allow_growth: bool = ..., visible_device_list: str = ...) -> None: ...
    def ListFields(self) -> list[tuple[_FieldDescriptor, object]]: ...

class ConfigProto:
    intra_op_parallelism_threads: int
    inter_op_parallelism_threads: int
    allow_soft_placement: bool
    log_device_placement: bool
    gpu_options: GPUOptions
    def __init__(
        self,
        *,
        intra_op_parallelism_threads: int = ...,
        inter_op_parallelism_threads: int = ...,
        allow_soft_placement: bool = ...,
        log_device_placement: bool = ...,
        operation_timeout_in_ms: int = ...,
        gpu_options: GPUOptions = ...,
    ) -> None: ...
    def ListFields(self) -> list[tuple[_FieldDescriptor, object]]: ...

class SessionLog:
    START: int
    status: int
    def __init__(self, *, status: int = ...) -> None: ...

class HistogramProto:
    def __init__(
        self,
        *,
        min: float = ...,
        max: float = ...,
        num: float = ...,
        sum: float = ...,
        sum_squares: float = ...,
        bucket_limit: Iterable[float] = ...,
        bucket: Iterable[float] = ...,
    ) -> None: ...

class Summary:
    class Value:
        tag: str
        simple_value: float
        histo: HistogramProto
        def __init__(
            self, *, tag: str, simple_value: float = ..., histo: HistogramProto = ...
        ) -> None: ...
        def HasField(self, field_name: str, /) -> bool: ...

    value: Sequence[Summary.Value]
    def __init__(self, *, value: Sequence[Summary.Value] = ...) -> None: ...

class Event:
    wall_time: float
    step: int
    file_version: str
    summary: Summary
    session_log: SessionLog
    def __init__(
        self,
        *,
        wall_time: float = ...,
        step: int = ...,
        file_version: str = ...,
        summary: Summary = ...,
        session_log: SessionLog = ...,
    ) -> None: ...
    def SerializeToString(self) -> bytes: ...
    def HasField(self, field_name: str, /) -> bool: ...
    @staticmethod
    def FromString(s: bytes, /) -> Event: ...

def get_default_graph() -> object: ...
