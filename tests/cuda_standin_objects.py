"""Codes, handles, queued work and machine code of the fake driver library (`cuda_standin`)."""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


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
