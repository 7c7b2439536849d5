"""Schedules whose rate depends on the epoch and on the rate of the previous epoch.

Each class states the rate at epoch t. "Epoch" means one call of `step()`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from ..runtime.errors import ArgumentError
from ._scheduler import LRScheduler, lambdas_per_group, restore_callable, saved_callable
from ._types import Rate, StateDict
from .optimizer import Optimizer

__all__ = [
    "ConstantLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "PolynomialLR", "StepLR",
]  # fmt: skip

Lambda: TypeAlias = Callable[[int], float]


class _LambdaScheduler(LRScheduler):
    """A schedule by user functions of the epoch: one for all groups, or a list with one per group.

    Plain functions are not saved in a state_dict; of callable objects, the attributes are saved.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambda | list[Lambda], last_epoch: int = -1):
        self.lr_lambdas = lambdas_per_group(type(self).__name__, optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                raise ArgumentError(f"{type(self).__name__}: lr_lambda is a function, not {type(function).__name__}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> StateDict:
        return {**super().state_dict(), "lr_lambdas": [saved_callable(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: StateDict) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            restore_callable(function, saved)


class LambdaLR(_LambdaScheduler):
    """Set the rate to `initial_lr * lr_lambda(epoch)`.

    Args:
        optimizer: The optimizer to schedule.
        lr_lambda: Function of the epoch, or a list with one function per group.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class MultiplicativeLR(_LambdaScheduler):
    """Multiply the rate by `lr_lambda(epoch)` every epoch.

    Args:
        optimizer: The optimizer to schedule.
        lr_lambda: Function of the epoch, or a list with one function per group.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        if self._is_initial:
            return self.current_rates()
        groups = self.optimizer.param_groups
        return [group["lr"] * f(self.last_epoch) for group, f in zip(groups, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Multiply the rate by `gamma` every `step_size` epochs.

    Args:
        optimizer: The optimizer to schedule.
        step_size: Epochs between two changes.
        gamma: Factor of each change.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        is_step_epoch = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return self.scaled_rates(self.gamma) if is_step_epoch else self.current_rates()

    def _get_closed_form_lr(self) -> list[Rate]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiply the rate by `gamma` at each milestone.

    Args:
        optimizer: The optimizer to schedule.
        milestones: Epochs at which the rate changes. An epoch that is listed twice counts twice.
        gamma: Factor of each change.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.MultiStepLR(optimizer, [1, 3], gamma=0.1)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.1, 0.1, 0.01]
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        repeats = self.milestones.get(self.last_epoch, 0)
        return self.scaled_rates(self.gamma**repeats) if repeats else self.current_rates()

    def _get_closed_form_lr(self) -> list[Rate]:
        milestones_passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**milestones_passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiply the rate by `gamma` every epoch.

    Args:
        optimizer: The optimizer to schedule.
        gamma: Factor per epoch.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        return self.current_rates() if self._is_initial else self.scaled_rates(self.gamma)

    def _get_closed_form_lr(self) -> list[Rate]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Multiply the rate by `factor` until epoch `total_iters`, then return to the full rate.

    Args:
        optimizer: The optimizer to schedule.
        factor: Factor of the rate, 0 to 1.
        total_iters: Epochs with the reduced rate.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If `factor` is out of range.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [0.5, 0.5, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 <= factor <= 1:
            raise ArgumentError(f"ConstantLR: factor lies between 0 and 1, not {factor}")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self.scaled_rates(self.factor)
        return self.scaled_rates(1.0 / self.factor) if self.last_epoch == self.total_iters else self.current_rates()

    def _get_closed_form_lr(self) -> list[Rate]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Change the rate linearly from `start_factor` to `end_factor` times `initial_lr`.

    Args:
        optimizer: The optimizer to schedule.
        start_factor: Factor of the first rate, above 0 and at most 1.
        end_factor: Factor of the last rate, 0 to 1.
        total_iters: Epochs of the change.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If a factor is out of range.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [0.5, 0.75, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ):  # fmt: skip
        if not 0 < start_factor <= 1:
            raise ArgumentError(f"LinearLR: start_factor is above 0 and at most 1, not {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ArgumentError(f"LinearLR: end_factor lies between 0 and 1, not {end_factor}")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        if self.last_epoch == 0:
            return self.scaled_rates(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.current_rates()
        rise = self.end_factor - self.start_factor
        return self.scaled_rates(1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _get_closed_form_lr(self) -> list[Rate]:
        rise = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + rise) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Decay the rate to 0: `initial_lr * (1 - epoch / total_iters) ** power`.

    Args:
        optimizer: The optimizer to schedule.
        total_iters: Epochs until the rate is 0.
        power: Exponent.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.75, 0.5]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.current_rates()
        remaining, previous_remaining = (
            1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return self.scaled_rates((remaining / previous_remaining) ** self.power)

    def _get_closed_form_lr(self) -> list[Rate]:
        remaining = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * remaining**self.power for base in self.base_lrs]
