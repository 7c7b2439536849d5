"""Times of collective operations by published formulas, with latency α, time per byte β and reduction time per byte γ.

p is the number of ranks, n the bytes of the whole vector. Sources:

- R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", International
  Journal of High Performance Computing Applications 19(1), 2005: ring, recursive doubling, recursive halving, and
  Rabenseifner's all-reduce (a reduce-scatter by recursive halving, then an all-gather by recursive doubling).
- P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
  Computing 35(12), 2009: the two trees with which NCCL reduces among nodes.

`CollectiveCosts` applies them to groups of a `Machine`, where some hops are inside a node and others between nodes.
`messages` plays the same algorithms message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from ...runtime.errors import ArgumentError
from .machines import Group, Link, Machine

__all__ = [
    "CollectiveCosts", "all_gather_bruck", "all_gather_recursive_doubling", "all_gather_ring",
    "all_reduce_recursive_doubling", "all_reduce_recursive_halving", "all_reduce_ring", "all_reduce_two_trees",
    "broadcast_binomial", "reduce_scatter_recursive_halving", "reduce_scatter_ring",
]  # fmt: skip


def _halvings(p: int) -> int:
    """Return ⌊log2 p⌋."""
    return p.bit_length() - 1


def _is_power_of_two(p: int) -> bool:
    return p & (p - 1) == 0


def all_reduce_ring(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of an all-reduce on a ring: 2(p-1)α + 2(p-1)/p nβ + (p-1)/p nγ.

    Args:
        p: Number of ranks.
        n: Bytes of the vector.
        link: Link between neighbours.
        gamma: Seconds to reduce a byte.

    Returns:
        Seconds.

    Example:
        >>> from weftgrad.distributed.simulate import Link, all_reduce_ring
        >>> all_reduce_ring(4, 4000, Link(0.0, 1000.0))
        6.0
    """
    return reduce_scatter_ring(p, n, link, gamma) + all_gather_ring(p, n, link)


