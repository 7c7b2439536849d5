"""What learning rate schedules share: when they change a group's rate, what they save, what they warn of."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import ArgumentError, WeftgradError
from ..runtime.tensor import Tensor
from ._options import number
from .optimizer import Optimizer

__all__ = [
    "EPOCH", "LRScheduler", "MissingRate", "check_optimizer", "lambdas_of", "per_group", "put", "restore_callable",
    "saved_callable", "values_of",
]  # fmt: skip

EPOCH = (
    "the epoch in scheduler.step(epoch) is deprecated: call scheduler.step(), which goes to the next; with it, the "
    "rate's closed form is used where there is one"
)


class MissingRate(WeftgradError, KeyError):
    """A group without `initial_lr`, which a schedule that goes on in the middle starts from."""

    def __str__(self) -> str:
        return str(self.args[0])


def check_optimizer(optimizer: Any) -> None:
    """Raise `ArgumentError` for anything but an optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"a schedule is for an Optimizer, not {type(optimizer).__name__}")


def values_of(optimizer: Optimizer, name: str) -> list[Any]:
    """The groups' values of an option; copies, where they are tensors."""
    return [v.clone() if isinstance(v, Tensor) else v for v in (group[name] for group in optimizer.param_groups)]


def per_group(title: str, optimizer: Optimizer, name: str, given: Any) -> list[Any]:
    """`given` as a list with a value a group. Raises `ArgumentError` for a list of another length."""
    if not isinstance(given, (list, tuple)):
        return [given] * len(optimizer.param_groups)
    if len(given) != len(optimizer.param_groups):
        raise ArgumentError(f"{title}: {len(optimizer.param_groups)} groups need as many {name}, not {len(given)}")
    return list(given)


def put(group: dict[str, Any], name: str, value: Any) -> None:
    """Set an option; one that is a tensor is written in place, as others may hold it."""
    if isinstance(group[name], Tensor):
        group[name].fill_(number(value))
    else:
        group[name] = value


def saved_callable(function: Any) -> dict[str, Any] | None:
    """What is saved of a function: nothing, and of a callable object its attributes."""
    return None if isinstance(function, types.FunctionType) else dict(vars(function))


def restore_callable(function: Any, saved: dict[str, Any] | None) -> None:
    """Put back what `saved_callable` gave."""
    if saved is not None:
        vars(function).update(saved)


def lambdas_of(title: str, optimizer: Optimizer, given: Any) -> list[Callable[[int], float]]:
    """A function a group. Raises `ArgumentError` for another number of them."""
    return per_group(title, optimizer, "functions", given)


class LRScheduler:
    """Sets `lr` of an optimizer's groups; call `step()` after the optimizer's, once an epoch (or batch).

    A schedule changes the rates that it finds, from epoch to epoch, so that several may be at work on one optimizer.
    last_epoch: the epoch to go on from, -1 to begin. A subclass defines `get_lr()`, and `_get_closed_form_lr()` where
    the rate of any epoch is known at once.
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Any]

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for position, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"].clone() if isinstance(group["lr"], Tensor) else group["lr"])
            elif "initial_lr" not in group:
                raise MissingRate(
                    f"{type(self).__name__}: with last_epoch={last_epoch}, param_groups[{position}] needs an "
                    "'initial_lr': load the optimizer's state_dict first, or begin with last_epoch=-1"
                )
        self.base_lrs = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        if not hasattr(optimizer, "_step_when_scheduled"):
            optimizer._step_when_scheduled = vars(optimizer).get("step")  # type: ignore[attr-defined]
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
        """Go to the next epoch, or to `epoch` (deprecated)."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if vars(self.optimizer).get("step") is not self.optimizer._step_when_scheduled:  # type: ignore[attr-defined]
            what = "optimizer.step was replaced after its schedule was made, so that steps are not seen"
        elif not self.optimizer._opt_called:
            what = "scheduler.step() was called before optimizer.step(), so that the first rate is never used"
        else:
            return
        warnings.warn(f"{what}: call optimizer.step() first, then scheduler.step()", UserWarning, stacklevel=3)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = getattr(self, "_get_closed_form_lr", None) if epoch is not None else None
            rates = self.get_lr() if closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._put(rates)

    def _put(self, rates: Sequence[Any]) -> None:
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            raise ArgumentError(
                f"{type(self).__name__}: made for {len(rates)} groups of parameters, and the optimizer has "
                f"{len(groups)} now; make a new schedule after add_param_group"
            )
        for group, rate in zip(groups, rates, strict=True):
            put(group, "lr", rate)
        self._last_lr = values_of(self.optimizer, "lr")

    def _asked(self) -> None:
        """Warn where `get_lr` is called from outside: it says what comes next from the rates in use."""
        if not self._get_lr_called_within_step:
            warnings.warn("the rates in use are those of scheduler.get_last_lr()", UserWarning, stacklevel=3)

    def get_lr(self) -> list[Any]:
        """The groups' rates of `last_epoch`, from those of the epoch before. Called by `step`."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr()")

    def get_last_lr(self) -> list[Any]:
        """The rates that the last step set."""
        return self._last_lr

    def rates(self) -> list[Any]:
        """The groups' rates as they are."""
        return values_of(self.optimizer, "lr")

    def times(self, factor: float) -> list[Any]:
        """The groups' rates times `factor`."""
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken. The optimizer's is loaded by itself, after schedules are made."""
        vars(self).update(state_dict)
