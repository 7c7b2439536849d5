"""Every figure of a launch and of a call, derived from machine code and a described machine. All times are estimates.

The times of a launch, and how they overlap, are those of `launch_time`. Launches follow one another, so a call takes
the sum. One thing makes an estimate pessimistic: code behind a branch on values, such as the slow path of sine, counts
as executed. One makes it optimistic: a loop whose end depends on data, such as a search, counts as one iteration.

The limit of a call is the larger of two times: of the least bytes, which are its operands read once and its results
written once, and of its multiplications, at the published bandwidth and peak. `CallFigures.share` is the limit divided
by the estimate.
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
    issue_seconds,
    latency_seconds,
    overlapped_seconds,
    sent_shares,
    tensor_seconds,
)
from .machine_code import Instruction, MachineCode, load_bytes, read, tensor_shape
from .machines import Machine
from .program_code import Access, Execution, execute
from .warp_time import GROUP_WARPS, warp_cycles

__all__ = ["CallFigures", "LaunchFigures", "call_figures", "launch_figures", "limit_seconds"]

_codes: dict[tuple[Instance, str, str], tuple[Compiled, MachineCode]] = {}


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """One launch.

    Attributes:
        kernel: Its name.
        programs: Of its grid.
        tile: The constants that give a program's share: `128x256x64`, `1024`.
        warps: Of a program.
        registers: Of a thread.
        spills: Bytes of a thread in memory instead of registers (on AMD: registers).
        shared: Bytes of shared memory of a program.
        resident: Programs that a core holds at a time.
        occupancy: Resident warps divided by those that a core can hold.
        tensor: Opcode and shape of the matrix instructions, "" if there are none.
        widths: Bytes of each thread's loads in the hot loop, ascending; 0 stands for TMA.
        narrow_loads: Loads of 1 or 2 bytes in the hot loop, and asynchronous copies of 4.
        hot_instructions: Instructions of the hot loop (`execution.Counts.hot`), or of the kernel if there is none.
        hot_barriers: Barriers among them.
        calls: Of functions, in the whole kernel.
        instructions: That a warp of an average program executes.
        moved: Bytes of device memory.
        requested: Bytes that programs ask of the last cache, whether it or memory delivers them.
        issue, tensor_time, memory, cache, exchange, latency: Estimated seconds.
        depends_on_data: A loop or a branch depends on data and is counted once.
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
        """The estimated seconds of what overlaps, by name, and of the launch itself."""
        return {
            "issue": self.issue, "tensor": self.tensor_time, "memory": self.memory, "cache": self.cache,
            "exchange": self.exchange, "latency": self.latency, "launch": CALIBRATION.launch_seconds,
        }  # fmt: skip

    @property
    def seconds(self) -> float:
        """The estimated time."""
        times = self.times
        return times.pop("launch") + overlapped_seconds(times)

    @property
    def bound(self) -> str:
        """The name of the time that is the largest."""
        times = self.times
        return max(times, key=lambda name: times[name])


@dataclass(frozen=True, slots=True)
class CallFigures:
    """One call on one machine.

    Attributes:
        machine: Its name.
        launches: In order.
        least: Bytes of its results and of what it reads of its operands, each once.
        limit: Seconds that no implementation can go below.
        limit_name: `memory` or `tensor`.
        measured: Seconds on a GPU of this machine; None if there is none.
        peer: Seconds of the same call of PyTorch there; None if it was not measured.
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
        """The estimated time."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def moved(self) -> int:
        """Bytes of device memory of all launches."""
        return sum(launch.moved for launch in self.launches)

    @property
    def moved_ratio(self) -> float:
        """Bytes of device memory divided by the least possible."""
        return self.moved / self.least if self.least else 1.0

    @property
    def bound(self) -> str:
        """What bounds the launch that takes longest."""
        return self.slowest.bound

    @property
    def slowest(self) -> LaunchFigures:
        """The launch that takes longest."""
        return max(self.launches, key=lambda launch: launch.seconds)

    @property
    def share(self) -> float:
        """The estimated share of the limit that the call reaches."""
        return self.limit / self.seconds


