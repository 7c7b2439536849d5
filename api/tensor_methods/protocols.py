"""Tensor's special methods: Python's protocols, and those of NumPy, DLPack, `copy` and `pickle`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd
from ..arguments.types import Index, NestedSequence, Operand
from ..creation import dlpack
from ..indexing import subscripts
from ..runtime import host_data
from ..runtime.context import current_stream
from ..runtime.device import DeviceLike
from ..runtime.device import device as device_of
from ..runtime.dispatch import call, empty
from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError, DomainError, GradientError, ShapeError
from ..runtime.lazy_modules import import_lazily
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from . import printing
from .conversion import _as_type, _unpickle

__all__ = ["Protocols"]

_ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object


class Protocols(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    def __repr__(self) -> str:
        return printing.show(self)

    def __format__(self, spec: str) -> str:
        if not self.meta.ndim:  # format a 0-d tensor like its number
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __len__(self) -> int:
        if not self.meta.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.meta.ndim:
            raise ArgumentError("iteration over a 0-d tensor")
        return iter([subscripts.get(self, i) for i in range(self.meta.shape[0])])

    def __reversed__(self) -> Tensor:
        """Return a tensor with the rows in reverse order (Python's default would iterate over the rows)."""
        return self.flip(0) if self.meta.ndim else self

    def __pos__(self) -> Tensor:
        return self.positive()

    def __bool__(self) -> bool:
        if self.meta.numel != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {list(self.meta.shape)} is ambiguous; use .any() or .all()"
            )
        return self.item() != 0

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.meta.dtype.kind == "f" or self.meta.numel != 1:
            raise ArgumentError("only integer tensors of one element can be used as an index")
        return int(self.item())

    def __contains__(self, item: Operand) -> bool:
        if not isinstance(item, (Tensor, int, float, np.generic)):
            raise DomainError(f"in: a tensor has numbers in it, and can be asked for tensors of them; not {item!r}")
        return bool((self == item).any())

    __array_priority__ = 1000  # NumPy then leaves mixed operators to Tensor

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = host_data.to_numpy(self)
        target = array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and target != array.dtype:
            raise ArgumentError(f"__array__: {array.dtype} must be copied to be {target}; do not pass copy=False")
        return array.astype(target, copy=bool(copy))

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip  # a PyCapsule, which has no name in Python 3.11
        return dlpack.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.dlpack_device(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return dlpack.cuda_array_interface(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return the functions of the array API standard (`weftgrad.array_api`)."""
        if api_version not in (None, *_ARRAY_API_VERSIONS):
            raise ArgumentError(
                f"__array_namespace__: versions {', '.join(_ARRAY_API_VERSIONS)} of the standard exist here, not "
                f"{api_version!r}"
            )
        return import_lazily("..array_api", __package__)  # lazy: start-up

    def to_device(self, device: DeviceLike, /, *, stream: object = None) -> Tensor:
        """Return the tensor on a device, by the name of the array API standard.

        Args:
            device: The device.
            stream: None, or the current stream of the device; work is queued on that one.

        Returns:
            The tensor itself if it is there already, else a copy.

        Example:
            >>> wg.ones(2).to_device(wg.device("cpu")).device.type
            'cpu'
        """
        if stream is not None and stream is not current_stream(device_of(device)):
            raise ArgumentError("to_device: copies are queued on the current stream; set it with weftgrad.stream()")
        return self.to(device=device)

    def __copy__(self) -> Tensor:
        """Return a leaf tensor that shares the memory, without a `grad`."""
        duplicate = _as_type(type(self), Tensor(self.storage, self.meta, self.start), self.needs_grad)
        duplicate.__dict__.update(self.__dict__)
        return duplicate

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        if self.node is not None:
            raise GradientError("only leaf tensors can be deep-copied; use .detach() or .clone()")
        known_copy = memo.get(id(self))
        if isinstance(known_copy, Tensor):
            return known_copy
        with autograd.no_grad():
            copied = call(registry["copy"], (self,), (None,)) if self.meta.numel else empty(self.meta)
        duplicate = _as_type(type(self), copied, self.needs_grad)
        if self.grad is not None:
            duplicate.grad = self.grad.__deepcopy__(memo)
        memo[id(self)] = duplicate
        if self.__dict__:  # attributes that the user has set
            duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return duplicate

    def __reduce__(self) -> tuple[object, ...]:
        array = np.asarray(host_data.to_host(self), order="C")
        reduced = _unpickle, (type(self), array, self.meta.dtype, str(self.meta.device), self.needs_grad)
        return (*reduced, self.__dict__) if self.__dict__ else reduced  # and the attributes that the user has set

    def __getitem__(self, item: Index) -> Tensor:
        return subscripts.get(self, item)

    def __setitem__(self, item: Index, value: Operand | Array | NestedSequence) -> None:
        subscripts.set(self, item, value)

    def __delitem__(self, item: object) -> None:
        raise ArgumentError("a tensor's elements cannot be deleted; select those that stay, or use cat()")

    def __hash__(self) -> int:
        return id(self)
