"""The demo: a small convolutional network learns handwritten digits, and says what that cost.

weftgrad demo [--epochs N] [--steps N] [--seed N] [--device D] [--output FILE.png]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

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
from ..nn import functional as F
from ..random import Generator, fork_rng
from ..runtime.device import Device
from ..runtime.device import device as to_device
from ..runtime.errors import format_bytes
from ..utils.data import DataLoader, TensorDataset
from . import digits

__all__ = ["Report", "main", "model", "train"]

EPOCHS = 15
BATCH = 64
RATE = 1e-2


@dataclass
class Report:
    """What a training run did. losses: of every batch. samples_per_second: after the first
    epoch. driver_allocations: segments taken from the driver, by epoch."""

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
    """Two convolutions and a linear layer: 8 x 8 grey images to ten classes."""
    made = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 64, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(64 * 16, digits.CLASSES),
    )  # fmt: skip
    return made.to(device)


def _step(net: nn.Module, optimizer: optim.Optimizer, images: Any, labels: Any) -> Any:
    """One batch: its loss, a 0-d tensor that nobody has waited for."""
    loss = F.cross_entropy(net(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[attr-defined]
    optimizer.step()
    return loss.detach()  # type: ignore[attr-defined]


def prepare(device: Device, images: Any, labels: Any, batch_size: int = BATCH) -> None:
    """Compile the kernels of training all at once, on every core; a later run finds them in the cache.

    A step is called with launches only listed, and what it asked for is built in batches.
    """
    from ..cli.samples import collecting

    driver: Any = device.driver
    with fork_rng(), collecting(device) as steps:
        net = model(device)
        optimizer = optim.AdamW(net.parameters())
        batch = next(iter(DataLoader(TensorDataset(images, labels), batch_size)))
        _step(net, optimizer, *batch)
        with no_grad():
            net.eval()(zeros((len(labels) // 4, *images.shape[1:]), device=device)).argmax(1)
    if driver.target == "triton":  # which compiles a step, not only its kernel
        driver.build(list(dict.fromkeys(steps)))
    else:
        driver.build(list(dict.fromkeys(step.instance for step in steps)))
    empty_cache(device)
    reset_peak_memory_stats(device)


def train(
    epochs: int = EPOCHS,
    seed: int = 0,
    device: Any = None,
    progress: Any = None,
    *,
    steps: int | None = None,
    batch_size: int = BATCH,
) -> Report:
    """Train from `seed`, test, and measure. `progress(epoch, batch, batches, loss)` is called now and then.

    An epoch is all whole batches of `batch_size` images, or the first `steps` of them.
    """
    place = to_device(device)
    report = Report()
    begun = time.perf_counter()
    train_images, train_labels, test_images, test_labels = digits.load()
    images, labels = tensor(train_images, dtype=float32, device=place), tensor(train_labels, dtype=int64, device=place)
    prepare(place, images, labels, batch_size)
    manual_seed(seed)
    net = model(place)
    loader = DataLoader(
        TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True, generator=Generator().manual_seed(seed)
    )
    batches = len(loader) if steps is None else min(steps, len(loader))
    optimizer = optim.AdamW(net.parameters(), lr=RATE)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, epochs=epochs, steps_per_epoch=batches, cycle_momentum=False
    )
    report.build_seconds = time.perf_counter() - begun
    report.device = f"{place.driver.name} ({place})"
    before = launches(place)
    held = memory_stats(place)["driver_allocations"]
    begun = warm = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for number, batch in enumerate(islice(loader, batches)):
            losses.append(_step(net, optimizer, *batch))
            schedule.step()
            if progress is not None and number % 4 == 0:
                progress(epoch, number, batches, report.losses[-1] if report.losses else float("nan"))
        report.losses += [loss.item() for loss in losses]  # waits once an epoch
        now = memory_stats(place)["driver_allocations"]
        report.driver_allocations.append(now - held)
        held = now
        if epoch == 0 and epochs > 1:
            warm = time.perf_counter()
        if progress is not None:
            progress(epoch, batches, batches, report.losses[-1])
    synchronize(place)
    report.train_seconds = time.perf_counter() - begun
    report.samples_per_second = max(epochs - 1, 1) * batches * batch_size / (time.perf_counter() - warm)
    report.launches = launches(place) - before
    report.peak, report.reserved = max_memory_allocated(place), max_memory_reserved(place)
    with no_grad():
        guesses: Any = net.eval()(tensor(test_images, device=place)).argmax(1)
    report.guesses = guesses.tolist()
    report.accuracy = float((guesses.cpu().numpy() == test_labels).mean())
    return report


class _Bar:
    """A line of progress that is written over on a terminal; elsewhere, one line an epoch."""

    WIDTH = 24

    def __init__(self, epochs: int, stream: TextIO):
        self.epochs, self.stream = epochs, stream
        self.live = stream.isatty()
        self.begun = time.perf_counter()

    def __call__(self, epoch: int, batch: int, batches: int, loss: float) -> None:
        ended = batch == batches
        if not self.live and not ended:
            return
        done = (epoch + batch / batches) / self.epochs
        filled = int(done * self.WIDTH)
        bar = "=" * filled + ">" * (filled < self.WIDTH) + " " * max(self.WIDTH - filled - 1, 0)
        shown = "" if loss != loss else f"  loss {loss:.3f}"
        spent = time.perf_counter() - self.begun
        text = f"epoch {epoch + 1:2d}/{self.epochs} [{bar}] {100 * done:3.0f} %{shown}  {spent:4.1f} s"
        end = "\r" if self.live and not (ended and epoch + 1 == self.epochs) else "\n"
        print(text, end=end, file=self.stream, flush=True)


def _lines(report: Report) -> Iterator[str]:
    later = sum(report.driver_allocations[1:])
    yield f"device              {report.device}"
    yield f"test accuracy       {100 * report.accuracy:.2f} % of {len(report.guesses)} images"
    yield (
        f"speed               {report.samples_per_second:,.0f} samples/s, {report.train_seconds:.1f} s, "
        f"kernels built before in {report.build_seconds:.1f} s"
    )
    yield f"kernels launched    {report.launches:,}"
    share = report.reserved / max(report.peak, 1)
    yield (
        f"memory              peak {format_bytes(report.peak)}, reserved {format_bytes(report.reserved)} "
        f"({share:.2f} of the peak)"
    )
    yield f"driver allocations  {' '.join(map(str, report.driver_allocations))} by epoch ({later} after the first)"


def draw(report: Report, path: Path) -> None:
    """The loss curve and some predictions as a PNG file; wrong ones come first."""
    import numpy as np

    from .picture import Canvas, chart, gallery

    _, _, images, labels = digits.load()
    guesses = np.array(report.guesses)
    order = np.argsort(guesses == labels, kind="stable")
    order = np.concatenate([order[:6], order[len(order) // 2 :][:18]])
    canvas = Canvas(1010, 470)
    canvas.text(
        505,
        22,
        f"Handwritten digits: {100 * report.accuracy:.1f} % of {len(labels)} test images right",
        anchor="middle",
    )
    epochs = len(report.driver_allocations)
    chart(canvas, (90, 80, 430, 300), report.losses, epochs, "Training loss")
    gallery(
        canvas,
        575,
        80,
        images[order, 0],
        guesses[order].tolist(),
        labels[order].tolist(),
        6,
        "Predictions, mistakes first",
    )
    canvas.text(
        505, 452, f"{report.device}, {report.samples_per_second:,.0f} samples/s", (134, 142, 150), anchor="middle"
    )
    canvas.save(path)


def run(options: Any) -> int:
    """The command: train, print what it cost, draw. Exit status 0."""
    report = train(options.epochs, options.seed, options.device, _Bar(options.epochs, sys.stdout), steps=options.steps)
    for line in _lines(report):
        print(line)
    if options.output:
        draw(report, Path(options.output))
        print(f"picture             {options.output}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """`weftgrad demo` by itself."""
    import argparse

    from .command import add_options

    parser = argparse.ArgumentParser(
        prog="weftgrad demo", description="Learn handwritten digits, and say what it cost."
    )
    add_options(parser)
    return run(parser.parse_args(argv))
