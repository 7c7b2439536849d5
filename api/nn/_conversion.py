"""Methods of `Module` that convert all its parameters and buffers in place: device, dtype, shared memory."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Self, TypedDict, Unpack, overload

from ..arguments.types import MemoryFormat
from ..autograd import no_grad
from ..creation.factories import empty_like
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike, default_device
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
        """Apply `fn` to all tensors of the module: to the data and gradients of parameters, and to buffers.

        Args:
            fn: The conversion, from a tensor to a tensor of the same shape. Lazy parameters and buffers, which have no
                data yet, convert what they will be materialized from.
            recurse: Whether to convert submodules, too.
        """
        if recurse:
            for child in self.children():
                child._apply(fn)
        with no_grad():
            for param in self._parameters.values():
                if param is not None and is_lazy(param):
                    param.convert(fn)
                elif param is not None:
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

        Parameters remain the same objects, so an optimizer that has them needs no change.

        Args:
            *args: A device, a dtype, or both, in any order; or a tensor, whose device and dtype are used. A bool is
                `non_blocking`.
            **kwargs: `device`, `dtype` or `tensor`, by name; `memory_format`, the order in memory of parameters and
                buffers of four and five dimensions. `non_blocking` has no effect.

        Returns:
            This module.

        Raises:
            ArgumentError: If the dtype is not floating-point, or an argument is none of these.
            ShapeError: If a tensor has four dimensions and `memory_format` is for five, or the other way.

        Example:
            >>> wg.nn.Linear(2, 3).to(wg.float64).weight.dtype
            weftgrad.float64
        """
        device, dtype = _parse_to_args(args, kwargs)
        memory_format = kwargs.get("memory_format")

        def move_and_cast(tensor: Tensor) -> Tensor:
            return tensor.to(
                device=device, dtype=dtype if tensor.meta.dtype.kind == "f" else None,
                memory_format=memory_format if tensor.meta.ndim in (4, 5) else None,
            )  # fmt: skip

        return self._apply(move_and_cast)

    def to_empty(self, *, device: DeviceLike | None, recurse: bool = True) -> Self:
        """Move parameters and buffers to a device without copying: their elements are uninitialized there.

        Args:
            device: The device; None: the default device.
            recurse: Whether to move those of submodules, too.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).to_empty(device='cpu').weight.shape
            weftgrad.Size([3, 2])
        """

        def empty_copy(tensor: Tensor) -> Tensor:
            return empty_like(tensor, device=default_device() if device is None else device)

        return self._apply(empty_copy, recurse)

    def cpu(self) -> Self:
        """Move parameters and buffers to the device `cpu`.

        Returns:
            This module.

        Example:
            >>> wg.nn.Linear(2, 3).cpu().weight.device
            device(type='cpu')
        """
        return self.to("cpu")

    def cuda(self, device: DeviceLike | None = None) -> Self:
        """Move parameters and buffers to a CUDA device.

        Args:
            device: The device; None: `cuda:0`.

        Returns:
            This module.

        Raises:
            DriverNotFound: If there is no GPU, or a package that it needs is missing.
        """
        return self.to("cuda:0" if device is None else device)

    def type(self, dst_type: DTypeLike) -> Self:
        """Cast all parameters and buffers to `dst_type`, those of integer dtypes, too.

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

        # Parameters and buffers move to one shared segment. Then only their gradients are left to move.
        share_tensors(t for t in (*self.parameters(), *self.buffers()) if not is_lazy(t))
        return self._apply(lambda tensor: tensor.share_memory_())


def _parse_to_args(args: tuple[object, ...], kwargs: _Options) -> tuple[Device | None, DType | None]:
    """Return the device and dtype from the arguments of `Module.to`, None for those not passed."""
    if "tensor" in kwargs:
        args = (kwargs["tensor"], *args)
    if unknown := kwargs.keys() - _Options.__annotations__.keys():
        raise ArgumentError(f"Module.to: got unexpected arguments {sorted(unknown)}")
    device, dtype, should_copy = parse_conversion("Module.to", args, kwargs.get("device"), kwargs.get("dtype"))
    if should_copy:
        raise ArgumentError("Module.to: converts in place and takes no copy; use copy.deepcopy(module).to(...)")
    if dtype is not None and dtype.kind != "f":
        raise ArgumentError(f"Module.to: takes a floating dtype, not {dtype.name}")
    return device, dtype
