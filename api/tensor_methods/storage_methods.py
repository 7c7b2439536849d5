"""A tensor's memory as an object of its own, and the methods that exchange it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ..runtime.backends.host import HostDriver
from ..runtime.device import Device, contiguous_strides, device, meta
from ..runtime.dispatch import call, empty, is_recorded
from ..runtime.dtypes import Array, uint8
from ..runtime.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ..runtime.records import registry
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from .conversion import _as_type

__all__ = ["StorageMethods", "UntypedStorage"]

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor as TensorBase
else:
    TensorBase = object

_Subclass = TypeVar("_Subclass", bound=Tensor)


class UntypedStorage:
    """The memory of a tensor and its views, as bytes. Two of these are equal if they are the same memory.

    Args:
        content: A tensor of uint8 with one dimension: the memory.

    Example:
        >>> x = wg.ones(4)
        >>> x.untyped_storage() == x[1:].untyped_storage()
        True
    """

    def __init__(self, content: Tensor):
        self._content = content

    @staticmethod
    def from_file(filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """Map a file into memory, on `cpu`. Pages are read when they are used.

        Args:
            filename: Path of the file.
            shared: Write changes to the file; otherwise they stay in this process.
            nbytes: Size of the part of the file, from its beginning.

        Returns:
            `UntypedStorage`.

        Example:
            >>> import tempfile
            >>> with tempfile.NamedTemporaryFile() as file:
            ...     _ = file.write(bytes([1, 2, 3]))
            ...     file.flush()
            ...     UntypedStorage.from_file(file.name, nbytes=2).tolist()
            ...
            [1, 2]
        """
        content: Array = np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(nbytes,))
        storage = device("cpu").driver.adopt(content)
        return UntypedStorage(Tensor(storage, meta(uint8, content.shape, None, storage.device), storage.start))

    @property
    def device(self) -> Device:
        """The device of the memory."""
        return self._content.meta.device

    def nbytes(self) -> int:
        """Return the size in bytes.

        Returns:
            Python int.

        Example:
            >>> wg.ones(4).untyped_storage().nbytes()
            16
        """
        return self._content.meta.numel

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Return the address of the memory on `cpu`; on other devices, its offset in the buffer.

        Returns:
            Python int.

        Example:
            >>> x = wg.ones(4, device='cpu')
            >>> x.untyped_storage().data_ptr() == x.data_ptr()
            True
        """
        return self._content.data_ptr()

    def tolist(self) -> list[int]:
        """Return the bytes as a list.

        Returns:
            List of integers from 0 to 255.

        Example:
            >>> wg.tensor([1], dtype=wg.int16).untyped_storage().tolist()
            [1, 0]
        """
        return [int(byte) for byte in self._content.numpy(force=True)]

    def untyped(self) -> UntypedStorage:
        """Return the storage itself.

        Returns:
            This storage.

        Example:
            >>> storage = wg.ones(4).untyped_storage()
            >>> storage.untyped() is storage
            True
        """
        return self

    def __getitem__(self, index: slice) -> UntypedStorage:
        if not isinstance(index, slice):
            raise ArgumentError(f"UntypedStorage: takes slices, not {type(index).__name__}; use tolist()[index]")
        return UntypedStorage(self._content[index])

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> Array:
        return np.asarray(self._content.numpy(force=True), dtype, copy=copy)

    def _place(self) -> tuple[int, int, int]:
        return id(self._content.storage), self._content.start, self.nbytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other._place() == self._place()

    def __hash__(self) -> int:
        return hash(self._place())

    @property
    def _cdata(self) -> int:
        """A number that the memory has as long as it exists, as in PyTorch."""
        return id(self._content.storage)


def _all_bytes(storage: Storage) -> Tensor:
    """Return a tensor of all bytes of a storage."""
    return Tensor(storage, meta(uint8, (storage.nbytes,), None, storage.device), storage.start)


