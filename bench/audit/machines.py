"""Described GPUs: published figures, from which limits and estimates are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...runtime.errors import ArgumentError

__all__ = ["MACHINES", "Machine", "machines_of"]

_TERA = 1e12
_GUIDE = "CUDA C++ Programming Guide, technical specifications per compute capability"


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU.

    Attributes:
        name: The name that users give, `H100`.
        target: The architecture that kernels are compiled for, a key of `weftgrad.cli.compile.TARGETS`.
        cores: Multiprocessors, or compute units of AMD.
        clock: Cycles per second at which the published peak of half precision holds.
        bandwidth: Bytes per second of device memory.
        half_flops: Operations per second of the tensor cores in bfloat16 and float16, without sparsity.
        tf32_flops: The same in tf32; on AMD in xf32.
        single_flops: The same in float32; 0 if the tensor cores have no float32.
        cache: Bytes of the last cache before device memory.
        cache_bytes_per_clock: Bytes that all cores together read from that cache in a cycle.
        shared_memory: Bytes of shared memory of a core.
        block_reserve: Bytes of shared memory that each block takes besides its own.
        registers: Registers of a core for threads of 32 bits.
        register_unit: A warp's registers are allocated in multiples of this.
        max_warps: Resident warps of a core.
        max_blocks: Resident blocks of a core.
        warp: Threads of a warp.
        issue: Vector instructions of warps that a core issues in a cycle.
        special_cycles: Cycles for which a special function, such as 2^x, occupies its scheduler.
        latency: Cycles from a load of device memory to its value.
        synchronous_share: The share of the tensor peak that products reach whose operands are in registers.
        sources: Where the figures come from.
    """

    name: str
    target: str
    cores: int
    clock: float
    bandwidth: float
    half_flops: float
    tf32_flops: float
    single_flops: float
    cache: int
    cache_bytes_per_clock: int
    shared_memory: int
    block_reserve: int
    registers: int = 65536
    register_unit: int = 256
    max_warps: int = 64
    max_blocks: int = 32
    warp: int = 32
    issue: int = 4
    special_cycles: int = 8
    latency: int = 480
    synchronous_share: float = 1.0
    sources: tuple[str, ...] = field(default=())


_H100 = Machine(
    "H100", "sm_90", cores=132, clock=1.83e9, bandwidth=3.35 * _TERA, half_flops=989.4 * _TERA,
    tf32_flops=494.7 * _TERA, single_flops=0, cache=50 << 20, cache_bytes_per_clock=5120, shared_memory=228 << 10,
    block_reserve=1024, synchronous_share=0.62,
    sources=(
        "NVIDIA H100 Tensor Core GPU Architecture, 2022 (SXM5: multiprocessors, peaks, bandwidth, cache; the clock "
        "follows from the peak)",
        _GUIDE,
        "Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, 2024 "
        "(latency; products from registers reach 62 % of the peak)",
        "bytes per cycle of the cache: those of the A100, assumed",
    ),
)  # fmt: skip

MACHINES: dict[str, Machine] = {
    machine.name: machine
    for machine in (
        Machine(
            "A100", "sm_80", cores=108, clock=1.41e9, bandwidth=2.039 * _TERA, half_flops=312 * _TERA,
            tf32_flops=156 * _TERA, single_flops=0, cache=40 << 20, cache_bytes_per_clock=5120,
            shared_memory=164 << 10, block_reserve=1024,
            sources=("NVIDIA A100 Tensor Core GPU Architecture, 2020 (SXM4; bandwidth of the model with 80 GB)", _GUIDE,
                     "latency: that of the H100, assumed"),
        ),
        _H100,
        Machine(
            "H200", "sm_90", cores=132, clock=1.83e9, bandwidth=4.8 * _TERA, half_flops=989.4 * _TERA,
            tf32_flops=494.7 * _TERA, single_flops=0, cache=50 << 20, cache_bytes_per_clock=5120,
            shared_memory=228 << 10, block_reserve=1024, synchronous_share=0.62,
            sources=("NVIDIA H200 Tensor Core GPU, data sheet, 2023 (bandwidth)", *_H100.sources),
        ),
        Machine(
            "B200", "sm_100", cores=148, clock=1.856e9, bandwidth=8.0 * _TERA, half_flops=2250 * _TERA,
            tf32_flops=1125 * _TERA, single_flops=0, cache=126 << 20, cache_bytes_per_clock=5120,
            shared_memory=228 << 10, block_reserve=1024, synchronous_share=0.5,
            sources=("NVIDIA DGX B200, data sheet, 2024 (an eighth of its peaks, halved for dense operands; bandwidth; "
                     "the clock follows from the peak)", _GUIDE,
                     "latency, bytes per cycle of the cache and the share of products from registers: assumed"),
        ),
        Machine(
            "MI300X", "gfx942", cores=304, clock=2.1e9, bandwidth=5.3 * _TERA, half_flops=1307.4 * _TERA,
            tf32_flops=653.7 * _TERA, single_flops=163.4 * _TERA, cache=256 << 20, cache_bytes_per_clock=8192,
            shared_memory=64 << 10, block_reserve=0, registers=4 * 512 * 64, register_unit=8 * 64, max_warps=32,
            max_blocks=32, warp=64, issue=1, special_cycles=4, latency=700,
            sources=("AMD Instinct MI300X Accelerator, data sheet, 2023",
                     "AMD CDNA 3 Architecture, 2023 (compute units; registers; the Infinity Cache's 17.2 TB/s)",
                     "latency: assumed"),
        ),
    )
}  # fmt: skip


def machines_of(names: list[str]) -> list[Machine]:
    """Return machines by their names, `H200`, or by architectures, `sm_90`, which stand for their first machine.

    Raises:
        ArgumentError: There is no such machine.
    """
    by_target: dict[str, Machine] = {}
    for machine in (_H100, *MACHINES.values()):
        by_target.setdefault(machine.target, machine)
    known = {name.lower(): machine for name, machine in (by_target | MACHINES).items()}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        raise ArgumentError(
            f"audit: no machine is named {unknown[0]}: give one of {', '.join((*MACHINES, *by_target))}"
        )
    return list(dict.fromkeys(known[name.lower()] for name in names))
