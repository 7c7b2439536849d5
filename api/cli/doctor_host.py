"""Check the host: processor, cores, memory, temporary files, settings, the cache of compiled kernels."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from ..runtime import control_groups
from ..runtime.backends import processor
from ..runtime.cache import preferred_folder, why_unusable
from ..runtime.device import device
from ..runtime.errors import WeftgradError, format_bytes
from ..runtime.memory_stats import default_limit, host_memory
from .cache_files import count_files
from .doctor_packages import native_remedy
from .findings import NOTE, OK, PROBLEM, Finding

__all__ = ["check_cache", "check_processor", "check_settings", "tmpdir_remedy"]

_NAMES = {"avx512": "AVX-512 (x86-64-v4)", "avx2": "AVX2 (x86-64-v3)", "sse": "SSE4.2 (x86-64-v2)", "neon": "NEON"}
_SSE = {"sse4_1", "sse4_2", "ssse3", "popcnt"}  # the least that compiled kernels need on x86
# Processor features that the report names in addition to the instruction set.
_EXTRA = {
    "avx512": ("avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_tile"),
    "avx2": ("avx512f", "avx_vnni"),
    "sse": ("avx", "avx2", "fma"),
    "neon": ("asimdhp", "asimddp", "bf16", "sve", "sve2", "i8mm"),
}
_MIN_TEMPORARY = 10 << 20  # bytes, for one compilation


# processor and memory


def check_processor() -> Iterator[Finding]:
    """Check model, instruction set, cores, memory and room for temporary files."""
    topic = "processor"
    yield Finding(topic, "model", OK, processor.model_name(), facts={"model": processor.model_name()})
    yield from _check_instructions(topic)
    yield from _check_cores(topic)
    yield from _check_memory(topic)
    yield from _check_temporary(topic)


def _check_instructions(topic: str) -> Iterator[Finding]:
    features, best = processor.features(), processor.best_instruction_set()
    lanes, registers = processor.vector_registers(best)
    present = [name for name in _EXTRA[best] if name in features]
    facts = {"instruction_set": best, "lanes": lanes, "registers": registers, "features": sorted(features)}
    text = f"{_NAMES[best]}: vectors of {lanes} float32, {registers} registers"
    if present:
        text += f"; also {', '.join(present)}"
    if best != "sse" or features >= _SSE:
        yield Finding(topic, "instructions", OK, text, facts=facts)
    elif features:
        yield Finding(
            topic, "instructions", PROBLEM, "the processor lacks SSE4.2, which every kernel uses",
            "run on an x86-64 processor of 2009 or later", facts,
        )  # fmt: skip
    else:
        yield Finding(
            topic, "instructions", NOTE,
            f"unknown: neither /proc/cpuinfo nor the C extension reports it; kernels use {text}",
            "mount /proc" if platform.system() == "Linux" else native_remedy(), facts,
        )  # fmt: skip


def _check_cores(topic: str) -> Iterator[Finding]:
    cores, machine, quota = processor.cores(), os.cpu_count() or 1, control_groups.cpu_quota()
    allowed = "no control group limit" if quota is None else f"a control group allows the time of {quota:g}"
    facts = {"cores": cores, "machine_cores": machine, "quota": quota}
    yield Finding(topic, "cores", OK, f"{cores} of {machine} are used, {allowed}", facts=facts)


def _check_memory(topic: str) -> Iterator[Finding]:
    limit, pool_limit, machine_bytes = host_memory(), default_limit(), 0
    with suppress(AttributeError, ValueError, OSError):
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts = {"limit": limit, "pool_limit": pool_limit, "machine": machine_bytes}
    if limit >= 1 << 62:
        yield Finding(
            topic, "memory", NOTE, "the system does not report its memory size, so tensors have no limit",
            "wg.set_memory_limit(BYTES)", facts,
        )  # fmt: skip
        return
    reason = (
        f"by a control group, of {format_bytes(machine_bytes)}"
        if machine_bytes and limit < machine_bytes
        else "of the machine"
    )
    text = f"{format_bytes(limit)} {reason}; tensors take at most {format_bytes(pool_limit)}"
    yield Finding(topic, "memory", OK, text, facts=facts)


def _check_temporary(topic: str) -> Iterator[Finding]:
    remedy = tmpdir_remedy()
    try:
        folder = tempfile.gettempdir()
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        has_shm = os.access("/dev/shm", os.W_OK)
        yield Finding(
            topic, "temporary files", NOTE if has_shm else PROBLEM,
            f"no folder for them can be written ({error.strerror or error})" + "; /dev/shm is used" * has_shm,
            remedy or "export TMPDIR=FOLDER", {"folder": None},
        )  # fmt: skip
        return
    facts = {"folder": folder, "free": free_bytes}
    if free_bytes < _MIN_TEMPORARY:
        yield Finding(
            topic, "temporary files", NOTE,
            f"{folder} has only {format_bytes(free_bytes)} free; a compilation needs 10 MiB",
            remedy or "export TMPDIR=FOLDER", facts,
        )  # fmt: skip
    else:
        yield Finding(topic, "temporary files", OK, f"{folder}, {format_bytes(free_bytes)} free", facts=facts)


def tmpdir_remedy() -> str:
    """Return the setting that gives temporary files a folder, or "" if they have one with room."""
    with suppress(OSError):
        if shutil.disk_usage(tempfile.gettempdir()).free >= _MIN_TEMPORARY:
            return ""
    return "export TMPDIR=FOLDER, one that is writable and has 10 MiB free"


# settings


def check_settings(devices: Collection[str]) -> Iterator[Finding]:
    """List the `WEFTGRAD_*` environment variables, and check that the default device exists.

    Args:
        devices: Names of the OpenCL and CUDA devices that other checks listed.
    """
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("WEFTGRAD_")}
    text = ", ".join(f"{name}={value}" for name, value in settings.items()) or "none in the environment"
    yield Finding("settings", "WEFTGRAD_...", OK, text, facts=settings)
    device_name = settings.get("WEFTGRAD_DEVICE")
    if not device_name:
        return
    try:
        default = device(device_name)
        is_here = default.type not in ("opencl", "cuda") or str(default) in devices
        reason = "" if is_here else f"{default} does not exist here"
    except WeftgradError as error:
        reason = str(error)
    if reason:
        text = f"WEFTGRAD_DEVICE={device_name}: {reason}"
        yield Finding("settings", "default device", PROBLEM, text, "unset WEFTGRAD_DEVICE", {"reason": reason})
    else:
        yield Finding("settings", "default device", OK, str(default))


# caches


def check_cache() -> Iterator[Finding]:
    """Check that compiled kernels can be cached on disk."""
    topic = "cache"
    folder = preferred_folder()
    if folder is None:
        yield Finding(
            topic, "kernels", NOTE, "WEFTGRAD_CACHE switches the cache off: every process compiles its kernels again",
            "unset WEFTGRAD_CACHE", {"folder": None, "is_usable": False, "reason": "off"},
        )  # fmt: skip
        return
    reason = why_unusable(folder)
    if reason:
        yield Finding(
            topic, "kernels", PROBLEM, f"{folder} cannot be used: {reason}. Kernels last as long as the process",
            _cache_remedy(folder, reason), {"folder": str(folder), "is_usable": False, "reason": reason},
        )  # fmt: skip
        return
    content = count_files(folder)
    facts = {"folder": str(folder), "is_usable": True, "reason": "", "files": content.files, "bytes": content.nbytes}
    text = f"{folder}: {content.files} files, {format_bytes(content.nbytes)}"
    if folder.is_absolute():
        yield Finding(topic, "kernels", OK, text, facts=facts)
    else:
        yield Finding(
            topic, "kernels", NOTE, f"{text}; the folder depends on the working directory",
            "export WEFTGRAD_CACHE=FOLDER, an absolute path", facts,
        )  # fmt: skip


def _cache_remedy(folder: Path, reason: str) -> str:
    if "chmod go-w" in reason:
        return f"chmod go-w {folder}"
    return "export WEFTGRAD_CACHE=FOLDER, a writable one of your own, or WEFTGRAD_CACHE=off"
