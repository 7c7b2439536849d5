"""Tensor's methods that create tensors of the same dtype and device: `new_zeros` and its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex, Unpack

from ..arguments.descriptions import OPTIONS, describe
from ..arguments.types import NewTensorOptions, Operand, Sizes
from ..creation import factories, from_data, legacy_constructors
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor

__all__ = ["CreationMethods"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

_describe = describe(
    OPTIONS
    | {
        "dtype": "Dtype of the result; None: that of this tensor.",
        "device": "Device of the result; None: that of this tensor.",
        "**options": "`dtype`, `device`, `requires_grad`, `pin_memory` and `layout`, as those of the function that\n"
        "creates tensors; the dtype and the device are those of this tensor by default.",
    }
)


class CreationMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    @_describe
    def new(self, *args: object, device: DeviceLike | None = None) -> Tensor:
        """Call the legacy constructor with this tensor's dtype and device.

        The arguments are data, or the sizes of an uninitialised tensor.

        Args:
            *args: Data, or the sizes of an uninitialised tensor.

        Returns:
            Tensor of this tensor's dtype.

        Raises:
            ArgumentError: If `args` are neither sizes nor one sequence, or a tensor has another dtype.

        Example:
            >>> wg.tensor([0.5]).new([1, 2])
            tensor([1., 2.])
        """
        return legacy_constructors.build(args, self.meta.dtype, self.meta.device if device is None else device)

    @_describe
    def new_tensor(
        self, data: object, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        """Create a tensor from `data` with this tensor's dtype and device.

        Args:
            data: A number, nested sequences, a NumPy array, or a tensor.

        Returns:
            Tensor with memory of its own.

        Example:
            >>> wg.tensor([0.5]).new_tensor([1, 2])
            tensor([1., 2.])
        """
        return from_data.tensor(
            data,
            dtype=self.meta.dtype if dtype is None else dtype,
            device=self.meta.device if device is None else device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )

    @_describe
    def new_zeros(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create zeros with this tensor's dtype and device.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_zeros(2)
            tensor([0, 0])
        """
        return factories.zeros(*size, **_options_like(self, options))

    @_describe
    def new_ones(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create ones with this tensor's dtype and device.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_ones(2)
            tensor([1, 1])
        """
        return factories.ones(*size, **_options_like(self, options))

    @_describe
    def new_full(
        self, size: Sequence[SupportsIndex], fill_value: Operand, **options: Unpack[NewTensorOptions]
    ) -> Tensor:
        """Create a tensor filled with `fill_value`, with this tensor's dtype and device.

        Args:
            size: The shape, as ints or as one sequence.
            fill_value: Number.

        Returns:
            Tensor of shape `size`.

        Example:
            >>> wg.tensor([1]).new_full((2,), 7)
            tensor([7, 7])
        """
        return factories.full(size, fill_value, **_options_like(self, options))

    @_describe
    def new_empty(self, *size: Sizes, **options: Unpack[NewTensorOptions]) -> Tensor:
        """Create an uninitialised tensor with this tensor's dtype and device.

        Returns:
            Tensor, whose elements are undefined.

        Example:
            >>> wg.tensor([1]).new_empty(2, 3).shape
            weftgrad.Size([2, 3])
        """
        return factories.empty(*size, **_options_like(self, options))

    @_describe
    def new_empty_strided(
        self, size: Sequence[int], stride: Sequence[int], dtype: DTypeLike | None = None,
        device: DeviceLike | None = None, requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        """Create an uninitialised tensor with these strides, in elements, and this tensor's dtype and device.

        Args:
            size: The shape.
            stride: Distance between neighbours along each dimension, in elements.

        Returns:
            Tensor, whose elements are undefined.

        Example:
            >>> wg.tensor([1]).new_empty_strided((2, 3), (1, 2)).stride()
            (1, 2)
        """
        return factories.empty_strided(
            size, stride, dtype=self.meta.dtype if dtype is None else dtype,
            device=self.meta.device if device is None else device, requires_grad=requires_grad,
        )  # fmt: skip


def _options_like(tensor: Tensor, options: NewTensorOptions) -> NewTensorOptions:
    """Return the options of a function that creates tensors, with the dtype and device of `tensor` as defaults."""
    if options.get("dtype") is None:
        options["dtype"] = tensor.meta.dtype
    if options.get("device") is None:
        options["device"] = tensor.meta.device
    return options
