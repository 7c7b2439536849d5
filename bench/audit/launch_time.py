"""Estimate the time that a launch needs of each resource of a GPU, and combine these times.

A launch uses six resources at the same time, and needs each of them for some time:

    issue     to issue the instructions of all warps of the busiest core, at the rate of its schedulers
    tensor    to multiply all blocks of matrices, padding included, at the rate of the tensor cores
    memory    to transfer its bytes of device memory
    cache     to transfer the bytes that programs request, at the rate of the last cache
    exchange  for loads and stores of shared memory and the first cache, bank conflicts included, and for shuffles
    latency   for one warp alone on the core, whose instructions wait for one another, in each round of programs

If the resources overlapped fully, the launch would take the largest of these times. But warps rarely use two resources
evenly: they load, then compute. So the times are combined as `(a^p + b^p + ...)^(1/p)`, and the fixed time of a launch
is added (`Calibration.launch_seconds`). Of tensor and latency only the larger is combined, because a warp's latency
includes its products.

"A program" is a block of threads. A core holds some programs at a time, its resident programs, and starts another one
when one ends. If programs differ in work, `programs` of the busiest core is its work divided by that of an average one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from .bank_conflicts import WarpAccess
from .execution import Counts
from .machine_code import MachineCode, tensor_shape
from .machines import Machine
from .program_code import Execution
from .warp_time import GROUP_PRODUCTS, product_cycles

__all__ = [
    "CALIBRATION",
    "Calibration",
    "exchange_seconds",
    "exchange_shares",
    "issue_seconds",
    "latency_seconds",
    "overlapped_seconds",
    "tensor_seconds",
]  # fmt: skip

# Prefixes of opcodes, NVIDIA's in upper case and AMD's in lower case.
_SPECIAL_FUNCTION_OPCODES = ("MUFU", "v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_AMD_SCALAR_OPCODES = ("s_", "v_nop")  # AMD's scalar unit issues these beside the vector instructions


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants that no data sheet has. They were fitted to 154 calls measured on an H200, and serve for all machines.

    docs/gpu.md describes the measurements.

    Attributes:
        launch_seconds: Time from the end of a kernel to the start of the next one in the same stream. It includes the
            start of the first programs and the stores of the last ones.
        memory_share: Share of the published bandwidth of device memory that streaming kernels of 200 MB and more reach.
        issue_share: Share of the schedulers' slots that kernels use which nothing else bounds: `randn`, `pow`,
            `softplus`.
        tensor_share: Share of the tensor cores' published peak that 8192^3 in bfloat16 reaches. The clock falls under
            load.
        start_cycles: Cycles from the end of a program to the first instruction of the one that replaces it on a core.
        overlap: The exponent p that combines the times of resources. At 1 these do not overlap; as p grows they
            approach full overlap.
    """

    launch_seconds: float = 2.0e-6
    memory_share: float = 0.87
    issue_share: float = 0.87
    tensor_share: float = 0.82
    start_cycles: int = 400
    overlap: float = 2.6


CALIBRATION = Calibration()


def overlapped_seconds(times: Mapping[str, float]) -> float:
    """Combine the times of resources, by name, to the time of a launch without `launch_seconds`."""
    exponent = CALIBRATION.overlap
    powers = [seconds**exponent for name, seconds in times.items() if name not in ("tensor", "latency")]
    powers.append(max(times.get("tensor", 0.0), times.get("latency", 0.0)) ** exponent)
    return float(sum(powers) ** (1 / exponent))


def issue_seconds(code: MachineCode, counts: Counts, warps: int, programs: float, machine: Machine) -> float:
    """Return the time in which the busiest core's schedulers issue the instructions of its programs.

    Args:
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        warps: Number of warps in a program.
        programs: Work of the busiest core, in average programs.
        machine: The GPU.
    """
    cycles = 0.0
    special_count = 0.0
    for instruction, count in zip(code.instructions, counts.by_instruction, strict=True):
        if machine.warp == 64 and instruction.opcode.startswith(_AMD_SCALAR_OPCODES):
            continue
        cycles += count
        special_count += count * instruction.opcode.startswith(_SPECIAL_FUNCTION_OPCODES)
    slots = max(cycles, special_count * machine.special_cycles)  # special functions have a unit of their own
    schedulers = min(machine.issue, warps * max(1, int(programs)))
    return slots * warps * programs / schedulers / machine.clock / CALIBRATION.issue_share


