"""Schedules that combine other schedules, and `ReduceLROnPlateau`, which reacts to a validation metric."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._options import to_float
from ._schedules import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    broadcast_to_groups,
    check_optimizer,
    group_values,
    set_group_option,
)
from .optimizer import Optimizer

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


class _CompositeScheduler(LRScheduler):
    """A schedule that runs other schedules and saves their states in a list."""

    _schedulers: Sequence[LRScheduler]

    def _check_schedulers(self, schedulers: Sequence[Any], optimizer: Any) -> None:
        title = type(self).__name__
        for position, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise ArgumentError(f"{title}: schedulers[{position}] is a {type(scheduler).__name__}, not a schedule")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(f"{title}: schedulers[{position}], ReduceLROnPlateau, needs a metric in each step")
            if scheduler.optimizer is not optimizer:
                raise ArgumentError(f"{title}: schedulers[{position}] belongs to another optimizer")

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes except the optimizer, with a list of the schedules' own states.

        Returns:
            Dict from attribute names to values.
        """
        own_state = {name: value for name, value in vars(self).items() if name not in ("optimizer", "_schedulers")}
        return {**own_state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Args:
            state_dict: Result of `state_dict`.
        """
        vars(self).update({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_CompositeScheduler):
    """Run schedules one after the other. At each milestone the next one takes over, from its own epoch 0.

    Args:
        optimizer: The optimizer that all schedules belong to.
        schedulers: The schedules, in order.
        milestones: Epochs at which the next schedule begins, one fewer than schedules.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If the schedules belong to another optimizer, need a metric, or do not match the milestones in
            number.

    Example:
        >>> from weftgrad.optim import lr_scheduler
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> warmup = lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=10)
        >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
        >>> schedule = lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [0.5, 0.5, 1.0, 0.1]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):  # fmt: skip
        if not schedulers:
            raise ArgumentError("SequentialLR: got no schedules")
        self._check_schedulers(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules meet in {len(schedulers) - 1} milestones, not "
                f"{len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # each schedule's constructor took its first step
            set_group_option(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first_scheduler = schedulers[bisect_right(milestones, 0)]
        first_scheduler._initial_step()
        self._last_lr = first_scheduler.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the epoch count of the last step, in all schedules or in `sched`.

        Args:
            sched: A schedule; None: this one.
        """
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for scheduler in sched._schedulers:
                self.recursive_undo(scheduler)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Advance by one epoch."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_CompositeScheduler):
    """Run several schedules in every epoch, each starting from the rate that the previous one set.

    Args:
        schedulers: Schedules of one optimizer, in order.
        optimizer: That optimizer; None takes it from the first schedule.

    Raises:
        ArgumentError: If the schedules belong to several optimizers, or one needs a metric.

    Example:
        >>> from weftgrad.optim import lr_scheduler
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> steps = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
        >>> schedule = lr_scheduler.ChainedScheduler([decay, steps])
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.5, 0.025]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ArgumentError("ChainedScheduler: got no schedules")
        optimizer = optimizer or getattr(schedulers[0], "optimizer", None)
        self._check_schedulers(schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer  # type: ignore[assignment]
        self._last_lr = self.current_rates()

    def step(self) -> None:  # type: ignore[override]
        """Advance all schedules by one epoch."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self.current_rates()


class ReduceLROnPlateau(LRScheduler):
    """Multiply the rate by `factor` when a metric has not improved for more than `patience` epochs.

    Call `step(metric)` once an epoch.

    Args:
        optimizer: The optimizer to schedule.
        mode: `"min"` if the metric should fall, `"max"` if it should rise.
        factor: Factor of a reduction, below 1.
        patience: Epochs without improvement that are tolerated.
        threshold: Smallest change that counts as an improvement.
        threshold_mode: `"rel"`: `threshold` is a fraction of the best metric; `"abs"`: it is a difference.
        cooldown: Epochs after a reduction that are not counted as bad.
        min_lr: Lower bound of the rate; one number, or a list with one per group.
        eps: Smallest change of the rate; smaller reductions are skipped.

    Raises:
        ArgumentError: If `factor` is not below 1, `mode` or `threshold_mode` is unknown, or `min_lr` has a wrong
            length.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        >>> rates = []
        >>> for loss in [3.0, 2.0, 2.0, 2.0]:
        ...     schedule.step(loss)
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...
        >>> rates
        [1.0, 1.0, 1.0, 0.1]
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | Sequence[float] = 0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1:
            raise ArgumentError(f"ReduceLROnPlateau: factor is below 1, not {factor}")
        check_optimizer(optimizer)
        self.factor = factor
        self.optimizer = optimizer
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = broadcast_to_groups("ReduceLROnPlateau", optimizer, "min_lr", min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = group_values(optimizer, "lr")
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ArgumentError(f"ReduceLROnPlateau: mode is 'min' or 'max', not {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"ReduceLROnPlateau: threshold_mode is 'rel' or 'abs', not {threshold_mode!r}")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode

    def _reset(self) -> None:
        """Forget the metrics seen so far."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the rate was reduced within the last `cooldown` epochs, so that bad epochs are not counted."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * value > sign * best * (1 + sign * self.threshold)
        return sign * value > sign * (best + sign * self.threshold)

    def step(self, metrics: Tensor | float, epoch: int | None = None) -> None:  # type: ignore[override]
        """Record the metric of an epoch and reduce the rates if it has stopped improving.

        Args:
            metrics: A number, or a one-element tensor, for which the host waits.
            epoch: Deprecated.
        """
        metric = to_float(metrics)
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(metric, self.best):
            self.best, self.num_bad_epochs = metric, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.current_rates()

    def _reduce_lr(self, epoch: int | None = None) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):  # groups were added
            if self.default_min_lr is None:
                raise DomainError(
                    f"ReduceLROnPlateau: there are {len(groups)} groups now, and min_lr was given for "
                    f"{len(self.min_lrs)}: set min_lrs to a list of {len(groups)}"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, min_lr in zip(groups, self.min_lrs, strict=True):
            old_lr = to_float(group["lr"])
            new_lr = max(old_lr * self.factor, min_lr)
            if old_lr - new_lr > self.eps:
                set_group_option(group, "lr", new_lr)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Args:
            state_dict: Result of `state_dict`.
        """
        super().load_state_dict(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)
