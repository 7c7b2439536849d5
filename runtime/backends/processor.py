"""What the host's processor is: its cores, its caches, and what follows from them for the kernels that run on it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["cores", "has_avx512", "last_level_cache", "must_be_told", "stream_threshold", "vectors"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Processors that have these, by LLVM's names for them, with which PoCL ends what it says of its version.
_KNOWN = re.compile(r"-(skylake-avx512|(cascade|cooper|cannon|ice|tiger|rocket)lake|\w+rapids|znver[4-9])\b")
_UNITS = {"K": 10, "M": 20, "G": 30}


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def has_avx512() -> bool:
    """Whether the host's processor has AVX-512 as servers have had it since 2017."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.split()) >= _AVX512
    return False


def vectors() -> tuple[int, int]:
    """The elements of 32 bits that a vector has, and how many vectors the processor's registers hold: 16 and 32 with
    AVX-512, 8 and 16 with AVX2 (and on ARM, where each takes two of 32 registers)."""
    return (16, 32) if has_avx512() else (8, 16)


def must_be_told(version: str) -> bool:
    """Whether the processor has AVX-512 and a PoCL of this device version does not know it.

    For a processor that its LLVM is too old for, PoCL compiles as for an older one: a Zen 4 is a znver3 to LLVM 14,
    which has AVX2 only, and half of the speed in matrix products.
    """
    return has_avx512() and not _KNOWN.search(version)


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
    """
    largest = last_level_cache()
    return 8 << 20 if largest >= 128 << 20 else 4 * largest
