"""Programs for OpenCL devices: built from source (`runtime.program`), cached as binaries (`runtime.cache`)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import program
from ..cache import BinaryCache
from ..errors import CompileError
from .opencl_devices import check_fork, cl
from .protocol import Capabilities, Instance

if TYPE_CHECKING:
    from .opencl_types import ClContext, ClDevice, ClKernel, ClProgram

__all__ = ["Compiler"]

# PoCL includes clang's header of all OpenCL built-ins in every program: 18,000 lines, which take 0.1 s to parse.
# Defining its include guard skips the header; `header.cl` declares the built-ins that our kernels call.
_LEAN_OPTIONS = ["-D_OPENCL_H_", "-DWG_DECLARE"]


class _ThreadKernels(threading.local):
    """The kernel objects of a thread."""

    def __init__(self) -> None:
        self.by_instance: dict[Instance, ClKernel] = {}


def _rounds_correctly(handle: ClDevice) -> bool:
    """Return True if a device can divide floats, and take square roots, as IEEE 754 says."""
    return bool(handle.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)


class Compiler:
    """Builds and caches programs for an OpenCL device in one context. Thread-safe."""

    def __init__(self, context: ClContext, handle: ClDevice, caps: Capabilities):
        self._context, self._handle, self._capabilities = context, handle, caps
        platform = handle.platform
        conditions = {
            "-DWG_NO_AHEAD": not caps.ahead,
            "-cl-opt-disable": not caps.optimize,
            # Literals such as 0.5 are float by the standard if there is no double; not every compiler knows.
            "-cl-single-precision-constant": not caps.fp64,
            # Otherwise a float division may err by 2.5 units in the last place, and a square root by 3.
            "-cl-fp32-correctly-rounded-divide-sqrt": _rounds_correctly(handle),
            "-w": "NVIDIA" in platform.name,  # its driver prints how many warnings there are, and not which
        }
        self._options = [option for option, is_set in conditions.items() if is_set]
        calls_builtins = caps.builtins or not caps.fp64  # see `program.source`
        self._lean_options = _LEAN_OPTIONS if "Portable" in platform.name and not calls_builtins else []
        identity = "\0".join(
            (platform.name, platform.version, handle.name, handle.version, handle.driver_version, *self._options)
        )
        self._cache = BinaryCache(identity)
        self._lock, self._thread_kernels = threading.RLock(), _ThreadKernels()
        self._programs: dict[Instance, tuple[ClProgram, str]] = {}
        self._batches: dict[str, ClProgram] = {}
        self.built = self.loaded = 0

    def build(self, instances: Sequence[Instance]) -> int:
        """Build the missing kernels as one program. Return their number."""
        with self._lock:
            missing = [i for i in dict.fromkeys(instances) if i not in self._programs]
            if len(missing) == 1 and self._from_batch(missing[0]):
                return 1
            if missing:
                built_program = self._program(missing)
                for instance in missing:
                    self._programs[instance] = (built_program, program.entry_name(instance))
            return len(missing)

    def is_cached(self, instance: Instance) -> bool:
        """Return True if the cache has a binary with `instance`, alone or in a batch."""
        text = self._source([instance])
        return self._cache.find(text) is not None or self._cache.load(text) is not None

    def _from_batch(self, instance: Instance) -> bool:
        """Load `instance` from the cached program of a batch. Return whether there was one."""
        key = self._cache.find(self._source([instance]))
        if key is None:
            return False
        batch_program = self._batches.get(key)
        if batch_program is None:
            binary = self._cache.load_key(key)
            if binary is None:
                return False
            try:
                batch_program = self._load_binary(binary)
            except cl.Error:
                return False
            self._batches[key] = batch_program
            self.loaded += 1
        self._programs[instance] = (batch_program, program.entry_name(instance))
        return True

    def _source(self, instances: Sequence[Instance]) -> str:
        caps = self._capabilities
        return program.source(instances, caps.builtins, caps.fp64)

    def program_of(self, instance: Instance) -> tuple[ClProgram, str]:
        """Return the program that contains an instance, and the kernel's name in it."""
        if instance not in self._programs:
            self.build([instance])
        return self._programs[instance]

    def kernel(self, instance: Instance) -> ClKernel:
        """Return the calling thread's kernel object, which holds arguments. Creating one takes 0.1 ms."""
        kernels = self._thread_kernels.by_instance
        kernel = kernels.get(instance)
        if kernel is None:
            kernel = kernels[instance] = cl.Kernel(*self.program_of(instance))
        return kernel

    def _program(self, instances: Sequence[Instance]) -> ClProgram:
        check_fork()
        text = self._source(instances)
        binary = self._cache.load(text)
        if binary is not None:
            try:
                built_program = self._load_binary(binary)
                self.loaded += 1
                return built_program
            except cl.Error:
                pass  # a binary of another build of the driver: build it again
        try:
            built_program = self._compile_source(text)
            self.built += 1
            binary = next((b for b in built_program.get_info(cl.program_info.BINARIES) if b), None)
            if binary is None:  # some drivers have none: each process compiles again
                return built_program
            self._cache.store(text, binary)
            if len(instances) > 1:
                self._cache.index([self._source([i]) for i in instances], text)
            # A program from a binary has finished kernels; one from source compiles each kernel at its first launch.
            return self._load_binary(binary)
        except cl.Error as error:
            names = ", ".join(sorted({i.name for i in instances}))
            raise CompileError(f"{names}: does not compile for {self._handle.name}\n{error}") from error

    def _compile_source(self, text: str) -> ClProgram:
        """Build from source, first with few declarations; if that fails (user code may call any built-in), with all."""
        if self._lean_options:
            try:
                return self._build(text, [*self._options, *self._lean_options])
            except cl.Error:
                if not self.built:
                    self._lean_options = []  # this PoCL version does not support it
        return self._build(text, self._options)

    def _build(self, text: str, options: Sequence[str]) -> ClProgram:
        with warnings.catch_warnings():  # Intel's compiler logs vectorised loops, and pyopencl warns about any log
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, text).build(list(options), devices=[self._handle], cache_dir=False)

    def _load_binary(self, binary: bytes) -> ClProgram:
        """Return the program of a binary."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, [self._handle], [binary]).build(self._options, devices=[self._handle])
