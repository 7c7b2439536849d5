"""Measure messages and all-reduces of `weftgrad.distributed`, and fit latency and bandwidth of the links to them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ...creation.factories import ones, zeros
from ...execution.streams import synchronize
from ...runtime import dtypes
from ...runtime.device import DeviceLike
from ...runtime.errors import ArgumentError
from ..barriers import barrier
from ..collectives import all_reduce
from ..objects import all_gather_object
from ..point_to_point import recv, send
from ..process_group import get_rank, get_world_size, is_initialized
from .machines import Link

__all__ = ["LinkFit", "fit_all_reduce", "fit_link", "measure_all_reduce", "measure_messages"]

_T = TypeVar("_T")
SIZES = tuple(1 << exponent for exponent in range(10, 25, 2))
"""Bytes that are measured: 1 KB to 16 MB."""


@dataclass(frozen=True, slots=True)
class LinkFit:
    """A link fitted to measurements.

    Args:
        link: Latency and bandwidth.
        largest_error: Largest difference between a measured and a fitted time, as a part of the measured one.

    Example:
        >>> from weftgrad.distributed.simulate import Link, LinkFit
        >>> LinkFit(Link(1e-6, 1e9), 0.1).largest_error
        0.1
    """

    link: Link
    largest_error: float


def fit_link(sizes: Sequence[int], seconds: Sequence[float]) -> LinkFit:
    """Fit α + nβ to times of messages, by least squares of relative differences, with α and β not negative.

    Args:
        sizes: Bytes of each message, two or more different ones.
        seconds: Measured time of each.

    Returns:
        `LinkFit`.

    Raises:
        ArgumentError: There are fewer than two sizes, or a time is not positive.

    Example:
        >>> from weftgrad.distributed.simulate import fit_link
        >>> fit = fit_link([0, 1000, 2000], [1.0, 2.0, 3.0])
        >>> round(fit.link.latency, 6), round(fit.link.bandwidth, 3)
        (1.0, 1000.0)
    """
    return _fit(sizes, seconds, latency_count=1.0, byte_count=1.0)


def fit_all_reduce(ranks: int, sizes: Sequence[int], seconds: Sequence[float]) -> LinkFit:
    """Fit the ring all-reduce 2(p-1)α + 2(p-1)/p nβ to measured times. The reduction's time becomes part of β.

    Args:
        ranks: Number of ranks, two or more.
        sizes: Bytes of each vector, two or more different ones.
        seconds: Measured time of each.

    Returns:
        `LinkFit`.

    Raises:
        ArgumentError: There are fewer than two ranks or sizes, or a time is not positive.

    Example:
        >>> from weftgrad.distributed.simulate import fit_all_reduce
        >>> fit = fit_all_reduce(2, [0, 1000], [2.0, 3.0])
        >>> round(fit.link.latency, 6), round(fit.link.bandwidth, 3)
        (1.0, 1000.0)
    """
    if ranks < 2:
        raise ArgumentError(f"fit_all_reduce: needs two ranks or more, not {ranks}")
    return _fit(sizes, seconds, latency_count=2.0 * (ranks - 1), byte_count=2.0 * (ranks - 1) / ranks)


def _fit(sizes: Sequence[int], seconds: Sequence[float], *, latency_count: float, byte_count: float) -> LinkFit:
    n, times = np.array(sizes, float), np.array(seconds, float)
    if len(n) != len(times) or len({*sizes}) < 2 or not (times > 0).all():
        raise ArgumentError(
            f"fit: needs times above 0 of two or more sizes, not {len(times)} times of {len({*sizes})} sizes"
        )
    columns = np.stack([np.full(len(n), latency_count), byte_count * n], 1) / times[:, None]
    candidates = [np.linalg.lstsq(columns, np.ones(len(n)), rcond=None)[0]]
    if (candidates[0] <= 0).any():  # the optimum is on the border: only one of both terms
        candidates = []
        for index in range(2):
            solution = np.zeros(2)
            solution[index] = columns[:, index].sum() / (columns[:, index] ** 2).sum()
            candidates.append(solution)
    errors = [np.abs(columns @ candidate - 1) for candidate in candidates]
    best = int(np.argmin([(error**2).sum() for error in errors]))
    latency, seconds_per_byte = (float(value) for value in candidates[best])
    return LinkFit(Link(latency, 1 / seconds_per_byte if seconds_per_byte else float("inf")), float(errors[best].max()))


def measure_messages(
    sizes: Sequence[int] = SIZES, *, repeats: int = 20, device: DeviceLike | None = None
) -> list[float]:
    """Measure a message between ranks 0 and 1, as half of the fastest ping-pong. Every rank must call it.

    Args:
        sizes: Bytes of each message.
        repeats: Ping-pongs of each size.
        device: Device of the messages; None: the default device.

    Returns:
        Seconds of each size, the same on every rank.

    Raises:
        ArgumentError: `init_process_group` was not called, or there is one rank.
    """
    rank = _rank_among_several("measure_messages")
    seconds = []
    for size in sizes:
        buffer = zeros(size, dtype=dtypes.uint8, device=device)
        fastest = float("inf")
        barrier()
        for _ in range(repeats if rank < 2 else 0):
            begin = time.perf_counter()
            if rank == 0:
                send(buffer, 1)
                recv(buffer, 1)
            else:
                recv(buffer, 0)
                send(buffer, 0)
            synchronize(buffer.device)
            fastest = min(fastest, (time.perf_counter() - begin) / 2)
        seconds.append(_gather(fastest)[0])
    return seconds


def measure_all_reduce(
    sizes: Sequence[int] = SIZES, *, repeats: int = 20, device: DeviceLike | None = None
) -> list[float]:
    """Measure an all-reduce of float32. Every rank must call it.

    Args:
        sizes: Bytes of each vector, multiples of 4.
        repeats: All-reduces of each size.
        device: Device of the vectors; None: the default device.

    Returns:
        Seconds of each size, the same on every rank: the fastest of all repeats, in which the slowest rank counts.

    Raises:
        ArgumentError: `init_process_group` was not called, or there is one rank.
    """
    _rank_among_several("measure_all_reduce")
    seconds = []
    for size in sizes:
        vector = ones(size // 4, device=device)
        durations = []
        for _ in range(repeats):
            barrier()
            begin = time.perf_counter()
            all_reduce(vector)
            synchronize(vector.device)
            durations.append(time.perf_counter() - begin)
            vector.fill_(1.0)
        seconds.append(min(map(max, zip(*_gather(durations), strict=True))))
    return seconds


def _rank_among_several(function: str) -> int:
    if not is_initialized() or get_world_size() < 2:
        raise ArgumentError(
            f"{function}: needs two ranks or more; call init_process_group in a program started with mpiexec -n 2"
        )
    return get_rank()


def _gather(value: _T) -> list[_T]:
    """Return the value of each rank."""
    values: list[_T] = [value] * get_world_size()
    all_gather_object(values, value)
    return values
