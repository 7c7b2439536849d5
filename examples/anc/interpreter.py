"""Run programs on integers, without probabilities, on many memories at once: the reference for the soft machine."""

from typing import NamedTuple

import numpy as np

from .program import OPCODES

STOP, ZERO, INC, ADD, SUB, DEC, MIN, MAX, READ, WRITE, JEZ = range(len(OPCODES))


class Execution(NamedTuple):
    """What a program did: cells `(n, M)` at the end, executed steps `(n,)`, and which samples `(n,)` reached STOP."""

    cells: np.ndarray
    steps: np.ndarray
    halted: np.ndarray


def execute(program, cells, max_steps):
    """Run a program on each row of `cells`, for at most `max_steps` steps.

    Args:
        program: A `Program`. A flat entry counts as register 0, a flat start value as 0.
        cells: Integers `(n, M)` from 0 to M - 1.
        max_steps: Number of steps after which a sample is stopped.

    Raises:
        ValueError: A sample reaches a line that the program lacks, or one whose opcode is flat.
    """
    memory, size = np.array(cells), program.cells
    sample = np.arange(len(memory))
    registers = np.tile([value or 0 for value in program.registers], (len(memory), 1))
    fields = [(line.opcode, line.first, line.second, line.output) for line in program.lines]
    table = np.array([[-1 if code is None else code, a or 0, b or 0, o or 0] for code, a, b, o in fields])
    table = np.concatenate([table, np.full((size - len(table), 4), -1)])
    line = np.full(len(memory), program.start or 0)
    steps, halted = np.zeros(len(memory), int), np.zeros(len(memory), bool)
    for _ in range(max_steps):
        opcode, first, second, output = table[line].T
        running = ~halted
        if not running.any():
            break
        if (opcode[running] < 0).any():
            number = line[running][opcode[running] < 0][0]
            raise ValueError(f"the program reaches line {number}, which it lacks or which has no opcode")
        x, y = registers[sample, first], registers[sample, second]
        cases = [opcode == code for code in (INC, ADD, SUB, DEC, MIN, MAX, READ)]
        results = [x + 1, x + y, x - y, x - 1, np.minimum(x, y), np.maximum(x, y), memory[sample, x]]
        value = np.select(cases, results, 0) % size  # STOP, ZERO, WRITE and JEZ write 0, too
        writes = running & (opcode == WRITE)
        memory[sample[writes], x[writes]] = y[writes]
        registers[sample, output] = value
        line = np.where((opcode == JEZ) & (x == 0), y, (line + 1) % size)
        steps += running
        halted |= running & (opcode == STOP)
    return Execution(memory, steps, halted)
