"""Functions composed of other ops, methods such as `resize_`, functions that call a method, and aliases of methods.

They do not read values on the host, and their gradients follow from the ops they call. `install` adds the methods to
`Tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import SupportsIndex

from .. import random
from .._generated import ops
from ..arguments.out import copy_to_out
from ..arguments.types import Index, MemoryFormat, Operand, Sizes
from ..creation import factories
from ..creation.options import shape_of
from ..linear_algebra import products
from ..reductions import statistics
from ..runtime import dtypes
from ..runtime.device import meta
from ..runtime.dispatch import empty, is_recorded
from ..runtime.errors import ArgumentError, GradientError, NotSupported, ShapeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors
from . import complex_functions

__all__ = [
    "as_strided", "clamp_", "clip_", "corrcoef", "cov", "deg2rad", "detach", "detach_", "dist", "fill_", "float_power",
    "get_device", "index_put_", "is_nonzero", "is_same_size", "is_signed", "logit", "matrix_power", "positive",
    "rad2deg", "resize_as_", "sgn", "unravel_index", "zero_",
]  # fmt: skip


def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariance matrix of the rows.

    With weights w = fweights * aweights, the weighted sum of products of deviations from the mean is divided by
    `sum(w) - correction` (with aweights a: `sum(w) - correction * sum(w * a) / sum(w)`), clamped to at least 0.

    Args:
        input: `(variables, observations)`, or a vector, of which the result is the variance.
        correction: Number subtracted from the number of observations (1: Bessel's correction).
        fweights: Integer number of repetitions of each observation, `(observations,)`.
        aweights: Weight of each observation, `(observations,)`.

    Returns:
        `(variables, variables)`, or a scalar for a vector.

    Raises:
        ShapeError: The shapes do not fit.
        ArgumentError: `fweights` are not integers.

    Example:
        >>> wg.cov(wg.tensor([[1.0, 2.0, 3.0], [6.0, 4.0, 2.0]]))
        tensor([[ 1., -2.],
                [-2.,  4.]])
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
        covariance = products.matmul(centred, centred.mT) / max(count - correction, 0)
    else:
        weights = weights.to(x.dtype)
        total = weights.sum()
        centred = x - (x * weights).sum(1, keepdim=True) / total
        correction_term = correction if aweights is None else correction * (weights * aweights).sum() / total
        covariance = products.matmul(centred * weights, centred.mT) / (total - correction_term).clamp(min=0)
    return covariance.squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Return Pearson's correlation coefficients of the rows: `cov` divided by both standard deviations, in [-1, 1].

    Args:
        input: Tensor of shape `(variables, observations)`.

    Returns:
        Tensor of shape `(variables, variables)`.

    Example:
        >>> wg.corrcoef(wg.tensor([[1.0, 2.0], [2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    covariance = cov(input)
    if not covariance.ndim:
        return covariance / covariance  # 1, or NaN for a constant vector, as in PyTorch
    deviations = covariance.diagonal().sqrt()
    return (covariance / deviations.unsqueeze(1) / deviations).clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Return the p-norm of `input - other`; shapes broadcast.

    Args:
        input: Floating tensor.
        other: Floating tensor, whose shape broadcasts with that of `input`.
        p: Order of the norm.

    Returns:
        Tensor of shape `()`.

    Example:
        >>> wg.dist(wg.tensor([0.0, 0.0]), wg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    only_tensors("dist", input, other)
    return statistics.norm(ops.sub(input, other), p)


def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return log(x / (1 - x)), with x clamped to [eps, 1 - eps] if `eps` is not None.

    Args:
        input: Tensor of probabilities.
        eps: Distance from 0 and 1 to which elements are clamped.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.logit(wg.tensor([0.5]))
        tensor([0.])
    """
    only_tensors("logit", input)
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    if eps is not None:
        x = x.clamp(eps, 1 - eps)
    output = x.log() - (-x).log1p()
    return output if out is None else copy_to_out(output, out, "logit")


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the n-th power of square matrices `(..., m, m)`, n >= 0, by repeated squaring: about log2(n) products.

    Args:
        input: Tensor of shape `(..., m, m)`.
        n: Exponent, at least 0.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ShapeError: The matrices are not square.
        ArgumentError: `n` is negative.

    Example:
        >>> wg.matrix_power(wg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
        tensor([[1., 3.],
                [0., 1.]])
    """
    only_tensors("matrix_power", input)
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise ShapeError(f"matrix_power: takes square matrices, not the shape {list(input.shape)}")
    if n < 0:
        raise ArgumentError("matrix_power: negative powers need a matrix inverse, and there is no op for it")
    product = None
    square = input
    for bit in reversed(f"{n:b}"):
        if bit == "1":
            product = square if product is None else products.matmul(product, square)
        n >>= 1
        if n:
            square = products.matmul(square, square)
    if product is None:
        product = factories.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(input.shape).clone()
    elif product is input:
        product = input.clone()
    return product if out is None else copy_to_out(product, out, "matrix_power")


def float_power(input: Operand, exponent: Operand, *, out: Tensor | None = None) -> Tensor:
    """Return `pow(input, exponent)` computed in float64.

    Args:
        input: Tensor or number.
        exponent: Tensor or number.
        out: Tensor to write the result to.

    Returns:
        float64 tensor of the broadcast shape.

    Example:
        >>> wg.float_power(2, wg.tensor([3]))
        tensor([8.], dtype=weftgrad.float64)
    """
    base, power = (t.to(dtypes.float64) if isinstance(t, Tensor) else t for t in (input, exponent))
    output = ops.pow(base, power)
    return output if out is None else copy_to_out(output, out, "float_power")


def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert degrees to radians.

    Args:
        input: Tensor; integers and bool become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.deg2rad(wg.tensor([180.0]))
        tensor([3.1416])
    """
    output = input * (math.pi / 180)
    return output if out is None else copy_to_out(output, out, "deg2rad")


def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Convert radians to degrees.

    Args:
        input: Tensor; integers and bool become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.rad2deg(wg.tensor([0.0]))
        tensor([0.])
    """
    output = input * (180 / math.pi)
    return output if out is None else copy_to_out(output, out, "rad2deg")


def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `sign(input)`; the two are equal because there are no complex dtypes.

    Args:
        input: Tensor of any dtype but bool.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Example:
        >>> wg.sgn(wg.tensor([-3.0, 0.0]))
        tensor([-1.,  0.])
    """
    output = input.sign()
    return output if out is None else copy_to_out(output, out, "sgn")


def positive(input: Tensor) -> Tensor:
    """Return `input` itself.

    Args:
        input: Tensor of any dtype but bool.

    Returns:
        `input`.

    Raises:
        ArgumentError: If `input` is bool, or not a tensor.

    Example:
        >>> wg.positive(wg.tensor([-1, 2]))
        tensor([-1,  2])
    """
    only_tensors("positive", input)
    if input.meta.dtype is dtypes.bool_:
        raise ArgumentError("positive: bool tensors have no sign")
    return input


def unravel_index(indices: Tensor, shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[Tensor, ...]:
    """Convert row-major positions in a tensor of `shape` to coordinates, like `numpy.unravel_index`.

    Args:
        indices: Integer positions. They are not checked, because the host would have to wait for the device.
        shape: The shape that the positions refer to.

    Returns:
        One int64 tensor for each dimension, of the shape of `indices`.

    Raises:
        ArgumentError: The positions are not integers.
        ShapeError: The shape is invalid.

    Example:
        >>> wg.unravel_index(wg.tensor([1, 5]), (2, 3))
        (tensor([0, 1]), tensor([1, 2]))
    """
    only_tensors("unravel_index", indices)
    if indices.dtype.kind not in "ui":
        raise ArgumentError(f"unravel_index: takes integer tensors, not {indices.dtype.name}")
    remaining, coordinates = indices.to(dtypes.int64), []
    for size in reversed(shape_of((shape,))):
        coordinates.append(remaining % size)
        remaining = remaining // size
    return tuple(reversed(coordinates))


def detach(input: Tensor) -> Tensor:
    """Return a tensor without history that shares the memory of `input`.

    Args:
        input: Tensor of any dtype.

    Returns:
        A view of `input`.

    Example:
        >>> x = wg.ones(2, requires_grad=True)
        >>> wg.detach(x).requires_grad
        False
    """
    only_tensors("detach", input)
    return input.detach()


def is_nonzero(input: Tensor) -> bool:
    """Return True if the single element is not 0.

    Args:
        input: Tensor of one element.

    Returns:
        Python bool.

    Raises:
        ShapeError: If there is more than one element.

    Example:
        >>> wg.tensor([0.5]).is_nonzero()
        True
    """
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return True if the shapes are equal.

    Args:
        input: Tensor of any dtype.
        other: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_same_size(wg.ones(2, 3), wg.zeros(2, 3))
        True
    """
    return input.meta.shape == other.meta.shape


def is_signed(input: Tensor) -> bool:
    """Return True if the dtype has negative numbers.

    Args:
        input: Tensor of any dtype.

    Returns:
        Python bool.

    Example:
        >>> wg.is_signed(wg.tensor([1], dtype=wg.uint8))
        False
    """
    return input.meta.dtype.kind in "if"


def _view_in_place(name: str) -> Callable[..., Tensor]:
    """Return the in-place form of a view: the tensor gets the view's layout."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        if self.requires_grad:
            raise GradientError(f"{name}_: changes a tensor's shape in place, which is not recorded; use {name}")
        view = getattr(self, name)(*args, **kwargs)
        self.meta, self.start = view.meta, view.start
        return self

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}`, of this tensor itself. Raises `GradientError` where it requires grad."
    return method


def resize_(self: Tensor, *sizes: Sizes, memory_format: MemoryFormat | None = None) -> Tensor:
    """Change this tensor's shape in place. The result is contiguous.

    Elements keep their order in memory, starting from the tensor's first element. If the storage is too small, the
    tensor gets a new one, whose additional elements are uninitialised; it then shares no memory with its old views.

    Args:
        *sizes: The shape, as ints or as one sequence.
        memory_format: None, `contiguous_format` or `preserve_format`.

    Returns:
        This tensor.

    Raises:
        GradientError: The tensor requires grad.
        NotSupported: `memory_format` is not contiguous.

    Example:
        >>> wg.arange(6).resize_(2, 2)
        tensor([[0, 1],
                [2, 3]])
    """
    if self.requires_grad:
        raise GradientError("resize_: changes a tensor's shape in place, which is not recorded; use reshape")
    if memory_format not in (None, "contiguous_format", "preserve_format"):
        raise NotSupported(f"resize_: gives contiguous tensors, not {memory_format}")
    if shape_of(sizes) == self.meta.shape:
        return self
    layout = meta(self.meta.dtype, shape_of(sizes), None, self.meta.device)
    storage = self.storage
    available_bytes = storage.nbytes - (self.start - storage.start)
    if layout.nbytes > available_bytes:
        larger = empty(layout)
        count = available_bytes // layout.dtype.itemsize
        if count:
            flat_layout = meta(layout.dtype, (count,), None, layout.device)
            larger.view(-1)[:count].copy_(Tensor(storage, flat_layout, self.start))
        self.storage, self.start = larger.storage, larger.start
    storage.version += 1  # backward of an earlier op must not read the saved tensor with the new shape
    self.meta = layout
    if self.extra is not None and not _lies_within(self, self.extra.base):
        self.extra.base = None  # it is no view of its base any more
    return self


def _lies_within(view: Tensor, base: Tensor | None) -> bool:
    """Return True if all elements of a contiguous view lie inside the contiguous tensor `base`, which may be None."""
    if base is None or base.storage is not view.storage or not base.meta.contiguous:
        return False
    return bool(base.start <= view.start and view.start + view.meta.nbytes <= base.start + base.meta.nbytes)


def resize_as_(self: Tensor, other: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """Call `resize_` with the shape of `other`.

    Args:
        other: Tensor whose shape this tensor gets.
        memory_format: None, `contiguous_format` or `preserve_format`.

    Returns:
        This tensor.

    Raises:
        GradientError: The tensor requires grad.

    Example:
        >>> wg.arange(6).resize_as_(wg.ones(2, 2))
        tensor([[0, 1],
                [2, 3]])
    """
    return resize_(self, *other.shape, memory_format=memory_format)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Call `Tensor.as_strided`.

    Args:
        input: Tensor of any dtype.
        size: The shape.
        stride: Distance between neighbours in each dimension, in elements, not negative.
        storage_offset: Position of the first element in the storage, in elements; None: that of `input`.

    Returns:
        A view of the storage of `input`.

    Raises:
        ShapeError: If the view leaves the storage, or a stride is negative.

    Example:
        >>> wg.as_strided(wg.arange(4), (2, 2), (1, 2))
        tensor([[0, 2],
                [1, 3]])
    """
    only_tensors("as_strided", input)
    return input.as_strided(size, stride, storage_offset)


def clamp_(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Call `Tensor.clamp_`.

    Args:
        input: Tensor, which is changed.
        min: Lower bound: a number, a tensor that broadcasts, or None.
        max: Upper bound: a number, a tensor that broadcasts, or None.

    Returns:
        `input`.

    Raises:
        ArgumentError: Both bounds are None.

    Example:
        >>> wg.clamp_(wg.tensor([-2.0, 3.0]), 0, 1)
        tensor([0., 1.])
    """
    only_tensors("clamp_", input)
    return input.clamp_(min, max)


clip_ = clamp_


def detach_(input: Tensor) -> Tensor:
    """Call `Tensor.detach_`.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.detach_(wg.ones(2, requires_grad=True) * 2)
        tensor([2., 2.])
    """
    only_tensors("detach_", input)
    return input.detach_()


def fill_(input: Tensor, value: Operand) -> Tensor:
    """Call `Tensor.fill_`.

    Args:
        input: Tensor, which is changed.
        value: Number, or a tensor of shape `()`.

    Returns:
        `input`.

    Example:
        >>> wg.fill_(wg.empty(2), 3)
        tensor([3., 3.])
    """
    only_tensors("fill_", input)
    return input.fill_(value)


def zero_(input: Tensor) -> Tensor:
    """Call `Tensor.zero_`.

    Args:
        input: Tensor, which is changed.

    Returns:
        `input`.

    Example:
        >>> wg.zero_(wg.ones(2))
        tensor([0., 0.])
    """
    only_tensors("zero_", input)
    return input.zero_()


def get_device(input: Tensor) -> int:
    """Call `Tensor.get_device`.

    Args:
        input: Tensor of any dtype.

    Returns:
        Index of the device; -1 for `cpu`.

    Example:
        >>> wg.get_device(wg.ones(2, device='cpu'))
        -1
    """
    only_tensors("get_device", input)
    return input.get_device()


def index_put_(input: Tensor, indices: Sequence[Index], values: Operand, accumulate: bool = False) -> Tensor:
    """Call `Tensor.index_put_`.

    Args:
        input: Tensor, which is changed.
        indices: Indices of the first dimensions, such as int64 or bool tensors.
        values: Number, or a tensor that broadcasts to the indexed shape.
        accumulate: Add the values to the elements, once for each occurrence of a position, instead of storing them.

    Returns:
        `input`.

    Example:
        >>> wg.index_put_(wg.zeros(3), (wg.tensor([0, 2]),), wg.tensor([5.0, 6.0]))
        tensor([5., 0., 6.])
    """
    only_tensors("index_put_", input)
    return input.index_put_(indices, values, accumulate)


_METHOD_ALIASES = {
    "absolute_": "abs_", "arccos_": "acos_", "arccosh_": "acosh_", "arcsin_": "asin_", "arcsinh_": "asinh_",
    "arctan_": "atan_", "arctanh_": "atanh_", "clip_": "clamp_", "divide_": "div_", "multiply_": "mul_",
    "negative_": "neg_", "ndimension": "dim", "sgn_": "sign_", "subtract_": "sub_", "arctan2_": "atan2_",
    "fix_": "trunc_", "greater_": "gt_", "greater_equal_": "ge_", "less_": "lt_", "less_equal_": "le_",
    "not_equal_": "ne_",
}  # fmt: skip
METHODS = {
    name: globals()[name]
    for name in (
        "corrcoef", "cov", "deg2rad", "dist", "float_power", "is_nonzero", "is_same_size", "is_signed", "logit",
        "matrix_power", "positive", "rad2deg", "resize_", "resize_as_", "sgn",
    )
}  # fmt: skip
_RANDOM_METHODS = {"bernoulli": random.bernoulli, "multinomial": random.multinomial}
_VIEWS_IN_PLACE = ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims")
_COPIED_IN_PLACE = ("addmm", "addmv", "baddbmm", "deg2rad", "float_power", "logit", "nan_to_num", "rad2deg")


def _copying_in_place(name: str) -> Callable[..., Tensor]:
    """Return the in-place form of a method that needs several kernels: it copies the result back."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        source = self.clone() if is_recorded(self) else self  # backward may read the old values
        return self.copy_(getattr(source, name)(*args, **kwargs))

    method.__name__, method.__doc__ = f"{name}_", f"`{name}`, written into this tensor."
    return method


def install() -> None:
    """Add these functions and the aliases of methods to `Tensor`."""
    for name, function in (METHODS | complex_functions.METHODS | _RANDOM_METHODS).items():
        setattr(Tensor, name, function)
    for name in _VIEWS_IN_PLACE:
        setattr(Tensor, f"{name}_", _view_in_place(name))
    for name, target in _METHOD_ALIASES.items():
        setattr(Tensor, name, getattr(Tensor, target))
    for name in _COPIED_IN_PLACE:
        setattr(Tensor, f"{name}_", _copying_in_place(name))
