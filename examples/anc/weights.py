"""Programs as weights of the differentiable machine: one tensor of logits, one row for each choice.

The logits of a machine with R registers and M values have the shape `(4 R + 12, M)`:

| rows | softmax over | meaning |
| --- | --- | --- |
| 1 | the row | the line at the start |
| R | each row | the registers at the start |
| R | each column | column k: the first argument's register of line k |
| R | each column | the second argument's register |
| R | each column | the output's register |
| 11 | each column | the opcode |
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .program import OPCODES, Line, Program


class Parts(NamedTuple):
    """The parts of logits `(..., 4 R + 12, M)`, an array or a tensor, as views."""

    line: np.ndarray  # (..., 1, M)
    registers: np.ndarray  # (..., R, M)
    first: np.ndarray  # (..., R, M)
    second: np.ndarray  # (..., R, M)
    output: np.ndarray  # (..., R, M)
    opcode: np.ndarray  # (..., 11, M)


def count_registers(logits):
    """Return R for logits `(..., 4 R + 12, M)`."""
    return (logits.shape[-2] - 1 - len(OPCODES)) // 4


def split(logits):
    """Return the `Parts` of logits `(..., 4 R + 12, M)`."""
    registers = count_registers(logits)
    bounds = [0, *(1 + registers * i for i in range(5)), logits.shape[-2]]
    return Parts(*(logits[..., begin:end, :] for begin, end in pairwise(bounds)))


def compile_weights(program, sharpness, rng, seeds=1):
    """Return logits `(seeds, 4 R + 12, M)`, float32, whose softmax is concentrated on a program.

    The logit of the program's choice is `sharpness`, all others are 0. Flat entries are 0 everywhere. Columns of lines
    that the program lacks are random, uniform in +-1/sqrt(M), and they alone differ between seeds.
    """
    size = program.cells
    logits = np.zeros((seeds, 4 * len(program.registers) + 1 + len(OPCODES), size), np.float32)
    parts = split(logits)
    unused = slice(len(program.lines), size)
    logits[:, 1 + len(program.registers) :, unused] = rng.uniform(
        -(size**-0.5), size**-0.5, logits[:, 1 + len(program.registers) :, unused].shape
    )
    if program.start is not None:
        parts.line[:, 0, program.start] = sharpness
    for register, value in enumerate(program.registers):
        if value is not None:
            parts.registers[:, register, value] = sharpness
    for number, line in enumerate(program.lines):
        for weights, choice in zip(parts[2:], (line.first, line.second, line.output, line.opcode), strict=True):
            if choice is not None:
                weights[:, choice, number] = sharpness
    return logits


def _softmax(logits, axis):
    shifted = np.exp(logits - logits.max(axis, keepdims=True))
    return shifted / shifted.sum(axis, keepdims=True)


def probabilities(logits):
    """Return the `Parts` of logits `(4 R + 12, M)` after their softmaxes."""
    parts = split(np.asarray(logits, np.float64))
    return Parts(*(_softmax(part, -1 if number < 2 else -2) for number, part in enumerate(parts)))


def decompile(logits, threshold=0.5):
    """Return the `Program` that logits `(4 R + 12, M)` most likely run.

    A choice whose probability is at most `threshold` becomes a flat entry, and lines at the end that are flat are
    left out. Lines that are never reached hold rubbish. With `threshold=0` nothing is flat: the program then does in
    each line what is most likely there.
    """
    parts = probabilities(logits)

    def choose(weights):
        best = int(weights.argmax())
        return best if weights[best] > threshold else None

    size = parts.line.shape[-1]
    columns = zip(*(part.T for part in (parts.opcode, parts.first, parts.second, parts.output)), strict=True)
    lines = [Line(*map(choose, choices)) for choices in columns]
    while lines and lines[-1] == Line(None, None, None, None):
        lines.pop()
    return Program(size, tuple(map(choose, parts.registers)), tuple(lines), choose(parts.line[0]))
