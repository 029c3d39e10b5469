from collections.abc import Sequence

from tensorflow.config import experimental as experimental
from tensorflow.config import optimizer as optimizer
from tensorflow.config import threading as threading

class PhysicalDevice:
    name: str
    device_type: str

class LogicalDevice:
    name: str
    device_type: str

class LogicalDeviceConfiguration:
    def __init__(self, memory_limit: float | None = None) -> None: ...

def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]: ...
def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]: ...
def get_logical_device_configuration(
    device: PhysicalDevice,
) -> list[LogicalDeviceConfiguration] | None: ...
def set_logical_device_configuration(
    device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration]
) -> None: ...
def set_soft_device_placement(enabled: bool) -> None: ...
