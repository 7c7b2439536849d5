"""Collectives played message by message in the event simulation, as a check of the formulas in `collectives`.

The algorithms are those of Thakur, Rabenseifner and Gropp (2005; see `collectives`). A rank sends and receives at the
same time, one message each, and begins a round when its messages of the round before have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ...runtime.errors import ArgumentError
from .events import EventSimulation
from .machines import Machine

__all__ = ["all_reduce_messages", "play_messages"]

Round: TypeAlias = Sequence[tuple[int, int, float]]
"""Messages that may travel together: (sender, receiver, bytes)."""


def all_reduce_messages(algorithm: str, p: int, nbytes: float) -> Sequence[Round]:
    """Return the messages of an all-reduce.

    Args:
        algorithm: `ring`, `recursive halving` or `recursive doubling`; the last two for p a power of two.
        p: Number of ranks.
        nbytes: Bytes of the vector.

    Returns:
        For each round, its messages (sender, receiver, bytes).

    Raises:
        ArgumentError: The algorithm is unknown, or `p` is no power of two.

    Example:
        >>> from weftgrad.distributed.simulate import all_reduce_messages
        >>> all_reduce_messages("ring", 2, 8.0)
        [[(0, 1, 4.0), (1, 0, 4.0)], [(0, 1, 4.0), (1, 0, 4.0)]]
    """
    if algorithm == "ring":
        return [[(rank, (rank + 1) % p, nbytes / p) for rank in range(p)] for _ in range(2 * (p - 1))]
    if algorithm not in ("recursive halving", "recursive doubling") or p & (p - 1):
        raise ArgumentError(
            f"all_reduce_messages: algorithm is ring, recursive halving or recursive doubling, the last two for a "
            f"power of two of ranks, not {algorithm!r} for {p}"
        )
    distances = [1 << step for step in range(p.bit_length() - 1)]
    if algorithm == "recursive doubling":
        return [[(rank, rank ^ distance, nbytes) for rank in range(p)] for distance in distances]
    halving = [
        [(rank, rank ^ distance, nbytes * distance / p) for rank in range(p)] for distance in reversed(distances)
    ]
    return halving + halving[::-1]


def play_messages(machine: Machine, rounds: Sequence[Round]) -> float:
    """Simulate messages on a machine's links.

    Args:
        machine: The machine. Each rank has its share of the network.
        rounds: For each round, its messages (sender, receiver, bytes).

    Returns:
        Seconds until the last message has arrived.

    Example:
        >>> from weftgrad.distributed.simulate import DGX_H100, all_reduce_messages, play_messages
        >>> play_messages(DGX_H100, all_reduce_messages("ring", 2, 0.0))
        6.8e-06
    """
    simulation = EventSimulation()
    last_messages: dict[int, list[int]] = {}
    for messages in rounds:
        current: dict[int, list[int]] = {}
        for sender, receiver, nbytes in messages:
            seconds = machine.link_between(sender, receiver).seconds(nbytes)
            before = last_messages.get(sender, []) + last_messages.get(receiver, [])
            streams = ((sender, "send"), (receiver, "receive"))
            number = simulation.add(f"{sender} to {receiver}", seconds, streams, before)
            for rank in (sender, receiver):
                current.setdefault(rank, []).append(number)
        last_messages |= current
    return simulation.run()
