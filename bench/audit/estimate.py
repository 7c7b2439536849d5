"""Estimate the figures of a call and of its launches from machine code and the description of a GPU.

`launch_time` estimates the time of a launch. Launches follow one another, so a call takes the sum of their times. Code
behind a branch on values, such as the slow path of sine, counts as executed, which makes an estimate pessimistic. A
loop whose end depends on data, such as a search, counts as one iteration, which makes it optimistic.

The limit of a call is a time below which no implementation can go. It is the larger of two times: that of moving the
least bytes (each operand read once, each result written once) at the published bandwidth, and that of its matrix
products at the published peak. `CallFigures.share` is the limit divided by the estimated time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from ...runtime.backends.protocol import Instance, Step
from ...runtime.triton.compile import Compiled, Target, compile_for
from ...runtime.triton.signature import signature
from .bank_conflicts import parameter_words, warp_accesses
from .capture import Launch
from .execution import count_instructions
from .launch_time import (
    CALIBRATION,
    exchange_seconds,
    exchange_shares,
    issue_seconds,
    latency_seconds,
    overlapped_seconds,
    tensor_seconds,
)
from .machine_code import Instruction, MachineCode, load_bytes, read, tensor_shape
from .machines import Machine
from .program_code import Access, Execution, execute
from .warp_time import GROUP_WARPS, warp_cycles

__all__ = ["CallFigures", "LaunchFigures", "call_figures", "launch_figures", "limit_seconds"]

_compiled_kernels: dict[tuple[Instance, str, str], tuple[Compiled, MachineCode]] = {}


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """Figures of one launch.

    Attributes:
        kernel: Name of the kernel.
        programs: Number of programs in the grid.
        tile: The constants that determine the size of a program's part: `128x256x64`, `1024`.
        warps: Number of warps in a program.
        registers: Registers of a thread.
        spills: Bytes of a thread that are in memory for lack of registers (on AMD: number of such registers).
        shared: Bytes of shared memory of a program.
        resident: Number of programs that a core holds at a time.
        occupancy: Resident warps divided by the warps that a core can hold.
        tensor: Opcode and shape of the matrix instructions, "" if there are none.
        widths: Bytes of each thread's loads in the hot loop, ascending; 0 stands for TMA.
        narrow_loads: Loads of 1 or 2 bytes in the hot loop, and asynchronous copies of 4.
        hot_instructions: Instructions of the hot loop (`execution.Counts.hot`), or of the kernel if there is none.
        hot_barriers: Barriers among the hot instructions.
        calls: Function calls in the whole kernel.
        instructions: Number of instructions that a warp of an average program executes.
        moved: Bytes read from or written to device memory.
        requested: Bytes that programs read or write through the last cache, including those that it holds already.
        issue, tensor_time, memory, cache, exchange, latency: Estimated seconds of each resource (see `launch_time`).
        depends_on_data: Whether a loop or a branch depends on data, so that it is counted once.
        tensor_share: Cycles of the tensor cores for each cycle of issuing instructions, in the hot loop alone.
    """

    kernel: str
    programs: int
    tile: str
    warps: int
    registers: int
    spills: int
    shared: int
    resident: int
    occupancy: float
    tensor: str
    widths: tuple[int, ...]
    narrow_loads: int
    hot_instructions: int
    hot_barriers: int
    calls: int
    instructions: float
    moved: int
    requested: int
    issue: float
    tensor_time: float
    memory: float
    cache: float
    exchange: float
    latency: float
    depends_on_data: bool
    tensor_share: float

    @property
    def times(self) -> dict[str, float]:
        """The estimated seconds of each resource by name, and those between launches as "launch"."""
        return {
            "issue": self.issue, "tensor": self.tensor_time, "memory": self.memory, "cache": self.cache,
            "exchange": self.exchange, "latency": self.latency, "launch": CALIBRATION.launch_seconds,
        }  # fmt: skip

    @property
    def seconds(self) -> float:
        """The estimated time of the launch, in seconds."""
        times = self.times
        return times.pop("launch") + overlapped_seconds(times)

    @property
    def bound(self) -> str:
        """The name of the largest of `times`."""
        times = self.times
        return max(times, key=lambda name: times[name])


@dataclass(frozen=True, slots=True)
class CallFigures:
    """Figures of one call on one machine.

    Attributes:
        machine: Name of the machine.
        launches: Figures of the call's launches, in order.
        least: The least bytes that a call must move: its results, and the part of its operands that it reads, once.
        limit: Seconds below which no implementation can go.
        limit_name: What the limit comes from, `memory` or `tensor`.
        measured: Measured seconds on such a GPU; None if it was not measured.
        peer: Measured seconds of the same call in PyTorch; None if it was not measured.
    """

    machine: str
    launches: tuple[LaunchFigures, ...]
    least: int
    limit: float
    limit_name: str
    measured: float | None = None
    peer: float | None = None

    @property
    def seconds(self) -> float:
        """The estimated time of the call, in seconds."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def moved(self) -> int:
        """Bytes that all launches read from or write to device memory."""
        return sum(launch.moved for launch in self.launches)

    @property
    def moved_ratio(self) -> float:
        """Moved bytes divided by the least bytes."""
        return self.moved / self.least if self.least else 1.0

    @property
    def bound(self) -> str:
        """The name of the largest time of the slowest launch."""
        return self.slowest.bound

    @property
    def slowest(self) -> LaunchFigures:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.seconds)

    @property
    def share(self) -> float:
        """The limit divided by the estimated time: 1 if the call is as fast as possible."""
        return self.limit / self.seconds