def limit_seconds(least: int, flops: float, precision: str, machine: Machine) -> tuple[float, str]:
    """Return the least time of a call, and what limits it.

    Args:
        least: Bytes that it must move.
        flops: Operations of its matrix products.
        precision: Of the products: `bfloat16`, `float16`, `tf32`, or `float32` (exact to float32).
        machine: The GPU.
    """
    # Products of float32 are three in tf32 where the tensor cores have no float32.
    peaks = {"tf32": machine.tf32_flops, "float32": machine.single_flops or machine.tf32_flops / 3}
    times = {"memory": least / machine.bandwidth, "tensor": flops / peaks.get(precision, machine.half_flops)}
    name = max(times, key=lambda n: times[n])
    return times[name], name


def call_figures(launches: Sequence[Launch], results: Iterable[tuple[int, int]], flops: float, precision: str,
                 machine: Machine) -> CallFigures:  # fmt: skip
    """Return all figures of a call.

    Args:
        launches: What it launches.
        results: Key and bytes of each result, as of a `Buffer`.
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
    """Compile a launch's kernel for operands at multiples of 16 bytes, and return its figures."""
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
        """Return True if so many bytes fit."""
        return nbytes <= self._size

    def touch(self, key: int, nbytes: int) -> None:
        """Say that a launch has read or written a buffer."""
        self._buffers.pop(key, None)
        self._buffers[key] = nbytes


