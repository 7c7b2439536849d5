"""Adam and its variants, with PyTorch's formulas, options, defaults and state.

`algorithms` explains the options `foreach`, `fused`, `capturable` and `differentiable`, which all optimizers accept.
"""

from __future__ import annotations

import math

from ..creation.factories import zeros_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._options import check_betas, check_learning_rate, check_modes, check_not_negative, round_to_float32, to_float
from ._types import KernelArguments, ParamGroup, Params, ParamState, Rate
from .algorithms import gradient_sign
from .optimizer import Optimizer

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

Betas = tuple[float, float] | tuple[Tensor, Tensor]
_MOMENTS = ("exp_avg", "exp_avg_sq")


class _AdamBase(Optimizer):
    """Base of Adam's family: a step count, and running means of the gradient and its square."""

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["step"] = 0.0
        state["exp_avg"], state["exp_avg_sq"] = zeros_like(param), zeros_like(param)


def _weight_decay_factors(group: ParamGroup) -> tuple[float, float]:
    """Return (decay added to the gradient, factor applied to the parameter); one of them is neutral."""
    decay = to_float(group["weight_decay"])
    return (0.0, 1 - to_float(group["lr"]) * decay) if group["decoupled_weight_decay"] else (decay, 1.0)


def _check_options(title: str, lr: Rate, betas: Betas, differentiable: bool, **options: float) -> None:
    check_learning_rate(title, lr)
    check_betas(title, betas)
    check_not_negative(title, **options)
    check_modes(title, differentiable=differentiable)


