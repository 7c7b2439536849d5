"""Schedules that take rates up and down, and momentum the opposite way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..runtime.errors import ArgumentError
from ._schedules import LRScheduler, check_optimizer, per_group, put, restore_callable, saved_callable
from .optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class _WithMomentum(LRScheduler):
    """What cycles share: momentum (of Adam's family, the first beta) that goes down while the rate goes up."""

    use_beta1: bool

    def _begin_momentum(self, optimizer: Optimizer, least: Any, most: Any, last_epoch: int) -> tuple[Any, Any]:
        title = type(self).__name__
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError(
                f"{title}: {type(optimizer).__name__} has neither momentum nor betas; pass cycle_momentum=False"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        lows = per_group(title, optimizer, "base_momentum", least)
        highs = per_group(title, optimizer, "max_momentum", most)
        if last_epoch == -1:
            for group, low, high in zip(optimizer.param_groups, lows, highs, strict=True):
                self._put_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return lows, highs

    def _put_momentum(self, group: dict[str, Any], value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_WithMomentum):
    """From base_lr to max_lr in `step_size_up` steps and back in `step_size_down`, again and again (Smith 2017).

    mode: "triangular" cycles stay alike, "triangular2" are half as high each time, "exp_range" shrink by gamma a step;
    or scale_fn gives the height, of the cycle's number or the step's (scale_mode "cycle" or "iterations").
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ):  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("CyclicLR", optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for group, low in zip(optimizer.param_groups, base_lrs, strict=True):
                put(group, "lr", low)
        self.max_lrs = per_group("CyclicLR", optimizer, "max_lr", max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', not {mode!r}")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            found = self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = found
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The height of a cycle: of its number from 1 on, or of the step's."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[Any]:
        self._asked()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        part = 1.0 + self.last_epoch / self.total_size - cycle
        high = part / self.step_ratio if part <= self.step_ratio else (part - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (least, most) in zip(self.optimizer.param_groups, bounds, strict=True):
                self._put_momentum(group, most - (most - least) * high * scale)
        return [low + (top - low) * high * scale for low, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; of scale_fn, what a callable object holds."""
        custom = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": None if custom is None else saved_callable(custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        restore_callable(self._scale_fn_custom, state_dict["_scale_fn_custom"])


class OneCycleLR(_WithMomentum):
    """Up to max_lr, then far down, once in `total_steps` (or epochs * steps_per_epoch) steps (Smith and Topin 2019).

    pct_start: the part of all steps that goes up. div_factor, final_div_factor: the first rate is max_lr / div_factor,
    the last one that divided by final_div_factor. three_phase: down to the first rate in as many steps as up, then to
    the last. Momentum (or the first beta) goes the opposite way unless `cycle_momentum` is off.
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: pct_start is a float between 0 and 1, not {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        top = pct_start * self.total_steps - 1
        if three_phase:
            plan = [(top, "initial_lr", "max_lr"), (2 * top, "max_lr", "initial_lr"),
                    (self.total_steps - 1, "initial_lr", "min_lr")]  # fmt: skip
        else:
            plan = [(top, "initial_lr", "max_lr"), (self.total_steps - 1, "max_lr", "min_lr")]
        opposite = {"initial_lr": "max_momentum", "max_lr": "base_momentum", "min_lr": "max_momentum"}
        self._schedule_phases: list[dict[str, Any]] = [
            {"end_step": end, "start_lr": a, "end_lr": b, "start_momentum": opposite[a], "end_momentum": opposite[b]}
            for end, a, b in plan
        ]
        self._anneal_func_type = anneal_strategy
        highest = per_group("OneCycleLR", optimizer, "max_lr", max_lr)
        if last_epoch == -1:
            for group, high in zip(optimizer.param_groups, highest, strict=True):
                group["initial_lr"], group["max_lr"] = high / div_factor, high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2 * (math.cos(math.pi * part) + 1)

    def get_lr(self) -> list[Any]:
        self._asked()
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {step} of {self.total_steps}: the cycle is over")
        begin = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end or phase is self._schedule_phases[-1]:
                break
            begin = end
        part = (step - begin) / (end - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                start, goal = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._put_momentum(group, self._between(start, goal, part))
        return rates


def _total(total: Any, epochs: Any, each: Any) -> int:
    """All steps of a cycle. Raises `ArgumentError` for numbers that are none."""
    given = {"total_steps": total} if total is not None else {"epochs": epochs, "steps_per_epoch": each}
    if None in given.values():
        raise ArgumentError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
    for name, value in given.items():
        if not isinstance(value, int) or value <= 0:
            raise ArgumentError(f"OneCycleLR: {name} is an integer above 0, not {value!r}")
    return math.prod(given.values())
