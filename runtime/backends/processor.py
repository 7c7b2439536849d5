"""The host's processor: its cores, features and caches, and the thresholds for kernels that follow from them."""

from __future__ import annotations

import math
import os
import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from .. import control_groups, native

__all__ = [
    "best_instruction_set",
    "cores",
    "features",
    "has_avx512",
    "instruction_set",
    "is_amd",
    "last_level_cache",
    "llvm_knows_avx512",
    "model_name",
    "stream_rows_threshold",
    "stream_threshold",
    "vector_registers",
]  # fmt: skip

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSORS = Path("/proc/cpuinfo")
# The features that LLVM's levels x86-64-v4 and x86-64-v3 require, by their names in /proc/cpuinfo.
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX2 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
# LLVM's names of processors with AVX-512. PoCL's device version ends in the processor's name.
_AVX512_NAMES = re.compile(r"-(skylake-avx512|(cascade|cooper|cannon|ice|tiger|rocket)lake|\w+rapids|znver[4-9])\b")
_UNITS = {"K": 10, "M": 20, "G": 30}  # binary logarithms


def cores() -> int:
    """Return the number of cores that this process may use, by its affinity and its control group's CPU quota.

    The affinity is read at each call, because a program may set it while it runs. The quota is read once.
    """
    by_affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return by_affinity if quota is None else max(1, min(by_affinity, math.ceil(quota)))


@cache
def _quota() -> float | None:
    return control_groups.cpu_quota()


@cache
def _cpu_info() -> dict[str, str]:
    """Return the fields of /proc/cpuinfo for the first processor, or nothing if the file cannot be read."""
    fields: dict[str, str] = {}
    with suppress(OSError), _PROCESSORS.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            field, _, value = line.partition(":")
            if not field.strip():
                break  # the next processor follows
            fields[field.strip()] = value.strip()
    return fields


def features() -> frozenset[str]:
    """Return the processor's features by their names in /proc/cpuinfo, or from the C extension without that file."""
    flags = _cpu_info().get("flags")
    return frozenset(flags.split()) if flags is not None else frozenset(native.processor_features())


def model_name() -> str:
    """Return the processor's name as the system gives it, or its architecture."""
    return _cpu_info().get("model name") or platform.processor() or platform.machine()


def has_avx512() -> bool:
    """Return whether the host's processor has the AVX-512 features of x86-64-v4 (servers since 2017)."""
    return features() >= _AVX512


@cache
def best_instruction_set() -> str:
    """Return the best instruction set for kernels here: `avx512`, `avx2`, `sse` or, on ARM, `neon`."""
    if platform.machine() in ("aarch64", "arm64", "ARM64"):
        return "neon"
    return "avx512" if has_avx512() else "avx2" if features() >= _AVX2 else "sse"


def instruction_set(lanes: int) -> str:
    """Return the instruction set for vectors of `lanes` 32-bit elements, at most the best one of the processor."""
    best = best_instruction_set()
    if best == "neon":
        return best
    ranks = ("sse", "avx2", "avx512")
    return ranks[min(ranks.index(best), 2 if lanes >= 16 else 1 if lanes >= 8 else 0)]


def is_amd() -> bool:
    """Return whether the host's processor is from AMD.

    Elementwise kernels do not use software prefetch on AMD, because its hardware prefetchers suffice. On a Zen 4,
    negations with prefetch take 1.15 times as long on operands in the caches and 1.3 to 1.7 times on larger ones, sums
    take 1.05 times, and no kernel becomes faster. A Cascade Lake Xeon does need prefetch. In matrix products and
    kernels over rows, prefetch makes no clear difference on a Zen 4.
    """
    return _cpu_info().get("vendor_id") == "AuthenticAMD"


def vector_registers(instructions: str) -> tuple[int, int]:
    """Return the number of 32-bit elements in a vector register, and the number of these registers.

    Args:
        instructions: `avx512`, `avx2`, `sse` or `neon`, as `instruction_set` returns it.
    """
    return {"avx512": (16, 32), "avx2": (8, 16), "sse": (4, 16), "neon": (4, 32)}[instructions]


def llvm_knows_avx512(version: str) -> bool:
    """Return True if PoCL's LLVM knows the processor by a name that includes AVX-512.

    If its LLVM does not know the processor, PoCL compiles for an older one: LLVM 14 treats a Zen 4 as znver3, which has
    AVX2 only.

    Args:
        version: PoCL's device version, which ends in the processor's name.
    """
    return bool(_AVX512_NAMES.search(version))


@cache
def last_level_cache() -> int:
    """Return the size of the host's largest cache in bytes; 32 MiB if it is unknown."""
    largest = 0
    for path in _CACHES.glob("index*/size"):
        with suppress(OSError):  # a system that forbids reading it
            text = path.read_text(encoding="ascii").strip()  # such as 32768K
            if text[:-1].isdigit():
                largest = max(largest, int(text[:-1]) << _UNITS.get(text[-1], 0))
    return largest or 32 << 20


def stream_threshold() -> int:
    """Return the size of a result in bytes from which kernels use non-temporal stores, which bypass the caches.

    Non-temporal stores save reading each cache line before it is written, but the next op then reads from memory. The
    factors below are the time with ordinary stores divided by the time with non-temporal ones: above 1 they gain.

    Cascade Lake Xeon, two cores, 36 MiB cache: 0.53 to 0.9 for results of 8 to 32 MiB (0.6 to 0.83 if the next op reads
    the result), and still 0.9 to 0.95 at 128 MiB. Only sums of two operands gain, 1.05 from 24 MiB. Hence the threshold
    is 4 times the cache, where none of the result would stay in the cache anyway.

    Xeon with a shared cache of 480 MiB, of which a program has a small and distant part: above 1 from 8 MiB.

    Zen 4, two cores, 32 MiB cache: 1.3 to 1.8 for elementwise ops from 16 MiB, half of the cache. Pairs of ops, where
    the second reads the first one's result: 0.9 to 2.0 at 16 MiB and 1.2 to 1.6 at 32 MiB, but down to 0.33 at 4 and
    8 MiB.
    """
    largest = last_level_cache()
    if is_amd():
        return largest // 2
    return 8 << 20 if largest >= 128 << 20 else 4 * largest


def stream_rows_threshold() -> int:
    """Return `stream_threshold` for kernels that read a whole row before they store it, such as softmax.

    Between the stores of two rows such a kernel only reads, so the caches absorb the stores until the result exceeds
    them. A Zen 4 is the exception: with non-temporal stores softmax was 1.2 times as fast at 16 MiB and 1.35 times at
    64 MiB, layer norm 1.4 and 1.7 times.
    """
    return stream_threshold() * (1 if is_amd() else 4)
