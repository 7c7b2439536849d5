"""Options that all factories share (`dtype`, `device`, `out`, ...), and the accepted forms of a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, TypeGuard

from ..arguments.memory_formats import format_strides
from ..arguments.out import copy_to_out
from ..arguments.types import Layout, MemoryFormat, Sizes
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike, meta
from ..runtime.device import device as to_device
from ..runtime.dispatch import empty, fit
from ..runtime.dtypes import DType, DTypeLike
from ..runtime.errors import ArgumentError, DTypeError, ShapeError
from ..runtime.tensor import Tensor

__all__ = ["allocate_output", "finalize_output", "resolve_dtype_and_device", "shape_of"]


def _is_shape(sizes: Sequence[object]) -> TypeGuard[tuple[int, ...]]:
    """Return True if all sizes are ints from 0 on."""
    for n in sizes:  # noqa: SIM110  `all` with a generator takes four times as long, in every call of a factory
        if type(n) is not int or n < 0:
            return False
    return True


def shape_of(size: tuple[object, ...]) -> tuple[int, ...]:
    """Return the shape from ints or one sequence. Raises `ArgumentError` or, for negative sizes, `ShapeError`."""
    sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    if _is_shape(sizes):
        return sizes
    shape = tuple(int(n.__index__()) for n in sizes if isinstance(n, (int, SupportsIndex)))
    if len(shape) < len(sizes):
        raise ArgumentError(f"a shape is made of ints, not {sizes!r}")
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative: {list(shape)}")
    return shape


def finalize_output(
    output: Tensor, where: str, requires_grad: bool, out: Tensor | None = None, layout: Layout | None = None,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Apply the common options of factories to `output`: `layout`, `out`, `pin_memory`, `requires_grad`."""
    if layout is not None and layout != "strided":
        raise ArgumentError(f"{where}: every tensor is dense: layout is strided, not {layout!r}")
    if out is not None:
        return copy_to_out(output, out, where)
    if pin_memory:
        output = output.pin_memory()
    if requires_grad:
        output.requires_grad_(True)
    return output


def allocate_output(
    where: str, size_args: tuple[object, ...], named: dict[str, Sizes], dtype: DTypeLike | None = None,
    device: DeviceLike | None = None, out: Tensor | None = None, memory_format: MemoryFormat | None = None,
) -> Tensor:  # fmt: skip
    """Return an uninitialised tensor for the factory `where`, or a checked `out`.

    Args:
        where: Name of the factory, for error messages.
        size_args: Positional arguments: the shape as ints or as one sequence.
        named: Other keyword arguments; only `size=` is allowed.
        dtype: Dtype of the result.
        device: Device of the result.
        out: Tensor to write to instead.
        memory_format: Order of dimensions in memory; None: row-major.

    Raises:
        ArgumentError: An unknown keyword argument, or `memory_format` is `preserve_format`.
        ShapeError: `out` has another shape, or `memory_format` is for tensors of another rank.
        DTypeError: `out` has another dtype.
    """
    if named:
        size = named.pop("size", None)
        if named or size_args or size is None:
            unexpected = next(iter(named), "size")
            raise ArgumentError(f"{where}() got an unexpected keyword argument {unexpected!r}")
        size_args = (size,)
    shape = shape_of(size_args)
    if out is None:
        strides = None if memory_format is None else format_strides(where, memory_format, shape)
        return empty(meta(dtypes.parse(dtype or dtypes.default_dtype()), shape, strides, to_device(device)))
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{where}: out must be a tensor, not {type(out).__name__}")
    fit(out, shape)
    if out.meta.shape != shape:
        raise ShapeError(f"{where}: the result has shape {list(shape)}, out {list(out.meta.shape)}; make them equal")
    if dtype is not None and dtypes.parse(dtype) is not out.meta.dtype:
        raise DTypeError(f"{where}: dtype is {dtypes.parse(dtype).name}, that of out {out.meta.dtype.name}; give one")
    return out


def resolve_dtype_and_device(
    dtype: DTypeLike | None, device: DeviceLike | None, out: Tensor | None, otherwise: DType | None = None
) -> tuple[DType, Device]:
    """Return dtype and device of a result: the arguments, those of `out`, or the defaults."""
    if out is not None:
        return dtypes.parse(out.meta.dtype if dtype is None else dtype), out.meta.device
    return dtypes.parse(dtype or otherwise or dtypes.default_dtype()), to_device(device)
