from abc import ABC, abstractmethod

class PythonState(ABC):
    @abstractmethod
    def serialize(self) -> str: ...
    @abstractmethod
    def deserialize(self, string_value: bytes) -> None: ...
