from tensorflow.keras import Variable

class SeedGenerator:
    state: Variable
    def __init__(self, seed: int | None = None) -> None: ...
