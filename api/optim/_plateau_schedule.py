"""`ReduceLROnPlateau`, a schedule that reacts to a metric such as the validation loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._options import to_float
from ._scheduler import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    broadcast_to_groups,
    check_optimizer,
    group_values,
    set_group_option,
)
from ._types import StateDict
from .optimizer import Optimizer

__all__ = ["ReduceLROnPlateau"]


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
        self.default_min_lr = None if isinstance(min_lr, Sequence) else min_lr
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

    def step(self, metrics: Tensor | float, epoch: int | None = None) -> None:  # type: ignore[override]  # needs a metric
        """Record the metric of an epoch and reduce the rates if it has stopped improving.

        Args:
            metrics: A number, or a one-element tensor, for which the host waits.
            epoch: Deprecated.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
            >>> for loss in [3.0, 3.0]:
            ...     schedule.step(loss)
            ...
            >>> schedule.get_last_lr()
            [0.1]
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
                    f"ReduceLROnPlateau: there are {len(groups)} groups now, and min_lr has values for "
                    f"{len(self.min_lrs)}: set min_lrs to a list of {len(groups)}"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, min_lr in zip(groups, self.min_lrs, strict=True):
            old_lr = to_float(group["lr"])
            new_lr = max(old_lr * self.factor, min_lr)
            if old_lr - new_lr > self.eps:
                set_group_option(group, "lr", new_lr)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned.

        Args:
            state_dict: Result of `state_dict`.
        """
        super().load_state_dict(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)
