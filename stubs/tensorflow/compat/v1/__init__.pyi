from collections.abc import Sequence

class SessionLog:
    START: int
    status: int
    def __init__(self, *, status: int = ...) -> None: ...

class Summary:
    class Value:
        tag: str
        simple_value: float
        def __init__(self, *, tag: str, simple_value: float) -> None: ...

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
