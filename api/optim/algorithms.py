"""Optimizers beside Adam's family: PyTorch's formulas, options, defaults and state.

`foreach`, `fused` and `capturable` are taken and change nothing: every update is one kernel for all parameters of a
group. `differentiable=True` raises `NotSupported`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..factories import full_like, zeros_like
from ..runtime.errors import ArgumentError
from ._options import check_modes, check_rate, not_negative, number, single
from .optimizer import Optimizer

__all__ = ["ASGD", "SGD", "Adadelta", "Adagrad", "RMSprop", "Rprop"]


def sign_of(group: dict[str, Any]) -> float:
    """What gradients are multiplied with."""
    return -1.0 if group["maximize"] else 1.0


class SGD(Optimizer):
    """Gradient descent, with momentum (`buf = momentum * buf + (1 - dampening) * grad`), Nesterov's on request."""

    _counts = ()

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Any = 0,
        nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None, differentiable: bool = False,
        fused: bool | None = None,
    ):  # fmt: skip
        check_rate("SGD", lr)
        not_negative("SGD", momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("SGD: nesterov needs momentum above 0 and no dampening")
        check_modes("SGD", differentiable=differentiable, foreach=foreach, fused=fused)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        })  # fmt: skip

    def _states(self, group: dict[str, Any], params: list[Any]) -> list[dict[str, Any]]:
        return super()._states(group, params) if group["momentum"] else []  # without: no state, not even an empty one

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["momentum_buffer"] = None

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[float]:
        """By what the gradient goes into the buffer: the first time it is the buffer."""
        if not states:
            return [0.0] * len(params)
        found = [1.0 - number(group["dampening"])] * len(states)
        if self._rehearsals:
            new = [p for p, state in zip(params, states, strict=True) if state.get("momentum_buffer") is None]
            self._provide(group, new, like=1)
        for i, state in enumerate(states):
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = zeros_like(params[i])
                found[i] = 1.0
        return found

    def numbers(self, group: dict[str, Any], key: float) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        lr, decay, sign = number(group["lr"]), number(group["weight_decay"]), sign_of(group)
        if not group["momentum"]:
            return "sgd_step", (), (lr, decay, sign)
        name = "sgd_nesterov_step" if group["nesterov"] else "sgd_momentum_step"
        return name, ("momentum_buffer",), (lr, number(group["momentum"]), key, decay, sign)


