"""Layer, RMS, group and local response normalization."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.types import TensorOptions
from ..autograd import no_grad
from ..creation.factories import ones, zeros
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Affine(Module):
    """Base class of layers with an optional weight of ones and an optional bias of zeros."""

    weight: Parameter  # None without an affine map, as in PyTorch, whose types say the same
    bias: Parameter

    def _register_affine(
        self, shape: tuple[int, ...], weight: bool, bias: bool, device: DeviceLike | None, dtype: DTypeLike | None
    ) -> None:
        tensor_options: TensorOptions = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(shape, **tensor_options)) if weight else None)
        self.register_parameter("bias", Parameter(zeros(shape, **tensor_options)) if weight and bias else None)

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        with no_grad():
            for parameter, value in ((self.weight, 1), (getattr(self, "bias", None), 0)):
                if parameter is not None:
                    parameter.fill_(value)


class LayerNorm(_Affine):
    """Normalize the trailing dimensions to mean 0 and variance 1 (Ba et al. 2016, arXiv 1607.06450).

    y = (x - mean) / sqrt(var + eps) * weight + bias, with the biased variance.

    Args:
        normalized_shape: Sizes of the trailing dimensions.
        eps: Added to the variance.
        elementwise_affine: Learn a weight.
        bias: Learn a bias as well.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Shape:
        `(*, *normalized_shape)` to the same shape.

    Example:
        >>> wg.nn.LayerNorm(4)(wg.ones(5, 4)).shape
        weftgrad.Size([5, 4])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._register_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{text}, bias={self.bias is not None}"


class RMSNorm(_Affine):
    """Divide the trailing dimensions by their root mean square (Zhang and Sennrich 2019, arXiv 1910.07467).

    y = x / sqrt(mean(x**2) + eps) * weight.

    Args:
        normalized_shape: Sizes of the trailing dimensions.
        eps: Added to the mean square; None means the machine epsilon of the input's dtype.
        elementwise_affine: Learn a weight.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.RMSNorm(4)(wg.ones(5, 4)).shape
        weftgrad.Size([5, 4])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(ones(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalize groups of channels of each sample to mean 0 and variance 1 (Wu and He 2018, arXiv 1803.08494).

    Args:
        num_groups: Number of groups, a divisor of `num_channels`.
        num_channels: Channels, dimension 1.
        eps: Added to the variance.
        affine: Learn a weight per channel.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.
        bias: Learn a bias per channel as well.

    Shape:
        `(N, num_channels, *)` to the same shape.

    Raises:
        ShapeError: If `num_groups` does not divide `num_channels`.

    Example:
        >>> wg.nn.GroupNorm(2, 4)(wg.ones(5, 4, 3)).shape
        weftgrad.Size([5, 4, 3])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ShapeError(f"GroupNorm: num_groups ({num_groups}) must divide num_channels ({num_channels})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._register_affine((num_channels,), affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        text = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{text}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """Divide by (k + alpha / size * sum of squares of `size` neighboring channels) ** beta.

    Source: Krizhevsky et al. 2012, section 3.3.

    Args:
        size: Number of neighbouring channels.
        alpha: Factor of the sum of squares.
        beta: Exponent.
        k: Summand.

    Example:
        >>> wg.nn.LocalResponseNorm(3)(wg.ones(2, 5, 4)).shape
        weftgrad.Size([2, 5, 4])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divide by (k + alpha / size * sum of squares of neighboring channels) ** beta, as Torch7 did.

    The sum goes over the channels at a distance of at most (size - 1) // 2. As in PyTorch, the square of channel 0 is
    in the sum of channel (size - 1) // 2 + 1 and of all later ones. `LocalResponseNorm` has no such exception. The
    gradient is that of this formula; PyTorch's leaves channel 0 out.

    Args:
        size: Number of neighboring channels.
        alpha: Factor of the sum of squares.
        beta: Exponent.
        k: Summand.

    Example:
        >>> wg.nn.CrossMapLRN2d(3)(wg.ones(2, 5, 4, 4)).shape
        weftgrad.Size([2, 5, 4, 4])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ShapeError(f"CrossMapLRN2d: takes images of shape (N, C, H, W), not {list(input.shape)}")
        squares = input.square()
        distance = (self.size - 1) // 2
        total = F.pad(squares, (0, 0, 0, 0, distance, distance)).unfold(1, 2 * distance + 1, 1).sum(-1)
        later_channels = input.shape[1] - distance - 1
        if later_channels > 0:
            first = squares[:, :1].expand((-1, later_channels, -1, -1))
            total = total + F.pad(first, (0, 0, 0, 0, distance + 1, 0))
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
