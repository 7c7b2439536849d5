"""Time an update of each task: the tensor code, the same code by torch where it is installed, and the kernel.

python -m examples.anc.timing --seeds 64

An update is a run of all seeds and samples, the loss, its gradient and the optimizer's step. Implementations take turns
of some updates each, as in a training, so that a slow phase of the machine hits all of them. `--threads 1` measures the
CPU time of one thread, which is fairer where other programs use the cores as well.
"""

import argparse
import importlib.util
import sys
import time
import types
from pathlib import Path
from statistics import median

import numpy as np

import weftgrad as wg

from . import kernel, loss, machine
from .programs import GENERIC
from .tasks import TASKS
from .weights import compile_weights

TURN_SECONDS = 0.06  # of consecutive updates: after another implementation's update the caches hold other data
FOLDER = Path(__file__).resolve().parent


def import_under_torch(name):
    """Return this package's module `name`, its source executed with torch in place of weftgrad."""
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    source = source.replace("import weftgrad as wg", "import torch as wg").replace("from weftgrad.nn", "from torch.nn")
    module = types.ModuleType(f"{__package__}.torch_{name}")
    module.__package__ = __package__
    sys.modules[module.__name__] = module
    exec(compile(source, f"{name}.py under torch", "exec"), vars(module))
    return module


def create_update(library, run, compute_loss, task, seeds, device="cpu"):
    """Return a function that makes one update on fixed samples."""
    rng = np.random.default_rng(0)
    initial = compile_weights(GENERIC[task.name], task.sharpness, rng, seeds)
    samples = task.draw(rng, seeds * task.batch_size, task.is_biased)
    batch = [library.tensor(part.reshape(seeds, task.batch_size, -1), device=device) for part in samples]
    logits = library.tensor(initial, device=device).requires_grad_()
    optimizer = library.optim.Adam([logits], lr=1e-4)  # small: all updates do much the same work

    def update():
        value = compute_loss(run(logits, *batch, task.max_steps), task.loss).sum()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.item()

    return update


def implementations(task, seeds, with_compile):
    """Return the updates by name."""
    updates = {
        "kernel": create_update(wg, kernel.run, loss.compute_loss, task, seeds),
        "tensor code": create_update(wg, machine.run, loss.compute_loss, task, seeds),
    }
    if importlib.util.find_spec("torch"):
        import torch  # optional

        compute_loss = import_under_torch("loss").compute_loss
        updates["torch eager"] = create_update(torch, import_under_torch("machine").run, compute_loss, task, seeds)
        if with_compile:
            compiled = import_under_torch("machine")
            compiled.step = torch.compile(compiled.step, dynamic=False)
            updates["torch.compile"] = create_update(torch, compiled.run, compute_loss, task, seeds)
    return updates


def set_threads(count):
    """Let this library, and torch where it is installed, use `count` threads."""
    wg.set_num_threads(count)
    if importlib.util.find_spec("torch"):
        import torch  # optional

        torch.set_num_threads(count)


def measure(updates, seconds, clock=time.perf_counter):
    """Return each update's mean seconds in every turn, by `clock`. In a round every implementation has one turn."""
    values = {name: update() for name, update in updates.items()}  # compiles
    reference = values["tensor code"]
    for name, value in values.items():
        if abs(value - reference) > 1e-3 * abs(reference):
            raise ArithmeticError(f"{name} has a loss of {value}, the tensor code {reference}")
    times, counts = {name: [] for name in updates}, {}
    for name, update in updates.items():
        begin = time.perf_counter()
        update()
        counts[name] = 1 + int(TURN_SECONDS / (time.perf_counter() - begin))
    end = time.perf_counter() + seconds
    while len(times["kernel"]) < 3 or time.perf_counter() < end:
        for name, update in updates.items():
            begin = clock()
            for _ in range(counts[name]):
                update()
            times[name].append((clock() - begin) / counts[name])
    return times


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m examples.anc.timing", description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10, help="time to measure each task")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile of a step as well")
    parser.add_argument("--threads", type=int, help="threads of both libraries; 1: measure the thread's CPU time")
    options = parser.parse_args(arguments)
    if options.threads:
        set_threads(options.threads)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    for name in options.tasks or TASKS:
        times = measure(implementations(TASKS[name], options.seeds, options.compile), options.seconds, clock)
        base = times.get("torch eager", times["tensor code"])
        print(f"{name}, {options.seeds} seeds, batch {TASKS[name].batch_size}, {TASKS[name].max_steps} steps at most")
        for label, values in times.items():
            ratios = f"{median(base) / median(values):6.2f} ({min(base) / min(values):.2f})"
            print(
                f"  {label:14} {1e3 * median(values):9.2f} ms (least {1e3 * min(values):.2f}), speed {ratios}",
                flush=True,
            )


if __name__ == "__main__":
    main()
