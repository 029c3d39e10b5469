from collections.abc import Sequence

class LibController:
    internal_api: str
    def set_num_threads(self, num_threads: int) -> None: ...

class ThreadpoolController:
    lib_controllers: Sequence[LibController]

def threadpool_info() -> list[dict[str, str | int]]: ...
