"""What all factories share: their options, and the ways to give a shape."""

from __future__ import annotations

from typing import Any

from .runtime import dtypes
from .runtime.device import device as to_device
from .runtime.device import meta
from .runtime.dispatch import empty, fit
from .runtime.dtypes import DType
from .runtime.errors import ArgumentError, DTypeError, ShapeError
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = ["blank", "finished", "kept", "shape_of"]


def shape_of(size: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as ints or as one sequence. Raises `ArgumentError`, `ShapeError`."""
    found = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    for n in found:
        if type(n) is not int or n < 0:
            break
    else:
        return found
    try:
        shape = tuple(int(n.__index__()) for n in found)
    except AttributeError:
        raise ArgumentError(f"a shape is made of ints, not {found!r}") from None
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative: {list(shape)}")
    return shape


def finished(
    made: Tensor, where: str, requires_grad: bool, out: Tensor | None = None, layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """What a factory `where` made, as the options ask that all of them take."""
    if layout is not None and layout != "strided":
        raise ArgumentError(f"{where}: every tensor is dense: layout is strided, not {layout!r}")
    if out is not None:
        return store(made, out, where)
    if pin_memory:
        made = made.pin_memory()  # type: ignore[attr-defined]
    if requires_grad:
        made.requires_grad_(True)  # type: ignore[attr-defined]
    return made


def blank(
    where: str, given: tuple[Any, ...], named: dict[str, Any], dtype: Any = None, device: Any = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor of the shape that the factory `where` was given, by position or as `size=`; or `out`.

    Raises `ArgumentError` for other names, `ShapeError`, `DTypeError` if `out` is another.
    """
    if named:
        size = named.pop("size", None)
        if named or given or size is None:
            wrong = next(iter(named), "size")
            raise ArgumentError(f"{where}() got an unexpected keyword argument {wrong!r}")
        given = (size,)
    shape = shape_of(given)
    if out is None:
        return empty(meta(dtypes.parse(dtype or dtypes.default_dtype()), shape, None, to_device(device)))
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{where}: out must be a tensor, not {type(out).__name__}")
    fit(out, shape)
    if out.meta.shape != shape:
        raise ShapeError(f"{where}: the result has shape {list(shape)}, out {list(out.meta.shape)}; make them equal")
    if dtype is not None and dtypes.parse(dtype) is not out.meta.dtype:
        raise DTypeError(f"{where}: dtype is {dtypes.parse(dtype).name}, that of out {out.meta.dtype.name}; give one")
    return out


def kept(dtype: Any, device: Any, out: Tensor | None, otherwise: DType | None = None) -> tuple[DType, Any]:
    """Dtype and device of a result: those given, those of `out`, or the default ones."""
    if out is not None:
        return dtypes.parse(out.meta.dtype if dtype is None else dtype), out.meta.device
    return dtypes.parse(dtype or otherwise or dtypes.default_dtype()), to_device(device)
