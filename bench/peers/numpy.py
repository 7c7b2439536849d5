"""NumPy on the CPU, for float32 without gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.dtypes import Array
from ..sites import NotOffered, OurSite, Site, is_gpu

if TYPE_CHECKING:
    from ..library_types import Tensor

__all__ = ["NumpySite", "site"]


class NumpySite(Site):
    """NumPy on the CPU. A tensor of this site is an array; random arrays are float32."""

    name = "numpy"
    library: ModuleType = np
    arrays = True
    modules = False

    def seed(self) -> None:
        self._random = self.library.random.default_rng(0)

    def tensor(self, array: Array, grad: bool = False, dtype: str = "") -> Tensor:
        if dtype and dtype != array.dtype.name:
            raise NotOffered(f"{self.name} has no {dtype}" if dtype == "bfloat16" else f"{self.name}: not in {dtype}")
        copy: Tensor = self.library.array(array)  # as in other libraries: rotated operands must not share memory
        return copy

    def normal(self, *shape: int, dtype: str = "float32", grad: bool = False) -> Tensor:
        if dtype != "float32" or grad:
            raise TypeError(f"{self.name} is a peer for float32 without gradients")
        values: Tensor = self._random.standard_normal(shape, dtype=np.float32)
        return values

    def uniform(self, *shape: int) -> Tensor:
        values: Tensor = self._random.random(shape, dtype=np.float32)
        return values

    def integers(self, high: int, *shape: int) -> Tensor:
        values: Tensor = self._random.integers(0, high, shape)
        return values

    def host(self, tensor: Tensor) -> Array:
        array = np.asarray(tensor)
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        yield


def site(our_sites: Sequence[OurSite], scale: int) -> Site | None:
    """Return a site if one of our devices is a CPU, else None. NumPy's BLAS chooses its own number of threads."""
    on_host = any(our_site.device.type != "interpreter" and not is_gpu(our_site.device) for our_site in our_sites)
    return NumpySite(scale) if on_host else None
