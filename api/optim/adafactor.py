"""Adafactor, an optimizer that stores only one row and one column of running means for each matrix."""

from __future__ import annotations

import math

from ..creation.factories import zeros, zeros_like
from ..pointwise.type_info import finfo
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._options import check_learning_rate, check_not_negative, to_float
from ._types import ParamGroup, Params, ParamState, Rate
from .algorithms import gradient_sign
from .optimizer import Optimizer

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Scale gradients by a factored mean square (Shazeer and Stern 2018, arXiv 1804.04235), in PyTorch's variant.

    At step t, with gradient g of shape (..., N, M) and `w = t ** beta2_decay`:

        alpha    = max(eps[1], rms(param)) * min(lr, 1 / sqrt(t))
        param   *= 1 - lr * weight_decay
        row_var += w * (mean(g**2, dim=-1) - row_var)
        col_var += w * (mean(g**2, dim=-2) - col_var)
        var      = row_var * col_var / max(mean(row_var), eps[0])    # for vectors and numbers: var += w * (g**2 - var)
        u        = g / max(sqrt(var), eps[0])
        param   -= alpha / max(1, rms(u) / d) * u

    `rms` is the root of the mean square. It is computed on the device, and the host does not wait for it, unlike in
    PyTorch.

    Args:
        params: Parameters or parameter groups.
        lr: Largest relative step size. The weight decay is multiplied by it, too.
        beta2_decay: The exponent in w, the weight of new values in the running means; 0 or below.
        eps: Lower bound of divisors (None: the `finfo` eps of the parameter's dtype), and lower bound of `rms(param)`.
        d: Largest RMS of u; an update with a larger one is scaled down. 1 or above.
        weight_decay: Decoupled weight decay.
        foreach: Accepted for compatibility with PyTorch.
        maximize: Ascend instead of descend.

    Raises:
        ArgumentError: If an option is out of range.

    Example:
        >>> w = wg.tensor([[1.0, 2.0]], requires_grad=True)
        >>> optimizer = wg.optim.Adafactor([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([[0.8419, 1.8419]], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        foreach: bool | None = None, maximize: bool = False,
    ):  # fmt: skip
        check_learning_rate("Adafactor", lr)
        check_not_negative("Adafactor", weight_decay=weight_decay, epsilon1=0 if eps[0] is None else eps[0],
                           epsilon2=eps[1])  # fmt: skip
        if not beta2_decay <= 0:
            raise ArgumentError(f"Adafactor: beta2_decay must not be positive, got {beta2_decay}")
        if not d >= 1:
            raise ArgumentError(f"Adafactor: the clipping threshold d is at least 1, not {d}")
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["step"] = 0.0
        shape, dtype, device = list(param.shape), param.dtype, param.device
        if param.ndim > 1:
            state["row_var"] = zeros([*shape[:-1], 1], dtype=dtype, device=device)
            state["col_var"] = zeros([*shape[:-2], 1, shape[-1]], dtype=dtype, device=device)
        else:
            state["variance"] = zeros_like(param)

    def _step_group(self, position: int, group: ParamGroup, params: list[Tensor], grads: list[Tensor]) -> None:
        if params[0].meta.device.type == "cuda":
            self._check_capture(params[0])
        for param, grad, state in zip(params, grads, self._states(group, params), strict=True):
            state["step"] += 1
            _update(param, grad, state, group)


def _update(param: Tensor, grad: Tensor, state: ParamState, group: ParamGroup) -> None:
    """Update one parameter and its running means in place, in step `state["step"]`."""
    lr, weight_decay, step = to_float(group["lr"]), to_float(group["weight_decay"]), state["step"]
    min_divisor, min_param_rms = group["eps"]
    if min_divisor is None:
        min_divisor = finfo(param.dtype).eps
    relative_step = min(lr, 1 / math.sqrt(step))
    step_size = _root_mean_square(param).clamp(min=min_param_rms) * relative_step
    if weight_decay:
        param.mul_(1 - lr * weight_decay)
    new_weight = step ** group["beta2_decay"]
    if param.ndim > 1:
        row_var, col_var = state["row_var"], state["col_var"]
        row_var.lerp_(_mean_square(grad, -1), new_weight)
        col_var.lerp_(_mean_square(grad, -2), new_weight)
        variance = row_var * col_var / row_var.mean(dim=-2, keepdim=True).clamp(min=min_divisor)
    else:
        variance = state["variance"].lerp_(grad * grad, new_weight)
    update = variance.clamp(min=min_divisor * min_divisor).rsqrt() * grad
    scale = step_size / (_root_mean_square(update) / group["d"]).clamp(min=1.0)
    param.addcmul_(update, scale, value=-gradient_sign(group))


def _root_mean_square(tensor: Tensor) -> Tensor:
    """Return the root of the mean square of all elements, as a 0-d tensor in float32 or float64."""
    dtype = dtypes.float64 if tensor.dtype is dtypes.float64 else dtypes.float32
    return tensor.norm(dtype=dtype) / math.sqrt(tensor.numel())


def _mean_square(tensor: Tensor, dim: int) -> Tensor:
    """Return the mean square along a dimension, which keeps size 1. No intermediate result has the tensor's size."""
    return tensor.norm(dim=dim, keepdim=True).square_() / tensor.shape[dim]
