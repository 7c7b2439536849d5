"""Normalisation: what `nn.functional` has of it."""

from __future__ import annotations

from collections.abc import Sequence

from .._checks import only_tensors
from .._generated import ops as _ops
from ..runtime.errors import ArgumentError, NotSupported, ShapeError
from ..runtime.tensor import Tensor

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "normalize",
    "rms_norm",
]


def _normalized(shape: int | Sequence[int], where: str) -> tuple[int, ...]:
    found = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not found or any(not isinstance(n, int) for n in found):
        raise ArgumentError(f"{where}: normalized_shape is one int or several, not {shape!r}")
    return found


def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Trailing dimensions shifted to mean 0 and scaled to variance 1, times weight, plus bias (Ba et al. 2016)."""
    shape = _normalized(normalized_shape, "layer_norm")
    return _ops.layer_norm(input, shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Trailing dimensions divided by the root of their mean square, times weight; `eps` is the dtype's unless given."""
    shape = _normalized(normalized_shape, "rms_norm")
    if eps is None:
        eps = {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(input.meta.dtype.name, 2.0**-23)
    return _ops.rms_norm(input, shape, weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Channels (dimension 1) in groups, each group of a sample normalised (Wu and He 2018)."""
    batch, channels, *rest = input.meta.shape
    if channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels do not fall into {num_groups} groups")
    rows = input.reshape(batch, num_groups, -1)  # type: ignore[attr-defined]
    out = _ops.layer_norm(rows, (rows.meta.shape[-1],), None, None, eps).reshape(input.meta.shape)
    return _affine(out, weight, bias, (channels,) + (1,) * len(rest))


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each channel of each sample normalised."""
    if running_mean is not None or not use_input_stats:
        raise NotSupported("instance_norm: running statistics are not supported; leave them out")
    return group_norm(input, input.meta.shape[1], weight, bias, eps)


def _affine(out: Tensor, weight: Tensor | None, bias: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    if weight is not None:
        out = _ops.mul(out, weight.reshape(shape))  # type: ignore[attr-defined]
    return out if bias is None else _ops.add(out, bias.reshape(shape))  # type: ignore[attr-defined]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Channels (dimension 1) normalised over all else (Ioffe and Szegedy 2015); training moves running statistics."""
    only_tensors("batch_norm", input)
    if input.meta.ndim < 2:
        raise ShapeError(f"batch_norm: takes (N, C, …), not shape {list(input.meta.shape)}")
    if not training and (running_mean is None or running_var is None):
        raise ArgumentError("batch_norm: outside of training running_mean and running_var must be given")
    shape = (input.meta.shape[1],) + (1,) * (input.meta.ndim - 2)
    if training or running_mean is None or running_var is None:
        dims = (0, *range(2, input.meta.ndim))
        count = input.meta.numel // input.meta.shape[1]
        if training and count < 2:
            raise ShapeError(
                f"batch_norm: training needs two values a channel, the input has shape {list(input.meta.shape)}"
            )
        mean = _ops.mean(input, dims)
        centred = _ops.sub(input, mean.reshape(shape))
        variance = _ops.mean(_ops.square(centred), dims)
        if training and running_mean is not None and running_var is not None:
            running_mean.copy_(_ops.lerp(running_mean, mean.detach(), momentum))  # type: ignore[attr-defined]
            running_var.copy_(_ops.lerp(running_var, _ops.mul(variance.detach(), count / (count - 1)), momentum))  # type: ignore[attr-defined]
    else:
        centred, variance = _ops.sub(input, running_mean.reshape(shape)), running_var  # type: ignore[attr-defined]
    return _affine(_ops.mul(centred, _ops.rsqrt(_ops.add(variance, eps)).reshape(shape)), weight, bias, shape)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """`input` divided by its norm along `dim`, or by `eps` if that is larger."""
    if p == 2:
        return _ops.normalize_l2(input, dim, eps)
    size = input.norm(p, dim, True)  # type: ignore[attr-defined]
    return _ops.true_divide(input, _ops.clamp_min(size, eps))
