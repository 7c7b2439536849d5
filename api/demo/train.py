"""The demo: train a small convolutional network on handwritten digits, and report speed and memory.

weftgrad demo [--epochs N] [--steps N] [--seed N] [--device D] [--output FILE.png]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from .. import (
    empty_cache,
    float32,
    int64,
    launches,
    manual_seed,
    max_memory_allocated,
    max_memory_reserved,
    memory_stats,
    nn,
    no_grad,
    optim,
    reset_peak_memory_stats,
    synchronize,
    tensor,
    zeros,
)  # fmt: skip
from ..cli.samples import capture_steps
from ..nn import functional as F
from ..random import Generator, fork_rng
from ..runtime.backends.targets import build_steps
from ..runtime.device import Device, DeviceLike
from ..runtime.device import device as to_device
from ..runtime.errors import format_bytes
from ..runtime.tensor import Tensor
from ..utils.data import DataLoader, TensorDataset
from . import digits
from .figure import check_output, draw

if TYPE_CHECKING:
    import argparse

__all__ = ["Report", "model", "train"]

EPOCHS = 15
BATCH_SIZE = 64
LEARNING_RATE = 1e-2


@dataclass
class Report:
    """The result of a training run.

    Attributes:
        device: The driver's name and the device.
        accuracy: The fraction of test images that are classified correctly.
        losses: The loss of every batch.
        guesses: The predicted class of every test image.
        samples_per_second: The training speed, without the first epoch.
        build_seconds: Time to load the data and compile kernels.
        train_seconds: Time of all epochs.
        launches: Number of kernel launches.
        peak: Peak bytes in use by tensors.
        reserved: Peak bytes allocated from the driver.
        driver_allocations: Number of allocations from the driver in each epoch.
    """

    device: str = ""
    accuracy: float = 0.0
    losses: list[float] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)
    samples_per_second: float = 0.0
    build_seconds: float = 0.0
    train_seconds: float = 0.0
    launches: int = 0
    peak: int = 0
    reserved: int = 0
    driver_allocations: list[int] = field(default_factory=list)


def model(device: Device) -> nn.Module:
    """Return the network: two convolutions and a linear layer, from `(N, 1, 8, 8)` images to ten classes."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 64, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(64 * 16, digits.CLASSES),
    )  # fmt: skip
    return network.to(device)


