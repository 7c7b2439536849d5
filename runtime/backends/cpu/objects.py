"""Shared objects of kernels: compile one, keep it in the cache, check it, load it.

The cache keeps the bytes of a shared object behind a checksum (`runtime.cache`). Loading copies the checked bytes to a
file in memory, or else to a private temporary file, so that nothing can change what is loaded between the check and the
load, or under a process that runs it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ... import program
from ...cache import BinaryCache, cache_folder
from ...errors import CompileError, DriverNotFound
from .. import processor
from ..protocol import Capabilities, Instance
from .compilers import Compiler, candidates, flags, link_command

__all__ = ["ObjectStore", "open_store"]

_TIMEOUT = 600.0  # seconds, of one compilation
_INTERRUPTED = (-2, -9, -15)  # statuses of a compiler that somebody ended: no fault of the text

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
    """Compiled kernels of one compiler and one set of flags: on disk for every process, loaded in this one.

    Attributes:
        compiler: The compiler that makes what is missing.
        identity: What timings of these kernels hold for: compiler, instructions, processor.
    """

    def __init__(self, compiler: Compiler, capabilities: Capabilities):
        self.compiler = compiler
        self._capabilities = capabilities
        self._machine, self._system = platform.machine(), platform.system()
        instructions = processor.instruction_set(capabilities.lanes)
        self._flags = flags(instructions, self._machine, self._system, capabilities.optimize, capabilities.ahead)
        self.identity = f"{compiler.name}, {instructions}, {processor.model_name()}"
        self._cache = BinaryCache("\0".join((compiler.identity, *self._flags)))
        self._lock = threading.Lock()
        self._addresses: dict[Instance, int] = {}
        self._batches: dict[str, ctypes.CDLL] = {}
        self._libraries: list[ctypes.CDLL] = []
        self.compiled = self.loaded = 0  # shared objects

    def find(self, instance: Instance) -> int | None:
        """Return the address of a kernel that this process or the cache has, or None."""
        address = self._addresses.get(instance)
        if address is not None:
            return address
        with self._lock:
            source = self._source([instance])
            key = self._cache.find(source)
            batch = key is not None
            if key is None:
                key = self._cache.key(source)
            library = self._batches.get(key)
            if library is None:
                content = self._cache.load_key(key)
                if content is None:
                    return None
                try:
                    library = _load(content)
                except OSError:  # of another system that shares the folder
                    return None
                self.loaded += 1
                if batch:
                    self._batches[key] = library
            with suppress(AttributeError):
                return self._enter(library, instance)
        return None

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has a kernel."""
        source = self._source([instance])
        return self._cache.find(source) is not None or self._cache.load(source) is not None

    def compile(self, instances: Sequence[Instance]) -> None:
        """Compile kernels as one shared object, keep it in the cache, and load it.

        Raises:
            CompileError: The text of a kernel is wrong; the error has the compiler's message. If there are several
                instances, they are compiled one by one then, and those that can be are there.
            InterruptedError: Somebody ended the compiler.
        """
        source = self._source(instances)
        try:
            content = self._shared_object(source)
        except CompileError as error:
            if len(instances) == 1:
                names = ", ".join(sorted({i.name for i in instances}))
                raise CompileError(f"{names}: does not compile for cpu with {self.compiler.name}\n{error}") from None
            failures = []
            for instance in instances:
                try:
                    self.compile([instance])
                except CompileError as failure:
                    failures.append(failure)
            if failures:
                raise failures[0] from None
            return
        self._cache.store(source, content)
        if len(instances) > 1:
            self._cache.index([self._source([i]) for i in instances], source)
        with self._lock:
            library = _load(content)
            self.compiled += 1
            for instance in instances:
                self._enter(library, instance)

    def probe(self) -> str:
        """Compile and run a probe kernel; return what is wrong, or "". The cache remembers a success."""
        lanes = self._capabilities.lanes
        slot = ("float32", "value")
        instance = Instance("probe", _PROBE, "probe", "float", lanes, (program.Slot(*slot), program.Slot(*slot)))
        source = self._source([instance])
        passed = self._cache.key(source)
        if self._cache.load_key(passed, "ok") is not None:
            return ""
        try:
            content = self._shared_object(source)
            with _scratch_folder() as folder:
                path = Path(folder, "probe" + _suffix(self._system))
                path.write_bytes(content)
                command = [sys.executable, "-I", "-c", _RUN_PROBE, str(path), program.entry_name(instance), str(lanes)]
                done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, text=True)
        except (CompileError, OSError, subprocess.SubprocessError) as error:
            return str(error).strip()
        if done.returncode:
            return f"its probe kernel fails with status {done.returncode}: {done.stderr.strip()[-200:]}"
        self._cache.store_key(passed, b"", "ok")
        return ""

    def _source(self, instances: Sequence[Instance]) -> str:
        return program.source(instances, builtins=False, fp64=True, as_c=True)

    def _enter(self, library: ctypes.CDLL, instance: Instance) -> int:
        function = getattr(library, program.entry_name(instance))
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        self._addresses[instance] = address
        return address

    def _shared_object(self, source: str) -> bytes:
        """Compile and link a text. Raises `CompileError` with the compiler's message."""
        with _scratch_folder() as folder:
            object_file, library = str(Path(folder, "kernels.o")), str(Path(folder, "kernels" + _suffix(self._system)))
            _run([*self.compiler.compile, *self._flags, "-c", "-o", object_file, "-"], source)
            _run(link_command(self.compiler, [object_file], library, self._machine, self._system), "")
            return Path(library).read_bytes()


