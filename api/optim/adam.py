"""Adam and its family: PyTorch's formulas, options, defaults and state. Of `foreach`, `fused`, `capturable` and
`differentiable`, see `algorithms`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..factories import zeros_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ._options import check_betas, check_modes, check_rate, not_negative, number, single
from .algorithms import sign_of
from .optimizer import Optimizer

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

Betas = tuple[float, float]
_MEANS = ("exp_avg", "exp_avg_sq")


class _Means(Optimizer):
    """What the family shares: a count of steps and running means of gradients and their squares."""

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = 0.0
        state["exp_avg"], state["exp_avg_sq"] = zeros_like(param), zeros_like(param)


def _decays(group: dict[str, Any]) -> tuple[float, float]:
    """Weight decay through the gradient, and the factor by which the parameter shrinks."""
    decay = number(group["weight_decay"])
    return (0.0, 1 - number(group["lr"]) * decay) if group["decoupled_weight_decay"] else (decay, 1.0)


def _checked(title: str, lr: Any, betas: Any, differentiable: bool, **options: Any) -> None:
    check_rate(title, lr)
    check_betas(title, betas)
    not_negative(title, **options)
    check_modes(title, differentiable=differentiable)


class Adam(_Means):
    """Steps by running means of gradients and their squares (Kingma and Ba 2015); `amsgrad` after Reddi et al. 2018."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        title = type(self).__name__
        check_modes(title, differentiable=differentiable, foreach=foreach, fused=fused)
        if foreach and not capturable and any(isinstance(x, Tensor) for x in (lr, *betas)):
            raise ArgumentError(f"{title}: a tensor as lr or beta with foreach=True needs capturable=True")
        _checked(title, lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        if not (all(isinstance(b, float) for b in betas) or all(isinstance(b, Tensor) for b in betas)):
            raise ArgumentError(f"{title}: betas are both floats or both tensors, not {betas}")
        super().__init__(params, {
            "lr": lr, "betas": tuple(map(number, betas)), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        })  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # saved before there was the option
            group.setdefault("decoupled_weight_decay", isinstance(self, AdamW))

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        super().start(param, state, group)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(param)

    def numbers(self, group: dict[str, Any], key: float) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        beta1, beta2 = map(number, group["betas"])
        size, correction = number(group["lr"]) / (1 - beta1**key), math.sqrt(1 - beta2**key)
        rates = size, beta1, 1 - beta1, beta2, 1 - beta2, correction, number(group["eps"])
        found = (*rates, *_decays(group), sign_of(group))
        if group["amsgrad"]:
            return "amsgrad_step", (*_MEANS, "max_exp_avg_sq"), found
        return "adam_step", _MEANS, found


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself, not through the gradient (Loshchilov and Hutter 2019)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False, foreach: bool | None = None,
        capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip


class Adamax(_Means):
    """Adam by the running largest gradient in place of the mean square (Kingma and Ba 2015, section 7.1)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, foreach: bool | None = None, *, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ):  # fmt: skip
        _checked("Adamax", lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"], state["exp_avg"], state["exp_inf"] = 0.0, zeros_like(param), zeros_like(param)

    def numbers(self, group: dict[str, Any], key: float) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        beta1, beta2 = map(number, group["betas"])
        size = number(group["lr"]) / (1 - beta1**key)
        found = size, beta1, 1 - beta1, beta2, number(group["eps"]), number(group["weight_decay"]), sign_of(group)
        return "adamax_step", ("exp_avg", "exp_inf"), found


class NAdam(_Means):
    """Adam with Nesterov's momentum, whose weight grows by a schedule of momentum_decay (Dozat 2016)."""

    _counts = ("step", "mu_product")

    def __init__(
        self, params: Iterable[Any], lr: Any = 2e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        foreach: bool | None = None, maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        _checked("NAdam", lr, betas, differentiable, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        super().start(param, state, group)
        state["mu_product"] = 1.0

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        steps = super().advance(group, params, states)
        for state, step in zip(states, steps, strict=True):
            state["mu_product"] = single(state["mu_product"] * _momentum(group, step))
        return [(step, state["mu_product"]) for step, state in zip(steps, states, strict=True)]

    def numbers(
        self, group: dict[str, Any], key: tuple[float, float]
    ) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        step, product = key
        beta1, beta2 = map(number, group["betas"])
        lr, now, after = number(group["lr"]), _momentum(group, step), _momentum(group, step + 1)
        sizes = lr * (1 - now) / (1 - product), lr * after / (1 - product * after)
        found = *sizes, beta1, 1 - beta1, beta2, 1 - beta2, math.sqrt(1 - beta2**step), number(group["eps"])
        return "nadam_step", _MEANS, (*found, *_decays(group), sign_of(group))


def _momentum(group: dict[str, Any], step: float) -> float:
    """The weight of momentum in a step (Dozat 2016)."""
    return number(group["betas"][0]) * (1 - 0.5 * 0.96 ** (step * group["momentum_decay"]))


class RAdam(_Means):
    """Adam whose early steps are rectified while the variance of the mean square is large (Liu et al. 2020)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, decoupled_weight_decay: bool = False, *, foreach: bool | None = None,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        _checked("RAdam", lr, betas, differentiable, eps=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        })  # fmt: skip

    def numbers(self, group: dict[str, Any], key: float) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        beta1, beta2 = map(number, group["betas"])
        rest = 1 - beta2**key
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * key * beta2**key / rest
        rectified = 0.0
        if length > 5:
            ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            rectified = math.sqrt(ratio * rest)
        found = number(group["lr"]) / (1 - beta1**key), rectified, beta1, 1 - beta1, beta2, 1 - beta2
        return "radam_step", _MEANS, (*found, number(group["eps"]), *_decays(group), sign_of(group))