def limit_seconds(least: int, flops: float, precision: str, machine: Machine) -> tuple[float, str]:
    """Return the least possible time of a call in seconds, and the name of the resource that limits it.

    Args:
        least: The least bytes that it must move.
        flops: Operations of its matrix products.
        precision: Precision of the products: `bfloat16`, `float16`, `tf32`, or `float32` (exact to float32).
        machine: The GPU.

    Returns:
        (seconds, "memory" or "tensor").
    """
    # Tensor cores without float32 compute a float32 product as three products in tf32.
    peaks = {"tf32": machine.tf32_flops, "float32": machine.single_flops or machine.tf32_flops / 3}
    times = {"memory": least / machine.bandwidth, "tensor": flops / peaks.get(precision, machine.half_flops)}
    name = max(times, key=lambda n: times[n])
    return times[name], name


def call_figures(launches: Sequence[Launch], results: Iterable[tuple[int, int]], flops: float, precision: str,
                 machine: Machine) -> CallFigures:  # fmt: skip
    """Return all figures of a call.

    Args:
        launches: The launches, in order.
        results: The key and the bytes of each result, as in a `Buffer`.
        flops: Operations of its matrix products.
        precision: As for `limit_seconds`.
        machine: The GPU.
    """
    figures_of_launches: list[LaunchFigures] = []
    written: set[int] = set()
    operands: dict[int, int] = {}
    cache = _Cache(machine.cache)
    for launch in launches:
        figures, reads, writes = _figures_and_accesses(launch, machine, cache)
        figures_of_launches.append(figures)
        for index, nbytes in reads.items():
            buffer = launch.buffers[index]
            if buffer.key not in written:  # an embedding reads a part of its table
                operands[buffer.key] = max(int(min(nbytes, buffer.nbytes)), operands.get(buffer.key, 0))
        for buffer in launch.reached:
            operands.setdefault(buffer.key, buffer.nbytes)
        written.update(launch.buffers[index].key for index in writes)
    least = sum(operands.values()) + sum(dict(results).values())
    limit, name = limit_seconds(least, flops, precision, machine)
    return CallFigures(machine.name, tuple(figures_of_launches), least, limit, name)


def launch_figures(launch: Launch, machine: Machine) -> LaunchFigures:
    """Compile a launch's kernel for operands at addresses that 16 divides, and return its figures.

    The last cache is empty before the launch.
    """
    return _figures_and_accesses(launch, machine, _Cache(machine.cache))[0]


class _Cache:
    """The last cache before device memory, which holds the buffers that were touched last."""

    def __init__(self, size: int):
        self._size = size
        self._buffers: dict[int, int] = {}

    def holds(self, key: int) -> bool:
        """Return True if a buffer and all buffers that were touched after it fit."""
        total = 0
        for other, nbytes in reversed(self._buffers.items()):
            total += nbytes
            if other == key or total > self._size:
                return other == key and total <= self._size
        return False

    def fits(self, nbytes: float) -> bool:
        """Return True if the cache is large enough for so many bytes."""
        return nbytes <= self._size

    def touch(self, key: int, nbytes: int) -> None:
        """Make a buffer the last one that was read or written."""
        self._buffers.pop(key, None)
        self._buffers[key] = nbytes


