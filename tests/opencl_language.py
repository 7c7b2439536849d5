"""Check OpenCL C of any vendor's device by clang: strictly, for one version of the language, with or without double.

The compiler is the clang of the ziglang wheel, which the package needs anyway; its header of OpenCL's types comes from
PoCL's wheel, which the tests need anyway. Else it is a clang on PATH. Neither needs a driver or a GPU.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from weftgrad import testing
from weftgrad.cli import prebuild
from weftgrad.runtime import dtypes, program
from weftgrad.runtime.backends.cpu import compilers
from weftgrad.runtime.backends.protocol import Instance
from weftgrad.runtime.device import Device

__all__ = [
    "BATCH", "Language", "compile_for_gpu", "compile_for_intel", "compile_text", "find_clang", "intel_memory",
    "kernels", "refused", "vendor_device",
]  # fmt: skip

# What most GPUs report; `cores` and `local_memory` are an A100's and Intel's smallest.
CAPABILITIES = "style=gpu,cores=132,lanes=4,max_group=256,local_memory=49152,fp16=0,builtins=1"
Compile: TypeAlias = Callable[[str, "Language", Sequence[str]], str]
BATCH = 64  # kernels in one program
# Not every kernel of a batch calls every function; `a + b >> c` is meant as it is read.
_WARNINGS = ("-Wpedantic", "-Werror", "-Wno-shift-op-parentheses", "-Wno-unused-function")
_PROBE = "kernel void f(global float4 *a, local int *b) { a[get_global_id(0)] = exp(a[0]) + INFINITY; }\n"


@dataclass(frozen=True)
class Language:
    """A version of OpenCL C, such as `CL1.2`, and whether the compiler has double."""

    version: str
    fp64: bool

    def __str__(self) -> str:
        return self.version if self.fp64 else f"{self.version} without double"

    def options(self) -> tuple[str, ...]:
        """Return clang's options: no extension but double, for the target that Intel's and Mesa's drivers use."""
        double = ",+cl_khr_fp64,+__opencl_c_fp64" if self.fp64 else ""
        literals = () if self.fp64 else ("-cl-single-precision-constant",)
        target = ("-Xclang", f"-cl-ext=-all{double}", "-target", "spir64")
        return ("-x", "cl", f"-cl-std={self.version}", *literals, *target)


@functools.cache
def find_clang() -> tuple[str, ...]:
    """Return the command of a clang that compiles OpenCL C, with the folder of its header; empty if there is none."""
    includes = [
        Path(folder or ".", "pocl_binary_distribution", ".libs", "share", "pocl", "include") for folder in sys.path
    ]
    header = next((str(folder) for folder in includes if (folder / "opencl-c-base.h").is_file()), None)
    commands = [c.compile for c in compilers.candidates([])]
    commands += [(path,) for n in range(25, 14, -1) if (path := shutil.which(f"clang-{n}"))]
    for command in commands:
        for options in ((), ("-I", header) if header else ()):
            try:
                compile_text(_PROBE, Language("CL1.2", False), (*command, *options))
            except (OSError, RuntimeError, subprocess.SubprocessError):
                continue
            return (*command, *options)
    return ()


def compile_text(
    text: str, language: Language, clang: Sequence[str], options: Sequence[str] = ("-fsyntax-only",)
) -> str:
    """Return what clang prints for a program, such as LLVM's instructions by `options`.

    Raises:
        RuntimeError: The program is not clean; the message is the compiler's.
    """
    command = [*clang, *language.options(), *_WARNINGS, *options, "-"]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    if answer.returncode:
        raise RuntimeError(answer.stderr)
    return answer.stdout


@functools.cache
def vendor_device(fp64: bool) -> Device:
    """Return a device that plans as a GPU's OpenCL driver does, and runs nothing."""
    return testing.synthetic_device(980 + fp64, f"{CAPABILITIES},fp64={int(fp64)}")


def kernels(value_dtypes: Iterable[str], fp64: bool, every: bool = False) -> list[Instance]:
    """Return the kernels of all ops and of their derivatives, planned for a GPU.

    Args:
        value_dtypes: The dtypes of the sample calls.
        fp64: The device has double.
        every: All kernels. Otherwise one for each kernel function, compute type and set of stored types, the one whose
            defines are the most.
    """
    planned = dict.fromkeys(instance for dtype in value_dtypes for instance in _instances(dtype, fp64))
    if every:
        return list(planned)
    instance_by_kernel: dict[tuple[str, str, frozenset[str]], Instance] = {}
    for instance in planned:
        key = (instance.entry, instance.element, frozenset(slot.dtype for slot in instance.slots))
        if key not in instance_by_kernel or len(instance.defines) > len(instance_by_kernel[key].defines):
            instance_by_kernel[key] = instance
    return list(instance_by_kernel.values())


@functools.cache
def _instances(dtype: str, fp64: bool) -> tuple[Instance, ...]:
    return tuple(prebuild.instances(vendor_device(fp64), None, [dtypes.parse(dtype)]))


