"""Linear layers, reshaping layers and distance layers, with PyTorch's initial values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..creation.factories import empty
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = [
    "Bilinear",
    "CosineSimilarity",
    "Flatten",
    "Identity",
    "Linear",
    "PairwiseDistance",
    "Unflatten",
]


def _empty_parameter(*size: int, device: DeviceLike | None, dtype: DTypeLike | None) -> Parameter:
    return Parameter(empty(*size, device=device, dtype=dtype))


class Identity(Module):
    """Return the input. The constructor accepts any arguments.

    Args:
        *args: Ignored.
        **kwargs: Ignored.

    Example:
        >>> wg.nn.Identity()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """

    def __init__(self, *args: object, **kwargs: object):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Merge the dimensions from `start_dim` to `end_dim` into one.

    Args:
        start_dim: First dimension to merge.
        end_dim: Last dimension to merge, included.

    Example:
        >>> wg.nn.Flatten()(wg.ones(5, 2, 3)).shape
        weftgrad.Size([5, 6])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split dimension `dim` into the sizes `unflattened_size`, one of which may be -1.

    Args:
        dim: The dimension to split.
        unflattened_size: Sizes of the new dimensions; one may be -1.

    Raises:
        ArgumentError: If `unflattened_size` is not a tuple of ints.

    Example:
        >>> wg.nn.Unflatten(1, (2, 3))(wg.ones(5, 6)).shape
        weftgrad.Size([5, 2, 3])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim = dim
        sizes = unflattened_size if isinstance(unflattened_size, (tuple, list)) else (unflattened_size,)
        if sizes is not unflattened_size or any(isinstance(n, bool) or not isinstance(n, int) for n in sizes):
            raise ArgumentError(f"Unflatten: unflattened_size is a tuple of ints, not {unflattened_size!r}")
        self.unflattened_size = tuple(sizes)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Linear(Module):
    """A linear map, y = x W^T + b.

    Args:
        in_features: Features of the input.
        out_features: Features of the output.
        bias: Add b.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(*, in_features)` to `(*, out_features)`. `weight` is `(out_features, in_features)`; weight and bias start from
        U(-1/sqrt(in_features), 1/sqrt(in_features)).

    Example:
        >>> wg.nn.Linear(4, 2)(wg.ones(5, 4)).shape
        weftgrad.Size([5, 2])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = _empty_parameter(out_features, in_features, device=device, dtype=dtype)
        if bias:
            self.bias = _empty_parameter(out_features, device=device, dtype=dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from U(-1/sqrt(in_features), 1/sqrt(in_features))."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """A bilinear map, y[o] = x1^T W[o] x2 + b[o].

    Args:
        in1_features: Features of x1.
        in2_features: Features of x2.
        out_features: Features of the output.
        bias: Add b.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Raises:
        ArgumentError: If `in1_features` is not positive.

    Example:
        >>> wg.nn.Bilinear(3, 4, 2)(wg.ones(5, 3), wg.ones(5, 4)).shape
        weftgrad.Size([5, 2])
    """

    bias: Parameter  # None without `bias`

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        if in1_features < 1:
            raise ArgumentError(f"Bilinear: in1_features must be positive, not {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = _empty_parameter(out_features, in1_features, in2_features, device=device, dtype=dtype)
        self.register_parameter("bias", _empty_parameter(out_features, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from U(-1/sqrt(in1_features), 1/sqrt(in1_features))."""
        bound = 1 / math.sqrt(self.in1_features)
        for param in self.parameters():
            init.uniform_(param, -bound, bound)

    def extra_repr(self) -> str:
        """Return the sizes, for `repr`."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)


class CosineSimilarity(Module):
    """The cosine similarity of vectors along `dim`: x1 · x2 / max(||x1|| ||x2||, eps).

    Args:
        dim: The dimension of the vectors.
        eps: Lower bound of the product of the norms.

    Example:
        >>> wg.nn.CosineSimilarity()(wg.tensor([[1.0, 0.0]]), wg.tensor([[3.0, 4.0]]))
        tensor([0.6000])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dimension.

    Args:
        p: Order of the norm.
        eps: Added to each difference.
        keepdim: Whether the last dimension stays, with size 1.

    Example:
        >>> wg.nn.PairwiseDistance(eps=0.0)(wg.tensor([[0.0, 0.0]]), wg.tensor([[3.0, 4.0]]))
        tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
