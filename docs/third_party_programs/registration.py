"""What the programs of this folder share: their registry, weights and inputs from NumPy's generator, and their results.

A program constructs a model, fills its parameters from NumPy's generator, or reads them from a package, so that both
libraries have the same, and returns outputs and gradients.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

IS_WEFTGRAD = "weftgrad" in torch.__version__

if not IS_WEFTGRAD:
    # torchvision cannot be imported where its compiled ops cannot be loaded, unless their names exist.
    package = importlib.util.find_spec("torchvision")
    try:
        if package is not None and package.origin is not None:
            torch.ops.load_library(Path(package.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")

Results = dict[str, np.ndarray]
PROGRAMS: dict[str, Callable[[], Results]] = {}


def program(
    package: str, *, bound: float = 5e-5, needs_extension: bool = False
) -> Callable[[Callable[[], Results]], Callable[[], Results]]:
    """Add the decorated function to `PROGRAMS`.

    Args:
        package: The package that it uses. `docs/refresh_third_party.py` reads it from the source, and the rest, too.
        bound: Largest difference from PyTorch's results that passes, relative to the largest value of an array.
        needs_extension: Whether it needs the package's compiled ops beside PyTorch. Where they cannot be loaded, as
            beside a PyTorch from another source, results are not compared.
    """

    def add(function: Callable[[], Results]) -> Callable[[], Results]:
        PROGRAMS[function.__name__] = function
        return function

    return add


def main() -> None:
    """Run the program that the command line names, and write its results to the file that it names."""
    np.savez(sys.argv[2], **PROGRAMS[sys.argv[1]]())


def fill(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Fill all parameters from NumPy's generator, and return the model."""
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = generator.standard_normal(tuple(parameter.shape)).astype(np.float32)
            is_scale = parameter.ndim == 1 and name.endswith("weight")
            values = 1 + 0.1 * values if is_scale else values * (0.5 / max(1, parameter[0].numel()) ** 0.5)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values.astype(np.float32))))
    return model


def image(size: int = 64, batch: int = 2) -> torch.Tensor:
    """Return normally distributed pictures of shape `(batch, 3, size, size)`."""
    values = np.random.default_rng(1).standard_normal((batch, 3, size, size)).astype(np.float32)
    return torch.from_numpy(values)


def tokens(length: int = 16, batch: int = 2, vocabulary: int = 90) -> torch.Tensor:
    """Return random token numbers of shape `(batch, length)`."""
    return torch.from_numpy(np.random.default_rng(2).integers(1, vocabulary, (batch, length)))


def run_backward(model: torch.nn.Module, output: torch.Tensor) -> Results:
    """Return `output`, and the gradients of the mean of its squares for all parameters, the largest ones by name."""
    loss = (output.float() ** 2).mean()
    loss.backward()
    results = {"output": output.detach().numpy(), "loss": loss.detach().numpy()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            results[f"grad.{name}"] = parameter.grad.numpy()
    return results
