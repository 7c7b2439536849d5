"""Sites: a library on a device, such as torch on the CPU. A benchmark measures the same cases on several sites.

This module has the sites of our own devices. Each module of `peers` has those of another library.

To measure with cold caches, a case rotates through several copies of its operands (`cases.rotated`). A site says how
many bytes these copies must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

import weftgrad as wg

from ..runtime.backends.processor import last_level_cache
from ..runtime.dtypes import Array
from .clocks import Clock, DeviceClock, WallClock
from .measure import PAUSE

if TYPE_CHECKING:
    from ..runtime.device import Device
    from .library_types import Event, Grads, Model, Operation, Tensor

__all__ = ["ROTATED_GPU_BYTES", "NotOffered", "OurSite", "Site", "is_gpu"]

_FILL_ELEMENTS = 1 << 26  # float32 elements that the filler of a `DeviceClock` writes; more than a last-level cache
_MAX_ROTATED_BYTES = 512 << 20  # of host operands, however large the last-level cache is
ROTATED_GPU_BYTES = 128 << 20  # that rotated operands should exceed: twice the largest last-level cache of a GPU


class NotOffered(AttributeError):
    """A peer's library does not have a function that a row calls. The row is measured without this peer."""


class Site:
    """A library on a device. Cases use only names that weftgrad and torch share.

    Args:
        scale: Divides the sizes of operands, for quick runs; then no operands are rotated.

    Attributes:
        name: Name of the site in reports, such as `cuda:0`, `torch` or `numpy`.
        library: The library's module.
        device: The device as the library's functions take it, or None.
        ours: The library is weftgrad.
        arrays: The library has NumPy's API and no gradients.
        modules: The library has PyTorch's modules, optimizers and loaders.
        checked: The results are checked although the library is a peer.
        gpu: Device time can be measured.
        graphs: CUDA graphs are supported.
        cache: Bytes that rotated device operands should exceed; 0 to rotate none.
        memory: Bytes of device memory; 0 if unlimited.
    """

    name: str
    library: ModuleType
    device: object = None
    ours = False
    arrays = False
    modules = True
    checked = False
    gpu = False
    graphs = False
    cache = 0
    memory = 0

    def __init__(self, scale: int = 1):
        self.scale = scale
        # Bytes that rotated host operands should exceed, all copies together.
        self.host_cache = min(last_level_cache(), _MAX_ROTATED_BYTES) if scale == 1 else 0
        self._clock: Clock | None = None

    @property
    def device_name(self) -> str:
        """Return the device's name in the library."""
        return "cpu" if self.device is None else str(self.device)

    def wait(self) -> None:
        """Wait until all work is done."""

    def clock(self, kind: str) -> Clock:
        """Return the clock for `device` or `wall` time; a site without a GPU only has wall time."""
        if kind == "wall" or not self.gpu:
            return WallClock(self.wait, 0.0 if self.gpu else PAUSE)
        if self._clock is None:
            self._clock = self._device_clock()
        return self._clock

    def _device_clock(self) -> Clock:
        filler = self.library.zeros(max(1024, _FILL_ELEMENTS // self.scale**2), device=self.device)
        return DeviceClock(self._event, filler.zero_, self.wait)

    def _event(self) -> Event:
        raise NotImplementedError

    def release(self) -> None:
        """Release cached memory."""

    def seed(self) -> None:
        """Reset the random number generator."""
        self.library.manual_seed(0)

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Tensor:
        """Return a tensor with an array's values, converted to `dtype` if that is given."""
        if not dtype:
            return self.library.tensor(array, device=self.device, requires_grad=grad)
        tensor: Tensor = self.library.tensor(array, device=self.device).to(getattr(self.library, dtype))
        return tensor.requires_grad_() if grad else tensor

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Tensor:
        """Return standard normal random numbers, generated on the device."""
        kind = getattr(self.library, dtype)
        return self.library.randn(*shape, dtype=kind, device=self.device, requires_grad=grad)

    def uniform(self, *shape: int) -> Tensor:
        """Return float32 random numbers in [0, 1)."""
        return self.library.rand(*shape, device=self.device)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Return random integers in [0, high)."""
        return self.library.randint(0, high, shape, device=self.device)

    def host(self, tensor: Tensor) -> Array:
        """Return a tensor's values as a NumPy array: float64, integers or bools."""
        values = tensor.detach()
        if "int" in str(values.dtype) or "bool" in str(values.dtype):
            return np.asarray(values.cpu().numpy())
        if str(values.dtype).rpartition(".")[2] in ("bfloat16", "float16"):
            values = values.to(self.library.float32)
        return np.asarray(values.cpu().numpy(), np.float64)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Set the precision of float32 matrix products inside the context."""
        old_precision = self.library.get_float32_matmul_precision()
        self.library.set_float32_matmul_precision(name)
        try:
            yield
        finally:
            self.library.set_float32_matmul_precision(old_precision)

    def ready(self, function: Operation) -> Operation:
        """Return `function(library, *operands)` as a function of the operands, compiled by the library's JIT if any."""
        return partial(function, self.library)

    def compile_model(self, model: Model) -> Model:
        """Return a model as it is trained: compiled if the site compiles models, and otherwise the model itself."""
        return model

    def backward_call(self, function: Operation, operands: Sequence[Tensor], grad_indices: Sequence[int],
               seed: Callable[[tuple[int, ...]], Array]) -> Grads:  # fmt: skip
        """Run `function(library, *operands)` once, and return a call that repeats only its backward pass.

        Args:
            function: the forward function.
            operands: its operands; those of `grad_indices` require gradients.
            grad_indices: indices of the operands whose gradients the call returns.
            seed: makes the result's gradient from its shape.
        """
        result = function(self.library, *operands)
        grads = self.like(seed(tuple(result.shape)), result)
        leaves = [operands[i] for i in grad_indices]
        grad = self.library.autograd.grad
        return lambda: grad(result, leaves, grads, retain_graph=True)

    def like(self, array: Array, tensor: Tensor) -> Tensor:
        """Return a tensor with an array's values in the dtype of another tensor."""
        return self.tensor(array).to(tensor.dtype)

    def replayed(self, step: Callable[[], object]) -> Callable[[], object]:
        """Capture `step` as a CUDA graph after three warm-up runs, and return the graph's replay."""
        cuda = self.library.cuda
        stream = cuda.Stream(device=self.device)
        stream.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(stream):
            for _ in range(3):
                step()
        cuda.current_stream(self.device).wait_stream(stream)
        self.wait()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            step()
        replay: Callable[[], object] = graph.replay
        return replay


class OurSite(Site):
    """A device of this project."""

    library = wg
    device: Device
    ours = True

    def __init__(self, device: str | Device, scale: int = 1, label: str = ""):
        super().__init__(scale)
        self.device = wg.device(device)
        self.name = label or str(self.device)
        caps = self.device.driver.capabilities
        self.gpu = self.device.type == "cuda" or is_gpu(self.device)
        self.graphs = self.device.type == "cuda"
        self.cache = ROTATED_GPU_BYTES if self.gpu and scale == 1 else 0
        self.memory = caps.memory if self.gpu else 0

    def wait(self) -> None:
        self.device.driver.synchronize()

    def _event(self) -> Event:
        return wg.Event(enable_timing=True, device=self.device)

    def release(self) -> None:
        wg.empty_cache(self.device)


def is_gpu(device: Device) -> bool:
    """Return True if one of our devices is a GPU."""
    return device.type not in ("cpu", "interpreter") and not device.driver.capabilities.takes_runs