def _step(net: nn.Module, optimizer: optim.Optimizer, images: Tensor, labels: Tensor) -> Tensor:
    """Train on one batch, and return its loss, a 0-d tensor, without waiting for it."""
    loss = F.cross_entropy(net(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def prepare(device: Device, images: Tensor, labels: Tensor, batch_size: int = BATCH_SIZE) -> None:
    """Compile the kernels of training ahead, on all cores. Later runs find them in the cache.

    Runs one step while launches are only listed, and builds the listed kernels in batches.
    """
    with fork_rng(), capture_steps(device) as steps:
        net = model(device)
        optimizer = optim.AdamW(net.parameters())
        batch = next(iter(DataLoader(TensorDataset(images, labels), batch_size)))
        _step(net, optimizer, *batch)
        with no_grad():
            net.eval()(zeros((len(labels) // 4, *images.shape[1:]), device=device)).argmax(1)
    build_steps(device.driver, steps)
    empty_cache(device)
    reset_peak_memory_stats(device)


def train(
    epochs: int = EPOCHS,
    seed: int = 0,
    device: DeviceLike | None = None,
    progress: Callable[[int, int, int, float], None] | None = None,
    *,
    steps: int | None = None,
    batch_size: int = BATCH_SIZE,
) -> Report:
    """Train, test, and measure.

    Args:
        epochs: The number of epochs.
        seed: The seed of weights, order and dropout.
        device: The device; None: the default one.
        progress: Called as `progress(epoch, batch, batches, loss)` every four batches and after each epoch.
        steps: The number of batches per epoch; None: all full batches.
        batch_size: The number of images per batch.

    Returns:
        `Report`.
    """
    target = to_device(device)
    report = Report()
    start = time.perf_counter()
    train_images, train_labels, test_images, test_labels = digits.load()
    images, labels = (
        tensor(train_images, dtype=float32, device=target), tensor(train_labels, dtype=int64, device=target),
    )  # fmt: skip
    prepare(target, images, labels, batch_size)
    manual_seed(seed)
    net = model(target)
    loader = DataLoader(
        TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True, generator=Generator().manual_seed(seed)
    )
    batches = len(loader) if steps is None else min(steps, len(loader))
    optimizer = optim.AdamW(net.parameters(), lr=LEARNING_RATE)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, epochs=epochs, steps_per_epoch=batches, cycle_momentum=False
    )
    report.build_seconds = time.perf_counter() - start
    report.device = f"{target.driver.name} ({target})"
    launches_before = launches(target)
    previous_allocations = memory_stats(target)["driver_allocations"]
    start = steady_start = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for number, batch in enumerate(islice(loader, batches)):
            losses.append(_step(net, optimizer, *batch))
            schedule.step()
            if progress is not None and number % 4 == 0:
                progress(epoch, number, batches, report.losses[-1] if report.losses else float("nan"))
        report.losses += [loss.item() for loss in losses]  # waits once per epoch
        allocations = memory_stats(target)["driver_allocations"]
        report.driver_allocations.append(allocations - previous_allocations)
        previous_allocations = allocations
        if epoch == 0 and epochs > 1:
            steady_start = time.perf_counter()
        if progress is not None:
            progress(epoch, batches, batches, report.losses[-1])
    synchronize(target)
    report.train_seconds = time.perf_counter() - start
    report.samples_per_second = max(epochs - 1, 1) * batches * batch_size / (time.perf_counter() - steady_start)
    report.launches = launches(target) - launches_before
    report.peak, report.reserved = max_memory_allocated(target), max_memory_reserved(target)
    with no_grad():
        guesses = net.eval()(tensor(test_images, device=target)).argmax(1)
    report.guesses = guesses.tolist()
    report.accuracy = float((guesses.cpu().numpy() == test_labels).mean())
    return report


class _Bar:
    """A progress line that is overwritten on a terminal; on other streams, one line per epoch."""

    WIDTH = 24

    def __init__(self, epochs: int, stream: TextIO):
        self.epochs, self.stream = epochs, stream
        self.live = stream.isatty()
        self.start = time.perf_counter()

    def __call__(self, epoch: int, batch: int, batches: int, loss: float) -> None:
        is_epoch_end = batch == batches
        if not self.live and not is_epoch_end:
            return
        fraction = (epoch + batch / batches) / self.epochs
        filled = int(fraction * self.WIDTH)
        bar = "=" * filled + ">" * (filled < self.WIDTH) + " " * max(self.WIDTH - filled - 1, 0)
        loss_text = "" if loss != loss else f"  loss {loss:.3f}"
        elapsed = time.perf_counter() - self.start
        text = f"epoch {epoch + 1:2d}/{self.epochs} [{bar}] {100 * fraction:3.0f} %{loss_text}  {elapsed:4.1f} s"
        end = "\r" if self.live and not (is_epoch_end and epoch + 1 == self.epochs) else "\n"
        print(text, end=end, file=self.stream, flush=True)


def _lines(report: Report) -> Iterator[str]:
    later = sum(report.driver_allocations[1:])
    yield f"device              {report.device}"
    yield f"test accuracy       {100 * report.accuracy:.2f} % of {len(report.guesses)} images"
    yield (
        f"speed               {report.samples_per_second:,.0f} samples/s, {report.train_seconds:.1f} s, "
        f"kernels compiled before in {report.build_seconds:.1f} s"
    )
    yield f"kernels launched    {report.launches:,}"
    share = report.reserved / max(report.peak, 1)
    yield (
        f"memory              peak {format_bytes(report.peak)}, reserved {format_bytes(report.reserved)} "
        f"({share:.2f} of the peak)"
    )
    yield f"driver allocations  {' '.join(map(str, report.driver_allocations))} by epoch ({later} after the first)"


def run(options: argparse.Namespace) -> int:
    """Run the command: check where the picture goes, train, print the report, draw. Return the exit status 0."""
    path = Path(options.output) if options.output else None
    if path:
        check_output(path)
    report = train(options.epochs, options.seed, options.device, _Bar(options.epochs, sys.stdout), steps=options.steps)
    for line in _lines(report):
        print(line)
    if path:
        draw(report, path)
        print(f"picture             {path}")
    return 0