class RMSprop(Optimizer):
    """Gradients divided by the root of their running mean square (Hinton 2012), or variance (Graves 2013)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
        momentum: float = 0, centered: bool = False, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_rate("RMSprop", lr)
        not_negative("RMSprop", eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        check_modes("RMSprop", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"], state["square_avg"] = 0.0, zeros_like(param)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = zeros_like(param)

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        super().advance(group, params, states)
        return [None] * len(states)  # the same in every step

    def numbers(self, group: dict[str, Any], key: None) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        alpha, momentum = number(group["alpha"]), number(group["momentum"])
        found: tuple[float, ...] = number(group["lr"]), alpha, 1 - alpha, number(group["eps"])
        found += (number(group["weight_decay"]), sign_of(group), *([momentum] if momentum > 0 else []))
        buffer = ("momentum_buffer",) if momentum > 0 else ()
        if group["centered"]:
            name = "rmsprop_centred_momentum_step" if momentum > 0 else "rmsprop_centred_step"
            return name, ("square_avg", "grad_avg", *buffer), found
        return ("rmsprop_momentum_step" if momentum > 0 else "rmsprop_step"), ("square_avg", *buffer), found


class Adagrad(Optimizer):
    """Gradients divided by the root of the sum of all their squares so far (Duchi et al. 2011)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
        initial_accumulator_value: float = 0, eps: float = 1e-10, foreach: bool | None = None, *,
        maximize: bool = False, differentiable: bool = False, fused: bool | None = None,
    ):  # fmt: skip
        check_rate("Adagrad", lr)
        not_negative("Adagrad", lr_decay=lr_decay, weight_decay=weight_decay, eps=eps,
                     initial_accumulator_value=initial_accumulator_value)  # fmt: skip
        check_modes("Adagrad", differentiable=differentiable, foreach=foreach, fused=fused)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        })  # fmt: skip
        for group in self.param_groups:
            for param in group["params"]:
                self.start(param, self.state[param], group)

    def share_memory(self) -> None:
        """Put the state's tensors into memory that processes share."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"], state["sum"] = 0.0, full_like(param, float(self.defaults["initial_accumulator_value"]))

    def numbers(self, group: dict[str, Any], key: float) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        lr = number(group["lr"]) / (1 + (key - 1) * number(group["lr_decay"]))
        return "adagrad_step", ("sum",), (lr, number(group["eps"]), number(group["weight_decay"]), sign_of(group))


class Adadelta(Optimizer):
    """Steps in proportion to the running size of steps over that of gradients (Zeiler 2012)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_rate("Adadelta", lr)
        if not 0 <= rho <= 1:
            raise ArgumentError(f"Adadelta: rho lies between 0 and 1, not {rho}")
        not_negative("Adadelta", eps=eps, weight_decay=weight_decay)
        check_modes("Adadelta", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"], state["square_avg"], state["acc_delta"] = 0.0, zeros_like(param), zeros_like(param)

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        super().advance(group, params, states)
        return [None] * len(states)  # the same in every step

    def numbers(self, group: dict[str, Any], key: None) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        rho = number(group["rho"])
        found = number(group["lr"]), rho, 1 - rho, number(group["eps"]), number(group["weight_decay"]), sign_of(group)
        return "adadelta_step", ("square_avg", "acc_delta"), found


class Rprop(Optimizer):
    """Steps by the gradient's sign, whose sizes grow by etas[1] while it stays and shrink by etas[0] where it changes
    (Riedmiller and Braun 1993); where it changed, the element waits for a step (Igel and Hüsken 2000, iRprop-)."""

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, capturable: bool = False, foreach: bool | None = None,
        maximize: bool = False, differentiable: bool = False,
    ):  # fmt: skip
        check_rate("Rprop", lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise ArgumentError(f"Rprop: etas lie below 1 and above 1, not {etas}")
        check_modes("Rprop", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"], state["prev"] = 0.0, zeros_like(param)
        state["step_size"] = full_like(param, number(group["lr"]))

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        super().advance(group, params, states)
        return [None] * len(states)  # the same in every step

    def numbers(self, group: dict[str, Any], key: None) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        found = *map(number, group["etas"]), *map(number, group["step_sizes"]), sign_of(group)
        return "rprop_step", ("prev", "step_size"), found


class ASGD(Optimizer):
    """Gradient descent that also keeps the average of the parameters (`ax` in the state) from step t0 on
    (Polyak and Juditsky 1992)."""

    _counts = ("step", "eta", "mu")

    def __init__(
        self, params: Iterable[Any], lr: Any = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0, foreach: bool | None = None, maximize: bool = False, differentiable: bool = False,
        capturable: bool = False,
    ):  # fmt: skip
        check_rate("ASGD", lr)
        not_negative("ASGD", weight_decay=weight_decay)
        check_modes("ASGD", differentiable=differentiable)
        super().__init__(params, {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        })  # fmt: skip

    def start(self, param: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        state.update(step=0.0, eta=single(number(group["lr"])), mu=1.0, ax=zeros_like(param))

    def advance(self, group: dict[str, Any], params: list[Any], states: list[dict[str, Any]]) -> list[Any]:
        found = [(state["eta"], state["mu"]) for state in states]
        lr = number(group["lr"])
        for state, step in zip(states, super().advance(group, params, states), strict=True):
            state["eta"] = single(lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
            state["mu"] = single(1 / max(1, step - group["t0"]))
        return found

    def numbers(
        self, group: dict[str, Any], key: tuple[float, float]
    ) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
        eta, mu = key
        decay = 1 - number(group["lambd"]) * eta
        return "asgd_step", ("ax",), (eta, decay, mu, number(group["weight_decay"]), sign_of(group))