def _figures_and_accesses(
    launch: Launch, machine: Machine, cache: _Cache
) -> tuple[LaunchFigures, dict[int, float], set[int]]:
    """Return figures, the bytes that are asked for by pointer argument, and the pointer arguments that are written."""
    step = launch.step
    compiled, code = _compile(step, machine.target)
    arguments = _arguments(launch)
    execution = execute(compiled.asm["ttir"], arguments, step.global_size, _unknown_trips(step))
    counts = count_instructions(code, execution)
    warp_costs = warp_accesses(code.instructions, parameter_words(compiled.asm["ttir"], arguments, machine.target))
    body = code.within(counts.hot)
    programs, warps = prod(step.global_size), compiled.binary.threads // machine.warp
    resident = _resident(compiled, warps, machine)
    busiest_programs = _busiest_core_programs(programs, execution.imbalance, machine)
    shares = sent_shares(code, warp_costs, counts)
    moved, requested = _traffic(launch, execution.accesses, min(programs, resident * machine.cores), shares, cache)
    tensor_opcode = next((i.opcode for i in code.instructions if tensor_shape(i.opcode) is not None), "")
    figures = LaunchFigures(
        kernel=step.instance.entry, programs=programs, tile=_tile(dict(step.instance.defines)), warps=warps,
        registers=compiled.registers, spills=compiled.spills, shared=compiled.binary.shared, resident=resident,
        occupancy=min(1.0, resident * warps / machine.max_warps), tensor=_tensor_text(tensor_opcode, execution),
        widths=tuple(sorted({n for i in body if (n := load_bytes(i.opcode)) is not None})),
        narrow_loads=sum(map(_is_narrow, body)), hot_instructions=len(body),
        hot_barriers=sum(i.opcode.startswith(("BAR", "s_barrier")) for i in body), calls=code.calls,
        instructions=sum(counts.by_instruction), moved=moved, requested=requested,
        issue=issue_seconds(code, counts, warps, busiest_programs, machine),
        tensor_time=tensor_seconds(execution, code, counts, busiest_programs, machine),
        memory=moved / (machine.bandwidth * CALIBRATION.memory_share),
        cache=requested / (machine.cache_bytes_per_clock * machine.clock),
        exchange=exchange_seconds(warp_costs, counts, warps, busiest_programs, machine),
        latency=latency_seconds(
            warp_cycles(code, counts, warps, machine), programs, busiest_programs, resident, machine
        ),
        depends_on_data=execution.depends_on_data, tensor_share=_tensor_share(body, machine),
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
    if key not in _codes:
        compiled = compile_for(step, True, Target.named(target))
        _codes[key] = compiled, read(compiled)
    return _codes[key]


def _unknown_trips(step: Step) -> int:
    """Return the iterations to assume for a loop whose bounds are in memory.

    These are the blocks of all tensors in the table, divided equally among programs; 1 without a table.
    """
    block = dict(step.instance.defines).get("BLOCK")
    return ceil(step.work / (prod(step.global_size) * int(block))) if step.reaches and block else 1


def _arguments(launch: Launch) -> list[int | None]:
    """Return the kernel's arguments: None for pointers and for the call's numbers, which follow the geometry."""
    step = launch.step
    assert isinstance(step.geometry, tuple)
    arguments: list[int | None] = [None] * len(step.instance.slots)
    for value in step.geometry:
        arguments += value if isinstance(value, tuple) else (value,)
    return arguments + [None] * (len(step.scalars) + len(step.integers))


def _tile(defines: dict[str, str | int | float]) -> str:
    """Return the constants that give a program's share, joined by `x`."""
    for names in (("BM", "BN", "BK"), ("ROWS", "COLUMNS"), ("ROWS", "BLOCK"), ("BM", "BN"), ("BLOCK",), ("ITEMS",)):
        if all(name in defines for name in names):
            return "x".join(str(defines[name]) for name in names)
    return ""


def _tensor_text(opcode: str, execution: Execution) -> str:
    shape: tuple[int, ...] | None = tensor_shape(opcode) if opcode else None
    if shape is None:
        return ""
    if not any(shape):
        shape = next((product.shape for product in execution.products), shape)
    name = "MFMA" if opcode.startswith("v_mfma") else opcode.split(".")[0]
    return f"{name} {shape[0]}x{shape[1]}x{shape[2]}"


def _is_narrow(instruction: Instruction) -> bool:
    nbytes = load_bytes(instruction.opcode)
    return nbytes in (1, 2) or (instruction.opcode.startswith("LDGSTS") and nbytes == 4)


def _resident(compiled: Compiled, warps: int, machine: Machine) -> int:
    """Return how many programs a core holds at a time, by registers, shared memory, warps and blocks."""
    unit = machine.register_unit
    registers_per_warp = -(-max(compiled.registers, 1) * machine.warp // unit) * unit
    # A warp's registers lie in the part of the registers that belongs to its scheduler.
    warps_by_registers = 4 * (machine.registers // 4 // registers_per_warp)
    shared = compiled.binary.shared + machine.block_reserve
    limits = [warps_by_registers // warps, machine.max_warps // warps, machine.max_blocks]
    if shared:
        limits.append(machine.shared_memory // shared)
    return max(1, min(limits))


def _busiest_core_programs(programs: int, imbalance: float, machine: Machine) -> float:
    """Return the work of the busiest core, counted in average programs."""
    per_core = ceil(programs / machine.cores)
    if programs <= machine.cores:
        return imbalance
    return max(per_core, programs / machine.cores * (imbalance if per_core == 1 else 1.0))


def _tensor_share(body: Sequence[Instruction], machine: Machine) -> float:
    """Return cycles of the tensor cores for each cycle of issuing a loop's instructions; 0 if shapes are not known."""
    cycles = 0.0
    for instruction in body:
        if shape := tensor_shape(instruction.opcode):
            peak = machine.tf32_flops if "TF32" in instruction.opcode else machine.half_flops
            macs_per_cycle = peak / (2 * machine.cores * machine.clock)
            group = GROUP_WARPS if instruction.opcode.startswith("HGMMA") else 1
            cycles += prod(shape) / group / macs_per_cycle
    return cycles * machine.issue / len(body)


def _traffic(
    launch: Launch, accesses: Sequence[Access], live_programs: int, shares: tuple[float, float], cache: _Cache
) -> tuple[int, int]:
    """Return the bytes of device memory, and those that programs ask of the last cache.

    A load or store of a buffer moves no more than the buffer has: what several programs ask for comes from the cache.
    So does what an earlier launch has left there, and a second load of the same bytes by a program, if the cache holds
    what all live programs have loaded. Several accesses of a buffer, as of an unrolled loop, are taken to be of
    different bytes until together they have the buffer's size. shares: bytes sent divided by bytes asked for, of loads
    and of stores.
    """
    moved, requested = 0.0, 0.0
    accessed: dict[tuple[int, bool], float] = {}  # bytes
    touched: dict[int, int] = {}
    for access in accesses:
        requested += access.nbytes * shares[access.is_store]
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
            new = min(nbytes, buffer.nbytes - accessed[key])
            accessed[key] += new
            moved += new
        else:
            moved += nbytes
        touched[buffer.key] = int(max(nbytes, accessed[key], touched.get(buffer.key, 0)))
    for buffer_key, size in touched.items():
        cache.touch(buffer_key, size)
    return int(moved), int(requested)
