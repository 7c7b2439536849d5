"""Where contenders run: this project's devices, torch on the same card or the same cores, numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import weftgrad as wg

from .clocks import Clock, DeviceClock, WallClock
from .measure import PAUSE

__all__ = ["NumpySite", "OurSite", "Site", "TorchSite", "is_gpu", "sites", "torch_or_none"]

Array = np.ndarray[Any, Any]
_FILL = 1 << 26  # elements, float32: what is written ahead of a sample, and more than a last-level cache holds
_CACHES = 128 << 20  # bytes, twice the largest last-level cache of a GPU: operands of fewer are rotated


def torch_or_none() -> Any:
    """The torch module if it is installed, set to this machine's cores."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(os.cpu_count() or 1)
    return torch


class Site:
    """A library on a device. weftgrad and torch have the same names for all that cases use.

    name: `cuda:0`, `torch`, `numpy`. gpu: time is taken by the device. cache: bytes that operands should exceed.
    """

    name: str
    library: Any
    device: Any = None
    ours = False
    gpu = False
    graphs = False
    cache = 0
    memory = 0

    def __init__(self, scale: int = 1):
        self.scale = scale
        self._clock: Clock | None = None

    def wait(self) -> None:
        """Wait until all work is done."""

    def clock(self, kind: str) -> Clock:
        """The clock for `device` time or `wall` time; host devices only have the latter."""
        if kind == "wall" or not self.gpu:
            return WallClock(self.wait, 0.0 if self.gpu else PAUSE)
        if self._clock is None:
            self._clock = self._device_clock()
        return self._clock

    def _device_clock(self) -> Clock:
        filler = self.library.zeros(max(1024, _FILL // self.scale**2), device=self.device)
        return DeviceClock(self._event, filler.zero_, self.wait)

    def _event(self) -> Any:
        raise NotImplementedError

    def release(self) -> None:
        """Give cached memory back."""

    def seed(self) -> None:
        """Start random numbers anew."""
        self.library.manual_seed(0)

    def tensor(self, array: Array, grad: bool = False) -> Any:
        """An array's values."""
        return self.library.tensor(array, device=self.device, requires_grad=grad)

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
        """Normal random numbers, made on the device."""
        kind = getattr(self.library, dtype)
        return self.library.randn(*shape, dtype=kind, device=self.device, requires_grad=grad)

    def uniform(self, *shape: int) -> Any:
        """float32 random numbers of [0, 1)."""
        return self.library.rand(*shape, device=self.device)

    def integers(self, high: int, *shape: int) -> Any:
        """Random integers below `high`."""
        return self.library.randint(0, high, shape, device=self.device)

    def host(self, tensor: Any) -> Array:
        """The values as an array: float64, or integers."""
        values = tensor.detach()
        if "int" in str(values.dtype):
            return np.asarray(values.cpu().numpy())
        if str(values.dtype).rpartition(".")[2] in ("bfloat16", "float16"):
            values = values.float()
        return np.asarray(values.cpu().numpy(), np.float64)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """How exactly float32 matrices are multiplied in here."""
        before = self.library.get_float32_matmul_precision()
        self.library.set_float32_matmul_precision(name)
        try:
            yield
        finally:
            self.library.set_float32_matmul_precision(before)

    def replayed(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """The replay of `step` as a CUDA graph, captured after it was run three times."""
        cuda = self.library.cuda
        chosen = cuda.Stream(device=self.device)
        chosen.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(chosen):
            for _ in range(3):
                step()
        cuda.current_stream(self.device).wait_stream(chosen)
        self.wait()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=chosen):
            step()
        return graph.replay  # type: ignore[no-any-return]


class OurSite(Site):
    """A device of this project."""

    library = wg
    ours = True

    def __init__(self, device: Any, scale: int = 1):
        super().__init__(scale)
        self.device = wg.device(device)
        self.name = str(self.device)
        able = self.device.driver.capabilities
        self.gpu = self.device.type == "cuda" or is_gpu(self.device)
        self.graphs = self.device.type == "cuda"
        self.cache = _CACHES if self.gpu and scale == 1 else 0
        self.memory = able.memory if self.gpu else 0

    def wait(self) -> None:
        self.device.driver.synchronize()

    def _event(self) -> Any:
        return wg.Event(enable_timing=True, device=self.device)

    def release(self) -> None:
        wg.empty_cache(self.device)


class TorchSite(Site):
    """torch, on the host's cores or on a GPU."""

    name = "torch"

    def __init__(self, torch: Any, device: str, scale: int = 1):
        super().__init__(scale)
        self.library, self.device = torch, torch.device(device)
        self.gpu = self.graphs = self.device.type == "cuda"
        self.cache = _CACHES if self.gpu and scale == 1 else 0
        if self.gpu:
            torch.cuda.set_device(self.device)
            self.memory = torch.cuda.get_device_properties(self.device).total_memory

    def wait(self) -> None:
        if self.gpu:
            self.library.cuda.synchronize(self.device)

    def _event(self) -> Any:
        return self.library.cuda.Event(enable_timing=True)

    def release(self) -> None:
        if self.gpu:
            self.library.cuda.empty_cache()

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Also of convolutions, which torch would otherwise round to tf32 whatever is set for matrices."""
        cudnn = self.library.backends.cudnn
        before = cudnn.allow_tf32
        cudnn.allow_tf32 = name != "highest"
        try:
            with super().precision(name):
                yield
        finally:
            cudnn.allow_tf32 = before


class NumpySite(Site):
    """numpy: a tensor is an array, and a random one is float32."""

    name = "numpy"
    library = np

    def seed(self) -> None:
        self._random = np.random.default_rng(0)

    def tensor(self, array: Array, grad: bool = False) -> Any:
        return array

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
        if dtype != "float32" or grad:
            raise TypeError("numpy is a peer for float32 without gradients")
        return self._random.standard_normal(shape, dtype=np.float32)

    def uniform(self, *shape: int) -> Any:
        return self._random.random(shape, dtype=np.float32)

    def integers(self, high: int, *shape: int) -> Any:
        return self._random.integers(0, high, shape)

    def host(self, tensor: Any) -> Array:
        array = np.asarray(tensor)
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        yield


def is_gpu(device: Any) -> bool:
    """Whether a device of this project has the schedules of GPUs, and is one."""
    return device.type not in ("cpu", "interpreter") and device.driver.capabilities.style != "cpu"


def sites(devices: Sequence[str], scale: int = 1) -> list[Site]:
    """The contenders: the devices, then torch where it is installed, then numpy if one of the devices is `cpu`."""
    own = [OurSite(name, scale) for name in devices]
    found: list[Site] = list(own)
    torch = torch_or_none()
    if torch is not None:
        found.append(TorchSite(torch, _card(torch, own), scale))
    if any(site.device.type == "cpu" for site in own):
        found.append(NumpySite(scale))
    return found


def _card(torch: Any, own: Sequence[OurSite]) -> str:
    """torch's name for the first of the devices that is a GPU torch has too; else `cpu`."""
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        for site in own:
            if site.device.type == "cuda" and site.device.index < len(names):
                return f"cuda:{site.device.index}"
            if site.gpu and site.device.driver.name in names:
                return f"cuda:{names.index(site.device.driver.name)}"
    return "cpu"
