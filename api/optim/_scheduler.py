"""The base class of learning rate schedules, and helpers that all schedules use.

`LRScheduler` decides when the rates of an optimizer's groups change, what is saved, and what is warned of. The
schedules themselves are in `_epoch_schedules`, `_cosine_schedules`, `_cyclic_schedules`, `_plateau_schedule` and
`_composite_schedules`; `lr_scheduler` has all of them.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.tensor import Tensor
from ._options import to_float
from ._types import ParamGroup, Rate, StateDict
from .optimizer import Optimizer

__all__ = [
    "EPOCH_DEPRECATION_WARNING", "LRScheduler", "MissingInitialRate", "broadcast_to_groups", "check_optimizer",
    "group_values", "lambdas_per_group", "restore_callable", "saved_callable", "set_group_option",
]  # fmt: skip

EPOCH_DEPRECATION_WARNING = (
    "the epoch argument of scheduler.step(epoch) is deprecated: call scheduler.step(), which advances by one epoch; "
    "with an epoch, the schedule uses its closed form if it has one"
)


class MissingInitialRate(WeftgradError, KeyError):
    """A parameter group has no `initial_lr`, which a schedule needs to resume from a later epoch."""

    def __str__(self) -> str:
        return str(self.args[0])


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise `ArgumentError` if `optimizer` is not an `Optimizer`."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"a schedule is for an Optimizer, not {type(optimizer).__name__}")


_Value = TypeVar("_Value", bound=float | Callable[[int], float])


def group_values(optimizer: Optimizer, name: str) -> list[Rate]:
    """Return the option `name` of every parameter group. Tensors are cloned."""
    return [v.clone() if isinstance(v, Tensor) else v for v in (group[name] for group in optimizer.param_groups)]


def broadcast_to_groups(title: str, optimizer: Optimizer, name: str, values: _Value | Sequence[_Value]) -> list[_Value]:
    """Return one value per parameter group: the values of a sequence, otherwise `values` repeated.

    Raises:
        ArgumentError: If the list's length is not the number of groups.
    """
    if not isinstance(values, Sequence):
        return [values] * len(optimizer.param_groups)
    if len(values) != len(optimizer.param_groups):
        raise ArgumentError(f"{title}: {len(optimizer.param_groups)} groups need as many {name}, not {len(values)}")
    return list(values)


def set_group_option(group: ParamGroup, name: str, value: Rate) -> None:
    """Set an option of a group. A tensor is written in place, because the user may hold a reference to it."""
    if isinstance(group[name], Tensor):
        group[name].fill_(to_float(value))
    else:
        group[name] = value


def saved_callable(function: Callable[..., object]) -> dict[str, object] | None:
    """Return what a state_dict stores for a callable: its attributes, or None for a plain function."""
    return None if isinstance(function, types.FunctionType) else dict(vars(function))


def restore_callable(function: Callable[..., object] | None, saved: dict[str, object] | None) -> None:
    """Restore the attributes that `saved_callable` returned."""
    if saved is not None:
        vars(function).update(saved)


def lambdas_per_group(
    title: str, optimizer: Optimizer, functions: Callable[[int], float] | Sequence[Callable[[int], float]]
) -> list[Callable[[int], float]]:
    """Return one function per parameter group. Raise `ArgumentError` if their number differs."""
    return broadcast_to_groups(title, optimizer, "functions", functions)


class LRScheduler:
    """Base class of schedules, which set `lr` of an optimizer's parameter groups.

    Call `scheduler.step()` after `optimizer.step()`, once an epoch (or once a batch, if the schedule counts batches).
    Most schedules compute the next rate from the current one, so that several schedules can act on one optimizer.

    A subclass defines `get_lr()`. It may define `_get_closed_form_lr()`, which computes the rate of any epoch directly.

    Args:
        optimizer: The optimizer whose groups are scheduled. Each group's first rate is saved as `initial_lr`.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        MissingInitialRate: If `last_epoch` is not -1 and a group has no `initial_lr`.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> class Halve(wg.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate * 0.5 ** self.last_epoch for rate in self.base_lrs]
        ...
        >>> schedule = Halve(optimizer)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Rate]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"].clone() if isinstance(group["lr"], Tensor) else group["lr"])
            elif "initial_lr" not in group:
                raise MissingInitialRate(
                    f"{type(self).__name__}: with last_epoch={last_epoch}, param_groups[{position}] needs an "
                    "'initial_lr': load the optimizer's state_dict first, or start with last_epoch=-1"
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if not hasattr(optimizer, "_step_method_when_scheduled"):
            optimizer._step_method_when_scheduled = vars(optimizer).get("step")
            optimizer._opt_called = False
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch and set the new rates.

        Args:
            epoch: Go to this epoch instead. Deprecated.

        Raises:
            ArgumentError: If the schedule computes rates for another number of groups than the optimizer has.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> optimizer.step()
            >>> schedule.step()
            >>> optimizer.param_groups[0]['lr']
            0.5
        """
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if vars(self.optimizer).get("step") is not self.optimizer._step_method_when_scheduled:
            problem = (
                "optimizer.step was replaced after its schedule was created, so that the schedule cannot see steps"
            )
        elif not self.optimizer._opt_called:
            problem = "scheduler.step() was called before optimizer.step(), so that the first rate is never used"
        else:
            return
        warnings.warn(f"{problem}: call optimizer.step() first, then scheduler.step()", UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed_form = getattr(self, "_get_closed_form_lr", None) if epoch is not None else None
            rates = self.get_lr() if closed_form is None else closed_form()
        finally:
            self._get_lr_called_within_step = False
        self._set_rates(rates)

    def _set_rates(self, rates: Sequence[Rate]) -> None:
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ArgumentError(
                f"{type(self).__name__}: created for {len(rates)} groups of parameters, and the optimizer has "
                f"{len(groups)} now; create a new schedule after add_param_group"
            )
        for group, rate in zip(groups, rates, strict=True):
            set_group_option(group, "lr", rate)
        self._last_lr = group_values(self.optimizer, "lr")

    def _warn_outside_step(self) -> None:
        """Warn if `get_lr` is called outside `step`: it computes the next rates from the current ones."""
        if not self._get_lr_called_within_step:
            warnings.warn(
                "get_lr() computes the next rates; for the current ones call scheduler.get_last_lr()",
                UserWarning,
                stacklevel=3,
            )

    def get_lr(self) -> Sequence[Rate]:
        """Compute the rate of every group for `last_epoch`, from the rates of the epoch before. `step` calls this.

        Returns:
            One number per group.

        Raises:
            NotImplementedError: If a subclass does not define the method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr()")

    def get_last_lr(self) -> list[Rate]:
        """Return the rates that the last step set, one per group.

        Returns:
            One number, or tensor, per group.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> schedule.get_last_lr()
            [1.0]
        """
        return self._last_lr

    def current_rates(self) -> list[Rate]:
        """Return the rate that every group has now.

        Returns:
            One number, or tensor, per group.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> optimizer.param_groups[0]['lr'] = 0.25
            >>> schedule.current_rates()
            [0.25]
        """
        return group_values(self.optimizer, "lr")

    def scaled_rates(self, factor: float) -> list[Rate]:
        """Return the rate of every group times `factor`.

        Args:
            factor: Number.

        Returns:
            One number, or tensor, per group.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> schedule.scaled_rates(0.125)
            [0.125]
        """
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self) -> StateDict:
        """Return all attributes except the optimizer.

        Returns:
            Dict from attribute names to values.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> schedule.state_dict()['last_epoch']
            0
        """
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned. Load the optimizer's own state_dict after the schedules are created.

        Args:
            state_dict: Result of `state_dict`.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
            >>> schedule.load_state_dict({**schedule.state_dict(), 'last_epoch': 7})
            >>> schedule.last_epoch
            7
        """
        vars(self).update(state_dict)
