"""Smaller functions composed of other ops: covariances, distances, powers of matrices, angles, other names.

Nothing is read on the host; gradients are those of the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import factories, products, random, reals, reducing
from ._checks import only_tensors
from ._generated import ops
from ._making import shape_of
from .runtime import dtypes
from .runtime.device import meta
from .runtime.dispatch import empty, is_recorded
from .runtime.errors import ArgumentError, GradientError, NotSupported, ShapeError
from .runtime.spelling import store
from .runtime.tensor import Tensor

__all__ = [
    "as_strided", "clamp_", "clip_", "corrcoef", "cov", "deg2rad", "detach", "detach_", "dist", "fill_", "float_power",
    "get_device", "index_put_", "is_nonzero", "is_same_size", "is_signed", "logit", "matrix_power", "positive",
    "rad2deg", "resize_as_", "sgn", "unravel_index", "zero_",
]  # fmt: skip


def cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Covariances of the rows, (variables, observations) to (variables, variables); of a vector, its variance.

    Observation j counts fweights[j] (integers) times aweights[j]; the sum of products of differences from the mean is
    divided by the sum of weights less `correction` (with aweights a: less correction · Σ w a / Σ w), at least 0.
    """
    only_tensors("cov", input)
    if input.ndim > 2:
        raise ShapeError(f"cov: takes a matrix or a vector, not the shape {list(input.shape)}")
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    x = x.reshape(1, -1) if x.ndim < 2 else x
    count = x.shape[1]
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is not None and tuple(weights.shape) != (count,):
            raise ShapeError(f"cov: {name} must have shape [{count}], not {list(weights.shape)}")
    if fweights is not None and fweights.is_floating_point():
        raise ArgumentError("cov: fweights are counts, of an integer dtype")
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        centred = x - x.mean(1, keepdim=True)
        found = products.matmul(centred, centred.mT) / max(count - correction, 0)
    else:
        weights = weights.to(x.dtype)
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        less = correction if aweights is None else correction * (weights * aweights).sum() / total
        found = products.matmul(centred * weights, centred.mT) / (total - less).clamp(min=0)
    return found.squeeze()


def corrcoef(input: Any) -> Any:
    """Pearson's correlations of the rows: `cov` divided by both deviations, within -1 and 1."""
    found = cov(input)
    if not found.ndim:
        return found / found
    deviations = found.diagonal().sqrt()
    return (found / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of `input - other`, which broadcast."""
    only_tensors("dist", input, other)
    return reducing.norm(ops.sub(input, other), p)


def logit(input: Any, eps: float | None = None, *, out: Tensor | None = None) -> Any:
    """log(x / (1 - x)), of x clamped to [eps, 1 - eps] if `eps` is given."""
    only_tensors("logit", input)
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    found = x.log() - (-x).log1p()
    return found if out is None else store(found, out, "logit")


def matrix_power(input: Any, n: int, *, out: Tensor | None = None) -> Any:
    """The product of n of the last two dimensions' matrices, n not negative; by squaring, so log2(n) products."""
    only_tensors("matrix_power", input)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, not the shape {list(input.shape)}")
    if n < 0:
        raise ArgumentError("matrix_power: negative powers need an inverse, which there is no op for")
    found = None
    square = input
    for bit in reversed(f"{n:b}"):
        if bit == "1":
            found = square if found is None else products.matmul(found, square)
        n >>= 1
        if n:
            square = products.matmul(square, square)
    if found is None:
        found = factories.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape).clone()  # type: ignore[attr-defined]
    elif found is input:
        found = input.clone()
    return found if out is None else store(found, out, "matrix_power")


def float_power(input: Any, exponent: Any, *, out: Tensor | None = None) -> Any:
    """`pow` in float64."""
    base, power = (t.to(dtypes.float64) if isinstance(t, Tensor) else t for t in (input, exponent))  # type: ignore[attr-defined]
    found = ops.pow(base, power)
    return found if out is None else store(found, out, "float_power")


def deg2rad(input: Any, *, out: Tensor | None = None) -> Any:
    """Degrees as radians."""
    found = input * (math.pi / 180)
    return found if out is None else store(found, out, "deg2rad")


def rad2deg(input: Any, *, out: Tensor | None = None) -> Any:
    """Radians as degrees."""
    found = input * (180 / math.pi)
    return found if out is None else store(found, out, "rad2deg")


def sgn(input: Any, *, out: Tensor | None = None) -> Any:
    """`sign`: there are no complex numbers."""
    found = input.sign()
    return found if out is None else store(found, out, "sgn")


def positive(input: Tensor) -> Tensor:
    """`input` itself. Raises `ArgumentError` for bool."""
    only_tensors("positive", input)
    if input.meta.dtype is dtypes.bool_:
        raise ArgumentError("positive: bool tensors have no sign")
    return input


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """The coordinates, one tensor a dimension, of places in the row-major order of `shape`, as NumPy's.

    They are int64. Places are not checked: the device would have to be waited for. Raises `ArgumentError` for other
    than integers, `ShapeError` for a shape that is none.
    """
    only_tensors("unravel_index", indices)
    if indices.dtype.kind not in "ui":
        raise ArgumentError(f"unravel_index: takes integer tensors, not {indices.dtype.name}")
    left, found = indices.to(dtypes.int64), []
    for size in reversed(shape_of((shape,))):
        found.append(left % size)
        left = left // size
    return tuple(reversed(found))


