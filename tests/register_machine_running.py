"""Compare runs of the register machine by its kernels (examples/anc/kernel) with the plain tensor code."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg

__all__ = ["CASES", "check_case", "draw", "kernel", "machine", "run_and_differentiate", "tasks", "train"]
EXAMPLES = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent) / "examples"
if not (EXAMPLES / "anc").is_dir():
    pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT", allow_module_level=True)
sys.path.append(str(EXAMPLES))

from anc import kernel, machine, tasks, train  # noqa: E402

# seeds, samples, cells, registers, steps, scale of the logits: sizes of three tasks, one register, one step
CASES = [
    (3, 2, 7, 6, 6, 1.0),
    (2, 3, 10, 5, 9, 3.0),
    (1, 2, 21, 10, 5, 3.0),
    (2, 1, 5, 1, 4, 2.0),
    (2, 2, 8, 4, 1, 1.0),
]


def draw(case, device, dtype, requires_grad=True):
    """Return random programs, memories, targets and weights. STOP is likely, so that some runs end early."""
    seeds, samples, cells, registers, _, scale = case
    rng = np.random.default_rng(cells)
    logits = rng.standard_normal((seeds, 4 * registers + 12, cells)) * scale
    logits[:, 4 * registers + 1] += 1.5
    shape = (seeds, samples, cells)
    memory, targets, mask = (rng.integers(0, high, shape) for high in (cells, cells, 2))
    logits = wg.tensor(logits, dtype=dtype, device=device, requires_grad=requires_grad)
    return logits, *(wg.tensor(part, device=device) for part in (memory, targets, mask))


def run_and_differentiate(run, operands, steps, exact_stop):
    """Return a run's trace, and the gradient of a fixed combination of its results."""
    logits, *samples = operands
    trace = run(logits, *samples, steps, exact_stop)
    rng = np.random.default_rng(1)
    shape = (*samples[0].shape[:2], steps + 1)
    total = 0
    for part in trace[:2]:
        padding = steps + 1 - part.shape[-1]  # the plain code ends when all runs have halted
        part = wg.cat([part, part[..., -1:].expand(*part.shape[:-1], padding)], -1) if padding else part
        total = total + (part * wg.tensor(rng.standard_normal(shape), dtype=logits.dtype, device=logits.device)).sum()
    (gradient,) = wg.autograd.grad(total, logits)
    return [part.detach().cpu().numpy() for part in trace], gradient.cpu().numpy()


def check_case(device, dtype, case, exact_stop):
    """Compare results and gradient of one case on a device with those of the tensor code on `cpu` in float64."""
    expected, expected_gradient = run_and_differentiate(machine.run, draw(case, "cpu", wg.float64), case[4], exact_stop)
    trace, gradient = run_and_differentiate(kernel.run, draw(case, device, dtype), case[4], exact_stop)
    tolerance, where = 1e-12 if dtype is wg.float64 else 3e-5, f"{device} {dtype}"
    for name, part, reference in zip(machine.Trace._fields, trace, expected, strict=True):
        if name != "memory":
            steps = reference.shape[-1]
            assert (part[..., steps:] == part[..., steps - 1 : steps]).all(), f"{where} {name} after the end"
            part = part[..., :steps]
        np.testing.assert_allclose(part, reference, rtol=tolerance, atol=tolerance, err_msg=f"{where} {name}")
    scale = np.abs(expected_gradient).max()
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=tolerance * scale, err_msg=where)
