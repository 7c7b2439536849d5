"""Check the drivers of devices other than `cpu`: OpenCL, NVIDIA, and Triton, the compiler for NVIDIA GPUs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..runtime.errors import DriverNotFound, format_bytes
from .doctor_host import tmpdir_remedy
from .findings import NOTE, OK, PROBLEM, Finding, first_line
from .probes import Fact, ProbeResult, run_probe

__all__ = ["check_gpu", "check_opencl", "check_triton"]

_MAX_CRASHES = 4  # after so many crashes of the child process, the other OpenCL devices are not tried
_VENDORS = Path("/etc/OpenCL/vendors")
_ICD = "export OCL_ICD_VENDORS=FILE.icd"
_PIP_CUDA = "pip install 'weftgrad[cuda]'"
_PIP_POCL = "pip install pocl-binary-distribution"


# OpenCL


def check_opencl() -> Iterator[Finding]:
    """Open OpenCL's drivers and run a kernel on each device, in child processes.

    If a child crashes, another one continues without the device that it was trying.
    """
    topic = "OpenCL"
    probe = run_probe("opencl")
    crashes: dict[str, str] = {}
    runs: dict[str, Fact] = {}
    while True:
        runs |= {fact.text("device"): fact for fact in probe.facts if "device" in fact}
        started = [fact.text("begin") for fact in probe.facts if "begin" in fact]  # devices, and "fallback"
        if not probe.problem or not started or started[-1] in crashes:
            break
        crashes.setdefault(started[-1], probe.problem)
        if len(crashes) >= _MAX_CRASHES:
            break
        skip = (*crashes, *runs)
        probe = run_probe("opencl", *skip)
    if probe.get("import_error") is not None:
        reason = first_line(probe.text("import_error"))
        text = f"no opencl:N devices, and no fallback of cpu: {reason}"
        yield Finding(topic, "drivers", NOTE, text, "pip install --force-reinstall pyopencl", {"reason": reason})
        return
    yield from _platforms(topic, probe)
    for device in (fact for fact in probe.facts if "listed" in fact):
        name = device.text("listed")
        yield _opencl_device(topic, device, runs.get(name, Fact()), crashes.get(name, ""))
    yield from _fallback(topic, probe, crashes.get("fallback", ""))
    if probe.problem and probe.get("begin") is None:
        files = ", ".join(_icd_files()) or "none in /etc/OpenCL/vendors"
        yield Finding(
            topic, "drivers", PROBLEM, f"opening them fails: {probe.problem} (drivers: {files})",
            f"{_ICD}, one that works", {"reason": probe.problem},
        )  # fmt: skip


def _platforms(topic: str, probe: ProbeResult) -> Iterator[Finding]:
    errors = {fact.text("platform"): fact.text("device_error") for fact in probe.facts if "device_error" in fact}
    for platform_fact in (fact for fact in probe.facts if "version" in fact):
        name = platform_fact.text("platform")
        text = f"{name}, {platform_fact.text('version').partition('  ')[0].strip()}"
        if library := platform_fact.text("library"):
            text += f", {library}"
        if name in errors:
            text += f": it has no device ({first_line(errors[name])})"
            yield Finding(topic, "driver", NOTE, text, f"{_ICD}, one that works", platform_fact)
        else:
            yield Finding(topic, "driver", OK, text, facts=platform_fact)
    for device_fact in (fact for fact in probe.facts if fact.get("is_unknown_processor")):
        if device_fact["is_corrected"]:
            text = f"{device_fact['platform']} does not know this processor; weftgrad named the instruction set to it"
            yield Finding(topic, "processor", OK, text, facts=device_fact)
        else:
            text = f"{device_fact['platform']} does not support this processor"
            yield Finding(topic, "processor", NOTE, text, "install a newer PoCL", device_fact)
    error = probe.text("platform_error")
    if "PLATFORM_NOT_FOUND" in error:
        text = f"none, so no opencl:N devices; with clang, cpu needs none ({_PIP_POCL} includes one)"
        yield Finding(topic, "drivers", OK, text, facts={"reason": error})
    elif probe.get("platform_error") is not None:
        yield Finding(topic, "drivers", NOTE, first_line(error), _PIP_POCL, {"reason": error})


def _opencl_device(topic: str, device: Fact, run: Fact, crash: str) -> Finding:
    name, text = device.text("listed"), f"{device['name']} ({device['platform']})"
    facts = {**device, **{key: value for key, value in run.items() if key != "device"}}
    if not run and not crash:
        return Finding(topic, name, NOTE, f"{text}: not tried, because other devices crashed", facts=facts)
    reason = crash or run.text("error") or ("" if run.get("is_right") else "wrong values")
    if reason:
        text = f"{text}: a kernel fails: {first_line(reason)}"
        verdict = PROBLEM if device["is_gpu"] else NOTE  # a GPU would be the default device
        return Finding(topic, name, verdict, text, _driver_remedy(reason), facts)
    text += f": first result after {run.number('first_seconds') * 1e3:.0f} ms ({'cold' if run['compiled'] else 'warm'})"
    return Finding(topic, name, OK, text, facts=facts)


def _fallback(topic: str, probe: ProbeResult, crash: str) -> Iterator[Finding]:
    name, reason = probe.get("fallback"), crash or probe.text("fallback_error")
    if name is not None:
        text = f"{name} runs kernels of cpu where there is no clang"
        yield Finding(topic, "fallback of cpu", OK, text, facts={"fallback": name})
    elif reason:
        text = f"cpu has no fallback for clang: {first_line(reason)}"
        remedy = _driver_remedy(reason) if crash else tmpdir_remedy() or _PIP_POCL
        yield Finding(topic, "fallback of cpu", NOTE, text, remedy, {"fallback": None, "reason": reason})


def _driver_remedy(reason: str) -> str:
    if os.environ.get("WEFTGRAD_CAPABILITIES"):
        return "unset WEFTGRAD_CAPABILITIES"
    if "linking" in reason:  # PoCL aborts if it finds no linker
        return "install binutils, and have ld in a folder of PATH"
    return tmpdir_remedy() or "install a newer version of this driver, or remove it"


def _icd_files() -> list[str]:
    setting = os.environ.get("OCL_ICD_VENDORS")
    if setting:
        return [setting]
    with suppress(OSError):
        return sorted(str(_VENDORS / name) for name in os.listdir(_VENDORS) if name.endswith(".icd"))
    return []


# GPUs


def check_gpu() -> Iterator[Finding]:
    """Look for NVIDIA's GPUs and driver, and run a kernel on each GPU in a child process."""
    from ..runtime.backends import cuda_api

    topic = "GPU"
    if not cuda_api.may_exist():
        is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
        if is_hidden and any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap"))):
            text = "CUDA_VISIBLE_DEVICES hides NVIDIA GPUs"
            yield Finding(topic, "NVIDIA", NOTE, text, "unset CUDA_VISIBLE_DEVICES", {"devices": []})
        else:
            yield Finding(topic, "NVIDIA", OK, "no NVIDIA GPU", facts={"devices": []})
        return
    probe = run_probe("cuda")
    listed = [fact for fact in probe.facts if "listed" in fact]
    if not listed:
        reason = probe.text("error") or probe.problem or "the process printed nothing"
        verdict, remedy = (NOTE, _PIP_CUDA) if "cuda-bindings" in reason else (PROBLEM, "run nvidia-smi for details")
        yield Finding(topic, "NVIDIA", verdict, first_line(reason), remedy, {"reason": reason, "devices": []})
        return
    text = f"{_driver_version()}CUDA {probe.get('cuda')}"
    yield Finding(topic, "NVIDIA's driver", OK, text, facts={"devices": listed})
    runs = {fact.text("device"): fact for fact in probe.facts if "device" in fact}
    started = [fact.text("begin") for fact in probe.facts if "begin" in fact]
    crashed_gpu = started[-1] if started and probe.problem else ""
    for gpu in listed:
        name = gpu.text("listed")
        blocking_gpu = "" if name in started else crashed_gpu
        yield _gpu(topic, gpu, runs.get(name, Fact()), probe.problem, blocking_gpu)


