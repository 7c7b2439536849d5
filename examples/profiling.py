"""Profile training steps: a table of ops, a trace for Perfetto, and a picture where matplotlib is installed.

    python examples/profiling.py
    python examples/profiling.py --output profile --steps 20

The trace has a row for the program and one for the device's kernels, by the clock of the device. Perfetto and
chrome://tracing show it.
"""

import argparse
import importlib.util
from pathlib import Path

import weftgrad as wg
from weftgrad import nn, optim, profiler
from weftgrad.nn import functional as F


def train(net, optimizer, images, labels):
    """Train on one batch; each part of the step has a name in the profile."""
    with profiler.record_function("forward"):
        loss = F.cross_entropy(net(images), labels)
    with profiler.record_function("backward"):
        optimizer.zero_grad()
        loss.backward()
    with profiler.record_function("update"):
        optimizer.step()
    return loss


def draw(averages, path):
    """Draw the ops that take the most device time, as bars."""
    from matplotlib.figure import Figure  # optional

    ops = [a for a in averages if a.self_device_time_total > 0 and not a.is_kernel]  # an op's time is its kernels'
    top = sorted(ops, key=lambda a: a.self_device_time_total)[-10:]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.barh([a.key for a in top], [a.self_device_time_total / 1000 for a in top])
    axes.set_xlabel("device time, ms")
    axes.set_title("Where a training step spends its time")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=Path("profile"), help="folder for the files (default: profile)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    wg.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    ).to(options.device)  # fmt: skip
    optimizer = optim.AdamW(net.parameters())
    images = wg.randn(options.batch_size, 3, 32, 32, device=options.device)
    labels = wg.randint(10, (options.batch_size,), device=options.device)

    for _ in range(2):
        train(net, optimizer, images, labels).item()  # compiles the kernels, which would hide all else
    with profiler.profile(record_shapes=True, profile_memory=True) as prof:
        for _ in range(options.steps):
            train(net, optimizer, images, labels)
            prof.step()

    averages = prof.key_averages()
    print(averages.table(sort_by="self_device_time_total", row_limit=10))
    trace = options.output / "trace.json"
    prof.export_chrome_trace(trace)
    print(f"trace    {trace}")
    if importlib.util.find_spec("matplotlib"):
        picture = options.output / "ops.png"
        draw(averages, picture)
        print(f"picture  {picture}")
    else:
        print("no picture: matplotlib is not installed")


if __name__ == "__main__":
    main()