def reduce_scatter_ring(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of a reduce-scatter on a ring: (p-1)α + (p-1)/p n(β + γ). Arguments: see `all_reduce_ring`."""
    return (p - 1) * link.latency + (p - 1) / p * n * (1 / link.bandwidth + gamma)


def all_gather_ring(p: int, n: float, link: Link) -> float:
    """Return the seconds of an all-gather on a ring: (p-1)α + (p-1)/p nβ. Arguments: see `all_reduce_ring`."""
    return (p - 1) * link.latency + (p - 1) / p * n / link.bandwidth


def all_reduce_recursive_doubling(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of an all-reduce by recursive doubling: log2(p) (α + nβ + nγ), for short vectors.

    If p is no power of two, p - 2^⌊log2 p⌋ ranks first send their vector to a neighbour, and receive the result.
    Arguments: see `all_reduce_ring`.
    """
    seconds = _halvings(p) * (link.seconds(n) + n * gamma)
    return seconds if _is_power_of_two(p) else seconds + 2 * link.seconds(n) + n * gamma


def all_reduce_recursive_halving(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of Rabenseifner's all-reduce: 2 log2(p) α + 2(p-1)/p nβ + (p-1)/p nγ.

    If p is no power of two, p - 2^⌊log2 p⌋ pairs of ranks first reduce half a vector each, one of them collects both
    halves for the pair, and sends it the result at the end: 3α + 2nβ + nγ/2 more. Arguments: see `all_reduce_ring`.
    """
    if p == 1:
        return 0.0
    power = 1 << _halvings(p)
    seconds = reduce_scatter_recursive_halving(power, n, link, gamma) + all_gather_recursive_doubling(power, n, link)
    return seconds if power == p else seconds + 2 * link.seconds(n / 2) + link.seconds(n) + n / 2 * gamma


def reduce_scatter_recursive_halving(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of a reduce-scatter by recursive halving: log2(p) α + (p-1)/p n(β + γ).

    If p is no power of two, p - 2^⌊log2 p⌋ ranks first send their vector to a neighbour, and receive their part at the
    end: 2α + n(β + γ) + nβ/p more. Arguments: see `all_reduce_ring`.
    """
    power = 1 << _halvings(p)
    seconds = _halvings(p) * link.latency + (power - 1) / power * n * (1 / link.bandwidth + gamma)
    return seconds if power == p else seconds + link.seconds(n) + n * gamma + link.seconds(n / p)


def all_gather_recursive_doubling(p: int, n: float, link: Link) -> float:
    """Return the seconds of an all-gather by recursive doubling: log2(p) α + (p-1)/p nβ.

    Only for p a power of two. Other arguments: see `all_reduce_ring`.
    """
    return _halvings(p) * link.latency + (p - 1) / p * n / link.bandwidth


def all_gather_bruck(p: int, n: float, link: Link) -> float:
    """Return the seconds of an all-gather by Bruck's algorithm: ⌈log2 p⌉α + (p-1)/p nβ, for any p.

    Arguments: see `all_reduce_ring`.
    """
    return (p - 1).bit_length() * link.latency + (p - 1) / p * n / link.bandwidth


def all_reduce_two_trees(p: int, n: float, link: Link, gamma: float = 0.0) -> float:
    """Return the seconds of an all-reduce on two binary trees, pipelined: 2⌈log2 p⌉α + 2nβ + nγ.

    Each tree reduces and broadcasts half of the vector; a rank that is a leaf in one is an inner node in the other, so
    that both directions of its link are always busy. The pipeline's blocks are counted as small. Arguments: see
    `all_reduce_ring`.
    """
    return 0.0 if p == 1 else 2 * (p - 1).bit_length() * link.latency + 2 * n / link.bandwidth + n * gamma


def broadcast_binomial(p: int, n: float, link: Link) -> float:
    """Return the seconds of a broadcast on a binomial tree: ⌈log2 p⌉ (α + nβ). Arguments: see `all_reduce_ring`."""
    return (p - 1).bit_length() * link.seconds(n)


class CollectiveCosts:
    """Times of collectives among groups of a machine's ranks.

    Algorithms are `ring` (over all ranks, node after node), `tree` (a chain in each node, two trees among nodes),
    `recursive` (halving and doubling), and `hierarchical` (reduce-scatter in each node, all-reduce of each part among
    nodes over all adapters at once, all-gather in each node). `auto` takes the fastest, as the tuning of NCCL and
    MPICH does by thresholds.

    Args:
        machine: The machine.
        algorithm: One of the names above.

    Raises:
        ArgumentError: The algorithm is unknown.

    Example:
        >>> from weftgrad.distributed.simulate import DGX_H100, CollectiveCosts
        >>> costs = CollectiveCosts(DGX_H100)
        >>> costs.all_reduce(DGX_H100.group(1024), 25 << 20) < costs.all_reduce(DGX_H100.group(2048), 25 << 20)
        True
    """

    def __init__(self, machine: Machine, algorithm: str = "auto"):
        self.machine = machine
        self.algorithm = algorithm
        self._all_reduces: Mapping[str, Callable[[Group, float], float]] = {
            "ring": lambda g, n: self._ring(g, n, passes=2, reduces=True),
            "tree": self._tree,
            "recursive": self._recursive_all_reduce,
            "hierarchical": self._hierarchical_all_reduce,
        }
        if algorithm != "auto" and algorithm not in self._all_reduces:
            names = ", ".join(["auto", *self._all_reduces])
            raise ArgumentError(f"CollectiveCosts: algorithm is one of {names}, not {algorithm!r}")
        self.all_reduce: Callable[[Group, float], float] = cache(self._fastest_all_reduce)
        self.reduce_scatter: Callable[[Group, float], float] = cache(self._fastest_reduce_scatter)
        self.all_gather: Callable[[Group, float], float] = cache(self._fastest_all_gather)

    def _fastest_all_reduce(self, group: Group, nbytes: float) -> float:
        if group.size == 1 or not nbytes:
            return 0.0
        names = self._all_reduces if self.algorithm == "auto" else (self.algorithm,)
        return min(self._all_reduces[name](group, nbytes) for name in names)

    def _fastest_reduce_scatter(self, group: Group, nbytes: float) -> float:
        return self._fastest_pass(group, nbytes, reduces=True)

    def _fastest_all_gather(self, group: Group, nbytes: float) -> float:
        return self._fastest_pass(group, nbytes, reduces=False)

    def _fastest_pass(self, group: Group, nbytes: float, *, reduces: bool) -> float:
        """Return the seconds of a reduce-scatter or an all-gather. Where an algorithm has none, the ring is used."""
        if group.size == 1 or not nbytes:
            return 0.0
        ring = self._ring(group, nbytes, passes=1, reduces=reduces)
        candidates = {"ring": ring}
        if _is_power_of_two(group.size):
            gamma = self.machine.seconds_per_reduced_byte if reduces else 0.0
            candidates["recursive"] = self._recursive_pass(group, nbytes, gamma)
        part = nbytes / group.per_node
        local = self._link_pass(group.per_node, nbytes, self.machine.intra, reduces=reduces)
        network = self._link_pass(group.nodes, part, self.machine.network_share, reduces=reduces)
        candidates["hierarchical"] = local + network
        return min(candidates.values()) if self.algorithm == "auto" else candidates.get(self.algorithm, ring)

    def _link_pass(self, p: int, nbytes: float, link: Link, *, reduces: bool) -> float:
        """Return the seconds of a reduce-scatter or an all-gather over equal links."""
        gamma = self.machine.seconds_per_reduced_byte
        if reduces:
            halving = reduce_scatter_recursive_halving(p, nbytes, link, gamma)
            return min(reduce_scatter_ring(p, nbytes, link, gamma), halving)
        return min(all_gather_ring(p, nbytes, link), all_gather_bruck(p, nbytes, link))

    def _ring(self, group: Group, nbytes: float, *, passes: int, reduces: bool) -> float:
        """Return the time of `passes` rounds. In a round a part crosses p-1 links; the slowest limits the bandwidth.

        The adapters of a node share the ring, as NCCL's parallel rings do: a group with all devices of a node has all.
        """
        p, machine = group.size, self.machine
        network_hops = group.nodes - 1  # as NCCL counts (src/graph/tuning.cc)
        latency = network_hops * machine.inter.latency + (p - 1 - network_hops) * machine.intra.latency
        bandwidth = machine.intra.bandwidth
        if network_hops:
            network_bandwidth = machine.network_share.bandwidth * group.per_node
            bandwidth = network_bandwidth if group.per_node == 1 else min(bandwidth, network_bandwidth)
        gamma = machine.seconds_per_reduced_byte if reduces else 0.0
        return passes * (latency + (p - 1) / p * nbytes / bandwidth) + (p - 1) / p * nbytes * gamma

    def _tree(self, group: Group, nbytes: float) -> float:
        machine, gamma = self.machine, self.machine.seconds_per_reduced_byte
        if group.nodes == 1:
            return all_reduce_two_trees(group.size, nbytes, machine.intra, gamma)
        network = Link(machine.inter.latency, machine.network_share.bandwidth * group.per_node)
        local_bandwidth = machine.intra.bandwidth if group.per_node > 1 else network.bandwidth
        slowest = Link(network.latency, min(network.bandwidth, local_bandwidth))
        chain = 2 * (group.per_node - 1) * machine.intra.latency
        return chain + all_reduce_two_trees(group.nodes, nbytes, slowest, gamma)

    def _recursive_pass(self, group: Group, nbytes: float, gamma: float) -> float:
        """Return the time of recursive halving or doubling. Partners at a distance of `per_node` are on other nodes."""
        seconds, distance, part = 0.0, group.size // 2, nbytes / 2
        while distance:
            is_local = distance < group.per_node
            seconds += (self.machine.intra if is_local else self.machine.network_share).seconds(part) + part * gamma
            distance, part = distance // 2, part / 2
        return seconds

    def _recursive_all_reduce(self, group: Group, nbytes: float) -> float:
        gamma, power = self.machine.seconds_per_reduced_byte, 1 << _halvings(group.size)
        folded = Group(power, min(power, group.per_node))
        seconds = self._recursive_pass(folded, nbytes, gamma) + self._recursive_pass(folded, nbytes, 0.0)
        doubling = _halvings(power) * nbytes * gamma + sum(
            (self.machine.intra if 1 << step < folded.per_node else self.machine.network_share).seconds(nbytes)
            for step in range(_halvings(power))
        )
        if power < group.size:
            neighbour = self.machine.intra if group.per_node > 1 else self.machine.network_share
            seconds += 2 * neighbour.seconds(nbytes / 2) + neighbour.seconds(nbytes) + nbytes / 2 * gamma
            doubling += 2 * neighbour.seconds(nbytes) + nbytes * gamma
        return min(seconds, doubling)

    def _hierarchical_all_reduce(self, group: Group, nbytes: float) -> float:
        gamma, network = self.machine.seconds_per_reduced_byte, self.machine.network_share
        local = sum(self._link_pass(group.per_node, nbytes, self.machine.intra, reduces=r) for r in (True, False))
        part = nbytes / group.per_node
        among_nodes = (all_reduce_ring, all_reduce_two_trees, all_reduce_recursive_halving)
        return local + min(function(group.nodes, part, network, gamma) for function in among_nodes)
