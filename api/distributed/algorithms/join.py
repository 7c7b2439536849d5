"""Uneven inputs: ranks that have no more batches take part in the collectives of the others until all are done.

Before the collectives of an iteration, every rank with a batch adds 1 in an all-reduce, and every rank without adds 0.
As long as the sum is not 0, the ranks without run the `main_hook`s, which shadow the collectives of the others.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ... import distributed as dist
from ...creation.factories import ones, zeros
from ...runtime.device import Device
from ...runtime.errors import ArgumentError

__all__ = ["Join", "JoinHook", "Joinable"]

_MAX_SHADOWED = 1000  # iterations without a batch, after which a warning says that the inputs are very uneven


class JoinHook:
    """What a rank without batches does, for one `Joinable`."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the other ranks."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Do what remains when no rank has a batch.

        Args:
            is_last_joiner: Whether this rank had batches as long as any other.
        """


@dataclass
class _JoinConfig:
    """How a `Joinable` takes part in a `Join`.

    Attributes:
        enable: Whether a context with `enable=True` is active.
        throw_on_early_termination: Raise an error on all ranks when one has no more batches.
        is_first_joinable: Whether this joinable's call of `notify_join_context` counts.
    """

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = True


class Joinable(ABC):
    """Base class of what uses collectives in each iteration, such as `DistributedDataParallel`."""

    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what shadows the collectives. `kwargs` are those of `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> Device:
        """The device of the collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The process group of the collectives."""


@dataclass
class Join:
    """Context in which ranks may have different numbers of batches.

    Args:
        joinables: What uses collectives in each iteration. The first one's `forward` calls `notify_join_context`.
        enable: False switches the context off, if all ranks have equally many batches.
        throw_on_early_termination: Raise an error on all ranks when one has no more batches.
        **kwargs: For each `join_hook`.

    Raises:
        ArgumentError: There are no joinables, or they have different process groups.
        RuntimeError: A rank has no more batches, with `throw_on_early_termination`.
    """

    joinables: list[Joinable]
    enable: bool = True
    throw_on_early_termination: bool = False
    _kwargs: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ):
        if not joinables:
            raise ArgumentError("Join: takes at least one joinable")
        self.joinables, self.enable = list(joinables), enable
        self.throw_on_early_termination, self._kwargs = throw_on_early_termination, kwargs
        groups = {id(joinable.join_process_group) for joinable in joinables}
        if len(groups) > 1:
            raise ArgumentError("Join: all joinables need the same process group")
        self._group, self._device = joinables[0].join_process_group, joinables[0].join_device
        for position, joinable in enumerate(self.joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, position == 0)

    def __enter__(self) -> Join:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.enable:
            self._reset()
            return
        if error is not None:
            self._reset()
            return
        hooks = [joinable.join_hook(**self._kwargs) for joinable in self.joinables]
        is_last, shadowed = True, 0
        while True:
            active = zeros(1, device=self._device)
            dist.all_reduce(active, group=self._group)
            count = int(active.item())
            if not count:
                break
            is_last = False
            if self.throw_on_early_termination:
                self._announce_end()
            shadowed += 1
            if shadowed == _MAX_SHADOWED:
                warnings.warn(
                    f"Join: this rank has had no batch for {shadowed} iterations; divide the data more evenly",
                    stacklevel=2,
                )
            for hook in hooks:
                hook.main_hook()
        for hook in hooks:
            hook.post_hook(is_last)
        self._reset()

    def _reset(self) -> None:
        for joinable in self.joinables:
            joinable._join_config = _JoinConfig()

    def _announce_end(self) -> None:
        """Tell the ranks with batches that this one has none, and raise the error that they raise."""
        dist.all_reduce(ones(1, device=self._device), group=self._group)
        _raise_early_end(dist.get_rank(self._group))

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Count this rank as one with a batch. `Joinable`s call it before the collectives of an iteration.

        Args:
            joinable: The caller. Only the first one of a `Join` counts; without a `Join`, nothing is done.

        Raises:
            RuntimeError: Another rank has no more batches, with `throw_on_early_termination`.
        """
        config = joinable._join_config
        if not config.enable or not config.is_first_joinable:
            return
        group, device = joinable.join_process_group, joinable.join_device
        active = ones(1, device=device)
        dist.all_reduce(active, group=group)
        if config.throw_on_early_termination and int(active.item()) < dist.get_world_size(group):
            ended = zeros(1, device=device)
            dist.all_reduce(ended, group=group)
            _raise_early_end(None)


def _raise_early_end(rank: int | None) -> None:
    who = "another rank" if rank is None else f"rank {rank}"
    raise RuntimeError(f"Join: {who} has no more batches, and throw_on_early_termination is set")
