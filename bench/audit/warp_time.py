"""Estimate the cycles that one warp takes if no other warp delays it: the critical path of its instructions.

Warps issue in order. An instruction is issued when its operands are ready, and its result is ready some cycles later.
So the simulation of a warp keeps, for each register, the cycle from which it can be read. Each loop is simulated by
itself, for `_ITERATIONS` iterations. The second half of these gives the cycles per iteration, because the first ones
find no loads and products of earlier iterations to wait for.

Loads into shared memory (`LDGSTS`) and products of a warp group (`HGMMA`) are asynchronous: the warp goes on issuing.
They are committed in groups, and `DEPBAR.LE n` waits until all groups but the last `n` are complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .execution import Counts
from .machine_code import CodeLoop, Instruction, MachineCode, tensor_shape
from .machines import Machine

__all__ = ["GROUP_PRODUCTS", "GROUP_WARPS", "SHARED_BYTES_PER_CYCLE", "WarpCosts", "block_cycles", "product_cycles",
           "warp_cycles"]  # fmt: skip

GROUP_WARPS = 4  # warps of a warp group, which execute an HGMMA together
GROUP_PRODUCTS = ("HGMMA", "IGMMA", "QGMMA")  # opcodes of matrix products by warp groups
SHARED_BYTES_PER_CYCLE = 128  # bandwidth of a core's shared memory


@dataclass(frozen=True, slots=True)
class WarpCosts:
    """Cycles from the issue of an instruction to its result.

    Attributes:
        arithmetic: Arithmetic on 32 bits or fewer. From Volta on it takes 4 cycles.
        double: Arithmetic on 64 bits.
        special: Special functions, such as 2^x, and conversions, which share a unit with them.
        shared: Loads from shared memory, and shuffles.
        constant: Loads from the constant cache.
        product: Matrix products of a warp. For a warp group: from its last product to the end of the wait for it.
        barrier: A barrier of a program, until its warps go on.
        branch: A jump.
        atomic: Atomic operations on shared memory.
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

# Prefixes of opcodes, NVIDIA's in upper case and AMD's in lower case. Each tuple but the first stands for one latency.
_RESULTLESS_OPCODES = ("ST", "RED", "BAR", "BRA", "EXIT", "LDGSTS", "UTMA", "UBLKCP", "DEPBAR", "MEMBAR", "FENCE",
                       "ERRBAR", "global_store", "buffer_store", "flat_store", "ds_write", "s_barrier", "s_branch",
                       "s_cbranch", "s_waitcnt")  # fmt: skip
_MEMORY_OPCODES = ("LDG.", "LD.", "LDL", "ATOMG", "ATOM.", "global_load", "buffer_load", "flat_load", "global_atomic")
_SHARED_OPCODES = ("LDS", "SHFL", "LDSM", "ds_", "VOTE", "MATCH", "REDUX", "R2UR", "MOVM")
_SPECIAL_OPCODES = ("MUFU", "F2I", "I2F", "F2F.", "POPC", "FLO", "I2I", "FRND", "S2R", "S2UR", "v_exp_", "v_log_",
                    "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")  # fmt: skip
_DOUBLE_OPCODES = ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")

_LOAD_WAIT = re.compile(r"SB\d+, (0x[0-9a-f]+)")
_PRODUCT_WAIT = re.compile(r"gsb\d+, (0x[0-9a-f]+)")
_ITERATIONS = 12  # simulated iterations of a loop; loads into shared memory are issued up to five iterations ahead
_PREDICATED_SHARE = 0.5  # instructions that run in a smaller share of the loop's iterations are left out


def warp_cycles(code: MachineCode, counts: Counts, warps: int, machine: Machine) -> float:
    """Return the cycles that a warp of an average program takes if no other warp delays it.

    Args:
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        warps: Number of warps in a program.
        machine: The GPU.
    """
    inner_loops = {loop: [c for c in code.loops if loop.holds(c)] for loop in code.loops}
    cycles = 0.0
    for loop, iterations in counts.iterations.items():
        if not iterations:
            continue
        positions = _positions_outside(range(loop.first, loop.last + 1), inner_loops[loop])
        own = [code.instructions[p] for p in positions if counts.by_instruction[p] >= _PREDICATED_SHARE * iterations]
        cycles += iterations * block_cycles(own, warps, machine, repeats=True)
    positions = _positions_outside(range(len(code.instructions)), code.loops)
    outermost = [code.instructions[p] for p in positions if counts.by_instruction[p] >= _PREDICATED_SHARE]
    return cycles + block_cycles(outermost, warps, machine, repeats=False)


