"""Measure the resident memory of a process that trains a model, beside the same program on another library.

A pool counts what it handed out, not what the process holds: segments, kernels, scratch memory and the library itself.
Here a fresh process imports the library, computes one sum, and then builds and trains the model for a few steps. The
result is how far the kernel's high-water mark (`VmHWM` of `/proc/self/status`, reset by writing 5 to
`/proc/self/clear_refs`; proc(5)) rises above the resident memory before the model was built.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

from .loading import load
from .sizes import HOST_SIZES
from .training import RECIPES, step_of

__all__ = ["peak_resident_bytes"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_STEPS = 3  # the optimizer's state exists from the second step on
_RESET_PEAK = "5"  # resets VmHWM


def peak_resident_bytes(library: str, device: str, name: str) -> int | None:
    """Return the bytes by which resident memory rises while a process trains a model on host cores.

    Args:
        library: The module of the library, `weftgrad` or `torch`.
        device: The device as the library names it, such as `cpu`.
        name: The model's name in the suite `models`, such as `NCF`.

    Returns:
        The bytes, parameters and optimizer state included; None where the system has no `/proc/self/clear_refs`.

    Raises:
        subprocess.CalledProcessError: If the process failed.
    """
    if not _CLEAR.exists():
        return None
    command = [sys.executable, "-m", __name__, library, device, name]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(process.stdout)


def _train(library_name: str, device: str, name: str) -> int:
    """Train a model in this process, and return the bytes by which resident memory rose at most."""
    library = import_module(library_name)
    size = next(size for size in HOST_SIZES if size.name == name)
    recipe = RECIPES[size.recipe]
    vector = library.ones(10, device=device)
    float((vector + vector).sum())
    before = _resident_bytes("VmRSS")
    model = size.build(load(recipe.module, library)).to(device)
    step = step_of(recipe, library, model)
    arrays = size.batch(size.count)
    batch = {key: library.tensor(a, device="cpu" if key == "lengths" else device) for key, a in arrays.items()}
    _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
    for _ in range(_STEPS):
        float(step(batch).detach())
    return max(0, _resident_bytes("VmHWM") - before)


def _resident_bytes(field: str) -> int:
    """Return a size of `/proc/self/status`, which has KiB."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(_train(*sys.argv[1:4]))
