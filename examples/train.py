"""Train, evaluate, save and resume a small convolutional network on the digits that weftgrad ships.

    python examples/train.py --checkpoint digits.pt
    python examples/train.py --checkpoint digits.pt        # resumes from the file
    python examples/train.py --autocast bfloat16 --device opencl:0

A run that is stopped anywhere and resumed gives bit-identical results to one without a stop.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import weftgrad as wg
from weftgrad import nn, optim
from weftgrad.demo import digits
from weftgrad.nn import functional as F
from weftgrad.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A classifier of `(N, 1, 8, 8)` grey images into ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 64, 3, stride=2, padding=1), nn.ReLU()
        )
        self.dropout = nn.Dropout(0.5)
        self.classes = nn.Linear(64 * 4 * 4, digits.CLASSES)

    def forward(self, images: wg.Tensor) -> wg.Tensor:
        return self.classes(self.dropout(self.features(images).flatten(1)))


class Training:
    """The state of a training run, which a checkpoint saves."""

    def __init__(self, device: str, epochs: int, half: wg.dtype | None = None, seed: int = 0, batch_size: int = 64):
        wg.manual_seed(seed)  # weights, dropout, and the order of the images
        self.device, self.half = wg.device(device), half
        arrays = digits.load()
        images, labels, self.test_images, self.test_labels = (wg.tensor(a, device=self.device) for a in arrays)
        self.loader = DataLoader(TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True)
        self.net = Net().to(self.device)
        self.optimizer = optim.AdamW(self.net.parameters(), lr=1e-2)
        steps = epochs * len(self.loader)
        self.scheduler = optim.lr_scheduler.OneCycleLR(self.optimizer, 1e-2, total_steps=steps, cycle_momentum=False)
        self.scaler = wg.amp.GradScaler(self.device.type, enabled=half is wg.float16)
        self.epoch = self.steps = 0
        self.loss = wg.tensor(float("nan"))

    def autocast(self) -> wg.autocast:
        """Return the context in which layers compute in the half type, if one is set."""
        return wg.autocast(self.device.type, dtype=self.half, enabled=self.half is not None)

    def step(self, images: wg.Tensor, labels: wg.Tensor) -> None:
        """Train on one batch."""
        with self.autocast():
            loss = F.cross_entropy(self.net(images), labels, label_smoothing=0.1)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)  # to clip gradients, unscale_ them before
        self.scaler.update()
        self.scheduler.step()
        self.steps += 1
        self.loss = loss.detach()

    def evaluate(self) -> float:
        """Return the accuracy on the test images."""
        self.net.eval()
        with wg.no_grad(), self.autocast():
            guesses = self.net(self.test_images).argmax(1)
        self.net.train()
        return (guesses == self.test_labels).float().mean().item()

    def parts(self) -> dict[str, Any]:
        """Return the objects that have a `state_dict`, by name."""
        return {
            "net": self.net, "optimizer": self.optimizer, "scheduler": self.scheduler, "scaler": self.scaler,
            "loader": self.loader,
        }  # fmt: skip

    def save(self, path: Path) -> None:
        state = {name: part.state_dict() for name, part in self.parts().items()}
        state |= {"random": wg.get_rng_state(), "epoch": self.epoch, "steps": self.steps, "loss": self.loss}
        wg.save(state, path)

    def load(self, path: Path) -> None:
        state = wg.load(path, map_location=self.device)
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        wg.set_rng_state(state["random"])
        self.epoch, self.steps, self.loss = state["epoch"], state["steps"], state["loss"]


def main(arguments: Sequence[str] | None = None) -> Training:
    parser = argparse.ArgumentParser(description="Train a network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="compute layers in a half type")
    parser.add_argument("--checkpoint", type=Path, help="file to save to, and to go on from if it is there")
    parser.add_argument("--every", type=int, default=50, help="steps between two savings (default: 50)")
    parser.add_argument("--stop", type=int, help="stop after so many steps, as if the power had gone")
    options = parser.parse_args(arguments)
    run = Training(options.device, options.epochs, getattr(wg, options.autocast or "", None), options.seed)
    if options.checkpoint and options.checkpoint.exists():
        run.load(options.checkpoint)
        print(f"going on after step {run.steps}")
    while run.epoch < options.epochs:
        for images, labels in run.loader:
            run.step(images, labels)
            if options.checkpoint and run.steps % options.every == 0:
                run.save(options.checkpoint)
            if run.steps == options.stop:
                return run
        run.epoch += 1
        print(f"epoch {run.epoch:2d}  loss {run.loss.item():.4f}  test accuracy {100 * run.evaluate():.2f} %")
    return run


if __name__ == "__main__":
    main()
