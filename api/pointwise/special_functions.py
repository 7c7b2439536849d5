"""Special functions that need Python around generated ops: `logit`, `multigammaln`, `polygamma` and `zeta`."""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.out import copy_to_out
from ..autograd import is_grad_enabled
from ..runtime import dtypes
from ..runtime.errors import ArgumentError, GradientError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["logit", "multigammaln", "mvlgamma", "polygamma", "zeta"]


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


def multigammaln(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm of the multivariate gamma function of dimension `p`, element by element.

    It is p (p - 1) / 4 log(pi) plus the sum of lgamma(x - i / 2) over i = 0, ..., p - 1 (35.3.4 of the NIST Digital
    Library of Mathematical Functions).

    Args:
        input: Tensor of numbers above (p - 1) / 2; smaller ones give values that have no meaning. Integers become the
            default floating dtype.
        p: Dimension, at least 1.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: `p` is less than 1 or not an integer.

    Example:
        >>> wg.special.multigammaln(wg.tensor([2.0, 3.0]), 2)
        tensor([0.4516, 1.5502])
    """
    only_tensors("multigammaln", input)
    if isinstance(p, bool) or not isinstance(p, int) or p < 1:
        raise ArgumentError(f"multigammaln: p is a dimension, an integer from 1 on, not {p!r}")
    x = input if input.is_floating_point() else input.to(dtypes.default_dtype())
    halves = Tensor.new_tensor(x, [-0.5 * i for i in range(p)])
    output = ops.lgamma(x.unsqueeze(-1) + halves).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
    return output if out is None else copy_to_out(output, out, "multigammaln")


mvlgamma = multigammaln


def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the n-th derivative of digamma, element by element; n = 0 is digamma itself.

    Args:
        n: Order of the derivative, at least 0.
        input: Tensor; integers become the default floating dtype.
        out: Tensor to write the result to.

    Returns:
        Tensor of the shape of `input`.

    Raises:
        ArgumentError: `n` is negative or not an integer.

    Example:
        >>> wg.polygamma(1, wg.tensor([1.0]))
        tensor([1.6449])
    """
    order = _order(n)
    return ops.polygamma(input, order, out=out) if order else ops.digamma(input, out=out)


def zeta(input: Tensor | float, other: Tensor | float, *, out: Tensor | None = None) -> Tensor:
    """Return Hurwitz's zeta function, the sum of (`other` + k) ** -`input` over k = 0, 1, ...

    Infinity where `input` is 1 and where `other` is 0 or a negative integer. NaN for `input` < 1, and for negative
    `other` if `input` is no integer. `other` has a gradient, `input` has none.

    Args:
        input: Exponents, a tensor or number; integers become the default floating dtype.
        other: Offsets, a tensor or number that broadcasts with `input`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape.

    Raises:
        GradientError: `input` requires a gradient.

    Example:
        >>> wg.special.zeta(wg.tensor([2.0]), wg.tensor([1.0]))
        tensor([1.6449])
    """
    if isinstance(input, Tensor) and input.requires_grad and is_grad_enabled():
        raise GradientError(
            "zeta: there is no gradient with respect to input, which requires one; pass input.detach(), or call it "
            "under no_grad()"
        )
    return ops.hurwitz_zeta(input, other, out=out)


def polygamma_(self: Tensor, n: int) -> Tensor:
    """Compute `polygamma` in place.

    Args:
        n: Order of the derivative, at least 0.

    Returns:
        This tensor.

    Raises:
        ArgumentError: `n` is negative or not an integer.

    Example:
        >>> wg.tensor([1.0]).polygamma_(1)
        tensor([1.6449])
    """
    _order(n)
    return self.copy_(polygamma(n, self))


def _order(n: object) -> float:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ArgumentError(f"polygamma: n is the order of a derivative, an integer from 0 on, not {n!r}")
    return float(n)


def _polygamma(self: Tensor, n: int) -> Tensor:
    """Return the n-th derivative of digamma, element by element; n = 0 is digamma itself.

    Args:
        n: Order of the derivative, at least 0.

    Returns:
        Tensor of this tensor's shape.

    Raises:
        ArgumentError: `n` is negative or not an integer.

    Example:
        >>> wg.tensor([1.0]).polygamma(1)
        tensor([1.6449])
    """
    return polygamma(n, self)


_polygamma.__name__ = "polygamma"
METHODS = {"logit": logit, "mvlgamma": multigammaln, "polygamma": _polygamma, "polygamma_": polygamma_}
