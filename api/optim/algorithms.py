"""The optimizers: PyTorch's formulas, options and defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..factories import full_like, zeros_like
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .optimizer import Optimizer, run

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "RMSprop"]


def _sign(group: dict[str, Any]) -> float:
    return -1.0 if group["maximize"] else 1.0


class SGD(Optimizer):
    """Gradient descent, with momentum (`buf = momentum * buf + (1 - dampening) * grad`), Nesterov's on request."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ):
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("SGD: nesterov needs momentum above 0 and no dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize,
        })  # fmt: skip

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        lr, momentum, decay = float(group["lr"]), float(group["momentum"]), float(group["weight_decay"])
        if not momentum:
            run("sgd_step", (param,), grad, lr, decay, _sign(group))
            return
        fresh = 1.0 - group["dampening"]
        if state.get("momentum_buffer") is None:  # the first buffer is the gradient, undamped
            state["momentum_buffer"], fresh = zeros_like(param), 1.0
        name = "sgd_nesterov_step" if group["nesterov"] else "sgd_momentum_step"
        run(name, (param, state["momentum_buffer"]), grad, lr, momentum, fresh, decay, _sign(group))


class Adam(Optimizer):
    """Steps by running means of gradients and their squares (Kingma and Ba 2015); `amsgrad` after Reddi et al. 2018."""

    decoupled = False

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0, amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        if not (0 <= betas[0] < 1 and 0 <= betas[1] < 1):
            raise ArgumentError(f"{type(self).__name__}: betas lie in [0, 1), not {betas}")
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = zeros_like(param), zeros_like(param)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros_like(param)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        written = (param, state["exp_avg"], state["exp_avg_sq"])
        numbers = (
            lr / (1 - beta1 ** state["step"]),
            beta1,
            1 - beta1,
            beta2,
            1 - beta2,
            math.sqrt(1 - beta2 ** state["step"]),
            float(group["eps"]),
            0.0 if self.decoupled else decay,
            1 - lr * decay if self.decoupled else 1.0,
            _sign(group),
        )
        if group["amsgrad"]:
            run("amsgrad_step", (*written, state["max_exp_avg_sq"]), grad, *numbers)
        else:
            run("adam_step", written, grad, *numbers)


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself, not through the gradient (Loshchilov and Hutter 2019)."""

    decoupled = True

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class RMSprop(Optimizer):
    """Gradients divided by the root of their running mean square (Hinton 2012), or variance (Graves 2013)."""

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr,
                "alpha": alpha,
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "centered": centered,
                "maximize": maximize,
            },
        )

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        plain = not group["momentum"] and not group["centered"]
        if not state:
            state["step"] = 0
            state["square_avg"] = zeros_like(param)
            if not plain:
                state["grad_avg"], state["momentum_buffer"] = zeros_like(param), zeros_like(param)
        state["step"] += 1
        alpha = float(group["alpha"])
        numbers = (
            float(group["lr"]),
            alpha,
            1 - alpha,
            float(group["eps"]),
            float(group["weight_decay"]),
            _sign(group),
        )
        if plain:
            run("rmsprop_step", (param, state["square_avg"]), grad, *numbers)
        else:
            written = (param, state["square_avg"], state["grad_avg"], state["momentum_buffer"])
            run("rmsprop_momentum_step", written, grad, *numbers, float(group["momentum"]), float(group["centered"]))


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of all their squares so far (Duchi et al. 2011)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize,
            "initial_accumulator_value": initial_accumulator_value,
        })  # fmt: skip

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not state:
            state["step"] = 0
            state["sum"] = full_like(param, float(group["initial_accumulator_value"]))
        state["step"] += 1
        lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        run(
            "adagrad_step",
            (param, state["sum"]),
            grad,
            lr,
            float(group["eps"]),
            float(group["weight_decay"]),
            _sign(group),
        )


class Adadelta(Optimizer):
    """Steps in proportion to the running size of steps over that of gradients (Zeiler 2012)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
    ):
        if not 0 <= rho <= 1:
            raise ArgumentError(f"Adadelta: rho lies between 0 and 1, not {rho}")
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def update(self, param: Any, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        if not state:
            state["step"] = 0
            state["square_avg"], state["acc_delta"] = zeros_like(param), zeros_like(param)
        state["step"] += 1
        rho = float(group["rho"])
        numbers = (float(group["lr"]), rho, 1 - rho, float(group["eps"]), float(group["weight_decay"]), _sign(group))
        run("adadelta_step", (param, state["square_avg"], state["acc_delta"]), grad, *numbers)
