"""Cyclic schedules: the learning rate rises and falls, while momentum falls and rises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypedDict

from ..runtime.errors import ArgumentError
from ._scheduler import (
    LRScheduler,
    broadcast_to_groups,
    check_optimizer,
    restore_callable,
    saved_callable,
    set_group_option,
)
from ._types import ParamGroup, Rate, StateDict
from .optimizer import Optimizer

__all__ = ["CyclicLR", "OneCycleLR"]


class _MomentumScheduler(LRScheduler):
    """A schedule that also sets momentum (the first beta of Adam's family), high while the rate is low.

    Attributes:
        use_beta1: Whether the optimizer has `betas`, whose first one is set, instead of `momentum`.
    """

    use_beta1: bool

    def _init_momentum(
        self, optimizer: Optimizer, base_momentum: float | Sequence[float], max_momentum: float | Sequence[float],
        last_epoch: int,
    ) -> tuple[list[float], list[float]]:  # fmt: skip
        """Start at the maximum, unless training resumes. Return base and maximum of each group.

        Raises:
            ArgumentError: The optimizer has neither momentum nor betas, or a list has a wrong length.
        """
        title = type(self).__name__
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ArgumentError(
                f"{title}: {type(optimizer).__name__} has neither momentum nor betas; pass cycle_momentum=False"
            )
        self.use_beta1 = "betas" in optimizer.defaults
        base_momentums = broadcast_to_groups(title, optimizer, "base_momentum", base_momentum)
        max_momentums = broadcast_to_groups(title, optimizer, "max_momentum", max_momentum)
        if last_epoch == -1:
            for group, base_value, max_value in zip(optimizer.param_groups, base_momentums, max_momentums, strict=True):
                self._set_momentum(group, max_value)
                group["max_momentum"], group["base_momentum"] = max_value, base_value
        return base_momentums, max_momentums

    def _set_momentum(self, group: ParamGroup, value: float) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value


class CyclicLR(_MomentumScheduler):
    """Cycle the learning rate between two bounds (Smith 2017, arXiv 1506.01186).

    The rate rises linearly from `base_lr` to `max_lr` in `step_size_up` steps and falls back in `step_size_down`. Call
    `step()` once a batch.

    Args:
        optimizer: The optimizer to schedule.
        base_lr: Lower bound; one number, or a list with one per group.
        max_lr: Upper bound; one number, or a list with one per group.
        step_size_up: Steps of the rising half of a cycle.
        step_size_down: Steps of the falling half; None means `step_size_up`.
        mode: `"triangular"` repeats the cycle, `"triangular2"` halves its height each time, `"exp_range"` scales the
            height by `gamma ** step`. Ignored if `scale_fn` is not None.
        gamma: Base of the power in mode `"exp_range"`.
        scale_fn: Function that returns the height of a cycle, relative to `max_lr - base_lr`; None: that of `mode`.
        scale_mode: What `scale_fn` is called with: `"cycle"` for the cycle's number, from 1 on; `"iterations"` for the
            step.
        cycle_momentum: Also cycle momentum (or the first beta), from `max_momentum` down to `base_momentum` and back.
        base_momentum: Lower bound of momentum.
        max_momentum: Upper bound of momentum.
        last_epoch: Index of the last finished step when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If `mode` is unknown, a list has a wrong length, or momentum is to be cycled and the optimizer
            has neither `momentum` nor `betas`.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, step_size_up=2)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [0.1, 0.3, 0.5, 0.3]
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | Sequence[float], max_lr: float | Sequence[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ):  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = broadcast_to_groups("CyclicLR", optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for group, base_rate in zip(optimizer.param_groups, base_lrs, strict=True):
                set_group_option(group, "lr", base_rate)
        self.max_lrs = broadcast_to_groups("CyclicLR", optimizer, "max_lr", max_lr)
        steps_up = float(step_size_up)
        self.total_size = steps_up + (steps_up if step_size_down is None else float(step_size_down))
        self.step_ratio = steps_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ArgumentError(f"CyclicLR: mode is 'triangular', 'triangular2' or 'exp_range', not {mode!r}")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            momentum_bounds = self._init_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = momentum_bounds
        super().__init__(optimizer, last_epoch)
        self.base_lrs = [*base_lrs]  # not the groups' `initial_lr`, which the base class reads

    def scale_fn(self, x: float) -> float:
        """Return the relative height of a cycle.

        Args:
            x: The cycle's number from 1 on, or the step in mode `"exp_range"` and with `scale_mode="iterations"`.

        Returns:
            Number, 1 for the full height.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
            >>> schedule = wg.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, mode='triangular2')
            >>> schedule.scale_fn(1), schedule.scale_fn(2)
            (1.0, 0.5)
        """
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return float(self.gamma**x)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        cycle_fraction = 1.0 + self.last_epoch / self.total_size - cycle
        height = (
            cycle_fraction / self.step_ratio
            if cycle_fraction <= self.step_ratio
            else (cycle_fraction - 1) / (self.step_ratio - 1)
        )
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (base_momentum, max_momentum) in zip(self.optimizer.param_groups, bounds, strict=True):
                self._set_momentum(group, max_momentum - (max_momentum - base_momentum) * height * scale)
        return [
            base_lr + (max_lr - base_lr) * height * scale
            for base_lr, max_lr in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> StateDict:
        """Return all attributes except the optimizer. Of a `scale_fn` that is an object, its attributes are saved.

        Returns:
            Dict from attribute names to values.
        """
        custom = self._scale_fn_custom
        return {**super().state_dict(), "_scale_fn_custom": None if custom is None else saved_callable(custom)}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned.

        Args:
            state_dict: Result of `state_dict`.
        """
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        restore_callable(self._scale_fn_custom, state_dict["_scale_fn_custom"])


class _Phase(TypedDict):
    """A part of a one-cycle schedule.

    `end_step` is its last step, which may be a fraction. The other values are keys of a parameter group: those of the
    rate and the momentum at its start and at its end.
    """

    end_step: float
    start_lr: str
    end_lr: str
    start_momentum: str
    end_momentum: str


class OneCycleLR(_MomentumScheduler):
    """Raise the rate to `max_lr` and lower it far below its start, once over the whole training.

    Source: Smith and Topin 2019, arXiv 1708.07120.

    Call `step()` once a batch. Momentum (or the first beta) moves the opposite way.

    Args:
        optimizer: The optimizer to schedule.
        max_lr: Peak rate; one number, or a list with one per group.
        total_steps: Number of steps of the cycle; None computes `epochs * steps_per_epoch`.
        epochs: Number of epochs, if `total_steps` is None.
        steps_per_epoch: Steps of one epoch, if `total_steps` is None.
        pct_start: Fraction of all steps in which the rate rises, a float from 0 to 1.
        anneal_strategy: `"cos"` or `"linear"` interpolation.
        cycle_momentum: Also move momentum between `max_momentum` and `base_momentum`.
        base_momentum: Lowest momentum, at the peak rate.
        max_momentum: Highest momentum, at the first and the last rate.
        div_factor: The first rate is `max_lr / div_factor`.
        final_div_factor: The last rate is the first rate divided by this.
        three_phase: False: after the peak, the rate falls to the last one in a single phase. True: it first falls to
            the first rate, in as many steps as it rose, and then to the last one.
        last_epoch: Index of the last finished step when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If `pct_start` or `anneal_strategy` is invalid, the number of steps is missing, a list has a
            wrong length, or momentum is to be cycled and the optimizer has neither `momentum` nor `betas`. `step()`
            raises it, too, after the last step of the cycle.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=4)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [0.04, 0.8117, 0.2831, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _count_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: pct_start is a float between 0 and 1, not {pct_start!r}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"OneCycleLR: anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        last_rising_step = pct_start * self.total_steps - 1
        if three_phase:
            phases = [(last_rising_step, "initial_lr", "max_lr"), (2 * last_rising_step, "max_lr", "initial_lr"),
                      (self.total_steps - 1, "initial_lr", "min_lr")]  # fmt: skip
        else:
            phases = [(last_rising_step, "initial_lr", "max_lr"), (self.total_steps - 1, "max_lr", "min_lr")]
        momentum_of_rate = {"initial_lr": "max_momentum", "max_lr": "base_momentum", "min_lr": "max_momentum"}
        self._schedule_phases: list[_Phase] = [
            {
                "end_step": end_step,
                "start_lr": start_rate,
                "end_lr": end_rate,
                "start_momentum": momentum_of_rate[start_rate],
                "end_momentum": momentum_of_rate[end_rate],
            }
            for end_step, start_rate, end_rate in phases
        ]
        self._anneal_func_type = anneal_strategy
        max_lrs = broadcast_to_groups("OneCycleLR", optimizer, "max_lr", max_lr)
        if last_epoch == -1:
            for group, group_max_lr in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"], group["max_lr"] = group_max_lr / div_factor, group_max_lr
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._init_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, fraction: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * fraction + start
        return end + (start - end) / 2 * (math.cos(math.pi * fraction) + 1)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ArgumentError(f"OneCycleLR: step {step} is past the {self.total_steps} steps of the cycle")
        phase_start = 0.0
        for phase in self._schedule_phases:
            phase_end = phase["end_step"]
            if step <= phase_end or phase is self._schedule_phases[-1]:
                break
            phase_start = phase_end
        phase_fraction = (step - phase_start) / (phase_end - phase_start)
        rates: list[Rate] = []
        for group in self.optimizer.param_groups:
            rates.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], phase_fraction))
            if self.cycle_momentum:
                start_momentum, end_momentum = group[phase["start_momentum"]], group[phase["end_momentum"]]
                self._set_momentum(group, self._anneal(start_momentum, end_momentum, phase_fraction))
        return rates


def _count_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    """Return the number of steps of the cycle. Raise `ArgumentError` if an argument is missing or not positive."""
    if total_steps is not None:
        factors = {"total_steps": total_steps}
    elif epochs is None or steps_per_epoch is None:
        raise ArgumentError("OneCycleLR: pass total_steps, or epochs and steps_per_epoch")
    else:
        factors = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, value in factors.items():
        if not isinstance(value, int) or value <= 0:
            raise ArgumentError(f"OneCycleLR: {name} is an integer above 0, not {value!r}")
    return math.prod(factors.values())