def _gpu(topic: str, gpu: Fact, run: Fact, crash: str, blocking_gpu: str) -> Finding:
    """Return the finding about a GPU. blocking_gpu: name of the GPU after whose crash this one was not tried, or ""."""
    name, sm = gpu.text("listed"), int(gpu.number("sm"))
    text = f"{gpu['name']}, compute capability {sm // 10}.{sm % 10}, {format_bytes(int(gpu.number('memory')))}"
    facts = {**gpu, **{key: value for key, value in run.items() if key != "device"}}
    if not gpu["can_run"]:
        if sm < 80:
            text += ": older than compute capability 8.0, which Triton's kernels need"
            return Finding(topic, name, NOTE, text, "export WEFTGRAD_DEVICE=opencl:0", facts)
        return Finding(topic, name, NOTE, f"{text}: kernels need triton, which is not installed", _PIP_CUDA, facts)
    if blocking_gpu:
        return Finding(topic, name, NOTE, f"{text}: not tried, because {blocking_gpu} crashed", facts=facts)
    reason = run.text("error") or ("" if run.get("is_right") else crash or "wrong values")
    if reason:
        return Finding(topic, name, PROBLEM, f"{text}: a kernel fails: {first_line(reason)}", _PIP_CUDA, facts)
    return Finding(topic, name, OK, f"{text}, first result after {run.number('first_seconds'):.2f} s", facts=facts)


def _driver_version() -> str:
    with suppress(OSError, IndexError):
        line = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        return next((f"{word}, " for word in line.split() if word[:1].isdigit() and "." in word), "")
    return ""


def check_triton() -> Iterator[Finding]:
    """Check whether Triton is installed, without importing it. `cuda:N` and the interpreter need it."""
    from ..runtime.backends.interpreter import check_version
    from ..runtime.triton.compile import compiler_version

    version = compiler_version()
    if not version:
        text = f"not installed; only cuda:N and the interpreter need it ({_PIP_CUDA})"
        if platform.system() != "Linux":
            text = "not installed; there is none for this system"
        yield Finding("GPU", "Triton", OK, text, facts={"version": ""})
        return
    try:
        check_version(version)
    except DriverNotFound as error:
        yield Finding("GPU", "Triton", NOTE, first_line(str(error)), _PIP_CUDA, {"version": version})
    else:
        yield Finding("GPU", "Triton", OK, version, facts={"version": version})
