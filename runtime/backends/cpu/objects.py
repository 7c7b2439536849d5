"""Shared objects of kernels: compile, cache, check, load.

The cache stores the bytes of a shared object with a checksum (`runtime.cache`). Loading copies the checked bytes to a
file in memory, or else to a private temporary file, so that no other process can change them between the check and the
load, or while the kernels run.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import itertools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ... import program
from ...cache import BinaryCache, cache_folder
from ...errors import CompileError, DriverNotFound
from .. import processor
from ..protocol import Capabilities, Instance
from .compilers import Compiler, candidates, flags, link_command

__all__ = ["ObjectStore", "open_store"]

_TIMEOUT = 600.0  # seconds, for one compilation
_INTERRUPTED = (-2, -9, -15)  # exit statuses of a compiler that a signal ended: not an error in the source

_PROBE = """
typedef struct { int numerator; } NAME(Geometry);
typedef struct { long offset[2]; float number; } NAME(Dynamic);
kernel void NAME(probe)(global const S0 *p0, global S1 *p1, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    const V value = LOADV0(WG_AT(S0, p0, dyn.offset[0]) + get_global_id(0) * LANES);
    STOREV1(WG_AT(S1, p1, dyn.offset[1]) + get_global_id(0) * LANES, value * dyn.number + (float)geo.numerator / 2);
}
"""
_RUN_PROBE = """
import ctypes, struct, sys
lanes = int(sys.argv[3])
values = (ctypes.c_float * (2 * lanes))(*range(2 * lanes))
results = (ctypes.c_float * (2 * lanes + 1))()
pointers = [ctypes.c_void_p(ctypes.addressof(values)), ctypes.c_void_p(ctypes.addressof(results))]
packed = struct.pack("@i", 3), struct.pack("@qqf0q", 0, 4, 0.25)
structs = [ctypes.create_string_buffer(each) for each in packed]
arguments = (ctypes.c_void_p * 4)(*[ctypes.addressof(each) for each in (*pointers, *structs)])
function = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])
size = ctypes.c_size_t
function(arguments, (size * 3)(2, 1, 1), size(0), size(2))
sys.exit(list(results) != [0.0, *[0.25 * i + 1.5 for i in range(2 * lanes)]])
"""


class ObjectStore:
    """Compiled kernels of one compiler and one set of flags: cached on disk, loaded in this process.

    Threads share it without a lock, because a signal handler that computes could deadlock on a lock held by its own
    thread. At worst, two threads load the same object twice.

    Attributes:
        compiler: Compiles missing kernels.
        identity: Key of stored timings: compiler, instruction set, processor model.
    """

    def __init__(self, compiler: Compiler, capabilities: Capabilities):
        self.compiler = compiler
        self._capabilities = capabilities
        self._machine, self._system = platform.machine(), platform.system()
        instructions = processor.instruction_set(capabilities.lanes)
        self._flags = flags(instructions, self._machine, self._system, capabilities.optimize, capabilities.ahead)
        self.identity = f"{compiler.name}, {instructions}, {processor.model_name()}"
        self._cache = BinaryCache("\0".join((compiler.identity, *self._flags)))
        self._addresses: dict[Instance, int] = {}
        self._batches: dict[str, ctypes.CDLL] = {}
        self.compiled = self.loaded = 0  # shared objects

    def load(self, instance: Instance) -> int | None:
        """Return a kernel's address, loading it from the cache if necessary, or None if it is not cached."""
        address = self._addresses.get(instance)
        if address is not None:
            return address
        source = self._source([instance])
        for key in dict.fromkeys((self._cache.find(source), self._cache.key(source))):
            library = self._library(key) if key is not None else None
            if library is not None and hasattr(library, program.entry_name(instance)):
                return self._register_address(library, instance)
        return None

    def _library(self, key: str) -> ctypes.CDLL | None:
        """Return the shared object of a cache key, loading it if necessary; None if it is missing or damaged."""
        library = self._batches.get(key)
        if library is None:
            content = self._cache.load_key(key)
            if content is None:
                return None
            try:
                library = self._batches.setdefault(key, _load(content))
            except OSError:  # compiled on another system that shares the cache folder
                return None
            self.loaded += 1
        return library

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""
        source = self._source([instance])
        keys = (self._cache.find(source), self._cache.key(source))
        return any(key is not None and self._cache.load_key(key) is not None for key in keys)

    def compile(self, instances: Sequence[Instance]) -> dict[Instance, CompileError]:
        """Compile kernels as one shared object, store it in the cache, and load it.

        If one of several kernels does not compile, they are compiled one by one.

        Returns:
            The compiler's message for each kernel that does not compile.

        Raises:
            InterruptedError: A signal ended the compiler.
            OSError: There is no room for temporary files, or the system refuses to load the object.
        """
        source = self._source(instances)
        try:
            content = self._shared_object(source)
        except CompileError as error:
            if len(instances) > 1:
                failures: dict[Instance, CompileError] = {}
                for instance in instances:
                    failures |= self.compile([instance])
                return failures
            name = instances[0].name
            return {instances[0]: CompileError(f"{name}: does not compile for cpu with {self.compiler.name}\n{error}")}
        self._cache.store(source, content)
        single_sources = [self._source([i]) for i in instances]
        if len(instances) > 1 or self._cache.find(source) is not None:  # the index may name an object that is damaged
            self._cache.index(single_sources, source)
        library = _load(content)
        self.compiled += 1
        for instance in instances:
            self._register_address(library, instance)
        return {}

    def probe(self) -> str:
        """Compile and run a probe kernel. Return the problem, or "". The cache remembers a success."""
        lanes = self._capabilities.lanes
        slot = ("float32", "value")
        instance = Instance("probe", _PROBE, "probe", "float", lanes, (program.Slot(*slot), program.Slot(*slot)))
        source = self._source([instance])
        probe_key = self._cache.key(source)
        if self._cache.load_key(probe_key, "ok") is not None:
            return ""
        try:
            content = self._shared_object(source)
            with _scratch_folder() as folder:
                path = Path(folder, "probe" + _suffix(self._system))
                path.write_bytes(content)
                if not sys.executable or getattr(sys, "frozen", False):  # sys.executable is not a Python interpreter
                    return ""
                command = [sys.executable, "-I", "-c", _RUN_PROBE, str(path), program.entry_name(instance), str(lanes)]
                completed = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, text=True)
        except (CompileError, OSError, subprocess.SubprocessError) as error:
            return str(error).strip() or repr(error)
        if completed.returncode:
            return f"its probe kernel fails with status {completed.returncode}: {completed.stderr.strip()[-200:]}"
        self._cache.store_key(probe_key, b"", "ok")
        return ""

    def _source(self, instances: Sequence[Instance]) -> str:
        return program.source(instances, builtins=False, fp64=True, as_c=True)

    def _register_address(self, library: ctypes.CDLL, instance: Instance) -> int:
        function = getattr(library, program.entry_name(instance))
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        self._addresses[instance] = address
        return address

    def _shared_object(self, source: str) -> bytes:
        """Compile and link a source text. Raise `CompileError` with the compiler's message."""
        with _scratch_folder() as folder:
            object_file, library = str(Path(folder, "kernels.o")), str(Path(folder, "kernels" + _suffix(self._system)))
            text = Path(folder, "kernels.c")
            text.write_text(source, encoding="utf-8")
            with open(text, "rb") as file:
                _run([*self.compiler.compile, *self._flags, "-c", "-o", object_file, "-"], file)
            _run(link_command(self.compiler, [object_file], library, self._machine, self._system), subprocess.DEVNULL)
            return Path(library).read_bytes()


