"""Learning rates over time. Each schedule gives the rate of an epoch from the rate at the start, in closed form."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import ArgumentError
from .optimizer import Optimizer

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "StepLR",
]


class LRScheduler:
    """Sets `lr` of an optimizer's groups; call `step()` after the optimizer's. `base_lrs`: the rates at the start."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, base: float, group: int, epoch: int) -> float:
        """The learning rate of a group, whose first rate was `base`, in `epoch`."""
        raise NotImplementedError(f"{type(self).__name__} defines no rate(...)")

    def get_last_lr(self) -> list[float]:
        """The rates in use."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch`."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for number, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
            group["lr"] = self.rate(base, number, self.last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v) and k != "lambdas"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.__dict__.update(state_dict)


class LambdaLR(LRScheduler):
    """The first rate times `lr_lambda(epoch)`: one function, or one a group."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ):
        given = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * len(optimizer.param_groups)
        if len(given) != len(optimizer.param_groups):
            raise ArgumentError(
                f"LambdaLR: {len(optimizer.param_groups)} groups need as many functions, not {len(given)}"
            )
        self.lambdas: Any = given
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * self.lambdas[group](epoch)


class StepLR(LRScheduler):
    """Times gamma every `step_size` epochs."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Times gamma at each of the epochs `milestones`."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * self.gamma ** bisect_right(self.milestones, epoch)


class ExponentialLR(LRScheduler):
    """Times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * self.gamma**epoch


class ConstantLR(LRScheduler):
    """Times `factor` until `total_iters`."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * (self.factor if epoch < self.total_iters else 1.0)


class LinearLR(LRScheduler):
    """From start_factor to end_factor of the first rate, along a line of `total_iters` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class PolynomialLR(LRScheduler):
    """The first rate times (1 - epoch / total_iters) ** power."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return base * (1 - min(epoch, self.total_iters) / self.total_iters) ** self.power


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate to eta_min in T_max epochs (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, group: int, epoch: int) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class OneCycleLR(LRScheduler):
    """Up to max_lr, then far down, once in `total_steps` (or epochs * steps_per_epoch) steps (Smith and Topin 2019).

    Momentum (or the first beta) goes the opposite way unless `cycle_momentum` is off.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        self.total_steps = total_steps
        self.anneal = anneal_strategy
        self.max_lr = max_lr
        self.momenta = (max_momentum, base_momentum) if cycle_momentum else None
        first = max_lr / div_factor
        top = pct_start * total_steps - 1
        if three_phase:
            self.phases = [
                (top, first, max_lr, 0, 1),
                (2 * top, max_lr, first, 1, 0),
                (total_steps - 1.0, first, first / final_div_factor, 0, 0),
            ]
        else:
            self.phases = [(top, first, max_lr, 0, 1), (total_steps - 1.0, max_lr, first / final_div_factor, 1, 0)]
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2 * (1 + math.cos(math.pi * part))

    def rate(self, base: float, group: int, epoch: int) -> float:
        if epoch > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {epoch} of {self.total_steps}")
        begin = 0.0
        for end, low, high, before, behind in self.phases:
            if epoch <= end or end == self.phases[-1][0]:
                part = (epoch - begin) / (end - begin) if end > begin else 1.0
                if self.momenta is not None:
                    self._set_momentum(group, self._between(self.momenta[before], self.momenta[behind], part))
                return self._between(low, high, part)
            begin = end
        raise AssertionError("the last phase has no end")

    def _set_momentum(self, group: int, value: float) -> None:
        options = self.optimizer.param_groups[group]
        if "betas" in options:
            options["betas"] = (value, *options["betas"][1:])
        elif "momentum" in options:
            options["momentum"] = value


class ReduceLROnPlateau:
    """Times `factor` whenever a measure has not improved for more than `patience` epochs; call `step(measure)`."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0.0, eps: float = 1e-8,
    ):  # fmt: skip
        if mode not in ("min", "max") or not factor < 1:
            raise ArgumentError(
                f"ReduceLROnPlateau: mode is 'min' or 'max' and factor below 1, not {mode!r} and {factor}"
            )
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.min_lr, self.eps = (
            threshold,
            threshold_mode,
            cooldown,
            min_lr,
            eps,
        )
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def _improves(self, value: float) -> bool:
        sign = -1 if self.mode == "min" else 1
        margin = (
            self.threshold * abs(self.best)
            if self.threshold_mode == "rel" and math.isfinite(self.best)
            else self.threshold
        )
        return sign * (value - self.best) > (margin if math.isfinite(self.best) else 0)

    def step(self, metrics: Any) -> None:
        """Take the measure of an epoch."""
        value = float(metrics)
        self.last_epoch += 1
        if self._improves(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group in self.optimizer.param_groups:
                lower = max(group["lr"] * self.factor, self.min_lr)
                if group["lr"] - lower > self.eps:
                    group["lr"] = lower
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """The rates in use."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.__dict__.update(state_dict)
