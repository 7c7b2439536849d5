"""Programs for OpenCL devices: built from texts (`runtime.program`), kept as binaries (`runtime.cache`)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any

from .. import program
from ..cache import BinaryCache
from ..errors import CompileError
from .opencl_devices import check_fork, cl
from .protocol import Capabilities, Instance

__all__ = ["Compiler"]

# PoCL puts clang's header of all OpenCL built-ins before every program: 18,000 lines, parsed anew in 0.1 s each time.
# Its include guard, defined beforehand, leaves it out: what kernels here call of it, `header.cl` declares.
_LEAN = ["-D_OPENCL_H_", "-DWG_DECLARE"]


class Compiler:
    """Programs of an OpenCL device in one context, with their kernels. Threads share it."""

    def __init__(self, context: Any, handle: Any, able: Capabilities):
        self._context, self._handle, self._capabilities = context, handle, able
        platform = handle.platform
        wanted = {"-DWG_NO_AHEAD": not able.ahead, "-cl-opt-disable": not able.optimize}
        self._options = [option for option, want in wanted.items() if want]
        self._lean = _LEAN if "Portable" in platform.name else []
        identity = "\0".join(
            (platform.name, platform.version, handle.name, handle.version, handle.driver_version, *self._options)
        )
        self._cache = BinaryCache(identity)
        self._lock, self._mine = threading.RLock(), threading.local()
        self._found: dict[Instance, tuple[Any, str]] = {}
        self._batches: dict[str, Any] = {}
        self.built = self.loaded = 0

    def build(self, instances: Sequence[Instance]) -> int:
        """Build those not yet built, as one program. Returns how many there were."""
        with self._lock:
            missing = [i for i in dict.fromkeys(instances) if i not in self._found]
            if len(missing) == 1 and self._from_batch(missing[0]):
                return 1
            if missing:
                made = self._program(missing)
                for instance in missing:
                    self._found[instance] = (made, program.entry_name(instance))
            return len(missing)

    def is_cached(self, instance: Instance) -> bool:
        """Whether a binary with `instance` lies in the cache, alone or in a batch."""
        text = self._source([instance])
        return self._cache.find(text) is not None or self._cache.load(text) is not None

    def _from_batch(self, instance: Instance) -> bool:
        """Take `instance` from a program that was built as a batch, if the cache has one."""
        key = self._cache.find(self._source([instance]))
        if key is None:
            return False
        made = self._batches.get(key)
        if made is None:
            binary = self._cache.load_key(key)
            if binary is None:
                return False
            try:
                made = self._finished(binary)
            except cl.Error:
                return False
            self._batches[key] = made
            self.loaded += 1
        self._found[instance] = (made, program.entry_name(instance))
        return True

    def _source(self, instances: Sequence[Instance]) -> str:
        able = self._capabilities
        return program.source(instances, able.builtins, able.fp64)

    def program_of(self, instance: Instance) -> tuple[Any, str]:
        """The program that an instance is in, and its kernel's name there."""
        if instance not in self._found:
            self.build([instance])
        return self._found[instance]

    def kernel(self, instance: Instance) -> Any:
        """The calling thread's kernel object: its arguments are state, and making one costs 0.1 ms."""
        kernels: dict[Any, Any] = self._mine.__dict__
        kernel = kernels.get(instance)
        if kernel is None:
            kernel = kernels[instance] = cl.Kernel(*self.program_of(instance))
        return kernel

    def _program(self, instances: Sequence[Instance]) -> Any:
        check_fork()
        able = self._capabilities
        if not able.fp64 and any(i.element == "double" for i in instances):
            names = ", ".join(sorted({i.name for i in instances if i.element == "double"}))
            raise CompileError(f"{names}: {self._handle.name} has no float64; use float32 there")
        text = self._source(instances)
        binary = self._cache.load(text)
        if binary is not None:
            try:
                made = self._finished(binary)
                self.loaded += 1
                return made
            except cl.Error:
                pass  # a binary of another build of the driver: make it anew
        try:
            made = self._compiled(text)
            self.built += 1
            binary = next(b for b in made.get_info(cl.program_info.BINARIES) if b)
            self._cache.store(text, binary)
            if len(instances) > 1:
                self._cache.index([self._source([i]) for i in instances], text)
            # A binary holds finished kernels, where a program from source compiles each at its first launch.
            return self._finished(binary)
        except cl.Error as error:
            names = ", ".join(sorted({i.name for i in instances}))
            raise CompileError(f"{names}: does not compile for {self._handle.name}\n{error}") from error

    def _compiled(self, text: str) -> Any:
        """The program from source: with few declarations where they do; a user's own text may call any built-in."""
        if self._lean:
            try:
                return self._build(text, [*self._options, *self._lean])
            except cl.Error:
                if not self.built:
                    self._lean = []  # not with this version
        return self._build(text, self._options)

    def _build(self, text: str, options: Sequence[str]) -> Any:
        with warnings.catch_warnings():  # Intel's compiler logs what it vectorised, and pyopencl warns of any log
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, text).build(list(options), devices=[self._handle], cache_dir=False)

    def _finished(self, binary: bytes) -> Any:
        """The program of a binary."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            return cl.Program(self._context, [self._handle], [binary]).build(self._options, devices=[self._handle])