def open_store(capabilities: Capabilities, notes: list[str]) -> ObjectStore | None:
    """Return the store of the first compiler whose probe passes, or None. Append the problems to `notes`."""
    for compiler in candidates(notes):
        store = ObjectStore(compiler, capabilities)
        problem = store.probe()
        if not problem:
            return store
        notes.append(f"{compiler.name}: {problem.splitlines()[0]}")
        if os.environ.get("WEFTGRAD_CLANG"):
            raise DriverNotFound(f"WEFTGRAD_CLANG={os.environ['WEFTGRAD_CLANG']}: {problem}")
    return None


def _suffix(system: str) -> str:
    return {"Darwin": ".dylib", "Windows": ".dll"}.get(system, ".so")


# Held while a compiler is started, and during a fork. Otherwise a forked child could inherit the write end of a pipe,
# and the pipe's reader (the compiler or this process) would wait until that child exits. The compiler's input is a file
# for the same reason.
_start_lock = threading.RLock()
_scratch_folders: set[str] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_start_lock.acquire, after_in_parent=_start_lock.release, after_in_child=_start_lock.release
    )
    os.register_at_fork(after_in_child=_scratch_folders.clear)


def _run(command: Sequence[str], source: IO[bytes] | int) -> None:
    # In its own process group: Ctrl-C reaches Python only, and the compilation finishes and is cached.
    group = 0 if os.name == "posix" else None
    with _start_lock:
        process = subprocess.Popen(
            command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8",
            errors="replace", process_group=group,
        )  # fmt: skip
    with process:
        try:
            message = process.communicate(timeout=_TIMEOUT)[1].strip()
        except BaseException:
            process.kill()
            raise
    if process.returncode in _INTERRUPTED:
        raise InterruptedError(f"{command[0]} was ended by signal {-process.returncode}")
    if process.returncode:
        message = message or f"{command[0]} ended with status {process.returncode}"
        if "No space left on device" in message:
            raise OSError(errno.ENOSPC, message.splitlines()[0])
        raise CompileError(message)


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """Yield a temporary folder with free space: in the system's place, else in the cache folder, else in /dev/shm."""
    problem: OSError | None = None
    for parent in (None, cache_folder(), Path("/dev/shm")):
        try:
            folder = tempfile.mkdtemp(prefix="weftgrad-", dir=parent)
        except OSError as error:
            problem = error
            continue
        _scratch_folders.add(folder)
        try:
            test_file = Path(folder, "room")
            try:
                test_file.write_bytes(bytes(1 << 20))
                test_file.unlink()
            except OSError as error:
                problem = error
                continue
            yield folder
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # Windows does not delete files of loaded libraries
            _scratch_folders.discard(folder)
    raise OSError(f"no room for temporary files: {problem}; set TMPDIR to a folder with 10 MiB free")


