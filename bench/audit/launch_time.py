"""The times of a launch, and how they add up. All are estimates, and all constants are in `Calibration`.

Six resources of a GPU are used at the same time, and each has its time:

    issue     the instructions of all warps of the busiest core, at the rate of its schedulers
    tensor    the multiplications of all blocks, padding included, at the rate of the tensor cores
    memory    the bytes of device memory
    cache     the bytes that programs ask for, at the rate of the last cache
    exchange  loads and stores of shared memory and the first cache, with bank conflicts, and shuffles
    latency   one warp alone on the core, whose instructions wait for one another, times the rounds of resident programs

If they overlapped fully, a launch would take the largest. Warps rarely use two resources evenly, though: they load,
then compute. So a launch takes the root of the sum of powers, `(a^p + b^p + ...)^(1/p)`, and the time from the end of
the launch before. Of tensor and latency only the larger counts, because a warp's latency includes its products.
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

__all__ = ["CALIBRATION", "Calibration", "exchange_seconds", "issue_seconds", "latency_seconds", "overlapped_seconds",
           "sent_shares", "tensor_seconds"]  # fmt: skip

_SPECIAL = ("MUFU", "v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_")
_SCALAR_OF_AMD = ("s_", "v_nop")  # the scalar unit issues beside the vector units


@dataclass(frozen=True, slots=True)
class Calibration:
    """What no data sheet says. All machines share these figures, which an H200's times of 154 calls gave (docs/gpu.md).

    Attributes:
        launch_seconds: From the end of a kernel to the begin of the next one of the same stream, with the first
            programs' start and the last ones' stores.
        memory_share: Of the published bandwidth of device memory, reached by streaming kernels of 200 MB and more.
        issue_share: Of the schedulers' slots, used by kernels that nothing else bounds: `randn`, `pow`, `softplus`.
        tensor_share: Of the tensor cores' published peak: 8192^3 in bfloat16 reaches it. Their clock falls under load.
        start_cycles: From the end of a program to the first instruction of the next one in its place.
        overlap: The exponent p with which times that overlap add up; without bound they overlap fully, at 1 not at all.
    """

    launch_seconds: float = 2.0e-6
    memory_share: float = 0.87
    issue_share: float = 0.87
    tensor_share: float = 0.82
    start_cycles: int = 400
    overlap: float = 2.6


CALIBRATION = Calibration()


def overlapped_seconds(times: Mapping[str, float]) -> float:
    """Return the time of resources that are used at the same time, each for one of these times by its name."""
    exponent = CALIBRATION.overlap
    powers = [seconds**exponent for name, seconds in times.items() if name not in ("tensor", "latency")]
    powers.append(max(times.get("tensor", 0.0), times.get("latency", 0.0)) ** exponent)
    return float(sum(powers) ** (1 / exponent))


def issue_seconds(code: MachineCode, counts: Counts, warps: int, programs: float, machine: Machine) -> float:
    """Return the time in which a core's schedulers issue the instructions of its programs.

    Args:
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        warps: Of a program.
        programs: Of the busiest core, counted in average ones.
        machine: The GPU.
    """
    cycles = 0.0
    special = 0.0
    for instruction, count in zip(code.instructions, counts.by_instruction, strict=True):
        if machine.warp == 64 and instruction.opcode.startswith(_SCALAR_OF_AMD):
            continue
        cycles += count
        special += count * instruction.opcode.startswith(_SPECIAL)
    slots = max(cycles, special * machine.special_cycles)  # special functions have a unit of their own
    schedulers = min(machine.issue, warps * max(1, int(programs)))
    return slots * warps * programs / schedulers / machine.clock / CALIBRATION.issue_share


def tensor_seconds(execution: Execution, code: MachineCode, counts: Counts, programs: float, machine: Machine) -> float:
    """Return the time of the tensor cores of the busiest core; 0 if the kernel does not use them.

    Args:
        execution: What the launch executes.
        code: The kernel's machine code.
        counts: How often its instructions are executed.
        programs: Of the busiest core, counted in average ones.
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
    """Return how many times longer products of warp groups take because their operands come from shared memory."""
    multiplying, with_operands = 0.0, 0.0
    for instruction, count in zip(code.instructions, counts.by_instruction, strict=True):
        if instruction.opcode.startswith(GROUP_PRODUCTS):
            rows, columns, depth = tensor_shape(instruction.opcode) or (0, 0, 0)
            peak = machine.tf32_flops if "TF32" in instruction.opcode else machine.half_flops
            multiplying += count * rows * columns * depth * 2 * machine.cores * machine.clock / peak
            with_operands += count * product_cycles(instruction, machine)
    return with_operands / multiplying if multiplying else 1.0


def exchange_seconds(
    accesses: Sequence[WarpAccess], counts: Counts, warps: int, programs: float, machine: Machine
) -> float:
    """Return the time of the busiest core's path to shared memory and the first cache, which shuffles use as well.

    Args:
        accesses: Of each instruction.
        counts: How often the instructions are executed.
        warps: Of a program.
        programs: Of the busiest core, counted in average ones.
        machine: The GPU.
    """
    cycles = sum(access.passes * count for access, count in zip(accesses, counts.by_instruction, strict=True))
    return cycles * warps * programs / machine.clock


def sent_shares(code: MachineCode, accesses: Sequence[WarpAccess], counts: Counts) -> tuple[float, float]:
    """Return the bytes that loads, and stores, exchange with the last cache, divided by the bytes that lanes ask for.

    Lanes that load the same word ask for it 32 times and get it once, so the share of loads is at most 1: what a sector
    has besides, the first cache keeps for later loads. Stores of lanes that are apart send whole sectors, up to 8 times
    as much. Loads of blocks (TMA) are exact.
    """
    shares = []
    for names in (("LDG", "LDGSTS"), ("STG",)):
        asked, sent = 0.0, 0.0
        for instruction, access, count in zip(code.instructions, accesses, counts.by_instruction, strict=True):
            if instruction.opcode.split(".")[0] in names:
                asked += access.asked * count
                sent += (max if "STG" in names else min)(access.sent, access.asked) * count
        shares.append(sent / asked if asked else 1.0)
    has_blocks = any(instruction.opcode.startswith("UTMA") for instruction in code.instructions)
    return (1.0, 1.0) if has_blocks else (shares[0], shares[1])


def latency_seconds(cycles: float, grid_programs: int, programs: float, resident: int, machine: Machine) -> float:
    """Return the time of the rounds of resident programs of the busiest core, each as long as one warp alone takes.

    Args:
        cycles: Of a warp alone, as of `warp_cycles`.
        grid_programs: Of the launch.
        programs: Of the busiest core, counted in average ones.
        resident: Programs that a core holds at a time.
        machine: The GPU.
    """
    per_core = ceil(grid_programs / machine.cores)
    rounds = ceil(per_core / resident)
    imbalance = programs / per_core
    return rounds * imbalance * (cycles + CALIBRATION.start_cycles) / machine.clock
