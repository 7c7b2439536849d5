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
import struct
import threading
from typing import Any

from cuda_standin_devices import StandinDevices
from cuda_standin_objects import (
    BAD_HANDLE,
    BAD_VALUE,
    OK,
    Allocation,
    Capture,
    Context,
    CUfunction_attribute,
    CUresult,
    Event,
    Function,
    Graph,
    Launch,
    Module,
    Op,
    Stream,
)

__all__ = ["Standin"]


class Standin(StandinDevices):
    """The fake library, which replaces `cuda.bindings.driver` by `cuda_api.use`."""

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
