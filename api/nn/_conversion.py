"""Conversion of all parameters and buffers of a module: to another device, dtype or memory, in place."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Self, TypedDict, Unpack, overload

from ..arguments.types import MemoryFormat
from ..autograd import no_grad
from ..creation.factories import empty
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion_arguments import parse_conversion
from ._named_tensors import NamedTensors
from .parameter import is_lazy

__all__ = ["Conversion"]


class _Options(TypedDict, total=False):
    """Keyword arguments of `Module.to`."""

    tensor: Tensor
    device: DeviceLike | None
    dtype: DTypeLike | None
    non_blocking: bool
    memory_format: MemoryFormat | None


class Conversion(NamedTensors):
    """Base class of `Module`: moves and casts its tensors. The parameters remain the same objects."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace the data of parameters and gradients, and the buffers, by `fn` of them."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        with no_grad():
            for param in self._parameters.values():
                if param is None:
                    continue
                if is_lazy(param):
                    param.convert(fn)
                    continue
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad = fn(param.grad)
            for name, buffer in self._buffers.items():
                if buffer is not None and is_lazy(buffer):
                    buffer.convert(fn)
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    @overload
    def to(
        self, device: DeviceLike | None = None, dtype: DTypeLike | None = None, non_blocking: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Self: ...  # fmt: skip
    @overload
    def to(
        self, dtype: DType | builtins.type[builtins.float], non_blocking: bool = False, *,
        memory_format: MemoryFormat | None = None,
    ) -> Self: ...  # fmt: skip
    @overload
    def to(self, tensor: Tensor, non_blocking: bool = False, *, memory_format: MemoryFormat | None = None) -> Self: ...
    def to(self, *args: object, **kwargs: Unpack[_Options]) -> Self:
        """Move parameters and buffers to a device and cast floating-point ones to a dtype, in place.

        `to(device=None, dtype=None, non_blocking=False)`, `to(dtype, non_blocking=False)` or
        `to(tensor, non_blocking=False)`. Parameters remain the same objects.

        Args:
            *args: A device, a dtype or a tensor whose device and dtype are used, in any order. A bool is
                `non_blocking`.
            **kwargs: `device`, `dtype`, `tensor`, `non_blocking` or `memory_format`; the last two are ignored.

        Returns:
            This module.

        Raises:
            ArgumentError: If the dtype is not a floating-point one, or an argument is of another kind.

        Example:
            >>> wg.nn.Linear(2, 3).to(wg.float64).weight.dtype
            weftgrad.float64
        """
        device, dtype = _parse_to_args(args, kwargs)

        def change(tensor: Tensor) -> Tensor:
            return tensor.to(device=device, dtype=dtype if tensor.meta.dtype.kind == "f" else None)

        return self._apply(change)

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Self:
        """Move to a device without copying: parameters and buffers are uninitialized there.

        Args:
            device: The device.
            recurse: Include submodules.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).to_empty(device='cpu').weight.shape
            weftgrad.Size([3, 2])
        """

        def change(tensor: Tensor) -> Tensor:
            return empty(*tensor.meta.shape, dtype=tensor.meta.dtype, device=device)

        return self._apply(change, recurse)

    def cpu(self) -> Self:
        """Move to the CPU.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).cpu().weight.device
            device(type='cpu')
        """
        return self.to("cpu")

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move to a CUDA device, by default the first.

        Args:
            device: The device; None: the first CUDA device.

        Returns:
            This module.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.
        """
        return self.to("cuda:0" if device is None else device)

    def type(self, dst_type: DTypeLike) -> Self:
        """Cast all parameters and buffers, also integer ones, to `dst_type`.

        Args:
            dst_type: The dtype.

        Returns:
            This module.

        Example:
            >>> wg.nn.BatchNorm1d(2).type(wg.float64).num_batches_tracked.dtype
            weftgrad.float64
        """
        return self._apply(lambda tensor: tensor.to(dtype=dtypes.parse(dst_type)))

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3, dtype=wg.float64).float().weight.dtype
            weftgrad.float32
        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).double().weight.dtype
            weftgrad.float64
        """
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).half().weight.dtype
            weftgrad.float16
        """
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).bfloat16().weight.dtype
            weftgrad.bfloat16
        """
        return self.to(dtypes.bfloat16)

    def share_memory(self) -> Self:
        """Move parameters and buffers to memory that other processes can map.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).share_memory().weight.is_shared()
            True
        """
        from ..multiprocessing.sharing import share_tensors  # lazy: start-up

        share_tensors(t for t in (*self.parameters(), *self.buffers()) if not is_lazy(t))  # one shared segment for all
        return self._apply(lambda tensor: tensor.share_memory_())


def _parse_to_args(args: tuple[object, ...], kwargs: _Options) -> tuple[Device | None, DType | None]:
    """Return the device and dtype from the arguments of `Module.to`, None for those not passed."""
    if "tensor" in kwargs:
        args = (kwargs.pop("tensor"), *args)
    if unknown := kwargs.keys() - {"device", "dtype", "non_blocking", "memory_format"}:
        raise ArgumentError(f"Module.to: got unexpected arguments {sorted(unknown)}")
    device, dtype, should_copy = parse_conversion("Module.to", args, kwargs.get("device"), kwargs.get("dtype"))
    if should_copy:
        raise ArgumentError("Module.to: converts in place and takes no copy; use copy.deepcopy(module).to(...)")
    if dtype is not None and dtype.kind != "f":
        raise ArgumentError(f"Module.to: takes a floating dtype, not {dtype.name}")
    return device, dtype
