"""Find a clang that compiles kernels for this processor.

Candidates, in this order:

1. the program that WEFTGRAD_CLANG names (`WEFTGRAD_CLANG=off` disables all candidates),
2. the clang in the `ziglang` wheel, which is a base dependency,
3. a `clang` of version 15 or later on PATH.

Each must compile, link and run a probe kernel. The first time that a compiler and its flags are used, the probe runs in
a separate process, because wrong machine code can end the process. The object cache remembers that it passed.

The compiler need not know the processor's name: flags name instruction set levels (x86-64-v2, v3, v4; NEON), chosen by
the processor's features (`processor.instruction_set`).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...errors import DriverNotFound

__all__ = ["Compiler", "candidates", "flags", "link_command", "target_triple"]

_MIN_VERSION = 15  # `ext_vector_type` in conditional expressions of C, `-march=x86-64-v4`, `__builtin_bit_cast`
_TIMEOUT = 60.0  # seconds, for a version query
_MACOS = "11.0"  # the first version for ARM Macs

_MARCH = {"avx512": "x86-64-v4", "avx2": "x86-64-v3", "sse": "x86-64-v2"}
# OpenCL's vector literal `(int2)(0, 1)` is a comma expression in C, with a wrong value: make its warning an error.
_COMMON = (
    "-x", "c", "-std=gnu2x", "-ffp-contract=on", "-fno-math-errno", "-fno-stack-protector", "-fvisibility=hidden",
    "-fsigned-char", "-fno-asynchronous-unwind-tables", "-fno-ident", "-Wno-everything", "-Werror=unused-value",
)  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """A clang and a linker.

    Attributes:
        name: Display name: `clang 22.1.8 (ziglang 0.17.1)`.
        compile: The command that runs clang.
        linker: The command that runs lld; empty if clang uses the system's linker.
        identity: Part of the cache key of compiled objects: equal for equal compilers.
    """

    name: str
    compile: tuple[str, ...]
    linker: tuple[str, ...]
    identity: str


def candidates(notes: list[str]) -> Iterator[Compiler]:
    """Yield compilers to try, best first. Append to `notes` why a candidate is missing or unfit.

    Raises:
        DriverNotFound: WEFTGRAD_CLANG names no usable clang.
    """
    clang_name = os.environ.get("WEFTGRAD_CLANG", "")
    if clang_name.lower() in ("off", "0"):
        notes.append("WEFTGRAD_CLANG=off")
        return
    if clang_name:
        path = shutil.which(clang_name)
        if path is None:
            raise DriverNotFound(
                f"WEFTGRAD_CLANG={clang_name}: no such program; unset it, or name a clang {_MIN_VERSION}+"
            )
        compiler = _from_program(path, notes)
        if compiler is None:
            raise DriverNotFound(f"WEFTGRAD_CLANG={clang_name}: {notes[-1]}")
        yield compiler
        return
    wheel = _from_wheel(notes)
    if wheel is not None:
        yield wheel
    path = shutil.which("clang")
    if path is None:
        notes.append("no clang on PATH")
        return
    program = _from_program(path, notes)
    if program is not None:
        yield program


def _from_wheel(notes: list[str]) -> Compiler | None:
    """Return the clang of the ziglang wheel, found through sys.path without importing the package."""
    for folder in sys.path:
        zig = Path(folder or ".", "ziglang", "zig.exe" if os.name == "nt" else "zig")
        if not zig.is_file():
            continue
        version = next((p.name.split("-")[1] for p in sorted(zig.parent.parent.glob("ziglang-*.dist-info"))), "?")
        program = str(zig)
        return Compiler(
            f"clang (ziglang {version.removesuffix('.dist')})", (program, "clang"), (program,), f"ziglang {version}"
        )
    notes.append("ziglang is not installed")
    return None


def _from_program(path: str, notes: list[str]) -> Compiler | None:
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        notes.append(f"{path} --version fails: {error}")
        return None
    match = re.search(r"clang version (\d+)[\w.+-]*", answer.stdout)
    if match is None or int(match[1]) < _MIN_VERSION:
        notes.append(f"{path} is {answer.stdout.splitlines()[0] if answer.stdout else 'silent'}, not clang 15 or later")
        return None
    name = {"Darwin": "ld64.lld", "Windows": "lld-link"}.get(platform.system(), "ld.lld")
    lld = shutil.which(f"{name}-{match[1]}") or shutil.which(name)
    return Compiler(f"{match[0]} ({path})", (path,), (lld,) if lld else (), answer.stdout)


@cache
def target_triple(machine: str, system: str) -> str:
    """Return LLVM's target triple: `x86_64-linux-gnu`, `arm64-apple-macos11.0`, `x86_64-windows-gnu`."""
    cpu = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(machine, machine)
    if system == "Darwin":
        return f"{'arm64' if cpu == 'aarch64' else cpu}-apple-macos{_MACOS}"
    return f"{cpu}-windows-gnu" if system == "Windows" else f"{cpu}-linux-gnu"