@atexit.register
def _remove_scratch_folders() -> None:
    """Remove the folders of compilations that the end of this process interrupts; not a parent's after a fork."""
    for folder in list(_scratch_folders):
        shutil.rmtree(folder, ignore_errors=True)


_load_numbers = itertools.count()


def _load(content: bytes) -> ctypes.CDLL:
    """Load a shared object from its bytes. Raise `OSError` if the system refuses it."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):  # some sandboxes refuse one of the two
            return _load_from_memory(content)
    return _load_from_file(content)


def _load_from_memory(content: bytes) -> ctypes.CDLL:
    handle = os.memfd_create("weftgrad-kernels", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(content)
        # The loader treats a path that it has seen as the same object, and file descriptor numbers are reused. So each
        # load writes the path with a different sequence of redundant "/." and "//".
        number = next(_load_numbers)
        spelling = "".join("/." if number >> bit & 1 else "//" for bit in range(24))
        return ctypes.CDLL(f"/proc/self{spelling}/fd/{handle}")
    finally:
        os.close(handle)


def _load_from_file(content: bytes) -> ctypes.CDLL:
    with _scratch_folder() as folder:
        path = Path(folder, "kernels" + _suffix(platform.system()))
        path.write_bytes(content)
        return ctypes.CDLL(str(path))