def detach(input: Any) -> Any:
    """`input` without its history, over the same memory."""
    return input.detach()


def is_nonzero(input: Any) -> bool:
    """Whether the one element is not 0. Raises `ShapeError` for more than one."""
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are the same."""
    return input.meta.shape == other.meta.shape


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.meta.dtype.kind in "if"


def _moved_in_place(name: str) -> Callable[..., Any]:
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.requires_grad:
            raise GradientError(f"{name}_: changes a tensor's shape in place, which is not recorded; use {name}")
        found = getattr(self, name)(*args, **kwargs)
        self.meta, self.start = found.meta, found.start
        return self

    moved.__name__ = f"{name}_"
    moved.__doc__ = f"`{name}`, of this tensor itself. Raises `GradientError` where it requires grad."
    return moved


def resize_(self: Any, *sizes: Any, memory_format: Any = None) -> Any:
    """Another shape, contiguous, for this tensor itself; what its memory holds stays, in the memory's order, and is
    read from the tensor's first element on. More elements than the memory has room for get new memory, the added ones
    without a value; other tensors of the old memory then share nothing with this one.

    Raises `GradientError` where the tensor requires grad.
    """
    if self.requires_grad:
        raise GradientError("resize_: changes a tensor's shape in place, which is not recorded; use reshape")
    if memory_format not in (None, "contiguous_format", "preserve_format"):
        raise NotSupported(f"resize_: gives contiguous tensors, not {memory_format}")
    if shape_of(sizes) == self.meta.shape:
        return self
    layout = meta(self.meta.dtype, shape_of(sizes), None, self.meta.device)
    own = self.storage
    room = own.nbytes - (self.start - own.start)
    if layout.nbytes > room:
        made: Any = empty(layout)
        count = room // layout.dtype.itemsize
        if count:
            line = meta(layout.dtype, (count,), None, layout.device)
            made.view(-1)[:count].copy_(Tensor(own, line, self.start))
        self.storage, self.start = made.storage, made.start
    own.version += 1  # a backward that saved this tensor must not read the other shape
    self.meta = layout
    if self.extra is not None and not _lies_within(self, self.extra.base):
        self.extra.base = None
    return self


def _lies_within(view: Any, base: Any) -> bool:
    """Whether all elements of a contiguous tensor are those of `base`, which may be None."""
    if base is None or base.storage is not view.storage or not base.meta.contiguous:
        return False
    return bool(base.start <= view.start and view.start + view.meta.nbytes <= base.start + base.meta.nbytes)


def resize_as_(self: Any, other: Any, memory_format: Any = None) -> Any:
    """`resize_` to the shape of `other`."""
    return resize_(self, *other.shape, memory_format=memory_format)


def _as_function(name: str) -> Callable[..., Any]:
    def function(input: Any, *args: Any, **kwargs: Any) -> Any:
        only_tensors(name, input)
        return getattr(input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`Tensor.{name}` of `input`."
    return function


# Methods that PyTorch has as functions, too
as_strided, clamp_, clip_ = _as_function("as_strided"), _as_function("clamp_"), _as_function("clip_")
detach_, fill_, zero_ = _as_function("detach_"), _as_function("fill_"), _as_function("zero_")
get_device, index_put_ = _as_function("get_device"), _as_function("index_put_")

_SAME = {
    "absolute_": "abs_", "arccos_": "acos_", "arccosh_": "acosh_", "arcsin_": "asin_", "arcsinh_": "asinh_",
    "arctan_": "atan_", "arctanh_": "atanh_", "clip_": "clamp_", "divide_": "div_", "multiply_": "mul_",
    "negative_": "neg_", "ndimension": "dim", "sgn_": "sign_", "subtract_": "sub_", "arctan2_": "atan2_",
    "fix_": "trunc_", "greater_": "gt_", "greater_equal_": "ge_", "less_": "lt_", "less_equal_": "le_",
    "not_equal_": "ne_",
}  # fmt: skip
_COPIED = ("addmm", "addmv", "baddbmm", "deg2rad", "float_power", "logit", "nan_to_num", "rad2deg")


def _copied(name: str) -> Callable[..., Any]:
    """The form in place of a method of several kernels: its result, copied."""

    def written(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept = self.clone() if is_recorded(self) else self  # what backward reads is not written over
        return self.copy_(getattr(kept, name)(*args, **kwargs))

    written.__name__, written.__doc__ = f"{name}_", f"`{name}`, written into this tensor."
    return written


def install() -> None:
    """Put the methods on `Tensor`; what is there under another name, under both."""
    for name in (*__all__, "resize_"):
        if name not in vars(Tensor) and name != "unravel_index":
            setattr(Tensor, name, globals()[name])
    for name in reals.__all__:
        setattr(Tensor, name, property(reals.real) if name == "real" else getattr(reals, name))
    for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims"):
        setattr(Tensor, f"{name}_", _moved_in_place(name))
    for name, known in _SAME.items():
        setattr(Tensor, name, getattr(Tensor, known))
    for name in _COPIED:
        setattr(Tensor, f"{name}_", _copied(name))
    Tensor.bernoulli = random.bernoulli  # type: ignore[attr-defined]
    Tensor.multinomial = random.multinomial  # type: ignore[attr-defined]
