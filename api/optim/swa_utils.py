"""Averages of a model's weights over training: stochastic weight averaging (Izmailov et al. 2018) and exponential
moving averages (Polyak and Juditsky 1992)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import _groups
from .._generated import ops
from ..autograd import no_grad
from ..factories import zeros
from ..nn.module import Module
from ..runtime import dtypes
from ..runtime.errors import ArgumentError
from .lr_scheduler import LRScheduler

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _decay(decay: float) -> float:
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"EMA: decay is between 0 and 1, not {decay}")
    return float(decay)


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """A function that makes averages `decay * average + (1 - decay) * current`, in place, for lists of tensors."""
    kept = _decay(decay)

    @no_grad()
    def ema_update(ema_param_list: Sequence[Any], current_param_list: Sequence[Any], _: Any = None) -> None:
        _towards(ema_param_list, current_param_list, 1.0 - kept)

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """A function that makes averages of `num_averaged` models those of one more, in place, for lists of tensors."""

    @no_grad()
    def swa_update(averaged_param_list: Sequence[Any], current_param_list: Sequence[Any], num_averaged: Any) -> None:
        _towards(averaged_param_list, current_param_list, 1.0 / (float(num_averaged) + 1.0))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """A function that gives `decay * average + (1 - decay) * current` of two tensors."""
    kept = _decay(decay)

    @no_grad()
    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any = None) -> Any:
        return ema_param * kept + current_param * (1.0 - kept)

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """A function that gives the average of one more than `num_averaged` tensors, of their average and the next."""

    @no_grad()
    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _towards(averages: Sequence[Any], current: Sequence[Any], weight: float) -> None:
    """Move averages by `weight` of their distance to `current`."""
    pairs = list(zip(averages, current, strict=True))
    moved = [pair for pair in pairs if pair[0].meta.dtype.kind == "f"]
    _groups.average([average for average, _ in moved], [now for _, now in moved], weight)
    for average, now in pairs:
        if average.meta.dtype.kind != "f":
            average.copy_(ops.add(average * (1.0 - weight), now * weight))


class AveragedModel(Module):
    """A copy of `model` whose parameters are an average of those at the calls of `update_parameters`.

    avg_fn: `(average, current, number of models averaged) -> new average`, a tensor each; multi_avg_fn: the same for
    lists of all tensors of a device and dtype, in place. Neither: every model counts the same. use_buffers: average
    buffers as well; otherwise they are copied. device: where the average lives. `state_dict` keys begin with `module.`,
    and `n_averaged` counts models. The first update copies. Raises `ArgumentError` where both functions are given.
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[Any, Any, Any], None] | None = None,
        use_buffers: bool = False,
    ):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("AveragedModel: pass avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model computes."""
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take the present values of `model` into the average."""
        buffers = self.use_buffers
        mine: list[Any] = [*self.module.parameters(), *(self.module.buffers() if buffers else ())]
        theirs: list[Any] = [*model.parameters(), *(model.buffers() if buffers else ())]
        averages = [average.detach() for average in mine]
        current = [now.detach().to(average.meta.device) for now, average in zip(theirs, mine, strict=True)]
        if int(self.n_averaged.item()) == 0:
            for average, now in zip(averages, current, strict=True):
                average.copy_(now)
        elif self.avg_fn is not None:
            for average, now in zip(averages, current, strict=True):
                average.copy_(self.avg_fn(average, now, self.n_averaged.to(average.meta.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            groups: dict[Any, tuple[list[Any], list[Any]]] = {}
            for average, now in zip(averages, current, strict=True):
                group = groups.setdefault((average.meta.device, average.meta.dtype), ([], []))
                group[0].append(average)
                group[1].append(now)
            for (device, _), group in groups.items():
                update(*group, self.n_averaged.to(device))
        if not buffers:
            for average, now in zip(self.module.buffers(), model.buffers(), strict=True):
                average.detach().copy_(now.detach())
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running statistics of every batch norm in `model` anew, as means over the batches of `loader`.

    A batch that is a list or a tuple is represented by its first element; `device`: where batches are moved to.
    """
    from ..nn.batch_normalization import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in loader:
        given = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(given if device is None else given.to(device))
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the rate of each group to `swa_lr` (one number, or one a group) within `anneal_epochs`, then keeps it.

    anneal_strategy: `cos` or `linear`. It may follow any other schedule: the way goes from whatever the rate is.
    """

    def __init__(
        self,
        optimizer: Any,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ArgumentError(f"SWALR: {len(groups)} groups need as many rates, not {len(rates)}")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"SWALR: anneal_strategy is 'cos' or 'linear', not {anneal_strategy!r}")
        if isinstance(anneal_epochs, bool) or not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ArgumentError(f"SWALR: anneal_epochs is a number of epochs from 0 on, not {anneal_epochs!r}")
        for rate, group in zip(rates, groups, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way is done at `t` of the time, both from 0 to 1."""
        return t if self._anneal_strategy == "linear" else (1.0 - math.cos(math.pi * t)) / 2.0

    def _part(self, epoch: int) -> float:
        return self.anneal_func(max(0.0, min(1.0, epoch / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[float]:
        """The rates of this epoch, from those of the last one."""
        epoch = max(1, self.last_epoch) if self.anneal_epochs == 0 else self.last_epoch
        before, now = self._part(epoch - 1), self._part(epoch)
        found = []
        for group in self.optimizer.param_groups:
            end, rate = group["swa_lr"], group["lr"]
            start = end if before == 1 else (rate - before * end) / (1.0 - before)
            found.append(end * now + start * (1.0 - now))
        return found

    def rate(self, base: float, group: int, epoch: int) -> float:
        """The rate of one group in this epoch."""
        return self.get_lr()[group]
