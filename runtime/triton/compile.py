"""From a planned launch to machine code: Triton's compiler, and a cache of ours in front of it.

Triton is imported by the first kernel that no cache has (0.2 s, and 0.6 s more in which it hashes itself), so a warm
start never imports it. It compiles for any target on any machine.
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
from typing import Any

from ..backends.protocol import Step
from ..cache import BinaryCache, cache_folder
from ..errors import CompileError, DriverNotFound
from . import source
from .signature import Signature, resolve, signature

__all__ = [
    "Binary", "Compiled", "Target", "binary", "compile_for", "compiler_installed", "compiler_version", "is_cached",
]  # fmt: skip

# a * b + c in one rounding, as C compilers for GPUs have it; its default differs between Triton's versions. Functions
# of libdevice (floor is one) keep subnormal numbers, as all else does.
_OPTIONS = {"enable_fp_fusion": True, "enable_reflect_ftz": False}
_REGISTERS = 65536  # of a multiprocessor, which one block may have to itself
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Target:
    """What is compiled for: `cuda` and 90, or `hip` and `gfx942`. warp: threads of a warp."""

    backend: str
    arch: int | str
    warp: int = 32

    @staticmethod
    def named(name: str) -> Target:
        """The target `sm_90` or `gfx942`."""
        return Target("cuda", int(name[3:])) if name.startswith("sm_") else Target("hip", name, 64)

    def __str__(self) -> str:
        return f"sm_{self.arch}" if self.backend == "cuda" else str(self.arch)


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel. name: of the function in `image`. threads: of a block. shared: bytes of shared memory.

    scratch: bytes of global memory that each program needs for itself. ctas: blocks of a cluster.
    """

    name: str
    image: bytes
    threads: int
    shared: int
    scratch: int = 0
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compilation with all that can be told about it. registers: a thread. spills: bytes a thread (AMD: registers).

    asm: text of every stage, by Triton's names (`ttgir`, `ptx`, `amdgcn`, …).
    """

    binary: Binary
    target: Target
    asm: dict[str, str]
    registers: int
    spills: int


def compiler_installed() -> bool:
    """Whether triton can be imported; without importing it."""
    return importlib.util.find_spec("triton") is not None


@cache
def compiler_version() -> str:
    """Triton's version, without importing it; empty where it is not installed."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def _cache(version: str) -> BinaryCache:
    return BinaryCache(f"triton {version}")


def _key(step: Step, found: Signature, target: Target) -> str:
    return "\0".join((source.module_text(step.instance), found.key, str(target), repr(sorted(_OPTIONS.items()))))


def is_cached(step: Step, aligned: bool, target: Target) -> bool:
    """Whether `binary` would not have to compile."""
    return _cached(_key(step, signature(step, aligned), target)) is not None


def binary(step: Step, aligned: bool, target: Target) -> Binary:
    """The machine code of a launch: from the cache on disk, else compiled and kept there.

    aligned: for buffers whose first elements all lie at multiples of 16 bytes. Raises `CompileError` with the
    compiler's words, `DriverNotFound` where triton would be needed and is not installed.
    """
    found = signature(step, aligned)
    key = _key(step, found, target)
    made = _cached(key)
    if made is None:
        made = _compile(step, found, target)[0]
        head = {**asdict(made), "image": ""}
        _cache(compiler_version()).store(key, json.dumps(head).encode() + b"\n" + made.image)
    return made


def _cached(key: str) -> Binary | None:
    data = _cache(compiler_version()).load(key)
    if data is None:
        return None
    head, _, image = data.partition(b"\n")
    return Binary(**{**json.loads(head), "image": image})


def compile_for(step: Step, aligned: bool, target: Target) -> Compiled:
    """Compile anew, whatever is cached, and tell all about it. Needs no GPU."""
    made, asm = _compile(step, signature(step, aligned), target)
    used = _usage(made, asm) if target.backend == "cuda" else _usage_amd(asm["amdgcn"])
    return Compiled(made, target, {k: v for k, v in asm.items() if isinstance(v, str)}, *used)


def _triton() -> Any:
    if not compiler_installed():
        raise DriverNotFound(
            "a kernel has to be compiled, which needs triton, and that is not installed: pip install 'weftgrad[cuda]'"
        )
    with _lock:
        if "TRITON_CACHE_DIR" not in os.environ:  # its own cache goes where ours is, and nowhere if ours is off
            folder = cache_folder()
            os.environ["TRITON_CACHE_DIR"] = str(folder / "triton") if folder is not None else _temporary().name
        import triton

    return triton


@cache
def _source_class() -> Any:
    """Triton's source class, with its parsing in one thread at a time; the passes behind it run side by side."""
    from triton.compiler import ASTSource

    class Source(ASTSource):
        def hash(self) -> str:
            with source.parsing:
                return str(super().hash())

        def make_ir(self, *given: Any, **named: Any) -> Any:
            with source.parsing:
                return super().make_ir(*given, **named)

    return Source


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="weftgrad-triton-")


def _compile(step: Step, found: Signature, target: Target) -> tuple[Binary, dict[str, Any]]:
    triton = _triton()
    from triton.backends.compiler import GPUTarget

    name = step.instance.name
    kernel = source.functions(source.module_text(step.instance))[found.entry]
    constants = resolve(found.constants, triton.language)
    given = _source_class()(kernel, dict(found.types), constants, found.attributes)
    try:
        made = triton.compile(
            given, target=GPUTarget(target.backend, target.arch, target.warp), options={**_OPTIONS, **found.options}
        )
    except Exception as error:  # Triton's errors have no base, and its passes raise RuntimeError
        raise CompileError(
            f"{name}: {found.entry} does not compile for {target} with Triton {compiler_version()}\n{error}"
        ) from error
    about = made.metadata
    image = made.asm["cubin" if target.backend == "cuda" else "hsaco"]
    scratch = int(getattr(about, "global_scratch_size", 0) or 0)
    threads = target.warp * about.num_warps  # not the option: warp specialisation raises it
    return Binary(about.name, image, threads, about.shared, scratch, about.num_ctas), dict(made.asm)


def _usage(made: Binary, asm: dict[str, Any]) -> tuple[int, int]:
    """Registers a thread of a cubin, and bytes it spills, by NVIDIA's cuobjdump (which is in Triton's wheel).

    What is told is the stack. It holds spilled registers only where a thread has all that it can have; otherwise it
    holds tables that a function indexes (sine's reduction of large angles), or what is kept around a call.
    """
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.image)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(rf"Function {re.escape(made.name)}:\s*REG:(\d+) STACK:(\d+)", said)
    if found is None:
        raise CompileError(f"{made.name}: cuobjdump says nothing about its registers:\n{said}")
    registers, stack = int(found[1]), int(found[2])
    most = min(255, _REGISTERS // made.threads)
    return registers, stack if registers >= most - 7 else 0  # they are handed out in eights


def _usage_amd(text: str) -> tuple[int, int]:
    """Vector registers of AMD's assembly, and how many are spilled. (Scalar ones spill to vector registers.)"""
    counts = {k: int(v) for k, v in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", text)}
    return counts["vgpr_count"], counts["vgpr_spill_count"]