def flags(instruction_set: str, machine: str, system: str, optimize: bool, prefetch: bool) -> tuple[str, ...]:
    """Return clang's options for kernels.

    Args:
        instruction_set: `avx512`, `avx2`, `sse` or `neon`.
        machine: The processor's architecture as `platform.machine()` names it.
        system: The operating system as `platform.system()` names it.
        optimize: Whether kernels are optimised; without optimisation they compile in half of the time.
        prefetch: Whether elementwise kernels prefetch their inputs.
    """
    result = ["-target", target_triple(machine, system), *_COMMON, "-O3" if optimize else "-O1"]
    if instruction_set in _MARCH:
        result.append(f"-march={_MARCH[instruction_set]}")
    if instruction_set == "avx512":  # else LLVM splits 512-bit vectors, to avoid lower clock rates
        result.append("-mprefer-vector-width=512")
    if system != "Windows":
        result.append("-fPIC")
    if not prefetch:
        result.append("-DWG_NO_AHEAD")
    return tuple(result)


def link_command(compiler: Compiler, objects: Sequence[str], output: str, machine: str, system: str) -> list[str]:
    """Return the command that links object files to a shared library.

    The library exports its kernels. It needs no other one, but libSystem on macOS, which every process has. Undefined
    symbols such as `memset` are those of the process's C library; `templates/opencl/as_c.h` defines them on Windows.
    """
    triple = target_triple(machine, system)
    if not compiler.linker:
        by_system = {"Darwin": ["-Wl,-undefined,dynamic_lookup"], "Windows": ["-fuse-ld=lld", "-Wl,--no-entry"]}
        command = [*compiler.compile, "-target", triple, "-shared", "-nostdlib", *by_system.get(system, [])]
        return [*command, "-o", output, *objects]
    is_zig = Path(compiler.linker[0]).stem == "zig"
    if system == "Darwin" and is_zig:
        # zig has no ld64.lld, but its own linker. That linker writes the code signature that ARM Macs require, and
        # knows the symbols of libSystem.
        cpu = "aarch64" if triple.startswith("arm64") else "x86_64"
        cache = str(Path(output).parent)
        options = ["-target", f"{cpu}-macos.{_MACOS}-none", "-OReleaseFast", "-fno-compiler-rt", "-fstrip"]
        caches = ["--cache-dir", cache, "--global-cache-dir", cache]
        return [*compiler.linker, "build-lib", "-dynamic", *options, *caches, f"-femit-bin={output}", *objects]
    if system == "Darwin":
        options = ["-dylib", "-arch", triple.partition("-")[0], "-platform_version", "macos", _MACOS, _MACOS]
        return [*compiler.linker, *options, "-undefined", "dynamic_lookup", "-o", output, *objects]
    if system == "Windows":
        tool = ["lld-link"] if is_zig else []
        return [*compiler.linker, *tool, "-dll", "-noentry", f"-out:{output}", *objects]
    tool = ["ld.lld"] if is_zig else []
    return [*compiler.linker, *tool, "-shared", "--hash-style=gnu", "-z", "noexecstack", "-o", output, *objects]