def _positions_outside(positions: Iterable[int], loops: Sequence[CodeLoop]) -> list[int]:
    """Return those positions of instructions that are in none of the loops."""
    return [p for p in positions if not any(loop.first <= p <= loop.last for loop in loops)]


def block_cycles(block: Sequence[Instruction], warps: int, machine: Machine, *, repeats: bool) -> float:
    """Return the cycles from the first issue of a block of instructions to its last result.

    Args:
        block: The instructions, in order.
        warps: Number of warps in a program, whose warp groups share the tensor cores.
        machine: The GPU.
        repeats: The instructions are the body of a loop. Return the cycles of one of its iterations.
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
    """Return the cycles of a matrix instruction on all tensor cores of a core together; 0 if its shape is unknown.

    An `HGMMA` reads its second operand from shared memory, and the first one, too, unless it is in registers. Shared
    memory delivers 128 bytes a cycle, which bounds narrow products: 64x32x16 in bfloat16 multiplies in 16 cycles, but
    reads 3072 bytes in 24.
    """
    opcode = instruction.opcode
    rows, columns, depth = tensor_shape(opcode) or (0, 0, 0)
    is_tf32 = "TF32" in opcode
    peak = machine.tf32_flops if is_tf32 else machine.half_flops
    cycles = rows * columns * depth / (peak / (2 * machine.cores * machine.clock))
    if not opcode.startswith(GROUP_PRODUCTS):
        return cycles
    first_operand = instruction.operands.split(",")[1:2]
    is_first_in_registers = bool(first_operand) and first_operand[0].strip().startswith("R")
    nbytes = depth * (columns + rows * (not is_first_in_registers)) * (4 if is_tf32 else 2)
    return max(cycles, nbytes / SHARED_BYTES_PER_CYCLE)


class _Warp:
    """A simulated warp.

    Attributes:
        cycle: The cycle from which the next instruction can be issued.
        end: The cycle at which all results of issued instructions are ready.
    """

    def __init__(self, warps: int, machine: Machine):
        self._groups = max(1, warps // GROUP_WARPS)
        self._machine = machine
        self._ready: dict[str, float] = {}  # by register: the cycle from which it can be read
        self._units: dict[str, float] = {}  # by unit: the cycle from which it accepts an instruction
        self._loads: list[float] = []  # by committed group of asynchronous loads: the cycle of its end
        self._products: list[float] = []  # by committed group of a warp group's products: the cycle of its end
        self._load_end = 0.0  # end of the last asynchronous load, committed or not
        self.cycle = 0.0
        self.end = 0.0

    def issue(self, instruction: Instruction) -> None:
        """Simulate the next instruction: compute the cycle of its issue and the cycle at which its result is ready."""
        opcode = instruction.opcode
        written, read = _written_and_read(instruction)
        issue_cycle = max([self.cycle, *(self._ready.get(name, 0.0) for name in read)])
        result_cycle = issue_cycle + self._latency(opcode)
        if opcode.startswith("LDGSTS"):
            self._load_end, result_cycle = issue_cycle + self._machine.latency, issue_cycle
        elif opcode.startswith("LDGDEPBAR"):
            self._loads.append(self._load_end)
        elif match := _PRODUCT_WAIT.search(instruction.operands) if "DEPBAR" in opcode else None:
            issue_cycle = result_cycle = max(issue_cycle, _wait_for_groups(self._products, int(match[1], 16)))
        elif match := _LOAD_WAIT.search(instruction.operands) if "DEPBAR" in opcode else None:
            issue_cycle = result_cycle = max(issue_cycle, _wait_for_groups(self._loads, int(match[1], 16)))
        elif tensor_shape(opcode):
            issue_cycle, result_cycle = self._multiply(instruction, issue_cycle)
        elif opcode.startswith(_SPECIAL_OPCODES):
            issue_cycle = max(issue_cycle, self._units.get("special", 0.0))
            self._units["special"] = issue_cycle + self._machine.special_cycles
            result_cycle = issue_cycle + _COSTS.special
        elif opcode.startswith(("BAR.", "s_barrier")):
            issue_cycle = result_cycle = issue_cycle + _COSTS.barrier
        elif opcode.startswith(("BRA", "s_cbranch", "s_branch", "CALL", "RET")):
            issue_cycle = result_cycle = issue_cycle + _COSTS.branch * (
                not instruction.guard or opcode.startswith("s_")
            )
        self._ready.update(dict.fromkeys(written, result_cycle))
        self.cycle = issue_cycle + 1
        self.end = max(self.end, result_cycle, self.cycle)

    def _multiply(self, instruction: Instruction, issue_cycle: float) -> tuple[float, float]:
        """Return the cycle at which a matrix instruction is issued, and the cycle at which its result is ready."""
        machine, opcode = self._machine, instruction.opcode
        cycles = product_cycles(instruction, machine)
        begin = max(issue_cycle, self._units.get("tensor", 0.0))
        if opcode.startswith(GROUP_PRODUCTS):
            self._units["tensor"] = begin + cycles * self._groups
            if "gsb" in instruction.operands:
                self._products.append(self._units["tensor"] + _COSTS.product)
            return issue_cycle, issue_cycle
        share = machine.synchronous_share if opcode.startswith("HMMA") else 1.0
        self._units["tensor"] = begin + cycles * 4 / share  # a warp uses one of the core's four tensor cores
        return begin, begin + max(_COSTS.product, cycles * 4 / share)

    def _latency(self, opcode: str) -> float:
        """Return the cycles from issue to result of an instruction for which `issue` has no rule."""
        if opcode.startswith(_MEMORY_OPCODES):
            return self._machine.latency
        if opcode.startswith("ATOMS"):
            return _COSTS.atomic
        if opcode.startswith(_SHARED_OPCODES):
            return _COSTS.shared
        if opcode.startswith(("LDC", "ULDC", "s_load")):
            return _COSTS.constant
        return _COSTS.double if opcode.startswith(_DOUBLE_OPCODES) else _COSTS.arithmetic


def _wait_for_groups(groups: list[float], pending: int) -> float:
    """Return the cycle at which all groups but the last `pending` are complete, and remove the complete ones."""
    complete = groups[: len(groups) - pending] if pending else groups[:]
    del groups[: len(complete)]
    return max(complete, default=0.0)


def _written_and_read(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the names of the registers that an instruction writes, and of those that it reads."""
    opcode, operands = instruction.opcode, _split_operands(instruction.operands)
    width = _registers_per_operand(opcode)
    # A bracket is an address, whose registers do not have the width of the data, except for AMD's `v[0:3]`.
    names = [_register_names(operand, 1 if "[" in operand and not operand.startswith(("v[", "s[", "a[")) else width)
             for operand in operands]  # fmt: skip
    results = 0
    if operands and not opcode.startswith(_RESULTLESS_OPCODES):
        results = 1
        # Carries and comparisons write predicates beside the first result.
        while results < len(operands) - 1 and re.fullmatch(r"U?P[T\d]", operands[results]) and results < 3:
            results += 1
            if opcode.startswith(("SEL", "FSEL", "FMNMX", "IMNMX")):
                results = 1
                break
    written = [name for group in names[:results] for name in group]
    read = [name for group in names[results:] for name in group] + _register_names(instruction.guard, 1)
    if opcode.startswith(GROUP_PRODUCTS):
        written = []  # a reader of the result waits for the group by `DEPBAR`, not for the registers
        read = [name for group in names[1:2] for name in group]
    return written, read


def _split_operands(operands: str) -> list[str]:
    return [operand.strip() for operand in operands.split(",")] if operands else []


def _registers_per_operand(opcode: str) -> int:
    """Return how many registers each operand of an instruction has, except for addresses."""
    if opcode.startswith(("HMMA", "IMMA", "HGMMA")) or ".128" in opcode or ".M88.4" in opcode:
        return 4
    if ".64" in opcode or ".WIDE" in opcode or ".M88.2" in opcode or opcode.startswith((*_DOUBLE_OPCODES, "CS2R")):
        return 2
    return 1


def _register_names(operand: str, width: int) -> list[str]:
    """Return the names of all registers of an operand: `R4` and `R5` for `R4.64`, `v0` and `v1` for `v[0:1]`."""
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
