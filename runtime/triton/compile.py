"""Compile planned launches to machine code with Triton, and cache the machine code on disk.

Triton is imported when the first kernel is missing from the cache, so a start with a full cache never imports it. The
import takes 0.2 s, and Triton then hashes its own files for 0.6 s. It compiles for any target on any machine.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import tempfile
import threading
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

from ..backends.protocol import Step
from ..cache import BinaryCache, cache_folder
from ..errors import CompileError, DriverNotFound
from . import source
from .signature import Signature, resolve, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .triton_types import TritonModule

__all__ = [
    "Binary", "Compiled", "Target", "binary", "compile_for", "compiler_installed", "compiler_version", "disassemble",
    "is_cached",
]  # fmt: skip

# enable_fp_fusion: fuse a * b + c, as C compilers for GPUs do; the default differs between Triton versions.
# enable_reflect_ftz=False: libdevice functions (such as floor) keep subnormal numbers, as all other operations do.
_OPTIONS = {"enable_fp_fusion": True, "enable_reflect_ftz": False}
_REGISTERS = 65536  # per multiprocessor; one block may use all of them
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target. (backend, arch) is such as (`cuda`, 90) or (`hip`, `gfx942`). warp: threads per warp."""

    backend: str
    arch: int | str
    warp: int = 32

    @staticmethod
    def named(name: str) -> Target:
        """Return the target with the name `sm_90` or `gfx942`."""
        return Target("cuda", int(name[3:])) if name.startswith("sm_") else Target("hip", name, 64)

    def __str__(self) -> str:
        return f"sm_{self.arch}" if self.backend == "cuda" else str(self.arch)


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel.

    name: the function in `image`. threads: per block. shared: bytes of shared memory per block.
    scratch: bytes of global scratch memory per program. ctas: blocks per cluster.
    """

    name: str
    image: bytes
    threads: int
    shared: int
    scratch: int = 0
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel with details.

    asm: the text of every compilation stage, by Triton's names (`ttgir`, `ptx`, `amdgcn`, …).
    registers: per thread. spills: spilled bytes per thread (on AMD: spilled registers).
    """

    binary: Binary
    target: Target
    asm: dict[str, str]
    registers: int
    spills: int


def compiler_installed() -> bool:
    """Return True if triton is installed, without importing it."""
    return importlib.util.find_spec("triton") is not None


@cache
def compiler_version() -> str:
    """Return Triton's version without importing it; empty if it is not installed."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def _cache(version: str) -> BinaryCache:
    return BinaryCache(f"triton {version}")


def _key(step: Step, sig: Signature, target: Target) -> str:
    return "\0".join((source.module_text(step.instance), sig.key, str(target), repr(sorted(_OPTIONS.items()))))


def is_cached(step: Step, aligned: bool, target: Target) -> bool:
    """Return True if the cache on disk has the machine code of a launch; see `binary` for the arguments."""
    return _load_cached(_key(step, signature(step, aligned), target)) is not None


def binary(step: Step, aligned: bool, target: Target) -> Binary:
    """Return the machine code of a launch from the cache on disk. If it is not cached, compile and store it.

    Args:
        step: the launch.
        aligned: compile for buffers whose first elements are all at multiples of 16 bytes.
        target: the architecture.

    Raises:
        CompileError: the kernel does not compile. The message contains the compiler's.
        DriverNotFound: the kernel is not cached, and triton is not installed.
    """
    sig = signature(step, aligned)
    key = _key(step, sig, target)
    kernel = _load_cached(key)
    if kernel is None:
        kernel = _compile(step, sig, target)[0]
        header = {**asdict(kernel), "image": ""}
        _cache(compiler_version()).store(key, json.dumps(header).encode() + b"\n" + kernel.image)
    return kernel


def _load_cached(key: str) -> Binary | None:
    data = _cache(compiler_version()).load(key)
    if data is None:
        return None
    header, _, image = data.partition(b"\n")
    return Binary(**{**json.loads(header), "image": image})


def compile_for(step: Step, aligned: bool, target: Target) -> Compiled:
    """Compile without the cache, and return the kernel with details. Needs no GPU."""
    kernel, asm = _compile(step, signature(step, aligned), target)
    texts = {stage: text for stage, text in asm.items() if isinstance(text, str)}
    usage = _nvidia_usage(kernel) if target.backend == "cuda" else _amd_usage(texts["amdgcn"])
    return Compiled(kernel, target, texts, *usage)


def _triton() -> TritonModule:
    if not compiler_installed():
        raise DriverNotFound(
            "a kernel has to be compiled, which needs triton, and that is not installed: pip install 'weftgrad[cuda]'"
        )
    with _lock:
        # Triton's own cache goes beside ours, or into a temporary folder if ours is off.
        if "TRITON_CACHE_DIR" not in os.environ:
            folder = cache_folder()
            os.environ["TRITON_CACHE_DIR"] = str(folder / "triton") if folder is not None else _temporary_folder().name
        import triton  # lazy: optional dependency (triton)

    return triton


@cache
def _source_class() -> Callable[..., object]:
    """Return a subclass of Triton's `ASTSource` that parses under a lock. Later compiler passes run in parallel."""
    from triton.compiler import ASTSource  # lazy: optional dependency (triton)

    class Source(ASTSource):
        def hash(self) -> str:
            with source.parsing:
                return str(super().hash())

        def make_ir(self, *args: object, **kwargs: object) -> object:
            with source.parsing:
                return super().make_ir(*args, **kwargs)

    return Source


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="weftgrad-triton-")


