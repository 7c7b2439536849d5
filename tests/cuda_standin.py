"""A fake of NVIDIA's driver library: the functions of `cuda.bindings.driver` that the backend calls, on the host.

Device memory is host memory. Queued work runs only when something waits for it, as late as CUDA allows. So races show:
a staging buffer that is reused too early, memory that is freed under a kernel, a missing wait between streams. Misuse
that the real library would detect later or never is recorded in `violations`; errors that it reports at once are
reported here with the same codes. Launches are recorded with the bytes of every parameter, read through the pointers
that were passed. Their sizes come from the machine code (a cubin's own table).

`run_kernel(launch)`, if set, computes what the kernel would compute.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import json
import struct
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Gpu", "Interpreting", "Launch", "Standin", "image_of", "parameter_sizes"]


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100


class CUfunction_attribute(enum.IntEnum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


OK = CUresult.CUDA_SUCCESS
BAD_VALUE = CUresult.CUDA_ERROR_INVALID_VALUE
BAD_HANDLE = CUresult.CUDA_ERROR_INVALID_HANDLE


class Handle:
    """An opaque handle of the library: compared by identity, convertible to an integer."""

    def __int__(self) -> int:
        return id(self)


class Context(Handle):
    def __init__(self, device: int):
        self.device = device
        self.retained = 0
        self.allocated = 0


class Allocation:
    """An allocation of device memory or of pinned host memory."""

    def __init__(self, nbytes: int, context: Context | None, pinned: bool):
        self.buffer = np.full(nbytes + 512, 0xCB, np.uint8)  # garbage: real memory is uninitialised
        self.address = self.buffer.ctypes.data + -self.buffer.ctypes.data % 512
        self.nbytes = nbytes
        self.context = context
        self.pinned = pinned


@dataclass
class Op:
    """One operation in a queue. touches: (address, bytes) of the memory it uses. wait: (stream, number of its ops)."""

    kind: str
    run: Callable[[], None] | None = None
    touches: list[tuple[int, int]] = field(default_factory=list)
    wait: tuple[Stream, int] | None = None


class Stream(Handle):
    def __init__(self, context: Context):
        self.context = context
        self.ops: list[Op] = []
        self.done = 0
        self.capture: Capture | None = None
        self.frontier: set[int] = set()
        self.destroyed = False


class Event(Handle):
    def __init__(self, context: Context, timing: bool):
        self.context = context
        self.timing = timing
        self.position: tuple[Stream, int] | None = None
        self.capture: Capture | None = None
        self.frontier: set[int] = set()
        self.time = 0
        self.destroyed = False


class Capture:
    def __init__(self, origin: Stream, mode: int, thread: int):
        self.origin = origin
        self.mode = mode
        self.thread = thread
        self.nodes: list[tuple[Op, set[int]]] = []
        self.streams = [origin]
        self.broken = False

    def add(self, stream: Stream, op: Op) -> None:
        self.nodes.append((op, set(stream.frontier)))
        stream.frontier = {len(self.nodes) - 1}

    def joined(self) -> bool:
        """Return True if all captured work is joined to the stream that the capture began on."""
        visited, stack = set(), list(self.origin.frontier)
        while stack:
            node = stack.pop()
            if node not in visited:
                visited.add(node)
                stack += self.nodes[node][1]
        return len(visited) == len(self.nodes)


class Graph(Handle):
    def __init__(self, ops: list[Op]):
        self.ops = ops
        self.destroyed = False


class Function(Handle):
    def __init__(self, module: Module, name: str):
        self.module = module
        self.name = name
        self.allowed_shared = 48 * 1024


class Module(Handle):
    def __init__(self, context: Context, image: bytes):
        self.context = context
        self.image = image
        self.sizes = parameter_sizes(image)


@dataclass
class Launch:
    """One launch. parameters: the bytes of each parameter. ran: the position of each run in the order of all runs."""

    function: str
    image: bytes = field(repr=False)
    grid: tuple[int, int, int]
    threads: int
    shared: int
    stream: Stream
    parameters: list[bytes]
    ran: list[int] = field(default_factory=list)

    def values(self, codes: str) -> list[Any]:
        """Return the parameters, unpacked by one `struct` code each."""
        assert len(codes) == len(self.parameters), f"{len(codes)} codes for {len(self.parameters)} parameters"
        return [struct.unpack("=" + c, p)[0] for c, p in zip(codes, self.parameters, strict=True)]


def image_of(name: str, codes: str, serial: int = 0) -> bytes:
    """Return fake machine code of a kernel whose parameters have these `struct` codes."""
    sizes = [struct.calcsize("=" + c) for c in codes]
    return b"STANDIN" + json.dumps({"name": name, "sizes": sizes, "serial": serial}).encode()


def parameter_sizes(image: bytes) -> dict[str, list[int]]:
    """Return the parameter sizes in bytes of every kernel in a cubin (from its `.nv.info` sections) or fake image."""
    if image.startswith(b"STANDIN"):
        description = json.loads(image[7:])
        return {description["name"]: description["sizes"]}
    if not image.startswith(b"\x7fELF"):
        return {}
    table_offset, entry_size, count, names_index = (
        struct.unpack_from("<Q", image, 40)[0],
        *struct.unpack_from("<HHH", image, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table_offset + entry_size * i) for i in range(count)]
    strings = image[sections[names_index][4] :]
    sizes_by_kernel: dict[str, list[int]] = {}
    for section in sections:
        title = strings[section[0] :].split(b"\0")[0].decode()
        if not title.startswith(".nv.info."):
            continue
        data = image[section[4] : section[4] + section[5]]
        sizes: dict[int, int] = {}
        offset = 0
        while offset < len(data):
            form, kind, length = struct.unpack_from("<BBH", data, offset)
            offset += 4
            if form == 4:  # a value of `length` bytes follows; other forms have it in the header
                if kind == 0x17:  # EIATTR_KPARAM_INFO: index, ordinal, offset, flags with the size above bit 18
                    _, ordinal, _, flags = struct.unpack_from("<IHHI", data, offset)
                    sizes[ordinal] = flags >> 18
                offset += length
        sizes_by_kernel[title[len(".nv.info.") :]] = [sizes[i] for i in range(len(sizes))]
    return sizes_by_kernel


@dataclass
class Gpu:
    """The properties that a fake device reports."""

    name: str = "Stand-in H200"
    sm: tuple[int, int] = (9, 0)
    memory: int = 1 << 28
    multiprocessors: int = 132
    shared: int = 227 * 1024


class Standin(types.SimpleNamespace):
    """The fake library, which replaces `cuda.bindings.driver` by `cuda_api.use`."""

    CUresult = CUresult
    CUdevice_attribute = CUdevice_attribute
    CUfunction_attribute = CUfunction_attribute
    CUstreamCaptureMode = CUstreamCaptureMode

    def __init__(self, *gpus: Gpu):
        self.gpus = gpus or (Gpu(),)
        self.contexts = [Context(i) for i in range(len(self.gpus))]
        self.calls: list[str] = []
        self.launches: list[Launch] = []
        self.violations: list[str] = []
        self.allocations: dict[int, Allocation] = {}
        self.streams: list[Stream] = []
        self.captures: list[Capture] = []
        self.run_kernel: Callable[[Launch], None] | None = None
        self.lost: CUresult | None = None  # the context is lost: every call fails with this code
        self._freed: list[Allocation] = []
        self._failures: dict[str, list[CUresult | None]] = {}
        self._local = threading.local()
        self._lock = threading.RLock()
        self._ran = 0

    # Controls for tests

    def fail(self, name: str, code: int, after: int = 0, times: int = 1) -> None:
        """Let `times` calls of a function fail, after `after` calls that succeed."""
        self._failures[name] = [None] * after + [CUresult(code)] * times

    def corrupt(self, code: int) -> None:
        """Simulate a failed kernel: from now on every call fails."""
        self.lost = CUresult(code)

    def held(self, pinned: bool = False) -> int:
        """Return the bytes allocated now."""
        return sum(a.nbytes for a in self.allocations.values() if a.pinned == pinned)

    def _enter(self, name: str) -> CUresult:
        self.calls.append(name)
        orders = self._failures.get(name)
        if orders:
            code = orders.pop(0)
            if code is not None:
                return code
        return self.lost or OK

    # Queues

    def _current(self) -> Context | None:
        return getattr(self._local, "context", None)

    def _find_allocation(self, address: int, nbytes: int) -> Allocation | None:
        for allocation in self.allocations.values():
            if allocation.address <= address and address + nbytes <= allocation.address + allocation.nbytes:
                return allocation
        return None

    def _push(self, stream: Stream, op: Op) -> None:
        if stream.destroyed:
            self.violations.append(f"{op.kind} on a destroyed stream")
        for address, nbytes in op.touches:
            if self._find_allocation(address, nbytes) is None:
                self.violations.append(f"{op.kind} uses {nbytes} bytes at {address:#x}, which nobody owns")
        if stream.capture is not None:
            stream.capture.add(stream, op)
        else:
            stream.ops.append(op)

    def _drain(self, stream: Stream, until: int | None = None) -> None:
        until = len(stream.ops) if until is None else until
        while stream.done < until:
            op = stream.ops[stream.done]
            stream.done += 1  # before running it: streams may wait for each other's earlier work
            if op.wait is not None:
                self._drain(*op.wait)
            for address, nbytes in op.touches:
                if self._find_allocation(address, nbytes) is None:
                    self.violations.append(f"{op.kind} ran after its memory was freed")
                    return
            if op.run is not None:
                op.run()

    def _pending(self, allocation: Allocation) -> bool:
        end = allocation.address + allocation.nbytes
        queued = (op for s in self.streams for op in s.ops[s.done :])
        return any(allocation.address <= a < end for op in queued for a, _ in op.touches)

    def _usable(self, stream: Stream) -> CUresult:
        current = self._current()
        if current is None:
            return CUresult.CUDA_ERROR_INVALID_CONTEXT
        if not isinstance(stream, Stream) or stream.context is not current:
            return BAD_HANDLE
        if stream.capture is not None and stream.capture.broken:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        return OK

    def _unsafe(self) -> CUresult:
        """Return the error of calls that might wait, on a thread that captures in a mode that forbids them."""
        if getattr(self._local, "mode", 0) != CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED:
            for capture in self.captures:
                if capture.mode == 0 or (capture.mode == 1 and capture.thread == threading.get_ident()):
                    capture.broken = True
                    return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        return OK

    # The library: initialisation and devices

    def cuInit(self, Flags: int) -> tuple[CUresult]:
        return (self._enter("cuInit"),)

    def cuDriverGetVersion(self) -> tuple[CUresult, int]:
        return OK, 13010

    def cuGetErrorName(self, error: int) -> tuple[CUresult, bytes]:
        return OK, CUresult(error).name.encode()

    def cuGetErrorString(self, error: int) -> tuple[CUresult, bytes]:
        return OK, CUresult(error).name.removeprefix("CUDA_").replace("_", " ").lower().encode()

    def cuDeviceGetCount(self) -> tuple[CUresult, int]:
        return self._enter("cuDeviceGetCount"), len(self.gpus)

    def cuDeviceGet(self, ordinal: int) -> tuple[CUresult, Any]:
        return self._enter("cuDeviceGet"), ordinal

    def cuDeviceGetName(self, length: int, dev: int) -> tuple[CUresult, bytes]:
        return OK, self.gpus[dev].name.encode().ljust(length, b"\0")

    def cuDeviceTotalMem(self, dev: int) -> tuple[CUresult, int]:
        return OK, self.gpus[dev].memory

    def cuDeviceGetAttribute(self, attrib: CUdevice_attribute, dev: int) -> tuple[CUresult, int]:
        gpu, kind = self.gpus[dev], CUdevice_attribute
        return OK, {
            kind.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: 1024,
            kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: gpu.multiprocessors,
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: gpu.sm[0],
            kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: gpu.sm[1],
            kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: gpu.shared,
            kind.CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: 0,
        }[attrib]

    def cuDevicePrimaryCtxRetain(self, dev: int) -> tuple[CUresult, Context]:
        self.contexts[dev].retained += 1
        return self._enter("cuDevicePrimaryCtxRetain"), self.contexts[dev]

    def cuCtxSetCurrent(self, ctx: Context) -> tuple[CUresult]:
        self._local.context = ctx
        return (self._enter("cuCtxSetCurrent"),)

    def cuCtxSynchronize(self) -> tuple[CUresult]:
        code = self._enter("cuCtxSynchronize")
        current = self._current()
        if code or current is None:
            return (code or CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        for capture in self.captures:
            if capture.origin.context is current:
                capture.broken = True
                return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        with self._lock:
            for stream in self.streams:
                if stream.context is current:
                    self._drain(stream)
        return (self.lost or OK,)

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[CUresult, int]:
        previous = getattr(self._local, "mode", CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
        self._local.mode = mode
        return OK, previous

    # Memory

    def _allocate(self, name: str, nbytes: int, pinned: bool) -> tuple[CUresult, Any]:
        code = self._enter(name) or self._unsafe()
        current = self._current()
        if current is None:
            code = code or CUresult.CUDA_ERROR_INVALID_CONTEXT
        if code or nbytes <= 0:
            return code or BAD_VALUE, None
        if not pinned and current.allocated + nbytes > self.gpus[current.device].memory:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        allocation = Allocation(nbytes, current, pinned)
        if not pinned:
            current.allocated += nbytes
        self.allocations[allocation.address] = allocation
        return OK, allocation.address

    def _free(self, name: str, address: int, pinned: bool) -> tuple[CUresult]:
        code = self._enter(name) or self._unsafe()
        if code:
            return (code,)
        allocation = self.allocations.get(address)
        if allocation is None or allocation.pinned != pinned:
            self.violations.append(f"{name} of {address:#x}, which is not allocated")
            return (BAD_VALUE,)
        if self._pending(allocation):
            self.violations.append(f"{name} of memory that queued work uses")
        if not pinned:
            allocation.context.allocated -= allocation.nbytes
        allocation.buffer[:] = 0xDD
        self._freed.append(self.allocations.pop(address))  # kept alive, so that its addresses are not reused
        return (OK,)

    def cuMemAlloc(self, bytesize: int) -> tuple[CUresult, Any]:
        return self._allocate("cuMemAlloc", bytesize, False)

    def cuMemFree(self, dptr: int) -> tuple[CUresult]:
        return self._free("cuMemFree", dptr, False)

    def cuMemHostAlloc(self, bytesize: int, Flags: int) -> tuple[CUresult, Any]:
        return self._allocate("cuMemHostAlloc", bytesize, True)

    def cuMemFreeHost(self, p: int) -> tuple[CUresult]:
        return self._free("cuMemFreeHost", p, True)

    def cuMemGetInfo(self) -> tuple[CUresult, int, int]:
        current = self._current()
        total = self.gpus[current.device].memory
        return OK, total - current.allocated, total

    def cuMemcpyHtoDAsync(self, dstDevice: int, srcHost: int, ByteCount: int, hStream: Stream) -> tuple[CUresult]:
        code = self._enter("cuMemcpyHtoDAsync") or self._usable(hStream)
        if code:
            return (code,)
        touches = [(dstDevice, ByteCount)]
        if self._find_allocation(srcHost, ByteCount) is not None:  # pinned: read when the copy runs
            touches.append((srcHost, ByteCount))
            run = lambda: ctypes.memmove(dstDevice, srcHost, ByteCount)  # noqa: E731
        else:
            if hStream.capture is not None:
                self.violations.append("a graph copies from memory that is not pinned")
            staged = ctypes.string_at(srcHost, ByteCount)
            run = lambda: ctypes.memmove(dstDevice, staged, ByteCount)  # noqa: E731
        self._push(hStream, Op("copy to the device", run, touches))
        return (OK,)

    def cuMemcpyDtoHAsync(self, dstHost: int, srcDevice: int, ByteCount: int, hStream: Stream) -> tuple[CUresult]:
        code = self._enter("cuMemcpyDtoHAsync") or self._usable(hStream)
        if code:
            return (code,)
        touches = [(srcDevice, ByteCount)]
        pinned = self._find_allocation(dstHost, ByteCount) is not None
        if pinned:
            touches.append((dstHost, ByteCount))
        run = lambda: ctypes.memmove(dstHost, srcDevice, ByteCount)  # noqa: E731
        self._push(hStream, Op("copy to the host", run, touches))
        if not pinned:
            with self._lock:
                self._drain(hStream)
        return (OK,)

    def cuMemcpyPeerAsync(
        self, dstDevice: int, dstContext: Context, srcDevice: int, srcContext: Context, ByteCount: int, hStream: Stream
    ) -> tuple[CUresult]:
        code = self._enter("cuMemcpyPeerAsync") or self._usable(hStream)
        if code:
            return (code,)
        for address, context in ((dstDevice, dstContext), (srcDevice, srcContext)):
            allocation = self._find_allocation(address, ByteCount)
            if allocation is not None and allocation.context is not context:
                self.violations.append("a copy between devices names the wrong context")
        run = lambda: ctypes.memmove(dstDevice, srcDevice, ByteCount)  # noqa: E731
        touches = [(dstDevice, ByteCount), (srcDevice, ByteCount)]
        self._push(hStream, Op("copy between devices", run, touches))
        return (OK,)

    # Streams and events

    def cuStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[CUresult, Any]:
        code = self._enter("cuStreamCreateWithPriority")
        current = self._current()
        if code or current is None:
            return code or CUresult.CUDA_ERROR_INVALID_CONTEXT, None
        if flags != 1:
            self.violations.append("a stream that waits for the legacy default stream")
        stream = Stream(current)
        self.streams.append(stream)
        return OK, stream

    def cuStreamDestroy(self, hStream: Stream) -> tuple[CUresult]:
        if hStream.destroyed:
            self.violations.append("a stream destroyed twice")
        hStream.destroyed = True
        return (self._enter("cuStreamDestroy"),)

    def cuStreamSynchronize(self, hStream: Stream) -> tuple[CUresult]:
        # Measured (H200, driver 580): forbidden like an allocation, also for a stream that is not being captured.
        code = self._enter("cuStreamSynchronize") or self._usable(hStream) or self._unsafe()
        if code:
            return (code,)
        if hStream.capture is not None:
            hStream.capture.broken = True
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        with self._lock:
            self._drain(hStream)
        return (self.lost or OK,)

    def cuStreamQuery(self, hStream: Stream) -> tuple[CUresult]:
        code = self._enter("cuStreamQuery") or self._usable(hStream) or self._unsafe()
        if code:
            return (code,)
        return (CUresult.CUDA_ERROR_NOT_READY if hStream.done < len(hStream.ops) else OK,)

    def cuStreamWaitEvent(self, hStream: Stream, hEvent: Event, Flags: int) -> tuple[CUresult]:
        code = self._enter("cuStreamWaitEvent") or self._usable(hStream)
        if code:
            return (code,)
        if hEvent.capture is not None:
            if hStream.capture is None:
                hStream.capture = hEvent.capture
                hEvent.capture.streams.append(hStream)
                hStream.frontier = set()
            elif hStream.capture is not hEvent.capture:
                return (CUresult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION,)
            hStream.frontier |= hEvent.frontier
        elif hEvent.position is None:
            self.violations.append("a stream waits for an event that was never recorded")
        elif hStream.capture is not None:
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_ISOLATION,)
        else:
            self._push(hStream, Op("wait", wait=hEvent.position))
        return (OK,)

    def cuEventCreate(self, Flags: int) -> tuple[CUresult, Any]:
        code = self._enter("cuEventCreate")
        current = self._current()
        if code or current is None:
            return code or CUresult.CUDA_ERROR_INVALID_CONTEXT, None
        return OK, Event(current, not Flags & 2)

    def cuEventRecord(self, hEvent: Event, hStream: Stream) -> tuple[CUresult]:
        code = self._enter("cuEventRecord") or self._usable(hStream)
        if code:
            return (code,)
        if hEvent.context is not hStream.context:
            return (BAD_HANDLE,)
        hEvent.capture, hEvent.frontier = hStream.capture, set(hStream.frontier)
        if hStream.capture is None:
            hEvent.frontier = set()

            def note() -> None:
                self._ran += 1
                hEvent.time = self._ran

            self._push(hStream, Op("event", note))
            hEvent.position = (hStream, len(hStream.ops))
        return (OK,)

    def cuEventQuery(self, hEvent: Event) -> tuple[CUresult]:
        code = self._enter("cuEventQuery") or self._unsafe()
        if code:
            return (code,)
        if hEvent.capture is not None:
            hEvent.capture.broken = True
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        ready = hEvent.position is None or hEvent.position[0].done >= hEvent.position[1]
        return (OK if ready else CUresult.CUDA_ERROR_NOT_READY,)

    def cuEventSynchronize(self, hEvent: Event) -> tuple[CUresult]:
        code = self._enter("cuEventSynchronize") or self._unsafe()
        if code:
            return (code,)
        if hEvent.capture is not None:
            hEvent.capture.broken = True
            return (CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,)
        if hEvent.position is not None:
            with self._lock:
                self._drain(*hEvent.position)
        return (self.lost or OK,)

    def cuEventElapsedTime(self, hStart: Event, hEnd: Event) -> tuple[CUresult, Any]:
        code = self._enter("cuEventElapsedTime")
        for event in (hStart, hEnd):
            if event.position is None or not event.timing:
                return BAD_HANDLE, None
            if event.position[0].done < event.position[1]:
                return CUresult.CUDA_ERROR_NOT_READY, None
        return code, float(hEnd.time - hStart.time)

    # Graphs

    def cuStreamBeginCapture(self, hStream: Stream, mode: int) -> tuple[CUresult]:
        code = self._enter("cuStreamBeginCapture") or self._usable(hStream)
        if code or hStream.capture is not None:
            return (code or CUresult.CUDA_ERROR_INVALID_VALUE,)
        hStream.capture = Capture(hStream, int(mode), threading.get_ident())
        hStream.frontier = set()
        self.captures.append(hStream.capture)
        return (OK,)

    def cuStreamEndCapture(self, hStream: Stream) -> tuple[CUresult, Any]:
        code = self._enter("cuStreamEndCapture")
        capture = hStream.capture
        if capture is None or capture.origin is not hStream:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, None
        if capture.thread != threading.get_ident() and capture.mode != 2:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, None
        joined = capture.joined()
        self.captures.remove(capture)
        for stream in capture.streams:
            stream.capture = None
            stream.frontier = set()
        if code or capture.broken:
            return code or CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, None
        if not joined:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, None
        return OK, Graph([op for op, _ in capture.nodes])

    def cuGraphInstantiate(self, hGraph: Graph, flags: int) -> tuple[CUresult, Any]:
        code = self._enter("cuGraphInstantiate")
        if hGraph.destroyed:
            self.violations.append("a destroyed graph instantiated")
        return (code, None) if code else (OK, Graph(hGraph.ops))

    def cuGraphDestroy(self, hGraph: Graph) -> tuple[CUresult]:
        hGraph.destroyed = True
        return (self._enter("cuGraphDestroy"),)

    def cuGraphExecDestroy(self, hGraphExec: Graph) -> tuple[CUresult]:
        if any(op in s.ops[s.done :] for s in self.streams for op in hGraphExec.ops):
            self.violations.append("a graph destroyed while it runs")
        hGraphExec.destroyed = True
        return (self._enter("cuGraphExecDestroy"),)

    def cuGraphLaunch(self, hGraphExec: Graph, hStream: Stream) -> tuple[CUresult]:
        code = self._enter("cuGraphLaunch") or self._usable(hStream)
        if code:
            return (code,)
        if hGraphExec.destroyed:
            self.violations.append("a destroyed graph launched")
        for op in hGraphExec.ops:
            self._push(hStream, op)
        return (OK,)

    # Modules and launches

    def cuModuleLoadData(self, image: bytes) -> tuple[CUresult, Any]:
        code = self._enter("cuModuleLoadData") or self._unsafe()
        current = self._current()
        if code or current is None:
            return code or CUresult.CUDA_ERROR_INVALID_CONTEXT, None
        module = Module(current, bytes(image))
        return (OK, module) if module.sizes else (CUresult.CUDA_ERROR_INVALID_IMAGE, None)

    def cuModuleGetFunction(self, hmod: Module, name: bytes) -> tuple[CUresult, Any]:
        code = self._enter("cuModuleGetFunction")
        if code or name.decode() not in hmod.sizes:
            return code or CUresult.CUDA_ERROR_NOT_FOUND, None
        return OK, Function(hmod, name.decode())

    def cuFuncSetAttribute(self, hfunc: Function, attrib: CUfunction_attribute, value: int) -> tuple[CUresult]:
        code = self._enter("cuFuncSetAttribute")
        if value > self.gpus[hfunc.module.context.device].shared:
            return (BAD_VALUE,)
        hfunc.allowed_shared = value
        return (code,)

    def cuLaunchKernel(
        self,
        f: Function,
        gridDimX: int,
        gridDimY: int,
        gridDimZ: int,
        blockDimX: int,
        blockDimY: int,
        blockDimZ: int,
        sharedMemBytes: int,
        hStream: Stream,
        kernelParams: int,
        extra: int,
    ) -> tuple[CUresult]:
        code = self._enter("cuLaunchKernel") or self._usable(hStream)
        if code:
            return (code,)
        if f.module.context is not hStream.context:
            return (BAD_HANDLE,)
        grid = (gridDimX, gridDimY, gridDimZ)
        if min(grid) < 1 or gridDimX >= 1 << 31 or max(grid[1:]) > 65535 or blockDimX > 1024 or blockDimX % 32:
            return (BAD_VALUE,)
        if sharedMemBytes > f.allowed_shared:
            return (BAD_VALUE,)
        sizes = f.module.sizes[f.name]
        addresses = (ctypes.c_void_p * len(sizes)).from_address(kernelParams)
        parameters = [ctypes.string_at(address, size) for address, size in zip(addresses, sizes, strict=True)]
        launch = Launch(f.name, f.module.image, grid, blockDimX, sharedMemBytes, hStream, parameters)
        self.launches.append(launch)

        def run() -> None:
            launch.ran.append(self._ran)
            self._ran += 1
            if self.run_kernel is not None:
                self.run_kernel(launch)

        # The machine code does not tell pointers from integers: a value that is an address of ours counts as a pointer.
        pointers = [struct.unpack("=Q", p)[0] for p in parameters if len(p) == 8]
        ranges = [(a.address, a.nbytes) for a in (*self.allocations.values(), *self._freed)]
        touches = [(a, 1) for a in pointers if any(low <= a < low + n for low, n in ranges)]
        self._push(hStream, Op(f"kernel {f.name}", run, touches))
        return (OK,)


class Interpreting:
    """A compiler and a GPU at once: launches run in Triton's interpreter.

    Use as `monkeypatch.setattr(compile, "binary", interpreting.binary)` and `standin.run_kernel = interpreting.run`.
    A kernel gets only the parameter bytes that arrived at the launch.
    """

    def __init__(self, standin: Standin):
        self.standin = standin
        self.known: dict[bytes, tuple[Any, Any]] = {}
        self._serials = itertools.count()  # unique image numbers, since several threads build kernels

    def binary(self, step: Any, aligned: bool, target: Any) -> Any:
        from weftgrad.runtime.triton.compile import Binary
        from weftgrad.runtime.triton.signature import signature

        kernel_signature = signature(step, aligned)
        image = image_of(kernel_signature.entry, kernel_signature.codes + "QQ", next(self._serials))
        self.known[image] = (step, kernel_signature)
        return Binary(kernel_signature.entry, image, 128, 0)

    def run(self, launch: Launch) -> None:
        from weftgrad.runtime.triton import interpret, source

        step, kernel_signature = self.known[launch.image]
        values = iter(launch.values(kernel_signature.codes + "QQ"))
        arguments: list[Any] = []
        for name, kind in kernel_signature.types.items():
            if isinstance(kind, tuple):
                arguments.append(tuple(next(values) for _ in kind))
            elif kind.startswith("*"):
                arguments.append(self._region(name, next(values)))
            elif kind != "constexpr":
                arguments.append(next(values))
        constants = {k: _resolve_constant(v) for k, v in kernel_signature.constants.items()}
        function = source.functions(source.module_text(step.instance))[kernel_signature.entry]
        owned = self.standin.allocations.values() if step.reaches else ()
        interpret.launch(
            function,
            launch.grid,
            kernel_signature.types,
            arguments,
            constants=constants,
            divisible=kernel_signature.divisible,
            reachable=[interpret.Region("", a.address, a.address, a.address + a.nbytes) for a in owned],
            name=step.instance.name,
        )

    def _region(self, name: str, address: int) -> Any:
        from weftgrad.runtime.triton.interpret import Region

        owner = self.standin._find_allocation(address, 1)
        assert owner is not None, f"{name} points to memory that nobody owns"
        return Region(name, address, owner.address, owner.address + owner.nbytes)


def _resolve_constant(value: Any) -> Any:
    import triton.language as tl

    from weftgrad.runtime.triton.signature import resolve

    return resolve({"value": value}, tl)["value"]
