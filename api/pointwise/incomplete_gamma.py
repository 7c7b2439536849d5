"""The regularised incomplete gamma functions and their in-place forms, under PyTorch's names."""

from __future__ import annotations

from .._generated import ops
from ..autograd import is_grad_enabled
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["igamma", "igammac"]


def igamma(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the regularised lower incomplete gamma function, element by element.

    It is the integral of exp(-t) t ** (`input` - 1) from 0 to `other`, divided by gamma(`input`): the distribution
    function of the gamma distribution of shape `input`. In float64 the relative error is about 1e-13 at most; float32
    is computed in float64 where the device has it.

    Args:
        input: Shapes, not negative; integers become the default floating dtype.
        other: Upper ends of the integral, not negative; they broadcast with `input`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape. NaN where `input` or `other` is negative, or both are 0, or both infinite.

    Raises:
        GradientError: `input` requires a gradient. `other` may: its gradient is the density of the distribution.

    Example:
        >>> wg.igamma(wg.tensor([4.0]), wg.tensor([3.0, 4.0, 5.0]))
        tensor([0.3528, 0.5665, 0.7350])
    """
    only_tensors("igamma", input, other)
    _refuse_gradient("igamma", input)
    return ops.incomplete_gamma(input, other, out=out)


def igammac(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the regularised upper incomplete gamma function, element by element.

    It is the integral of exp(-t) t ** (`input` - 1) from `other` to infinity, divided by gamma(`input`): 1 - `igamma`,
    without its cancellation where that is near 1.

    Args:
        input: Shapes, not negative; integers become the default floating dtype.
        other: Lower ends of the integral, not negative; they broadcast with `input`.
        out: Tensor to write the result to.

    Returns:
        Tensor of the broadcast shape. NaN where `input` or `other` is negative, or both are 0, or both infinite.

    Raises:
        GradientError: `input` requires a gradient. `other` may: its gradient is minus the density of the distribution.

    Example:
        >>> wg.igammac(wg.tensor([4.0]), wg.tensor([3.0, 4.0, 5.0]))
        tensor([0.6472, 0.4335, 0.2650])
    """
    only_tensors("igammac", input, other)
    _refuse_gradient("igammac", input)
    return ops.incomplete_gamma_complement(input, other, out=out)


def igamma_(self: Tensor, other: Tensor) -> Tensor:
    """Compute `igamma` in place.

    Args:
        other: Upper ends of the integral, not negative; they broadcast to this tensor's shape.

    Returns:
        This tensor.

    Raises:
        GradientError: This tensor requires a gradient.

    Example:
        >>> wg.tensor([3.0, 4.0]).igamma_(wg.tensor([4.0, 4.0]))
        tensor([0.7619, 0.5665])
    """
    only_tensors("igamma_", self, other)
    _refuse_gradient("igamma_", self)
    return ops.incomplete_gamma_(self, other)


def igammac_(self: Tensor, other: Tensor) -> Tensor:
    """Compute `igammac` in place.

    Args:
        other: Lower ends of the integral, not negative; they broadcast to this tensor's shape.

    Returns:
        This tensor.

    Raises:
        GradientError: This tensor requires a gradient.

    Example:
        >>> wg.tensor([3.0, 4.0]).igammac_(wg.tensor([4.0, 4.0]))
        tensor([0.2381, 0.4335])
    """
    only_tensors("igammac_", self, other)
    _refuse_gradient("igammac_", self)
    return ops.incomplete_gamma_complement_(self, other)


def _refuse_gradient(name: str, input: Tensor) -> None:
    if input.requires_grad and is_grad_enabled():
        raise GradientError(
            f"{name}: there is no gradient with respect to input, which requires one; pass input.detach(), or call it "
            "under no_grad()"
        )


def _igamma(self: Tensor, other: Tensor) -> Tensor:
    """Return the regularised lower incomplete gamma function of shapes in this tensor, element by element.

    Args:
        other: Upper ends of the integral, not negative; they broadcast with this tensor.

    Returns:
        Tensor of the broadcast shape. NaN where an operand is negative, or both are 0, or both infinite.

    Raises:
        GradientError: This tensor requires a gradient.

    Example:
        >>> wg.tensor([3.0, 4.0]).igamma(wg.tensor([4.0]))
        tensor([0.7619, 0.5665])
    """
    return igamma(self, other)


def _igammac(self: Tensor, other: Tensor) -> Tensor:
    """Return the regularised upper incomplete gamma function of shapes in this tensor, element by element.

    Args:
        other: Lower ends of the integral, not negative; they broadcast with this tensor.

    Returns:
        Tensor of the broadcast shape. NaN where an operand is negative, or both are 0, or both infinite.

    Raises:
        GradientError: This tensor requires a gradient.

    Example:
        >>> wg.tensor([3.0, 4.0]).igammac(wg.tensor([4.0]))
        tensor([0.2381, 0.4335])
    """
    return igammac(self, other)


_igamma.__name__, _igammac.__name__ = "igamma", "igammac"
METHODS = {"igamma": _igamma, "igamma_": igamma_, "igammac": _igammac, "igammac_": igammac_}
