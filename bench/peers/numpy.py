"""NumPy, on the host's cores, for float32 without gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..sites import NotOffered, OurSite, Site, is_gpu

__all__ = ["NumpySite", "site"]

Array = np.ndarray[Any, Any]


class NumpySite(Site):
    """numpy: a tensor is an array, and a random one is float32."""

    name = "numpy"
    library = np
    arrays = True
    modules = False

    def seed(self) -> None:
        self._random = self.library.random.default_rng(0)

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Any:
        if dtype and dtype != array.dtype.name:
            raise NotOffered(f"{self.name} has no {dtype}" if dtype == "bfloat16" else f"{self.name}: not in {dtype}")
        return np.array(array)  # others copy it, too, and operands that take turns are not the same memory

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
        if dtype != "float32" or grad:
            raise TypeError(f"{self.name} is a peer for float32 without gradients")
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


def site(own: Sequence[OurSite], scale: int) -> Site | None:
    """Where one of the devices is the host's cores; with the threads that its BLAS takes, one a core unless told."""
    on_host = any(each.device.type != "interpreter" and not is_gpu(each.device) for each in own)
    return NumpySite(scale) if on_host else None