def refused(
    instances: Sequence[Instance], language: Language, clang: Sequence[str], compile_: Compile = compile_text
) -> list[str]:
    """Return a line for each kernel that does not compile: the op, the kernel, its types, and the first error."""
    batches = [instances[i : i + BATCH] for i in range(0, len(instances), BATCH)]
    return [line for batch in batches for line in _refused_of(batch, language, clang, compile_)]


def compile_for_gpu(text: str, language: Language, clang: Sequence[str], target: Sequence[str] = ()) -> str:
    """Return a GPU's assembly, by LLVM's code generator for it and, for NVIDIA's, a `ptxas` on PATH.

    Args:
        text: The program.
        language: The version of OpenCL C.
        clang: The command of the compiler.
        target: Clang's options for the GPU.

    Raises:
        RuntimeError: The program does not compile; the message is the compiler's.
    """
    command = [*clang, "-x", "cl", f"-cl-std={language.version}", *target, "-O2", "-w", "-S", "-o", "-", "-"]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600)
    if answer.returncode:
        raise RuntimeError(answer.stderr)
    ptxas = shutil.which("ptxas")
    if "nvptx64" in target and ptxas:
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(answer.stdout)
            file.flush()
            # -c: functions of OpenCL's library, which the driver links, stay undefined.
            command = [ptxas, "-arch", target[-1].removeprefix("-march="), "-c", file.name, "-o", os.devnull]
            checked = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if checked.returncode:
            raise RuntimeError(f"error: {checked.stderr}")
    return answer.stdout


def compile_for_intel(text: str, language: Language, clang: Sequence[str], gpu: str = "dg2") -> str:
    """Return the log of `ocloc`, Intel's offline compiler, with the memory that each kernel takes; see `intel_memory`.

    Args:
        text: The program.
        language: The version of OpenCL C, and whether the GPU has double.
        clang: Unused: ocloc has a clang of its own.
        gpu: The GPU, as ocloc names it.

    Raises:
        RuntimeError: The program does not compile, or the compiler warns of something else than spilled registers; the
            message is the compiler's, or says that it died.
    """
    constants = "" if language.fp64 else " -cl-single-precision-constant"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.cl").write_text(text)
        command = [
            "ocloc", "compile", "-file", "program.cl", "-device", gpu,
            "-options", f"-cl-std={language.version}{constants}", "-internal_options", "-cl-intel-allow-zebin",
            "-output_no_suffix", "-output", "program.bin",
        ]  # fmt: skip
        try:
            answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError("error: not compiled after 20 minutes") from error
        log = answer.stdout + answer.stderr
        if answer.returncode:
            cause = "" if "error:" in log else f"error: ocloc ends with status {answer.returncode}: "
            raise RuntimeError(cause + log)
        if re.search(r"\d: warning: (?!operator '(<<|>>)' has lower precedence)", log):  # as in `_WARNINGS`
            raise RuntimeError(log)
        return log + Path(folder, "program.bin").read_bytes().decode("latin1")


def intel_memory(code: str) -> dict[str, dict[str, int]]:
    """Return for each kernel what `compile_for_intel` says of it, in bytes: `private`, `spilled`, and `local` memory.

    The figures come from the section `.ze_info` of the binary, and are those of a work-item or, for `local`, of a
    work-group. Of GPUs with double (Xe-HPC), the compiler reports private memory and spills as one buffer: `private`.
    """
    info = code[code.rindex("\nkernels:") :].partition("\nkernels_misc_info:")[0]
    sizes: dict[str, dict[str, int]] = {}
    for kernel in re.split(r"^  - name: +", info, flags=re.MULTILINE)[1:]:
        name, _, body = kernel.partition("\n")
        numbers = {
            key: int(value) for key, value in re.findall(r"^    +(simd_size|slm_size): +(\d+)", body, re.MULTILINE)
        }
        memory = sizes[name] = {"private": 0, "spilled": 0, "local": numbers.get("slm_size", 0)}
        buffers = re.findall(r"usage: +(\w+)\n +size: +(\d+)(\n +is_simt_thread: +true)?", body)
        for usage, size, is_of_work_item in buffers:
            nbytes = int(size) if is_of_work_item else int(size) // numbers["simd_size"]
            memory["spilled" if usage == "spill_fill_space" else "private"] += nbytes
    return sizes


def _refused_of(
    batch: Sequence[Instance], language: Language, clang: Sequence[str], compile_: Compile
) -> Iterator[str]:
    """Compile a batch, and where it fails its halves."""
    try:
        compile_(program.source(batch, builtins=True, fp64=language.fp64), language, clang)
    except RuntimeError as error:
        if len(batch) > 1:
            half = len(batch) // 2
            yield from _refused_of(batch[:half], language, clang, compile_)
            yield from _refused_of(batch[half:], language, clang, compile_)
            return
        kernel = batch[0]
        message = re.search(r"(error|warning): .*", str(error))
        stored = ", ".join(slot.dtype for slot in kernel.slots)
        yield f"{kernel.name}: {kernel.entry} of {kernel.element} ({stored}): {message[0] if message else error}"