def _compile(step: Step, sig: Signature, target: Target) -> tuple[Binary, Mapping[str, str | bytes]]:
    triton = _triton()
    from triton.backends.compiler import GPUTarget  # lazy: optional dependency (triton)

    name = step.instance.name
    kernel = source.functions(source.module_text(step.instance))[sig.entry]
    constants = resolve(sig.constants, triton.language)
    ast_source = _source_class()(kernel, dict(sig.types), constants, sig.attributes)
    try:
        compiled = triton.compile(
            ast_source, target=GPUTarget(target.backend, target.arch, target.warp), options={**_OPTIONS, **sig.options}
        )
    except Exception as error:  # Triton's errors have no common base class, and its passes raise RuntimeError
        raise CompileError(
            f"{name}: {sig.entry} does not compile for {target} with Triton {compiler_version()}\n{error}"
        ) from error
    metadata = compiled.metadata
    image = compiled.asm["cubin" if target.backend == "cuda" else "hsaco"]
    assert isinstance(image, bytes)
    scratch = int(getattr(metadata, "global_scratch_size", 0) or 0)
    threads = target.warp * metadata.num_warps  # not the num_warps option: warp specialisation may increase it
    return Binary(metadata.name, image, threads, metadata.shared, scratch, metadata.num_ctas), dict(compiled.asm)


def disassemble(compiled: Compiled) -> str:
    """Return the machine code as text, with the lines of the kernel's source, by nvdisasm (part of Triton's wheel).

    On AMD it is the assembly text that the compiler wrote.
    """
    if compiled.target.backend != "cuda":
        return compiled.asm["amdgcn"]
    from triton import knobs  # lazy: optional dependency (triton)

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.binary.image)
        file.flush()
        command = [knobs.nvidia.nvdisasm.path, "-c", "-g", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _nvidia_usage(compiled: Binary) -> tuple[int, int]:
    """Return a cubin's registers and spilled bytes per thread, as reported by cuobjdump (part of Triton's wheel).

    cuobjdump reports only the stack size. The stack holds spilled registers only if a thread uses the maximum number of
    registers; otherwise it holds tables (for the argument reduction of sine) or values saved around a call.
    """
    from triton import knobs  # lazy: optional dependency (triton)

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.image)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(rf"Function {re.escape(compiled.name)}:\s*REG:(\d+) STACK:(\d+)", report)
    if match is None:
        raise CompileError(f"{compiled.name}: cuobjdump says nothing about its registers:\n{report}")
    registers, stack = int(match[1]), int(match[2])
    max_registers = min(255, _REGISTERS // compiled.threads)
    return registers, stack if registers >= max_registers - 7 else 0  # registers are allocated in units of eight


def _amd_usage(text: str) -> tuple[int, int]:
    """Return the numbers of used and of spilled vector registers in AMD assembly; scalar ones spill to vector ones."""
    counts = {k: int(v) for k, v in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", text)}
    return counts["vgpr_count"], counts["vgpr_spill_count"]
