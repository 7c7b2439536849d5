"""Special functions that need Python around generated ops: `polygamma` and `logit`."""

from __future__ import annotations

from .._generated import ops
from ..arguments.out import copy_to_out
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["logit", "polygamma"]


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
METHODS = {"logit": logit, "polygamma": _polygamma, "polygamma_": polygamma_}
