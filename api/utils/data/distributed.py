"""Split the samples of a data set between training processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized

from ... import distributed as dist
from ...random import Generator, host_permutation
from ...runtime.errors import ArgumentError
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th sample, starting at `rank`, of an order that all ranks share.

    The order depends on `seed` and the epoch: call `set_epoch` before every epoch, or all epochs have the same order.
    All ranks get the same number of samples: the order is padded with its first samples or, with `drop_last`, cut.

    To continue in the middle of an epoch, save `state_dict()` of each rank's `DataLoader`: it contains the sampler's
    and the number of batches that the program has received.

    Args:
        dataset: The data set, or any object with a length.
        num_replicas: Number of processes; None: that of the default process group.
        rank: Number of this process, from 0 on; None: its rank in the default process group.
        shuffle: Draw a random order; False keeps the samples' order.
        seed: Seed of the order, equal on all ranks.
        drop_last: Cut the order to a multiple of `num_replicas` instead of padding it.

    Raises:
        ArgumentError: If `rank` is out of range, or if `num_replicas` or `rank` is None and there is no process group.

    Example:
        >>> from weftgrad.utils.data import DistributedSampler
        >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
        [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if num_replicas is None or rank is None:
            if not dist.is_initialized():
                raise ArgumentError(
                    "DistributedSampler: there is no process group; call init_process_group first, or pass "
                    "num_replicas= and rank="
                )
            num_replicas = dist.get_world_size() if num_replicas is None else num_replicas
            rank = dist.get_rank() if rank is None else rank
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
            order = host_permutation(count, generator)
        else:
            order = list(range(count))
        if not self.drop_last:
            order = (order * -(-self.total_size // max(count, 1)))[: self.total_size]
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order the next iteration draws.

        Args:
            epoch: Number of the epoch.

        Example:
            >>> from weftgrad.utils.data import DistributedSampler
            >>> sampler = DistributedSampler(range(4), num_replicas=2, rank=0)
            >>> sampler.set_epoch(3)
            >>> sampler.epoch
            3
        """
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, which a `DataLoader` saves with its position.

        Returns:
            `{"epoch": int}`.

        Example:
            >>> from weftgrad.utils.data import DistributedSampler
            >>> sampler = DistributedSampler(range(4), num_replicas=2, rank=0)
            >>> sampler.state_dict()
            {'epoch': 0}
        """
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the epoch from a `state_dict`.

        Args:
            state: Result of `state_dict`.

        Example:
            >>> from weftgrad.utils.data import DistributedSampler
            >>> sampler = DistributedSampler(range(4), num_replicas=2, rank=0)
            >>> sampler.load_state_dict({'epoch': 3})
            >>> sampler.epoch
            3
        """
        self.epoch = int(state["epoch"])
