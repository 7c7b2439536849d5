"""State, queues and devices of the fake driver library (`cuda_standin`)."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable
from typing import Any

from cuda_standin_objects import (
    BAD_HANDLE,
    OK,
    Allocation,
    Capture,
    Context,
    CUdevice_attribute,
    CUfunction_attribute,
    CUresult,
    CUstreamCaptureMode,
    Gpu,
    Launch,
    Op,
    Stream,
)


class StandinDevices(types.SimpleNamespace):
    """The state of the fake library, controls for tests, queues of work, and functions of devices and contexts."""

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
