"""A share of the samples for each of several training processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...random import Generator, randperm
from ...runtime.errors import ArgumentError, NotSupported
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """Every `num_replicas`-th sample, from number `rank` on, of an order that is the same for all ranks.

    The order is drawn from `seed` and the epoch that `set_epoch` told: call it before every epoch, or all are alike.
    Ranks get as many samples each: the first ones of the order come again at the end, or with `drop_last` its tail is
    left out. There is no process group to ask, so `num_replicas` and `rank` have to be given; `NotSupported` otherwise.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if num_replicas is None or rank is None:
            raise NotSupported("DistributedSampler: there is no process group to ask; give num_replicas= and rank=")
        if not 0 <= rank < num_replicas:
            raise ArgumentError(f"DistributedSampler: rank must lie between 0 and {num_replicas - 1}, not {rank}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = randperm(count, generator=generator, device="cpu").tolist()
        else:
            order = list(range(count))
        if not self.drop_last:
            order = (order * -(-self.total_size // max(count, 1)))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch when iteration next begins."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """The epoch, which a `DataLoader` keeps with its position."""
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on in the epoch of `state_dict`."""
        self.epoch = int(state["epoch"])
