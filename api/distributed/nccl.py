"""Collectives of CUDA tensors by NCCL, NVIDIA's library, on a stream of their own.

NCCL's functions are called through ctypes; the library is that of the wheel `nvidia-nccl-cu12`, or the system's.
`use(stand_in)` replaces it by another object with the same functions: tests run this module without a GPU.

A collective waits, on the device, for the work that its caller has queued so far. `Work.wait` lets the caller's stream
wait for the collective, and returns when all ranks have called the same: the host does not wait for the data, as in
PyTorch. If a rank fails, `ncclCommAbort` ends the collectives that wait for it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime import dtypes
from ..runtime.context import current_stream
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .buffers import mark_written
from .errors import DistBackendError
from .headers import ROUTES
from .reduce_ops import ReduceOp
from .works import Steps, Work

if TYPE_CHECKING:
    from ..runtime.backends.cuda_streams import CudaEvent, CudaStream
    from .process_group import ProcessGroup

__all__ = ["Communicator", "find_library", "library", "start", "takes", "use"]

_ID_BYTES = 128
_SUCCESS = 0
_DTYPES = {
    dtypes.int8: 0, dtypes.bool_: 1, dtypes.uint8: 1, dtypes.int32: 2, dtypes.int64: 4, dtypes.float16: 6,
    dtypes.float32: 7, dtypes.float64: 8, dtypes.bfloat16: 9,
}  # fmt: skip
_OPERATIONS = {ReduceOp.SUM: 0, ReduceOp.PRODUCT: 1, ReduceOp.MAX: 2, ReduceOp.MIN: 3, ReduceOp.AVG: 4}
_OF_BOOL = {ReduceOp.SUM: 2, ReduceOp.PRODUCT: 3, ReduceOp.MAX: 2, ReduceOp.MIN: 3}

_library: Any = None
_lock = threading.Lock()


class UniqueId(ctypes.Structure):
    """NCCL's `ncclUniqueId`: by it the ranks of a communicator find each other."""

    _fields_ = [("internal", ctypes.c_byte * _ID_BYTES)]


_SIZE, _POINTER, _INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
_PARAMETERS = {
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_POINTER), _INT, UniqueId, _INT),
    "ncclCommDestroy": (_POINTER,),
    "ncclCommAbort": (_POINTER,),
    "ncclAllReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _INT, _POINTER, _POINTER),
    "ncclBroadcast": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclAllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "ncclReduceScatter": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
}


def find_library() -> str | None:
    """Return the path of NCCL's library in its wheel, or its name if the system has it; None if it is missing."""
    try:
        wheel = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        wheel = None
    for folder in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        path = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(path):
            return path
    from ctypes.util import find_library as find_system_library  # lazy: it starts processes

    return "libnccl.so.2" if find_system_library("nccl") else None


def use(stand_in: Any) -> None:
    """Replace NCCL by an object with the same functions for tests; None restores the real library."""
    global _library
    _library = stand_in


def library() -> Any:
    """Return NCCL's functions.

    Raises:
        DistBackendError: The library is missing.
    """
    global _library
    with _lock:
        if _library is None:
            path = find_library()
            if path is None:
                raise DistBackendError("NCCL is missing: pip install nvidia-nccl-cu12, or use the backend 'mpi'")
            loaded = ctypes.CDLL(path)
            for name, parameters in _PARAMETERS.items():
                function = getattr(loaded, name)
                function.argtypes, function.restype = parameters, _INT
            loaded.ncclGetErrorString.argtypes, loaded.ncclGetErrorString.restype = (_INT,), ctypes.c_char_p
            _library = loaded
        return _library


def _call(name: str, *arguments: Any) -> None:
    code = getattr(library(), name)(*arguments)
    if code != _SUCCESS:
        text = library().ncclGetErrorString(code)
        raise DistBackendError(f"{name}: {text.decode() if isinstance(text, bytes) else text} (error {code})")