class StorageMethods(TensorBase):
    """Methods that `methods.install` copies to `Tensor`, so `self` is a Tensor."""

    def untyped_storage(self) -> UntypedStorage:
        """Return the memory of this tensor and its views.

        Returns:
            `UntypedStorage`.

        Example:
            >>> wg.ones(2, 3)[0].untyped_storage().nbytes()
            24
        """
        return UntypedStorage(_all_bytes(self.storage))

    def set_(
        self,
        source: Tensor | UntypedStorage | None = None,
        storage_offset: int = 0,
        size: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> Tensor:
        """Make this tensor one over other memory, in place.

        Args:
            source: A tensor, whose memory and layout this tensor gets; or memory; None: no elements.
            storage_offset: Position of the first element in the memory, in elements; for memory only.
            size: The shape; None: a row of all elements that the memory has.
            stride: Distance between neighbours in each dimension, in elements; None: row-major.

        Returns:
            This tensor.

        Raises:
            GradientError: This tensor has a history, which belongs to its old values.
            DTypeError: `source` has another dtype.
            DeviceError: `source` is on another device.
            ShapeError: The layout leaves the memory.

        Example:
            >>> x = wg.zeros(2)
            >>> x.set_(wg.ones(3))
            tensor([1., 1., 1.])
        """
        if self.node is not None:
            raise GradientError("set_: the tensor has a history; use .detach() for a tensor without one")
        if source is None:
            source = empty(meta(self.meta.dtype, (0,), None, self.meta.device))
        if isinstance(source, Tensor):
            if source.meta.dtype is not self.meta.dtype:
                raise DTypeError(
                    f"set_: the source is {source.meta.dtype.name}, the tensor {self.meta.dtype.name}; convert it "
                    "with .to()"
                )
            layout, start = source.meta, source.start
            if size is not None:
                source = source.untyped_storage()
        if isinstance(source, UntypedStorage):
            content = source._content
            memory, nbytes = content.storage, content.meta.numel
            itemsize = self.meta.dtype.itemsize
            shape = (nbytes // itemsize - storage_offset,) if size is None else tuple(size)
            strides = contiguous_strides(shape) if stride is None else tuple(stride)
            last = storage_offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            if (
                storage_offset < 0
                or min(strides, default=0) < 0
                or min(shape, default=0) < 0
                or (0 not in shape and (last + 1) * itemsize > nbytes)
            ):
                raise ShapeError(
                    f"set_: size {list(shape)}, stride {list(strides)}, offset {storage_offset} leave a storage of "
                    f"{nbytes // itemsize} elements of {self.meta.dtype.name}"
                )
            layout = meta(self.meta.dtype, shape, strides, memory.device)
            start = content.start + storage_offset * itemsize
        elif isinstance(source, Tensor):
            memory = source.storage
        else:
            raise ArgumentError(f"set_: takes a tensor or an UntypedStorage, not {type(source).__name__}")
        if layout.device is not self.meta.device:
            raise DeviceError(f"set_: the source is on {layout.device}, the tensor on {self.meta.device}")
        self.storage, self.meta, self.start = memory, layout, start
        return self

    def apply_(self, callable: Callable[[float], float]) -> Tensor:
        """Replace each element by what a Python function returns for it. Slow; for tensors on `cpu`.

        Args:
            callable: Function of one Python number.

        Returns:
            This tensor.

        Raises:
            DeviceError: The tensor is on another device.
            GradientError: The tensor requires grad: what the function computes has no derivative.

        Example:
            >>> wg.tensor([1.0, 2.0], device='cpu').apply_(lambda value: value * 10)
            tensor([10., 20.])
        """
        return _map_elements("apply_", self, [], callable)

    def map_(self, tensor: Tensor, callable: Callable[[float, float], float]) -> Tensor:
        """Replace each element by a Python function of it and of another tensor's element. Slow; for `cpu`.

        Args:
            tensor: Tensor of the same dtype, whose shape expands to this one's.
            callable: Function of two Python numbers.

        Returns:
            This tensor.

        Raises:
            ArgumentError: The dtypes differ.
            DeviceError: A tensor is on another device than `cpu`.
            GradientError: A tensor requires grad: what the function computes has no derivative.
            ShapeError: The shape does not expand to this tensor's.

        Example:
            >>> x = wg.tensor([1.0, 2.0], device='cpu')
            >>> x.map_(wg.tensor([5.0], device='cpu'), lambda a, b: a * b)
            tensor([ 5., 10.])
        """
        return _map_elements("map_", self, [tensor], callable)

    def map2_(self, x: Tensor, y: Tensor, callable: Callable[[float, float, float], float]) -> Tensor:
        """Replace each element by a Python function of it and of two other tensors' elements. Slow; for `cpu`.

        Args:
            x: Tensor of the same dtype, whose shape expands to this one's.
            y: Like `x`.
            callable: Function of three Python numbers.

        Returns:
            This tensor.

        Raises:
            ArgumentError: The dtypes differ.
            DeviceError: A tensor is on another device than `cpu`.
            GradientError: A tensor requires grad: what the function computes has no derivative.
            ShapeError: A shape does not expand to this tensor's.

        Example:
            >>> x = wg.tensor([1.0, 2.0], device='cpu')
            >>> x.map2_(x, wg.ones(1, device='cpu'), lambda a, b, c: a * b + c)
            tensor([2., 5.])
        """
        return _map_elements("map2_", self, [x, y], callable)

    def is_inference(self) -> bool:
        """Return False: tensors of `inference_mode` are like those of `no_grad`, and can be used anywhere.

        Returns:
            False.

        Example:
            >>> wg.ones(2).is_inference()
            False
        """
        return False

    def as_subclass(self, cls: type[_Subclass]) -> _Subclass:
        """Return a tensor of a subclass over the same memory, with the same history.

        Args:
            cls: `Tensor` or a subclass. Its `__init__` is not called.

        Returns:
            Tensor of that class.

        Example:
            >>> class Picture(wg.Tensor): pass
            >>> type(wg.ones(2).as_subclass(Picture)).__name__
            'Picture'
        """
        # Gradients of the result must reach a leaf, so the result becomes its view.
        source = call(registry["alias"], (self,)) if self.node is None and is_recorded(self) else self
        instance = object.__new__(cls)  # not `cls.__new__`, which may take other arguments
        Tensor.__init__(instance, self.storage, self.meta, self.start, source.needs_grad, source.node, source.output)
        if source.extra is not None and source.extra.base is not None:
            instance.ensure_extra().base = source.extra.base
            instance.ensure_extra().seen_rewrites = source.extra.seen_rewrites
        return instance

    @staticmethod
    def _make_subclass(cls: type[_Subclass], data: Tensor, require_grad: bool = False) -> _Subclass:
        """Return a leaf of a subclass over the memory of `data`."""
        instance = _as_type(cls, data.detach(), require_grad)
        assert isinstance(instance, cls)
        return instance


def _map_elements(title: str, tensor: Tensor, others: Sequence[Tensor], function: Callable[..., float]) -> Tensor:
    """Replace the elements of `tensor` by what `function` returns for them and for the elements of `others`.

    Args:
        title: The method's name, for messages.
        tensor: The tensor to write.
        others: Tensors of its dtype, whose shapes expand to its shape.
        function: Takes a number of each tensor.

    Returns:
        `tensor`.
    """
    for operand in (tensor, *others):
        if not isinstance(operand, Tensor):
            raise ArgumentError(f"{title}: takes tensors, not {type(operand).__name__}")
        if not isinstance(operand.meta.device.driver, HostDriver):
            raise DeviceError(f"{title}: takes tensors on cpu, not on {operand.meta.device}; move it with .cpu()")
        if operand.needs_grad:
            raise GradientError(f"{title}: a Python function has no derivative; use .detach() first")
        if operand.meta.dtype is not tensor.meta.dtype:
            raise ArgumentError(f"{title}: the tensor is {tensor.meta.dtype}, and the other {operand.meta.dtype}")
    operands = [tensor, *[other.expand(tensor.meta.shape) for other in others]]
    if not tensor.meta.numel:
        return tensor
    values = [function(*elements) for elements in zip(*[o.flatten().tolist() for o in operands], strict=True)]
    return tensor.copy_(tensor.new_tensor(values).reshape(tensor.meta.shape))
