"""Activation functions, except `relu` and its relatives (`_rectified_units`) and softmax (`_softmax`).

Functions with `inplace` write the result to the input's memory, as in PyTorch. If backward needs the old values, they
are saved before.
"""

from __future__ import annotations

from .._generated import ops as _ops
from .._generated.ops import logsigmoid, sigmoid, softplus, tanh
from ..runtime.errors import DomainError, ShapeError
from ..runtime.layout import normalize_dim
from ..runtime.tensor import Tensor
from ._activation_calls import call_activation, require_floating, to_floating
from ._rectified_units import *  # noqa: F403 (pickled modules of version 0.2 name this module: `activation=F.relu`)
from ._softmax import *  # noqa: F403

__all__ = [
    "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "logsigmoid", "mish", "sigmoid", "silu", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink",
]  # fmt: skip


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * sigmoid(input).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.silu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.0000,  1.7616])
    """
    return call_activation("silu", input, (), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * tanh(softplus(input)) (Misra 2019, arXiv 1908.08681).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.mish(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3034,  0.0000,  1.9440])
    """
    return call_activation("mish", input, (), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return input * min(max(input + 3, 0), 6) / 6 (Howard et al. 2019, arXiv 1905.02244).

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardswish(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3333,  0.0000,  1.6667])
    """
    return call_activation("hardswish", input, (), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return min(max(input + 3, 0), 6) / 6.

    Args:
        input: Floating tensor of any shape.
        inplace: Whether to write the result to `input`.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardsigmoid(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3333, 0.5000, 0.8333])
    """
    return call_activation("hardsigmoid", input, (), inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return `input` where |input| > lambd, otherwise 0.

    Args:
        input: Floating tensor of any shape.
        lambd: Elements up to this magnitude become 0.

    Returns:
        Tensor of the shape and dtype of `input`.

    Example:
        >>> wg.nn.functional.hardshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """
    return call_activation("hardshrink", input, (lambd,), False)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return input - lambd where input > lambd, input + lambd where input < -lambd, otherwise 0.

    Args:
        input: Floating tensor of any shape.
        lambd: Distance by which elements move towards 0.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `lambd` is negative. It is also a `RuntimeError`.

    Example:
        >>> wg.nn.functional.softshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """
    if lambd < 0:
        raise DomainError(f"softshrink: lambd must not be negative, got {lambd}")
    return call_activation("softshrink", input, (lambd,), False)


def softsign(input: Tensor) -> Tensor:
    """Return input / (1 + |input|).

    Args:
        input: Tensor of any shape; integers and bool become the default floating dtype.

    Returns:
        Floating tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.softsign(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  0.6667])
    """
    return _ops.softsign(to_floating(input, "softsign"))


def tanhshrink(input: Tensor) -> Tensor:
    """Return input - tanh(input).

    Args:
        input: Tensor of any shape; integers and bool become the default floating dtype.

    Returns:
        Floating tensor of the shape of `input`.

    Example:
        >>> wg.nn.functional.tanhshrink(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """
    return _ops.tanhshrink(to_floating(input, "tanhshrink"))


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the Gaussian error linear unit, input * Phi(input) (Hendrycks and Gimpel 2016, arXiv 1606.08415).

    Args:
        input: Floating-point tensor.
        approximate: `"none"` for the exact function, `"tanh"` for the paper's approximation.

    Returns:
        Tensor of the shape and dtype of `input`.

    Raises:
        DomainError: If `approximate` is another string.

    Example:
        >>> wg.nn.functional.gelu(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.1587,  0.0000,  1.9545])
    """
    if approximate not in ("none", "tanh"):
        raise DomainError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return _ops.gelu_erf(input) if approximate == "none" else _ops.gelu_tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of dimension `dim` times the sigmoid of the second half.

    Source: Dauphin et al. 2017, arXiv 1612.08083.

    Args:
        input: Floating tensor, whose dimension `dim` has an even size.
        dim: The dimension to halve.

    Returns:
        Tensor with half the size along `dim`.

    Raises:
        ShapeError: If the size of the dimension is odd.

    Example:
        >>> wg.nn.functional.glu(wg.tensor([3.0, 0.0]))
        tensor([1.5000])
    """
    require_floating(input, "glu")
    axis = normalize_dim(dim, input.meta.ndim, "glu")
    size = input.meta.shape[axis] if input.meta.ndim else 1
    if size % 2:
        raise ShapeError(f"glu: dimension {dim} has {size} elements, which cannot be halved")
    values, gates = _ops.narrow(input, axis, 0, size // 2), _ops.narrow(input, axis, size // 2, size // 2)
    return _ops.mul(values, sigmoid(gates))


# Along a dimension ----------------------------------------------------------------------------------------------------
