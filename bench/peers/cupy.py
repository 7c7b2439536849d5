"""CuPy on the measured CUDA device: NumPy's API, timed by CUDA events.

Based on CuPy's documentation (`cupy.cuda.Event`, `get_elapsed_time` in milliseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from ..clocks import DeviceClock
from ..sites import ROTATED_GPU_BYTES, OurSite, Site
from .numpy import NumpySite

if TYPE_CHECKING:
    from ..library_types import Event, Tensor

__all__ = ["CupySite", "site"]


class _Event:
    """A CuPy event with the methods of `torch.cuda.Event` that clocks call."""

    def __init__(self, cupy: ModuleType):
        self._cupy = cupy
        self._event = cupy.cuda.Event()

    def record(self) -> None:
        self._event.record()

    def query(self) -> bool:
        return bool(self._event.done)

    def synchronize(self) -> None:
        self._event.synchronize()

    def elapsed_time(self, end: _Event) -> float:
        return float(self._cupy.cuda.get_elapsed_time(self._event, end._event))


class CupySite(NumpySite):
    """cupy on one GPU, float32 without gradients."""

    name = "cupy"
    checked = True

    def __init__(self, cupy: ModuleType, index: int, scale: int = 1):
        super().__init__(scale)
        self.library, self.gpu, self.index = cupy, True, index
        self.cache = ROTATED_GPU_BYTES if scale == 1 else 0
        cupy.cuda.Device(index).use()
        self.memory = int(cupy.cuda.Device(index).mem_info[1])

    @property
    def device_name(self) -> str:
        return f"cuda:{self.index}"

    def wait(self) -> None:
        self.library.cuda.get_current_stream().synchronize()

    def _device_clock(self) -> DeviceClock:
        filler = self.library.zeros(max(1024, (1 << 26) // self.scale**2), np.float32)
        return DeviceClock(self._event, lambda: filler.fill(0), self.wait)

    def _event(self) -> Event:
        return _Event(self.library)

    def release(self) -> None:
        self.library.get_default_memory_pool().free_all_blocks()

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Tensor:
        tensor: Tensor = self.library.asarray(super().tensor(array, grad, dtype))  # copies to the device
        return tensor

    def host(self, tensor: Tensor) -> Array:
        return super().host(self.library.asnumpy(tensor))


def site(our_sites: Sequence[OurSite], scale: int) -> Site | None:
    """Return a site on the first CUDA device, or None if there is none."""
    import cupy

    index = next((our_site.device.index or 0 for our_site in our_sites if our_site.device.type == "cuda"), None)
    return None if index is None else CupySite(cupy, index, scale)
