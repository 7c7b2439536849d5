"""Averages of a model's weights over training.

Stochastic weight averaging (SWA, Izmailov et al. 2018, arXiv 1803.05407) and exponential moving averages (EMA, Polyak
and Juditsky 1992).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from .._generated import ops
from ..autograd import no_grad
from ..creation.factories import zeros
from ..nn.batch_normalization import _BatchNorm
from ..nn.module import Module
from ..runtime import dtypes
from ..runtime.device import Device, DeviceLike
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..tensor_methods import multi_tensor
from ._types import ModelData
from .lr_scheduler import LRScheduler
from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


class _EmaFunction(Protocol):
    """Average of one tensor; it does not depend on `num_averaged`."""

    def __call__(self, average: Tensor, current: Tensor, num_averaged: object = None, /) -> Tensor: ...


class _EmaListFunction(Protocol):
    """Averages of a list of tensors, updated in place; they do not depend on `num_averaged`."""

    def __call__(
        self, averages: Sequence[Tensor], current: Sequence[Tensor], num_averaged: object = None, /
    ) -> None: ...


def _check_decay(decay: float) -> float:
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"EMA: decay is between 0 and 1, not {decay}")
    return float(decay)


def get_ema_multi_avg_fn(decay: float = 0.999) -> _EmaListFunction:
    """Return a function that updates lists of averages in place: `decay * average + (1 - decay) * current`.

    Args:
        decay: Weight of the average, from 0 to 1.

    Returns:
        Function of (averages, current tensors, ignored argument), which returns None.

    Raises:
        ArgumentError: If `decay` is not between 0 and 1.

    Example:
        >>> from weftgrad.optim.swa_utils import get_ema_multi_avg_fn
        >>> average = wg.tensor([0.0])
        >>> get_ema_multi_avg_fn(0.75)([average], [wg.tensor([4.0])], 1)
        >>> average
        tensor([1.])
    """
    decay_rate = _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], _: object = None) -> None:
        _move_averages(ema_param_list, current_param_list, 1.0 - decay_rate)

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]:
    """Return a function that updates lists of equally weighted averages in place.

    The averages are of `num_averaged` models, and then of one more.

    Returns:
        Function of (averages, current tensors, num_averaged), which returns None.

    Example:
        >>> from weftgrad.optim.swa_utils import get_swa_multi_avg_fn
        >>> average = wg.tensor([1.0])
        >>> get_swa_multi_avg_fn()([average], [wg.tensor([4.0])], 2)
        >>> average
        tensor([2.])
    """

    @no_grad()
    def swa_update(
        averaged_param_list: Sequence[Tensor], current_param_list: Sequence[Tensor], num_averaged: Tensor | int
    ) -> None:
        _move_averages(averaged_param_list, current_param_list, 1.0 / (float(num_averaged) + 1.0))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> _EmaFunction:
    """Return a function of two tensors: `decay * average + (1 - decay) * current`.

    Args:
        decay: Weight of the average, from 0 to 1.

    Returns:
        Function of (average, current tensor, ignored argument).

    Raises:
        ArgumentError: If `decay` is not between 0 and 1.

    Example:
        >>> from weftgrad.optim.swa_utils import get_ema_avg_fn
        >>> get_ema_avg_fn(0.75)(wg.tensor([0.0]), wg.tensor([4.0]))
        tensor([1.])
    """
    decay_rate = _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: object = None) -> Tensor:
        return ema_param * decay_rate + current_param * (1.0 - decay_rate)

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Tensor | int], Tensor]:
    """Return a function of (average, current, num_averaged): the mean of `num_averaged + 1` tensors.

    Returns:
        The function.

    Example:
        >>> from weftgrad.optim.swa_utils import get_swa_avg_fn
        >>> get_swa_avg_fn()(wg.tensor([1.0]), wg.tensor([4.0]), 2)
        tensor([2.])
    """

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _move_averages(averages: Sequence[Tensor], current: Sequence[Tensor], weight: float) -> None:
    """Move each average by `weight` times its distance to the current value, in place."""
    pairs = list(zip(averages, current, strict=True))
    float_pairs = [pair for pair in pairs if pair[0].meta.dtype.kind == "f"]
    multi_tensor.update_averages(
        [average for average, _ in float_pairs], [current_value for _, current_value in float_pairs], weight
    )
    for average, current_value in pairs:
        if average.meta.dtype.kind != "f":
            average.copy_(ops.add(average * (1.0 - weight), current_value * weight))


class AveragedModel(Module):
    """A copy of a model whose parameters are an average over the calls of `update_parameters`.

    The first update copies the parameters. `state_dict` keys begin with `module.`; the buffer `n_averaged` counts
    updates.

    Args:
        model: The model to copy.
        device: Device of the average; None keeps the model's.
        avg_fn: `(average, current, num_averaged) -> new average` of one tensor.
        multi_avg_fn: The same for lists of all tensors of one device and dtype, updated in place. Without both
            functions, all models are weighted equally.
        use_buffers: Average buffers as well; otherwise they are copied.

    Raises:
        ArgumentError: If both functions are passed.

    Example:
        >>> from weftgrad.optim.swa_utils import AveragedModel
        >>> layer = wg.nn.Linear(1, 1)
        >>> average = AveragedModel(layer)
        >>> for value in (1.0, 3.0):
        ...     _ = wg.nn.init.constant_(layer.weight, value)
        ...     average.update_parameters(layer)
        ...
        >>> average.module.weight.item()
        2.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], Tensor], object] | None = None,
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

    def forward(self, *args: ModelData, **kwargs: ModelData) -> ModelData:
        """Return the averaged model's output.

        Args:
            *args: Arguments of the model.
            **kwargs: Arguments of the model.

        Returns:
            The averaged model's output.
        """
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Include the current parameters of `model` in the average.

        Args:
            model: Model with as many parameters and buffers as the averaged one.

        Example:
            >>> from weftgrad.optim.swa_utils import AveragedModel
            >>> layer = wg.nn.Linear(1, 1)
            >>> average = AveragedModel(layer)
            >>> average.update_parameters(layer)
            >>> average.n_averaged
            tensor(1)
        """
        use_buffers = self.use_buffers
        own_tensors = [*self.module.parameters(), *(self.module.buffers() if use_buffers else ())]
        model_tensors = [*model.parameters(), *(model.buffers() if use_buffers else ())]
        averages = [average.detach() for average in own_tensors]
        current = [
            current_value.detach().to(average.meta.device)
            for current_value, average in zip(model_tensors, own_tensors, strict=True)
        ]
        if int(self.n_averaged.item()) == 0:
            for average, current_value in zip(averages, current, strict=True):
                average.copy_(current_value)
        elif self.avg_fn is not None:
            for average, current_value in zip(averages, current, strict=True):
                average.copy_(self.avg_fn(average, current_value, self.n_averaged.to(average.meta.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            groups: dict[tuple[Device, DType], tuple[list[Tensor], list[Tensor]]] = {}
            for average, current_value in zip(averages, current, strict=True):
                group = groups.setdefault((average.meta.device, average.meta.dtype), ([], []))
                group[0].append(average)
                group[1].append(current_value)
            for (device, _), group in groups.items():
                update(*group, self.n_averaged.to(device))
        if not use_buffers:
            for average, current_value in zip(self.module.buffers(), model.buffers(), strict=True):
                average.detach().copy_(current_value.detach())
        self.n_averaged.add_(1)


@no_grad()
def update_bn(loader: Iterable[ModelData], model: Module, device: DeviceLike | None = None) -> None:
    """Recompute the running statistics of every batch norm in `model`, as means over all batches of `loader`.

    Args:
        loader: Iterable of batches. Of a list or tuple, the first element is the model's input.
        model: The model, whose training mode is restored afterwards.
        device: Device to which inputs are moved; None leaves them.

    Example:
        >>> model = wg.nn.BatchNorm1d(1)
        >>> wg.optim.swa_utils.update_bn([wg.tensor([[0.0], [2.0]]), wg.tensor([[4.0], [6.0]])], model)
        >>> model.running_mean
        tensor([3.])
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    was_training = model.training
    model.train()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    for batch in loader:
        batch_input = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch_input if device is None else batch_input.to(device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate of each group to `swa_lr` within `anneal_epochs`, then keep it.

    It can follow any other schedule, because it starts from the current rate.

    Args:
        optimizer: The optimizer to schedule.
        swa_lr: Final rate; one number, or a list with one per group.
        anneal_epochs: Epochs of the transition.
        anneal_strategy: `"cos"` or `"linear"`.
        last_epoch: Index of the last finished epoch when training resumes; -1 starts from the beginning.

    Raises:
        ArgumentError: If `swa_lr` has a wrong length, `anneal_strategy` is unknown, or `anneal_epochs` is not an int
            from 0 on.

    Example:
        >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
        >>> schedule = wg.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy='linear')
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(optimizer.param_groups[0]['lr'], 4))
        ...     optimizer.step()
        ...     schedule.step()
        ...
        >>> rates
        [1.0, 0.75, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
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
        """Return the fraction of the transition, 0 to 1, that is complete at the fraction `t` of its time.

        Args:
            t: Fraction of the transition's time, from 0 to 1.

        Returns:
            Number from 0 to 1.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy='linear')
            >>> schedule.anneal_func(0.25)
            0.25
        """
        return t if self._anneal_strategy == "linear" else (1.0 - math.cos(math.pi * t)) / 2.0

    def _annealed_fraction(self, epoch: int) -> float:
        return self.anneal_func(max(0.0, min(1.0, epoch / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[float]:
        """Compute the rates of this epoch from those of the last one.

        Returns:
            One number per group.
        """
        epoch = max(1, self.last_epoch) if self.anneal_epochs == 0 else self.last_epoch
        previous_fraction, fraction = self._annealed_fraction(epoch - 1), self._annealed_fraction(epoch)
        rates = []
        for group in self.optimizer.param_groups:
            target_rate, rate = group["swa_lr"], group["lr"]
            initial_rate = (
                target_rate
                if previous_fraction == 1
                else (rate - previous_fraction * target_rate) / (1.0 - previous_fraction)
            )
            rates.append(target_rate * fraction + initial_rate * (1.0 - fraction))
        return rates

    def rate(self, base: float, group: int, epoch: int) -> float:
        """Return the rate of one group in the current epoch.

        Args:
            base: Ignored.
            group: Position of the group.
            epoch: Ignored.

        Returns:
            Number.

        Example:
            >>> optimizer = wg.optim.SGD([wg.zeros(1, requires_grad=True)], lr=1.0)
            >>> schedule = wg.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy='linear')
            >>> schedule.rate(1.0, group=0, epoch=0)
            1.0
        """
        return self.get_lr()[group]