def tensor_seconds(execution: Execution, code: MachineCode, counts: Counts, programs: float, machine: Machine) -> float:
    """Return the time of the tensor cores of the busiest core; 0 if the kernel does not use them.

    Args:
        execution: What the launch executes.
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        programs: Work of the busiest core, in average programs.
        machine: The GPU.
    """
    opcode = next((i.opcode for i in code.instructions if tensor_shape(i.opcode) is not None), "")
    if not opcode:
        return 0.0
    seconds = 0.0
    for product in execution.products:
        is_half = product.dtype in ("bf16", "f16")
        passes = 1
        peak = machine.half_flops if is_half else machine.tf32_flops
        if not is_half and machine.single_flops:
            peak = machine.single_flops
        elif not is_half and product.precision == "tf32x3":
            passes = 3
        if opcode.startswith("HMMA"):  # operands in registers
            peak *= machine.synchronous_share
        seconds += 2 * product.macs * passes / (peak * CALIBRATION.tensor_share)
    total_programs = max(execution.programs, 1)
    return seconds * _operand_factor(code, counts, machine) * machine.cores * programs / total_programs


def _operand_factor(code: MachineCode, counts: Counts, machine: Machine) -> float:
    """Return by what factor reading operands from shared memory slows down the products of warp groups."""
    multiply_cycles, cycles_with_operands = 0.0, 0.0
    for instruction, count in zip(code.instructions, counts.by_instruction, strict=True):
        if instruction.opcode.startswith(GROUP_PRODUCTS):
            rows, columns, depth = tensor_shape(instruction.opcode) or (0, 0, 0)
            peak = machine.tf32_flops if "TF32" in instruction.opcode else machine.half_flops
            multiply_cycles += count * rows * columns * depth * 2 * machine.cores * machine.clock / peak
            cycles_with_operands += count * product_cycles(instruction, machine)
    return cycles_with_operands / multiply_cycles if multiply_cycles else 1.0


def exchange_seconds(
    accesses: Sequence[WarpAccess], counts: Counts, warps: int, programs: float, machine: Machine
) -> float:
    """Return the time of the busiest core's path to shared memory and the first cache, which shuffles use as well.

    Args:
        accesses: The cost of each instruction.
        counts: How often the instructions are executed.
        warps: Number of warps in a program.
        programs: Work of the busiest core, in average programs.
        machine: The GPU.
    """
    cycles = sum(access.passes * count for access, count in zip(accesses, counts.by_instruction, strict=True))
    return cycles * warps * programs / machine.clock


def exchange_shares(code: MachineCode, accesses: Sequence[WarpAccess], counts: Counts) -> tuple[float, float]:
    """Return the bytes exchanged with the last cache, divided by the bytes that lanes load or store.

    The share of loads is at most 1: if all lanes load the same word, it is transferred once, and the rest of its sector
    stays in the first cache for later loads. Stores send whole sectors: if each lane stores 4 bytes into a sector of
    its own, 8 times as many bytes are sent. Loads of blocks (TMA) transfer exactly the bytes of the block.

    Returns:
        The shares of loads and of stores.
    """
    shares = []
    for names in (("LDG", "LDGSTS"), ("STG",)):
        lane_bytes, exchanged_bytes = 0.0, 0.0
        for instruction, access, count in zip(code.instructions, accesses, counts.by_instruction, strict=True):
            if instruction.opcode.split(".")[0] in names:
                lane_bytes += access.lane_bytes * count
                exchange = max if "STG" in names else min
                exchanged_bytes += exchange(access.sector_bytes, access.lane_bytes) * count
        shares.append(exchanged_bytes / lane_bytes if lane_bytes else 1.0)
    has_blocks = any(instruction.opcode.startswith("UTMA") for instruction in code.instructions)
    return (1.0, 1.0) if has_blocks else (shares[0], shares[1])


def latency_seconds(cycles: float, grid_programs: int, programs: float, resident: int, machine: Machine) -> float:
    """Return the time that the busiest core takes if no warp delays another.

    The core executes its programs in rounds of `resident` programs. A round takes as long as one warp alone.

    Args:
        cycles: Cycles of a warp alone, from `warp_cycles`.
        grid_programs: Number of programs of the launch.
        programs: Work of the busiest core, in average programs.
        resident: Number of programs that a core holds at a time.
        machine: The GPU.
    """
    programs_per_core = ceil(grid_programs / machine.cores)
    rounds = ceil(programs_per_core / resident)
    imbalance = programs / programs_per_core
    return rounds * imbalance * (cycles + CALIBRATION.start_cycles) / machine.clock
