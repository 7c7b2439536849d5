"""The differentiable register machine of Adaptive Neural Compilation (Bunel et al. 2016, section 3.1).

Whatever a register machine has is a distribution here: a memory cell or a register over its value, the instruction
register over the lines of the program. A step mixes the results of all instructions by their probabilities, so that a
run is differentiable by the program. Values are 0 to M - 1, and arithmetic is modulo M.

Seeds and samples are leading dimensions `(S, B)`: each of S programs runs on B memories of its own.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

import weftgrad as wg
from weftgrad.nn import functional as F

from .program import OPCODES
from .weights import count_registers

STOP, READ, WRITE, JEZ = (OPCODES.index(name) for name in ("STOP", "READ", "WRITE", "JEZ"))
COMPUTED = slice(OPCODES.index("INC"), OPCODES.index("MAX") + 1)  # instructions that are functions of their arguments
HALTED = 0.9  # a run ends when the probability that it has stopped exceeds this


class State(NamedTuple):
    """The machine's state; each distribution over M values is in the last dimension."""

    memory: wg.Tensor  # (S, B, M, M)
    registers: wg.Tensor  # (S, B, R, M)
    line: wg.Tensor  # (S, B, 1, M)
    halting: wg.Tensor  # (S, B), the probability that the program has stopped


class Trace(NamedTuple):
    """A run of N steps. A sample that halts earlier repeats its last values."""

    errors: wg.Tensor  # (S, B, N + 1), squared error of the memory at the start and after each step
    halting: wg.Tensor  # (S, B, N + 1), stop probability
    memory: wg.Tensor  # (S, B, M, M), at the end


class Tables(NamedTuple):
    """Integer functions as one-hot tensors."""

    computed: wg.Tensor  # (M * M, 6 * M): 1 where instruction i maps the arguments (u, v) to a value
    next_line: wg.Tensor  # (M, M)
    zero: wg.Tensor  # (M)


@cache
def create_tables(size, dtype, device):
    """Return the `Tables` for M = `size`."""
    u, v = np.arange(size)[:, None], np.arange(size)
    values = np.stack([u + 1 + 0 * v, u + v, u - v, u - 1 + 0 * v, np.minimum(u, v), np.maximum(u, v)], -1) % size
    one_hot = np.eye(size)
    tables = one_hot[values].reshape(size * size, -1), np.roll(one_hot, 1, 1), one_hot[0]
    return Tables(*(wg.tensor(table, dtype=dtype, device=device) for table in tables))


def step(state, controller, tables, exact_stop=False):
    """Return the state after one step; samples that have halted change neither memory nor stop probability.

    Args:
        state: The `State` before.
        controller: Logits `(S, 1, 3 R + 11, M)` of arguments, output and opcode; column k is line k.
        tables: The `Tables` for M.
        exact_stop: Compute the true gradient of the stop probability p. By default the factor 1 - p is a constant, as
            in the authors' programs, so that a STOP in step k has the gradient 1 - p even if later steps are sure to
            stop. The true gradient is near 0 then, and programs hardly learn to stop earlier.
    """
    memory, registers, line, halting = state
    logits = (line @ controller.mT).squeeze(-2)
    count = registers.shape[-2]
    selectors = logits[..., : 3 * count].unflatten(-1, (3, count)).softmax(-1)
    running = (halting.detach() <= HALTED).to(logits.dtype)
    opcode = logits[..., 3 * count :].softmax(-1) * running.unsqueeze(-1)

    x, y = (selectors[..., :2, :] @ registers).split(1, -2)  # (S, B, 1, M)
    pairs = x.mT * y  # (S, B, M, M), the probability that the arguments are (u, v)
    results = (pairs.flatten(-2) @ tables.computed).unflatten(-1, (-1, memory.shape[-1]))
    value = opcode[..., COMPUTED].unsqueeze(-2) @ results + opcode[..., READ, None, None] * (x @ memory)
    value = value + (1 - value.sum(-1, keepdim=True)) * tables.zero  # all other instructions put out 0

    jump = (opcode[..., JEZ] * x[..., 0, 0])[..., None, None]
    factor = 1 - halting
    return State(
        wg.lerp(memory, y, x.mT * opcode[..., WRITE, None, None]),
        wg.lerp(registers, value, selectors[..., 2, :].unsqueeze(-1)),
        wg.lerp(line @ tables.next_line, y, jump),
        halting + opcode[..., STOP] * (factor if exact_stop else factor.detach()),
    )


def run(logits, cells, targets, mask, max_steps, exact_stop=False):
    """Run S programs on B memories each, until all have halted or for `max_steps` steps.

    Args:
        logits: Weights of the programs, `(S, 4 R + 12, M)`, as `weights.py` describes.
        cells: Memory at the start, integers `(S, B, M)`.
        targets: Memory as it should be at the end, integers `(S, B, M)`.
        mask: 1 where a cell counts in the error and 0 elsewhere, `(S, B, M)`.
        max_steps: Most steps.
        exact_stop: See `step`.

    Returns:
        The `Trace` of the run.
    """
    seeds, samples, size = cells.shape
    registers = count_registers(logits)
    tables = create_tables(size, logits.dtype, logits.device)
    initial = logits[:, : registers + 1].softmax(-1).unsqueeze(1).expand(-1, samples, -1, -1)
    controller = logits[:, registers + 1 :].unsqueeze(1)
    targets, mask = F.one_hot(targets, size).to(logits.dtype), mask.to(logits.dtype).unsqueeze(-1)
    state = State(
        F.one_hot(cells, size).to(logits.dtype),
        initial[:, :, 1:],
        initial[:, :, :1],
        wg.zeros(seeds, samples, dtype=logits.dtype, device=logits.device),
    )
    errors, halting = [], []
    for number in range(max_steps + 1):
        if number:
            state = step(state, controller, tables, exact_stop)
        errors.append(((state.memory - targets).square() * mask).sum((-2, -1)))
        halting.append(state.halting)
        if (state.halting > HALTED).all():
            break
    return Trace(wg.stack(errors, -1), wg.stack(halting, -1), state.memory)