def open_store(capabilities: Capabilities, notes: list[str]) -> ObjectStore | None:
    """Return the store of the first compiler whose probe works; None if there is none. `notes` gets the reasons."""
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


def _run(command: Sequence[str], text: str) -> None:
    # In a group of its own, so that Ctrl-C ends the program and not a compilation that the cache will want.
    group = {"process_group": 0} if os.name == "posix" else {}
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=_TIMEOUT, **group  # type: ignore[call-overload]
    )
    if done.returncode in _INTERRUPTED:
        raise InterruptedError(f"{command[0]} was ended by signal {-done.returncode}")
    if done.returncode:
        raise CompileError(done.stderr.strip() or f"{command[0]} ended with status {done.returncode}")


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """A temporary folder: where the system has them, or in the cache folder, or in shared memory, if those are full."""
    problem: OSError | None = None
    for parent in (None, cache_folder(), Path("/dev/shm")):
        try:
            folder = tempfile.TemporaryDirectory(prefix="weftgrad-", dir=parent)
            Path(folder.name, "room").write_bytes(bytes(1 << 20))
        except OSError as error:
            problem = error
            continue
        with folder:
            yield folder.name
        return
    raise OSError(f"no room for temporary files: {problem}; set TMPDIR to a folder with 10 MiB free")


_names = itertools.count()


def _load(content: bytes) -> ctypes.CDLL:
    """Load a shared object from its bytes. Raises `OSError` where the system refuses it."""
    load: Callable[[bytes], ctypes.CDLL] = _load_from_file
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        load = _load_from_memory
    return load(content)


def _load_from_memory(content: bytes) -> ctypes.CDLL:
    handle = os.memfd_create("weftgrad-kernels", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(content)
        # The loader takes a name that it has seen for the same object, and numbers of files come again: so each name is
        # another spelling of its path.
        number = next(_names)
        spelling = "".join("/." if number >> bit & 1 else "//" for bit in range(24))
        return ctypes.CDLL(f"/proc/self{spelling}/fd/{handle}")
    finally:
        os.close(handle)


def _load_from_file(content: bytes) -> ctypes.CDLL:
    handle, name = tempfile.mkstemp(suffix=_suffix(platform.system()), prefix="weftgrad-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        return ctypes.CDLL(name)
    finally:
        with suppress(OSError):  # Windows keeps what is loaded
            os.unlink(name)
