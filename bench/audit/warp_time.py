"""How long one warp takes for its instructions if no other warp is in its way: its critical path.

Warps issue in order. An instruction waits until its operands are there, and a result is there some cycles after its
instruction was issued. So a warp is simulated with a table of registers and of the cycles from which they can be read.
Each loop is simulated for some iterations from an empty table, of which the second half gives the cycles per iteration.

Loads into shared memory (`LDGSTS`) and products of a warp group (`HGMMA`) run on while the warp issues further
instructions. They are committed in groups, and `DEPBAR.LE n` waits until all groups but the last `n` are complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .execution import Counts
from .machine_code import Instruction, MachineCode, tensor_shape
from .machines import Machine

__all__ = ["GROUP_PRODUCTS", "GROUP_WARPS", "SHARED_BYTES_PER_CYCLE", "WarpCosts", "block_cycles", "product_cycles",
           "warp_cycles"]  # fmt: skip

GROUP_WARPS = 4  # that execute an HGMMA together
GROUP_PRODUCTS = ("HGMMA", "IGMMA", "QGMMA")
SHARED_BYTES_PER_CYCLE = 128  # of a core


@dataclass(frozen=True, slots=True)
class WarpCosts:
    """Cycles from the issue of an instruction to its result.

    Attributes:
        arithmetic: Of arithmetic of 32 bits and less. Warps of Volta and later have 4.
        double: Of arithmetic of 64 bits.
        special: Of special functions, such as 2^x, and conversions, which share their unit.
        shared: Of loads from shared memory and shuffles.
        constant: Of loads from the constant cache.
        product: Of matrix products of a warp, and from the last product of a warp group to the end of its wait.
        barrier: Of a barrier of a program, until its warps go on.
        branch: Of a jump.
        atomic: Of atomic operations on shared memory.
    """

    arithmetic: int = 4
    double: int = 16
    special: int = 20
    shared: int = 29
    constant: int = 30
    product: int = 33
    barrier: int = 30
    branch: int = 10
    atomic: int = 100


_COSTS = WarpCosts()
_REGISTER = re.compile(r"\b(U?R|U?P)(\d+)(\.64)?|\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")
_NO_RESULT = ("ST", "RED", "BAR", "BRA", "EXIT", "LDGSTS", "UTMA", "UBLKCP", "DEPBAR", "MEMBAR", "FENCE", "ERRBAR",
              "global_store", "buffer_store", "flat_store", "ds_write", "s_barrier", "s_branch", "s_cbranch",
              "s_waitcnt")  # fmt: skip
_GLOBAL = ("LDG.", "LD.", "LDL", "ATOMG", "ATOM.", "global_load", "buffer_load", "flat_load", "global_atomic")
_SHARED = ("LDS", "SHFL", "LDSM", "ds_", "VOTE", "MATCH", "REDUX", "R2UR", "MOVM")
_SPECIAL = ("MUFU", "F2I", "I2F", "F2F.", "POPC", "FLO", "I2I", "FRND", "S2R", "S2UR", "v_exp_", "v_log_",
            "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")  # fmt: skip
_DOUBLE = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
_ASYNCHRONOUS_WAIT = re.compile(r"SB\d+, (0x[0-9a-f]+)")
_PRODUCT_WAIT = re.compile(r"gsb\d+, (0x[0-9a-f]+)")
_ITERATIONS = 12  # of a loop that are simulated; loads into shared memory are up to five ahead
_PREDICATED_SHARE = 0.5  # instructions that run in fewer of the loop's iterations are left out


def warp_cycles(code: MachineCode, counts: Counts, warps: int, machine: Machine) -> float:
    """Return the cycles of a warp of an average program.

    Args:
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        warps: Of a program.
        machine: The GPU.
    """
    inner_loops = {loop: [c for c in code.loops if loop.holds(c)] for loop in code.loops}
    cycles = 0.0
    for loop, iterations in counts.iterations.items():
        if not iterations:
            continue
        positions = _outside(range(loop.first, loop.last + 1), inner_loops[loop])
        own = [code.instructions[p] for p in positions if counts.by_instruction[p] >= _PREDICATED_SHARE * iterations]
        cycles += iterations * block_cycles(own, warps, machine, repeats=True)
    positions = _outside(range(len(code.instructions)), code.loops)
    top = [code.instructions[p] for p in positions if counts.by_instruction[p] >= _PREDICATED_SHARE]
    return cycles + block_cycles(top, warps, machine, repeats=False)


def _outside(positions: Iterable[int], loops: Sequence[object]) -> list[int]:
    return [p for p in positions if not any(c.first <= p <= c.last for c in loops)]  # type: ignore[attr-defined]


def block_cycles(block: Sequence[Instruction], warps: int, machine: Machine, *, repeats: bool) -> float:
    """Return the cycles in which a warp executes instructions one after the other, until their last result is there.

    Args:
        block: The instructions.
        warps: Of a program: its warp groups share the tensor cores.
        machine: The GPU.
        repeats: Return the cycles of an iteration instead, in a loop of these instructions.
    """
    warp = _Warp(warps, machine)
    ends = []
    for _ in range(_ITERATIONS if repeats else 1):
        for instruction in block:
            warp.issue(instruction)
        ends.append(warp.cycle)
    half = len(ends) // 2
    return (ends[-1] - ends[half - 1]) / half if repeats else warp.end


def product_cycles(instruction: Instruction, machine: Machine) -> float:
    """Return the cycles of a core's tensor cores, all together, for a matrix instruction; 0 if its shape is unknown.

    An `HGMMA` reads its second operand, and its first if that is not in registers, from shared memory. Narrow products
    wait for these 128 bytes a cycle: 64x32x16 in bfloat16 multiplies in 16 cycles and reads 3072 bytes in 24.
    """
    opcode = instruction.opcode
    rows, columns, depth = tensor_shape(opcode) or (0, 0, 0)
    is_tf32 = "TF32" in opcode
    peak = machine.tf32_flops if is_tf32 else machine.half_flops
    cycles = rows * columns * depth / (peak / (2 * machine.cores * machine.clock))
    if not opcode.startswith(GROUP_PRODUCTS):
        return cycles
    first = instruction.operands.split(",")[1:2]
    has_rows_in_registers = bool(first) and first[0].strip().startswith("R")
    nbytes = depth * (columns + rows * (not has_rows_in_registers)) * (4 if is_tf32 else 2)
    return max(cycles, nbytes / SHARED_BYTES_PER_CYCLE)


class _Warp:
    """The state of a warp.

    Attributes:
        cycle: From which the next instruction can be issued.
        end: At which the last result is there.
    """

    def __init__(self, warps: int, machine: Machine):
        self._groups = max(1, warps // GROUP_WARPS)
        self._machine = machine
        self._ready: dict[str, float] = {}
        self._units: dict[str, float] = {}  # cycle from which a unit takes the next instruction
        self._loads: list[float] = []  # ends of committed groups of asynchronous loads
        self._products: list[float] = []
        self._load_end = 0.0
        self.cycle = 0.0
        self.end = 0.0

    def issue(self, instruction: Instruction) -> None:
        """Execute an instruction."""
        opcode = instruction.opcode
        written, read = _registers(instruction)
        time = max([self.cycle, *(self._ready.get(name, 0.0) for name in read)])
        done = time + self._latency(opcode)
        if opcode.startswith("LDGSTS"):
            self._load_end, done = time + self._machine.latency, time
        elif opcode.startswith("LDGDEPBAR"):
            self._loads.append(self._load_end)
        elif match := _PRODUCT_WAIT.search(instruction.operands) if "DEPBAR" in opcode else None:
            time = done = max(time, _wait(self._products, int(match[1], 16)))
        elif match := _ASYNCHRONOUS_WAIT.search(instruction.operands) if "DEPBAR" in opcode else None:
            time = done = max(time, _wait(self._loads, int(match[1], 16)))
        elif tensor_shape(opcode):
            time, done = self._multiply(instruction, time)
        elif opcode.startswith(_SPECIAL):
            time = max(time, self._units.get("special", 0.0))
            self._units["special"] = time + self._machine.special_cycles
            done = time + _COSTS.special
        elif opcode.startswith(("BAR.", "s_barrier")):
            time = done = time + _COSTS.barrier
        elif opcode.startswith(("BRA", "s_cbranch", "s_branch", "CALL", "RET")):
            time = done = time + _COSTS.branch * (not instruction.guard or opcode.startswith("s_"))
        self._ready.update(dict.fromkeys(written, done))
        self.cycle = time + 1
        self.end = max(self.end, done, self.cycle)

    def _multiply(self, instruction: Instruction, time: float) -> tuple[float, float]:
        """Return the cycle at which a matrix instruction is issued, and the one at which its result is there."""
        machine, opcode = self._machine, instruction.opcode
        cycles = product_cycles(instruction, machine)
        begin = max(time, self._units.get("tensor", 0.0))
        if opcode.startswith(GROUP_PRODUCTS):
            self._units["tensor"] = begin + cycles * self._groups
            if "gsb" in instruction.operands:
                self._products.append(self._units["tensor"] + _COSTS.product)
            return time, time
        share = machine.synchronous_share if opcode.startswith("HMMA") else 1.0
        self._units["tensor"] = begin + cycles * 4 / share  # a warp has one of four
        return begin, begin + max(_COSTS.product, cycles * 4 / share)

    def _latency(self, opcode: str) -> float:
        if opcode.startswith(_GLOBAL):
            return self._machine.latency
        if opcode.startswith("ATOMS"):
            return _COSTS.atomic
        if opcode.startswith(_SHARED):
            return _COSTS.shared
        if opcode.startswith(("LDC", "ULDC", "s_load")):
            return _COSTS.constant
        return _COSTS.double if opcode.startswith(_DOUBLE) else _COSTS.arithmetic


def _wait(groups: list[float], pending: int) -> float:
    """Return the cycle at which all groups but the last `pending` are complete, and forget these."""
    complete = groups[: len(groups) - pending] if pending else groups[:]
    del groups[: len(complete)]
    return max(complete, default=0.0)


def _registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction writes, and those that it reads."""
    opcode, operands = instruction.opcode, _split(instruction.operands)
    width = _width(opcode)
    names = [_names(operand, 1 if "[" in operand and not operand.startswith(("v[", "s[", "a[")) else width)
             for operand in operands]  # fmt: skip
    results = 0
    if operands and not opcode.startswith(_NO_RESULT):
        results = 1
        # Carries and comparisons write predicates beside the first result.
        while results < len(operands) - 1 and re.fullmatch(r"U?P[T\d]", operands[results]) and results < 3:
            results += 1
            if opcode.startswith(("SEL", "FSEL", "FMNMX", "IMNMX")):
                results = 1
                break
    written = [name for group in names[:results] for name in group]
    read = [name for group in names[results:] for name in group] + _names(instruction.guard, 1)
    if opcode.startswith(GROUP_PRODUCTS):
        written = []  # what reads the result waits for the group
        read = [name for group in names[1:2] for name in group]
    return written, read


def _split(operands: str) -> list[str]:
    return [operand.strip() for operand in operands.split(",")] if operands else []


def _width(opcode: str) -> int:
    """Return how many registers an operand of an instruction has that is not an address."""
    if opcode.startswith(("HMMA", "IMMA", "HGMMA")) or ".128" in opcode or ".M88.4" in opcode:
        return 4
    if ".64" in opcode or ".WIDE" in opcode or ".M88.2" in opcode or opcode.startswith((*_DOUBLE, "CS2R")):
        return 2
    return 1


def _names(operand: str, width: int) -> list[str]:
    names = []
    for match in _REGISTER.finditer(operand):
        if match[1]:
            count = 1 if match[1].endswith("P") else max(width, 2 if match[3] else 1)
            names += [f"{match[1]}{int(match[2]) + k}" for k in range(count)]
        elif match[5]:
            names.append(f"{match[4]}{match[5]}")
        else:
            names += [f"{match[4]}{k}" for k in range(int(match[6]), int(match[7]) + 1)]
    return names
