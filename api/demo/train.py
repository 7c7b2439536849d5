"""The demo: train a small convolutional network on handwritten digits, and report speed and memory.

weftgrad demo [--epochs N] [--steps N] [--seed N] [--device D] [--output FILE.png]
"""

from __future__ import annotations

import math
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
        losses: The loss of every batch, in order.
        guesses: The predicted class of every test image.
        samples_per_second: The training speed, without the first epoch if there are more.
        build_seconds: Time to load the data, create the network and compile kernels.
        train_seconds: Time of all epochs.
        launches: Number of kernel launches in all epochs.
        peak: Peak bytes in use by tensors, in all epochs.
        reserved: Peak bytes allocated from the driver, in all epochs.
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
    """Train on one batch. Return its loss as a 0-d tensor; the host does not wait for the value."""
    loss = F.cross_entropy(net(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def prepare(device: Device, images: Tensor, labels: Tensor, batch_size: int = BATCH_SIZE) -> None:
    """Compile the kernels of training ahead, on all cores. Later runs find them in the cache.

    Runs a training step and a test while launches are recorded and not executed, then compiles the recorded kernels in
    batches. The test is on a quarter of the number of training images, which is about the size of the test set.
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
    """Train a new network, test it, and measure both.

    Args:
        epochs: The number of epochs, at least 1.
        seed: The seed of weights, order and dropout.
        device: The device; None: the default one.
        progress: Called as `progress(epoch, batch, batches, loss)` every four batches and after each epoch, with the
            loss of the last batch of the epoch before (NaN in the first epoch), or after an epoch of its last batch.
        steps: The number of batches per epoch, at least 1; None: all full batches.
        batch_size: The number of images per batch.

    Returns:
        The measurements.
    """
    target_device = to_device(device)
    report = Report()
    start = time.perf_counter()
    train_images, train_labels, test_images, test_labels = digits.load()
    images = tensor(train_images, dtype=float32, device=target_device)
    labels = tensor(train_labels, dtype=int64, device=target_device)
    prepare(target_device, images, labels, batch_size)
    manual_seed(seed)
    net = model(target_device)
    loader = DataLoader(
        TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True, generator=Generator().manual_seed(seed)
    )
    batches = len(loader) if steps is None else min(steps, len(loader))
    optimizer = optim.AdamW(net.parameters(), lr=LEARNING_RATE)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, epochs=epochs, steps_per_epoch=batches, cycle_momentum=False
    )
    report.build_seconds = time.perf_counter() - start
    report.device = f"{target_device.driver.name} ({target_device})"
    launches_before = launches(target_device)
    previous_allocations = memory_stats(target_device)["driver_allocations"]
    start = steady_start = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for number, batch in enumerate(islice(loader, batches)):
            losses.append(_step(net, optimizer, *batch))
            schedule.step()
            if progress is not None and number % 4 == 0:
                progress(epoch, number, batches, report.losses[-1] if report.losses else float("nan"))
        report.losses += [loss.item() for loss in losses]  # waits once per epoch
        allocations = memory_stats(target_device)["driver_allocations"]
        report.driver_allocations.append(allocations - previous_allocations)
        previous_allocations = allocations
        if epoch == 0 and epochs > 1:
            steady_start = time.perf_counter()
        if progress is not None:
            progress(epoch, batches, batches, report.losses[-1])
    synchronize(target_device)
    report.train_seconds = time.perf_counter() - start
    report.samples_per_second = max(epochs - 1, 1) * batches * batch_size / (time.perf_counter() - steady_start)
    report.launches = launches(target_device) - launches_before
    report.peak, report.reserved = max_memory_allocated(target_device), max_memory_reserved(target_device)
    with no_grad():
        guesses = net.eval()(tensor(test_images, device=target_device)).argmax(1)
    report.guesses = guesses.tolist()
    report.accuracy = float((guesses.cpu().numpy() == test_labels).mean())
    return report


class _Bar:
    """A progress line that is overwritten on a terminal; on other streams, one line per epoch."""

    WIDTH = 24

    def __init__(self, epochs: int, stream: TextIO):
        self.epochs, self.stream = epochs, stream
        self.is_terminal = stream.isatty()
        self.start = time.perf_counter()

    def __call__(self, epoch: int, batch: int, batches: int, loss: float) -> None:
        is_epoch_end = batch == batches
        if not self.is_terminal and not is_epoch_end:
            return
        fraction = (epoch + batch / batches) / self.epochs
        filled = int(fraction * self.WIDTH)
        bar = "=" * filled + ">" * (filled < self.WIDTH) + " " * max(self.WIDTH - filled - 1, 0)
        loss_text = "" if math.isnan(loss) else f"  loss {loss:.3f}"
        elapsed = time.perf_counter() - self.start
        text = f"epoch {epoch + 1:2d}/{self.epochs} [{bar}] {100 * fraction:3.0f} %{loss_text}  {elapsed:4.1f} s"
        end = "\r" if self.is_terminal and not (is_epoch_end and epoch + 1 == self.epochs) else "\n"
        print(text, end=end, file=self.stream, flush=True)


def _report_lines(report: Report) -> Iterator[str]:
    later_allocations = sum(report.driver_allocations[1:])
    yield f"device              {report.device}"
    yield f"test accuracy       {100 * report.accuracy:.2f} % of {len(report.guesses)} images"
    yield (
        f"speed               {report.samples_per_second:,.0f} samples/s, {report.train_seconds:.1f} s, "
        f"kernels compiled before in {report.build_seconds:.1f} s"
    )
    yield f"kernels launched    {report.launches:,}"
    reserved_ratio = report.reserved / max(report.peak, 1)
    yield (
        f"memory              peak {format_bytes(report.peak)}, reserved {format_bytes(report.reserved)} "
        f"({reserved_ratio:.2f} of the peak)"
    )
    allocations = " ".join(map(str, report.driver_allocations))
    yield f"driver allocations  {allocations} by epoch ({later_allocations} after the first)"


def run(options: argparse.Namespace) -> int:
    """Run the command: check that the picture can be written, train, print the report, draw. Return the exit status."""
    path = Path(options.output) if options.output else None
    if path:
        check_output(path)
    report = train(options.epochs, options.seed, options.device, _Bar(options.epochs, sys.stdout), steps=options.steps)
    for line in _report_lines(report):
        print(line)
    if path:
        draw(report, path)
        print(f"picture             {path}")
    return 0
