"""What the host's processor is: its cores, its caches, and what follows from them for the kernels that run on it."""

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
    "best_instruction_set", "cores", "features", "from_amd", "has_avx512", "instruction_set", "last_level_cache",
    "llvm_knows_avx512", "model_name", "stream_rows_threshold", "stream_threshold", "vectors",
]  # fmt: skip

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_PROCESSORS = Path("/proc/cpuinfo")
# What LLVM's levels x86-64-v4, v3 and v2 stand for, by the names that /proc/cpuinfo has for the features.
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX2 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
# Processors that have these, by LLVM's names for them, with which PoCL ends what it says of its version.
_KNOWN = re.compile(r"-(skylake-avx512|(cascade|cooper|cannon|ice|tiger|rocket)lake|\w+rapids|znver[4-9])\b")
_UNITS = {"K": 10, "M": 20, "G": 30}


def cores() -> int:
    """Return how many cores this process may use: by its affinity, and by its control groups' share of time."""
    by_affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return by_affinity if quota is None else max(1, min(by_affinity, math.ceil(quota)))


@cache
def _quota() -> float | None:
    return control_groups.cpu_quota()


@cache
def _described() -> dict[str, str]:
    """What the system says of the host's first processor, empty where it says nothing."""
    found: dict[str, str] = {}
    with suppress(OSError), _PROCESSORS.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            field, _, value = line.partition(":")
            if not field.strip():
                break  # the next one's follow
            found[field.strip()] = value.strip()
    return found


def features() -> frozenset[str]:
    """Return the processor's features by their names in /proc/cpuinfo; where that cannot be read, what C asks it."""
    flags = _described().get("flags")
    return frozenset(flags.split()) if flags is not None else frozenset(native.processor_features())


def model_name() -> str:
    """Return the processor's name as the system gives it, or its architecture."""
    return _described().get("model name") or platform.processor() or platform.machine()


def has_avx512() -> bool:
    """Return whether the host's processor has AVX-512 as servers have had it since 2017 (x86-64-v4)."""
    return features() >= _AVX512


@cache
def best_instruction_set() -> str:
    """Return the most that kernels can use here: `avx512`, `avx2`, `sse` or, on ARM, `neon`."""
    if platform.machine() in ("aarch64", "arm64", "ARM64"):
        return "neon"
    return "avx512" if has_avx512() else "avx2" if features() >= _AVX2 else "sse"


def instruction_set(lanes: int) -> str:
    """Return the instructions for vectors of that many 32-bit elements, never more than the processor has."""
    best = best_instruction_set()
    if best == "neon":
        return best
    ranks = ("sse", "avx2", "avx512")
    return ranks[min(ranks.index(best), 2 if lanes >= 16 else 1 if lanes >= 8 else 0)]


def from_amd() -> bool:
    """Whether AMD made the host's processor.

    Its caches fill themselves ahead of what is read: elementwise kernels that ask for lines ahead were slower on a Zen
    4, negations by 1.15 in its caches and by 1.3 to 1.7 beyond, sums by 1.05, and none was faster. A Cascade Lake Xeon
    needs that. (Asking ahead makes no difference to a Zen 4 in matrix products, nor clearly in kernels over rows.)
    """
    return _described().get("vendor_id") == "AuthenticAMD"


def vectors(instructions: str) -> tuple[int, int]:
    """Return how many 32-bit elements a vector has, and how many vectors the processor's registers hold."""
    return {"avx512": (16, 32), "avx2": (8, 16), "sse": (4, 16), "neon": (4, 32)}[instructions]


def llvm_knows_avx512(version: str) -> bool:
    """Return whether a PoCL of this device version compiles for AVX-512, on a processor that has it.

    For a processor that its LLVM is too old for, PoCL compiles as for an older one: a Zen 4 is a znver3 to LLVM 14,
    which has AVX2 only.
    """
    return bool(_KNOWN.search(version))


@cache
def last_level_cache() -> int:
    """Bytes of the host's largest cache; 32 MiB where it does not say."""
    found = [32 << 20]
    for path in _CACHES.glob("index*/size"):
        with suppress(OSError):  # of a system that does not let it be read
            text = path.read_text(encoding="ascii").strip()
            found.append(int(text[:-1]) << _UNITS.get(text[-1:], 0) if text[:-1].isdigit() else 0)
    return max(found)


def stream_threshold() -> int:
    """Bytes of a result from which stores had better bypass the caches (non-temporal stores).

    They save reading each line before it is written, but two cores of a Cascade Lake Xeon (a cache of 36 MiB) are
    slower with them: results of 8 to 32 MiB by 1.1 to 1.9, where the next op reads them by 1.2 to 1.7, and by 1.05 to
    1.1 at 128 MiB still; sums of two operands alone gain, 1.05 from 24 MiB. On a Xeon that shares 480 MiB, of whose
    cache a program's part is small and far away, they won from 8 MiB. So they wait until nothing could be left in the
    cache, unless it is one of those.

    Two cores of a Zen 4 (a cache of 32 MiB) are faster with them from half of the cache: elementwise ops, by 1.3 to 1.8
    from 16 MiB, and in pairs, where the second reads what the first stored, by 0.9 to 2.0 at 16 MiB and 1.2 to 1.6 at
    32 MiB. At 4 and 8 MiB they are slower there, too, by up to 3.
    """
    largest = last_level_cache()
    if from_amd():
        return largest // 2
    return 8 << 20 if largest >= 128 << 20 else 4 * largest


def stream_rows_threshold() -> int:
    """The same of kernels that go over whole rows before they store any, as softmax does.

    Between the stores of two rows lie sweeps that only read, so that the caches take the stores along, until the result
    is past what they hold; but for a Zen 4, where softmax gained 1.2 at 16 MiB and 1.35 at 64 MiB, layer norm 1.4 and
    1.7.
    """
    return stream_threshold() * (1 if from_amd() else 4)
