"""Schedules that move the learning rate along half a cosine, without and with restarts."""

from __future__ import annotations

import math

from ..runtime.errors import ArgumentError
from ._scheduler import LRScheduler
from ._types import Rate
from .optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "CosineAnnealingWarmRestarts"]


class CosineAnnealingLR(LRScheduler):
    """Anneal the rate along half a cosine to `eta_min` in `T_max` epochs, and back in as many.

    `lr = eta_min + (initial_lr - eta_min) * (1 + cos(pi * epoch / T_max)) / 2`; equation 5 of Loshchilov and Hutter
    2017 (SGDR, arXiv 1608.03983), without restarts.

    Args:
        optimizer: The optimizer to schedule.
        T_max: Epochs from the first rate to `eta_min`.
        eta_min: Lowest rate.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 0.0]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        if self._is_initial:
            return self.current_rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the last rate was eta_min: no ratio exists
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                group["lr"] + (base - self.eta_min) * rise for base, group in zip(self.base_lrs, groups, strict=True)
            ]
        height, previous_height = (
            1 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return [height / previous_height * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self) -> list[Rate]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Anneal the rate along half a cosine to `eta_min`, then restart at the first rate.

    Source: Loshchilov and Hutter 2017, SGDR, arXiv 1608.03983.

    `step` accepts fractions of epochs, so that the rate can change every batch.

    Args:
        optimizer: The optimizer to schedule.
        T_0: Epochs of the first cycle.
        T_mult: Each cycle is this many times as long as the one before.
        eta_min: Lowest rate.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If `T_0` or `T_mult` is not a positive int, or `eta_min` is not a number.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 1.0]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ):  # fmt: skip
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: T_0 is an integer above 0, not {T_0!r}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: T_mult is an integer of at least 1, not {T_mult!r}")
        if not isinstance(eta_min, (int, float)):
            raise ArgumentError(f"CosineAnnealingWarmRestarts: eta_min is a number, not {type(eta_min).__name__}")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Rate]:
        self._warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Advance by one epoch, or go to `epoch`, which may be a fraction such as `epoch + batch / num_batches`.

        Args:
            epoch: The epoch to go to; None: the next one.

        Raises:
            ArgumentError: If `epoch` is negative.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
            >>> optimizer.step()
            >>> schedule.step(2.5)
            >>> round(schedule.get_last_lr()[0], 4)
            0.8536
        """
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            self._locate_cycle(epoch)
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _locate_cycle(self, epoch: float) -> None:
        """Set the length of the cycle that contains `epoch`, and the position within it."""
        if epoch < 0:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: an epoch is not negative, got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**cycle
