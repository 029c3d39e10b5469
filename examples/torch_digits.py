"""Train a PyTorch model on image files in class folders. Kill it and run it again: it goes on."""

from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn

import flowdsl as fl

EPOCHS = 3
CHECKPOINT = Path("torch_digits.pt")


def write_digits(folder: Path) -> None:
    """Write the handwritten digits as ``folder/<digit>/<number>.png``."""
    digits = load_digits()
    for i, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(f"{folder}/{label}/{i:04}.png", image.astype(np.uint8) * 15)


def read(path: Path) -> tuple[NDArray[np.uint8], int]:
    return fl.decode_image(path.read_bytes(), channels=1), int(path.parent.name)


def augment(
    sample: tuple[NDArray[np.uint8], int], rng: np.random.Generator
) -> tuple[NDArray[np.uint8], int]:
    image, label = sample
    y, x = rng.integers(3, size=2)  # moves the digit by a pixel at most
    return np.pad(image, ((1, 1), (1, 1), (0, 0)))[y : y + 8, x : x + 8], label


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 6 * 6, 10)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(image.movedim(3, 1).float() / 255)
        return logits


def main() -> None:
    if not Path("digits").exists():
        write_digits(Path("digits"))
    paths = fl.from_items(sorted(Path("digits").glob("*/*.png")))
    train, held_out = paths.split(0.8, seed=1)
    rows = train.shuffle(seed=7).map(read).random_map(augment, seed=7)
    loader = rows.batch(32).prefetch(procs=2).to_torch()
    torch.manual_seed(1)
    model = Digits()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        print(f"going on in epoch {loader.epoch}")

    step = 0
    for epoch in range(loader.epoch, EPOCHS):
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                states = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                }
                torch.save(states, f"{CHECKPOINT}.new")
                Path(f"{CHECKPOINT}.new").replace(CHECKPOINT)
        with torch.no_grad():
            right = [
                (model(image).argmax(1) == label).float()
                for image, label in held_out.map(read).batch(64).to_torch()
            ]
        print(f"epoch {epoch}: held-out accuracy {torch.cat(right).mean():.3f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