class Communicator:
    """NCCL's communicator of a group on one device.

    Args:
        group: The group. All of its ranks create the communicator at the same time.
        tensor: A tensor on the device.
    """

    def __init__(self, group: ProcessGroup, tensor: Tensor):
        from ..runtime.backends import cuda_api  # lazy: start-up
        from ..runtime.backends.cuda import CudaDriver  # lazy: start-up

        driver = tensor.meta.device.driver
        assert isinstance(driver, CudaDriver)
        identifier = UniqueId()
        if group.rank() == 0:
            _call("ncclGetUniqueId", ctypes.byref(identifier))
        content = np.frombuffer(identifier, np.uint8)  # type: ignore[call-overload]  # a ctypes structure is a buffer

        def steps() -> Steps:
            yield [group._serial_comm.Ibcast(content, 0)]

        group._start("init_process_group", steps(), is_serial=True)
        cuda_api.activate(driver)
        self.handle = _POINTER()
        with group._world.guard(f"NCCL's start for {group!r}", group._timeout):
            _call("ncclCommInitRank", ctypes.byref(self.handle), group.size(), identifier, group.rank())
        self._group = group
        self.driver = driver
        self.stream: CudaStream = driver.new_stream()
        self._is_aborted = False
        group._world.failure_hooks.append(self.abort)

    def abort(self) -> None:
        """End the collectives that wait for a rank that has failed."""
        if not self._is_aborted:
            self._is_aborted = True
            library().ncclCommAbort(self.handle)

    def close(self) -> None:
        """Wait for the collectives, and free the communicator."""
        self._group._world.failure_hooks.remove(self.abort)
        if not self._is_aborted:
            self._is_aborted = True
            self.stream.synchronize()
            _call("ncclCommDestroy", self.handle)

    def launch(self, name: str, *arguments: Any) -> _Launched:
        """Queue a collective behind the caller's stream, and return it.

        Args:
            name: The function.
            *arguments: Its arguments before communicator and stream.
        """
        from ..runtime.backends import cuda_api  # lazy: start-up

        cuda_api.activate(self.driver)
        self.stream.wait_event(current_stream(self.driver.device).record_event())
        _call(name, *arguments, self.handle, int(self.stream.handle))
        return _Launched(self, self.stream.record_event())


class _Launched:
    """A collective in a stream of the device; to works it is a request that is complete."""

    def __init__(self, communicator: Communicator, event: CudaEvent):
        self._communicator, self._event = communicator, event

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        return True

    def join(self) -> None:
        """Let the caller's stream wait for the collective."""
        current_stream(self._communicator.driver.device).wait_event(self._event)


def takes(group: ProcessGroup, tensor: Tensor, op: ReduceOp | None = None) -> bool:
    """Return whether NCCL runs a collective: the group's backend, the device, the dtype and the reduction allow it."""
    layout = tensor.meta
    if group._backend != "nccl" or layout.device.type != "cuda" or layout.dtype not in _DTYPES:
        return False
    return op is None or op in (_OF_BOOL if layout.dtype is dtypes.bool_ else _OPERATIONS)


def start(
    group: ProcessGroup,
    kind: str,
    input: Tensor,
    output: Tensor,
    count: int,
    *,
    op: ReduceOp | None = None,
    root: int = -1,
    async_op: bool,
) -> Work | None:
    """Start a collective.

    Args:
        group: The group.
        kind: The collective.
        input: The tensor that is read.
        output: The tensor that is written.
        count: Elements, as NCCL's function counts them.
        op: The reduction.
        root: The root's rank in the group.
        async_op: Whether to return a `Work`.

    Raises:
        ArgumentError: A tensor is not contiguous.
    """
    for tensor in (input, output):
        if not tensor.meta.contiguous:
            raise ArgumentError(f"{kind}: NCCL needs contiguous tensors; call .contiguous() first")
    communicator = _communicator(group, input)
    dtype = input.meta.dtype
    arguments: list[Any] = [_address(input), _address(output), count, _DTYPES[dtype]]
    if op is not None:
        arguments.append((_OF_BOOL if dtype is dtypes.bool_ else _OPERATIONS)[op])
    if root >= 0:
        arguments.append(root)
    mark_written(output)
    return group._start(
        kind,
        None,
        dtype=dtype,
        shape=input.meta.shape,
        op=op,
        root=root,
        route=ROUTES.index("by NCCL"),
        outputs=[output],
        async_op=async_op,
        request=lambda comm: communicator.launch(_FUNCTIONS[kind], *arguments),
        inputs=[input],
    )


_FUNCTIONS = {
    "all_reduce": "ncclAllReduce",
    "reduce": "ncclReduce",
    "broadcast": "ncclBroadcast",
    "all_gather_into_tensor": "ncclAllGather",
    "reduce_scatter_tensor": "ncclReduceScatter",
}


def _communicator(group: ProcessGroup, tensor: Tensor) -> Communicator:
    if group._nccl is None:
        group._nccl = Communicator(group, tensor)
    communicator: Communicator = group._nccl
    if communicator.driver is not tensor.meta.device.driver:
        raise ArgumentError(
            f"a group's CUDA tensors must be on one device: {communicator.driver.device}, not {tensor.meta.device}"
        )
    return communicator


def _address(tensor: Tensor) -> int:
    return (tensor.storage.buffer or 0) + tensor.start if tensor.meta.numel else 0