def _figures_and_accesses(
    launch: Launch, machine: Machine, cache: _Cache
) -> tuple[LaunchFigures, dict[int, float], set[int]]:
    """Return the figures of a launch and its accesses of device memory. Update the cache.

    Returns:
        The figures; the bytes that all programs load, by number of the pointer argument; and the numbers of the pointer
        arguments that are written.
    """
    step = launch.step
    compiled, code = _compile(step, machine.target)
    arguments = _kernel_arguments(launch)
    execution = execute(compiled.asm["ttir"], arguments, step.global_size, _assumed_iterations(step))
    counts = count_instructions(code, execution)
    warp_costs = warp_accesses(code.instructions, parameter_words(compiled.asm["ttir"], arguments, machine.target))
    hot_body = code.within(counts.hot)
    programs, warps = prod(step.global_size), compiled.binary.threads // machine.warp
    resident = _resident_programs(compiled, warps, machine)
    busiest_programs = _busiest_core_programs(programs, execution.imbalance, machine)
    sent_per_asked = exchange_shares(code, warp_costs, counts)
    moved, requested = _traffic(
        launch, execution.accesses, min(programs, resident * machine.cores), sent_per_asked, cache
    )
    tensor_opcode = next((i.opcode for i in code.instructions if tensor_shape(i.opcode) is not None), "")
    figures = LaunchFigures(
        kernel=step.instance.entry, programs=programs, tile=_tile_text(dict(step.instance.defines)), warps=warps,
        registers=compiled.registers, spills=compiled.spills, shared=compiled.binary.shared, resident=resident,
        occupancy=min(1.0, resident * warps / machine.max_warps), tensor=_tensor_text(tensor_opcode, execution),
        widths=tuple(sorted({n for i in hot_body if (n := load_bytes(i.opcode)) is not None})),
        narrow_loads=sum(map(_is_narrow, hot_body)), hot_instructions=len(hot_body),
        hot_barriers=sum(i.opcode.startswith(("BAR", "s_barrier")) for i in hot_body), calls=code.calls,
        instructions=sum(counts.by_instruction), moved=moved, requested=requested,
        issue=issue_seconds(code, counts, warps, busiest_programs, machine),
        tensor_time=tensor_seconds(execution, code, counts, busiest_programs, machine),
        memory=moved / (machine.bandwidth * CALIBRATION.memory_share),
        cache=requested / (machine.cache_bytes_per_clock * machine.clock),
        exchange=exchange_seconds(warp_costs, counts, warps, busiest_programs, machine),
        latency=latency_seconds(
            warp_cycles(code, counts, warps, machine), programs, busiest_programs, resident, machine
        ),
        depends_on_data=execution.depends_on_data, tensor_share=_tensor_share(hot_body, machine),
    )  # fmt: skip
    reads: dict[int, float] = {}
    for access in execution.accesses:
        if not access.is_store and access.pointer is not None:
            reads[access.pointer] = reads.get(access.pointer, 0.0) + access.nbytes
    writes = {a.pointer for a in execution.accesses if a.is_store and a.pointer is not None}
    return figures, reads, writes


def _compile(step: Step, target: str) -> tuple[Compiled, MachineCode]:
    """Compile and disassemble a kernel, once for launches that differ in sizes only."""
    key = step.instance, signature(step, True).key, target
    if key not in _compiled_kernels:
        compiled = compile_for(step, True, Target.named(target))
        _compiled_kernels[key] = compiled, read(compiled)
    return _compiled_kernels[key]


def _assumed_iterations(step: Step) -> int:
    """Return the number of iterations to assume for a loop whose bounds are in memory.

    A kernel with a table of tensors loops over the blocks of these tensors. Assume that the blocks are divided equally
    among programs. Without a table, assume one iteration.
    """
    block = dict(step.instance.defines).get("BLOCK")
    return ceil(step.work / (prod(step.global_size) * int(block))) if step.reaches and block else 1


def _kernel_arguments(launch: Launch) -> list[int | None]:
    """Return the kernel's arguments: None for pointers and for the call's numbers, which follow the geometry."""
    step = launch.step
    assert isinstance(step.geometry, tuple)
    arguments: list[int | None] = [None] * len(step.instance.slots)
    for value in step.geometry:
        arguments += value if isinstance(value, tuple) else (value,)
    return arguments + [None] * (len(step.scalars) + len(step.integers))


def _tile_text(defines: dict[str, str | int | float]) -> str:
    """Return the constants that determine the size of a program's part, joined by `x`; "" if there are none."""
    for names in (("BM", "BN", "BK"), ("ROWS", "COLUMNS"), ("ROWS", "BLOCK"), ("BM", "BN"), ("BLOCK",), ("ITEMS",)):
        if all(name in defines for name in names):
            return "x".join(str(defines[name]) for name in names)
    return ""


