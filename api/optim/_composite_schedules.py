"""Schedules that run other schedules: one after the other, or all in every epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ..runtime.errors import ArgumentError
from ._plateau_schedule import ReduceLROnPlateau
from ._scheduler import LRScheduler, set_group_option
from ._types import StateDict
from .optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


class _CompositeScheduler(LRScheduler):
    """A schedule that runs other schedules and saves their states in a list."""

    _schedulers: Sequence[LRScheduler]

    def _check_schedulers(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        title = type(self).__name__
        for position, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise ArgumentError(f"{title}: schedulers[{position}] is a {type(scheduler).__name__}, not a schedule")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ArgumentError(f"{title}: schedulers[{position}], ReduceLROnPlateau, needs a metric in each step")
            if scheduler.optimizer is not optimizer:
                raise ArgumentError(f"{title}: schedulers[{position}] belongs to another optimizer")

    def state_dict(self) -> StateDict:
        """Return all attributes except the optimizer, with a list of the schedules' own states.

        Returns:
            Dict from attribute names to values.
        """
        own_state = {name: value for name, value in vars(self).items() if name not in ("optimizer", "_schedulers")}
        return {**own_state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: StateDict) -> None:
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
        needed = len(schedulers) - 1
        if len(milestones) != needed:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules need {needed} milestones, not {len(milestones)}"
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

    def recursive_undo(self, sched: LRScheduler | None = None) -> None:
        """Take back the epoch count of the last step, in all schedules or in `sched`.

        Args:
            sched: A schedule; None: this one.

        Example:
            >>> from weftgrad.optim import lr_scheduler
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> warmup = lr_scheduler.ConstantLR(optimizer, factor=0.5)
            >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
            >>> schedule = lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[1])
            >>> epoch = warmup.last_epoch
            >>> schedule.recursive_undo()
            >>> epoch - warmup.last_epoch
            1
        """
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for scheduler in sched._schedulers:
                self.recursive_undo(scheduler)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]  # the schedules count the epochs; there is no `epoch`
        """Advance by one epoch.

        Example:
            >>> from weftgrad.optim import lr_scheduler
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> warmup = lr_scheduler.ConstantLR(optimizer, factor=0.5)
            >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
            >>> schedule = lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[1])
            >>> optimizer.step()
            >>> schedule.step()
            >>> schedule.get_last_lr()
            [1.0]
        """
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
        self.optimizer = schedulers[0].optimizer
        self._last_lr = self.current_rates()

    def step(self) -> None:  # type: ignore[override]  # the schedules count the epochs; there is no `epoch`
        """Advance all schedules by one epoch.

        Example:
            >>> from weftgrad.optim import lr_scheduler
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> parts = [lr_scheduler.ExponentialLR(optimizer, gamma=0.5), lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]
            >>> schedule = lr_scheduler.ChainedScheduler(parts)
            >>> optimizer.step()
            >>> schedule.step()
            >>> schedule.get_last_lr()
            [0.25]
        """
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self.current_rates()
