"""Schedules made of others: one after the other, or all at once; and the one that waits for a measure to get worse."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import ArgumentError, DomainError
from ._options import number
from ._schedules import EPOCH, LRScheduler, check_optimizer, per_group, put, values_of
from .optimizer import Optimizer

__all__ = ["ChainedScheduler", "ReduceLROnPlateau", "SequentialLR"]


class _Several(LRScheduler):
    """Schedules of other schedules, whose states are saved in a list."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, schedulers: Sequence[Any], optimizer: Any) -> None:
        title = type(self).__name__
        for position, each in enumerate(schedulers):
            if not hasattr(each, "optimizer"):
                raise ArgumentError(f"{title}: number {position} is a {type(each).__name__}, and no schedule")
            if isinstance(each, ReduceLROnPlateau):
                raise ArgumentError(f"{title}: ReduceLROnPlateau (number {position}) needs a measure in each step")
            if each.optimizer is not optimizer:
                raise ArgumentError(f"{title}: number {position} is of another optimizer")

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer, with the schedules' own states in a list."""
        found = {name: value for name, value in vars(self).items() if name not in ("optimizer", "_schedulers")}
        return {**found, "_schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        vars(self).update({name: value for name, value in state_dict.items() if name != "_schedulers"})
        for each, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            each.load_state_dict(saved)


class SequentialLR(_Several):
    """One schedule after the other: the next takes over, from its own epoch 0, in each of the epochs `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ):  # fmt: skip
        if not schedulers:
            raise ArgumentError("SequentialLR: got no schedules")
        self._check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules meet in {len(schedulers) - 1} milestones, not "
                f"{len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # every schedule took its first step when it was made
            put(group, "lr", group["initial_lr"])
        self.recursive_undo()
        first = schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take the last step of all schedules (or of `sched`) back, as far as epochs are counted."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for each in sched._schedulers:
                self.recursive_undo(each)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            now._update_lr(0)
        else:
            now.step()
        self._last_lr = now.get_last_lr()


class ChainedScheduler(_Several):
    """Schedules that all take a step in each epoch, each from the rate that the one before has left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if not schedulers:
            raise ArgumentError("ChainedScheduler: got no schedules")
        optimizer = optimizer or getattr(schedulers[0], "optimizer", None)
        self._check(schedulers, optimizer)
        self._schedulers = schedulers
        self.optimizer = optimizer  # type: ignore[assignment]
        self._last_lr = self.rates()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch."""
        for each in self._schedulers:
            each.step()
        self._last_lr = self.rates()


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` whenever a measure has not improved for more than `patience` epochs; call `step(measure)`.

    mode: whether the measure is to fall ("min") or rise ("max"). threshold: by how much it must, as a share of the best
    so far (threshold_mode "rel") or as it is ("abs"). cooldown: epochs after a change that do not count. min_lr: where
    it ends, for all groups or a list. eps: smaller changes are not made.
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1:
            raise ArgumentError(f"ReduceLROnPlateau: factor is below 1, not {factor}")
        check_optimizer(optimizer)
        self.factor = factor
        self.optimizer = optimizer
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.min_lrs = per_group("ReduceLROnPlateau", optimizer, "min_lr", min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = values_of(optimizer, "lr")
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
        """Forget all measures."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the rate was changed so lately that bad epochs do not count."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * value > sign * best * (1 + sign * self.threshold)
        return sign * value > sign * (best + sign * self.threshold)

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take the measure of an epoch: a number or a tensor of one, for which the host waits."""
        value = number(metrics)
        if epoch is not None:
            warnings.warn(EPOCH, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self.rates()

    def _reduce_lr(self, epoch: int | None = None) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):  # groups were added
            if self.default_min_lr is None:
                raise DomainError(
                    f"ReduceLROnPlateau: there are {len(groups)} groups now, and min_lr was given for "
                    f"{len(self.min_lrs)}: set min_lrs to a list of {len(groups)}"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = number(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                put(group, "lr", new)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        super().load_state_dict(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)