def _tensor_text(opcode: str, execution: Execution) -> str:
    """Return the opcode and shape of matrix instructions, `HGMMA 64x256x16`; "" for other opcodes."""
    shape: tuple[int, ...] | None = tensor_shape(opcode) if opcode else None
    if shape is None:
        return ""
    if not any(shape):
        shape = next((product.shape for product in execution.products), shape)
    name = "MFMA" if opcode.startswith("v_mfma") else opcode.split(".")[0]
    return f"{name} {shape[0]}x{shape[1]}x{shape[2]}"


def _is_narrow(instruction: Instruction) -> bool:
    """Return True for loads that `LaunchFigures.narrow_loads` counts."""
    nbytes = load_bytes(instruction.opcode)
    return nbytes in (1, 2) or (instruction.opcode.startswith("LDGSTS") and nbytes == 4)


def _resident_programs(compiled: Compiled, warps: int, machine: Machine) -> int:
    """Return how many programs a core can hold at a time, as its registers, shared memory and other limits permit."""
    unit = machine.register_unit
    registers_per_warp = -(-max(compiled.registers, 1) * machine.warp // unit) * unit
    # Each of a core's four schedulers has a quarter of the registers, and a warp's registers are in one quarter.
    warps_by_registers = 4 * (machine.registers // 4 // registers_per_warp)
    shared = compiled.binary.shared + machine.block_reserve
    limits = [warps_by_registers // warps, machine.max_warps // warps, machine.max_blocks]
    if shared:
        limits.append(machine.shared_memory // shared)
    return max(1, min(limits))


def _busiest_core_programs(programs: int, imbalance: float, machine: Machine) -> float:
    """Return the work of the busiest core, in average programs.

    Args:
        programs: Number of programs in the grid.
        imbalance: The work of the busiest program, divided by that of an average one.
        machine: The GPU.
    """
    per_core = ceil(programs / machine.cores)
    if programs <= machine.cores:
        return imbalance
    return max(per_core, programs / machine.cores * (imbalance if per_core == 1 else 1.0))


def _tensor_share(hot_body: Sequence[Instruction], machine: Machine) -> float:
    """Return the cycles of tensor cores per cycle of issuing a loop's instructions; 0 if shapes are unknown."""
    cycles = 0.0
    for instruction in hot_body:
        if shape := tensor_shape(instruction.opcode):
            peak = machine.tf32_flops if "TF32" in instruction.opcode else machine.half_flops
            macs_per_cycle = peak / (2 * machine.cores * machine.clock)
            group = GROUP_WARPS if instruction.opcode.startswith("HGMMA") else 1
            cycles += prod(shape) / group / macs_per_cycle
    return cycles * machine.issue / len(hot_body)


def _traffic(
    launch: Launch, accesses: Sequence[Access], live_programs: int, sent_per_asked: tuple[float, float], cache: _Cache
) -> tuple[int, int]:
    """Return the bytes moved from and to device memory, and the bytes requested of the last cache. Update the cache.

    An access moves at most the bytes of its buffer, because programs that load the same bytes share them in the cache.
    A load moves nothing if an earlier launch has left the buffer in the cache.

    A kernel can access a buffer several times. If the cache can hold the bytes of all live programs, a second access of
    the same bytes moves nothing. The accesses count as accesses of different bytes, as in an unrolled loop, until
    together they have the size of the buffer.

    Args:
        launch: The launch.
        accesses: Loads and stores of the kernel.
        live_programs: Number of programs that run at the same time.
        sent_per_asked: Bytes exchanged with the last cache divided by bytes loaded, and the same for stores
            (`exchange_shares`).
        cache: The last cache.
    """
    moved, requested = 0.0, 0.0
    accessed: dict[tuple[int, bool], float] = {}  # bytes moved so far, by (buffer, is_store); all bytes if cached
    touched: dict[int, int] = {}  # bytes that the cache then holds, by buffer
    for access in accesses:
        requested += access.nbytes * sent_per_asked[access.is_store]
        if access.pointer is None:
            moved += access.nbytes
            continue
        buffer = launch.buffers[access.pointer]
        nbytes = min(access.nbytes, buffer.nbytes)
        key = (buffer.key, access.is_store)
        if key not in accessed:
            is_cached = not access.is_store and cache.holds(buffer.key)
            accessed[key] = buffer.nbytes if is_cached else nbytes
            moved += 0 if is_cached else nbytes
        elif cache.fits(min(live_programs * access.nbytes_per_program, nbytes)):
            new_bytes = min(nbytes, buffer.nbytes - accessed[key])
            accessed[key] += new_bytes
            moved += new_bytes
        else:
            moved += nbytes
        touched[buffer.key] = int(max(nbytes, accessed[key], touched.get(buffer.key, 0)))
    for buffer_key, size in touched.items():
        cache.touch(buffer_key, size)
    return int(moved), int(requested)