class Adam(_AdamBase):
    """Adam (Kingma and Ba 2015, arXiv 1412.6980), optionally with AMSGrad (Reddi et al. 2018).

    With gradient g of step t:

        exp_avg    = beta1 * exp_avg    + (1 - beta1) * g
        exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g**2
        param     -= lr * (exp_avg / (1 - beta1**t)) / (sqrt(exp_avg_sq / (1 - beta2**t)) + eps)

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        betas: Decay rates of the two running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: L2 penalty: `weight_decay * param` is added to the gradient.
        amsgrad: Divide by the running maximum of `exp_avg_sq`.
        foreach: Accepted for compatibility.
        maximize: Ascend instead of descend.
        capturable: Accepted for compatibility.
        differentiable: Must be False.
        fused: Accepted for compatibility; updates are always fused.
        decoupled_weight_decay: Shrink the parameter instead, as `AdamW` does.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.Adam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        title = type(self).__name__
        check_modes(title, differentiable=differentiable, foreach=foreach, fused=fused)
        if foreach and not capturable and any(isinstance(x, Tensor) for x in (lr, *betas)):
            raise ArgumentError(f"{title}: a tensor as lr or beta with foreach=True needs capturable=True")
        _check_options(title, lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        if not (all(isinstance(b, float) for b in betas) or all(isinstance(b, Tensor) for b in betas)):
            raise ArgumentError(f"{title}: betas are both floats or both tensors, not {betas}")
        super().__init__(params, {
            "lr": lr, "betas": tuple(map(to_float, betas)), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def __setstate__(self, state: ParamState) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # older checkpoints lack this option
            group.setdefault("decoupled_weight_decay", isinstance(self, AdamW))

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        super().init_state(param, state, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(param)

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        beta1, beta2 = map(to_float, group["betas"])
        step_size, bias_correction2_sqrt = to_float(group["lr"]) / (1 - beta1**key), math.sqrt(1 - beta2**key)
        rates = step_size, beta1, 1 - beta1, beta2, 1 - beta2, bias_correction2_sqrt, to_float(group["eps"])
        scalars = (*rates, *_weight_decay_factors(group), gradient_sign(group))
        if group["amsgrad"]:
            return "amsgrad_step", (*_MOMENTS, "max_exp_avg_sq"), scalars
        return "adam_step", _MOMENTS, scalars


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101).

    Each step multiplies the parameter by `1 - lr * weight_decay` before Adam's update. The other options are `Adam`'s.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        betas: Decay rates of the two running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: Fraction of the parameter that each step subtracts, per unit of `lr`.
        amsgrad: Divide by the running maximum of `exp_avg_sq`.
        maximize: Ascend instead of descend.
        foreach: Accepted for compatibility.
        capturable: Accepted for compatibility.
        differentiable: Must be False.
        fused: Accepted for compatibility; updates are always fused.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.AdamW([w], lr=0.1, weight_decay=0.0)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class Adamax(_AdamBase):
    """Adam with the infinity norm (Kingma and Ba 2015, arXiv 1412.6980, section 7.1).

    The denominator is the decayed running maximum of |g|, `exp_inf = max(beta2 * exp_inf, |g| + eps)`, in place of the
    root of the mean square. The options are `Adam`'s.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        betas: Decay rates of the running mean and of the running maximum, in [0, 1).
        eps: Added to |g|.
        weight_decay: L2 penalty: `weight_decay * param` is added to the gradient.
        foreach: Accepted for compatibility.
        maximize: Ascend instead of descend.
        differentiable: Must be False.
        capturable: Accepted for compatibility.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.Adamax([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.9000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ):  # fmt: skip
        _check_options("Adamax", lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        state["step"], state["exp_avg"], state["exp_inf"] = 0.0, zeros_like(param), zeros_like(param)

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        beta1, beta2 = map(to_float, group["betas"])
        step_size = to_float(group["lr"]) / (1 - beta1**key)
        scalars = (
            step_size,
            beta1,
            1 - beta1,
            beta2,
            to_float(group["eps"]),
            to_float(group["weight_decay"]),
            gradient_sign(group),
        )
        return "adamax_step", ("exp_avg", "exp_inf"), scalars


class NAdam(_AdamBase):
    """Adam with Nesterov momentum (Dozat 2016, "Incorporating Nesterov Momentum into Adam").

    The momentum weight of step t is `mu_t = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))`. The other options are
    `Adam`'s.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        betas: Decay rates of the two running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: L2 penalty, or the decay of the parameter itself.
        momentum_decay: Speed at which the momentum weight grows towards beta1.
        decoupled_weight_decay: Shrink the parameter itself, as `AdamW` does.
        foreach: Accepted for compatibility.
        maximize: Ascend instead of descend.
        capturable: Accepted for compatibility.
        differentiable: Must be False.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.NAdam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8944], requires_grad=True)
    """

    _scalar_entries = ("step", "mu_product")

    def __init__(
        self, params: Params, lr: Rate = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        _check_options(
            "NAdam", lr, betas, differentiable, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay
        )
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def init_state(self, param: Tensor, state: ParamState, group: ParamGroup) -> None:
        super().init_state(param, state, group)
        state["mu_product"] = 1.0

    def count_step(
        self, group: ParamGroup, params: list[Tensor], states: list[ParamState]
    ) -> list[tuple[float, float]]:
        steps = super().count_step(group, params, states)
        for state, step in zip(states, steps, strict=True):
            state["mu_product"] = round_to_float32(state["mu_product"] * _momentum_weight(group, step))
        return [(step, state["mu_product"]) for step, state in zip(steps, states, strict=True)]

    def kernel_arguments(self, group: ParamGroup, key: tuple[float, float]) -> KernelArguments:
        step, product = key
        beta1, beta2 = map(to_float, group["betas"])
        lr, momentum, next_momentum = (
            to_float(group["lr"]),
            _momentum_weight(group, step),
            _momentum_weight(group, step + 1),
        )
        step_sizes = lr * (1 - momentum) / (1 - product), lr * next_momentum / (1 - product * next_momentum)
        scalars = *step_sizes, beta1, 1 - beta1, beta2, 1 - beta2, math.sqrt(1 - beta2**step), to_float(group["eps"])
        return "nadam_step", _MOMENTS, (*scalars, *_weight_decay_factors(group), gradient_sign(group))


def _momentum_weight(group: ParamGroup, step: float) -> float:
    """Return the momentum weight mu_t of step t (Dozat 2016)."""
    return to_float(group["betas"][0]) * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))


class RAdam(_AdamBase):
    """Adam with a rectified adaptive rate (Liu et al. 2020, arXiv 1908.03265).

    In early steps, while the variance of the adaptive rate is too large (rho_t <= 5), the update is momentum without
    the denominator. Later, it is Adam's times a rectification factor. The options are `Adam`'s.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate; a number or a one-element tensor.
        betas: Decay rates of the two running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: L2 penalty: `weight_decay * param` is added to the gradient.
        decoupled_weight_decay: Shrink the parameter itself, as `AdamW` does.
        foreach: Accepted for compatibility.
        maximize: Ascend instead of descend.
        capturable: Accepted for compatibility.
        differentiable: Must be False.

    Raises:
        ArgumentError: If an option is out of range.
        NotSupported: For `differentiable=True`.

    Example:
        >>> w = wg.tensor([1.0], requires_grad=True)
        >>> optimizer = wg.optim.RAdam([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000], requires_grad=True)
    """

    def __init__(
        self, params: Params, lr: Rate = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        _check_options("RAdam", lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })  # fmt: skip

    def kernel_arguments(self, group: ParamGroup, key: float) -> KernelArguments:
        beta1, beta2 = map(to_float, group["betas"])
        bias_correction2 = 1 - beta2**key
        max_length = 2 / (1 - beta2) - 1
        length = max_length - 2 * key * beta2**key / bias_correction2
        rectification = 0.0
        if length > 5:
            variance_ratio = (length - 4) * (length - 2) * max_length / ((max_length - 4) * (max_length - 2) * length)
            rectification = math.sqrt(variance_ratio * bias_correction2)
        scalars = to_float(group["lr"]) / (1 - beta1**key), rectification, beta1, 1 - beta1, beta2, 1 - beta2
        return (
            "radam_step",
            _MOMENTS,
            (*scalars, to_float(group["eps"]), *_weight_decay_factors(group), gradient_sign(group)),
        )
